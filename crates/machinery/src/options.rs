//! The options of each verb: parsed from the query (or a body), validated and interpreted.
//!
//! `list` is get, list and watch, and determines which revision they show; `write` is create, update and patch; `delete` is
//! delete. Errors are responses: 400 for an option that does not parse, 422 for options that contradict each other.

mod delete;
mod list;
mod write;

pub use delete::{DeleteOptions, Propagation};
pub use list::{GetMode, GetOptions, ListMode, ListOptions, WatchStart};
pub use write::{CreateOptions, FieldValidation, PatchOptions, UpdateOptions, validate_field_manager};
