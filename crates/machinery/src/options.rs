//! The options of each verb: read from the query (or a body), checked, and turned into what they mean.
//!
//! `list` says which moment a list or watch shows; `write` is create, update and patch; `delete` is delete. Each gives
//! the answer that a wrong option gets: 400 for what cannot be read, 422 for what contradicts itself.

mod delete;
mod list;
mod write;

pub use delete::{DeleteOptions, Propagation};
pub use list::{GetMode, GetOptions, ListMode, ListOptions, WatchStart};
pub use write::{CreateOptions, FieldValidation, PatchOptions, UpdateOptions, validate_field_manager};
