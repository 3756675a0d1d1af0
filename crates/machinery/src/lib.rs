//! The vocabulary that client and server share: names, revisions, selectors, `Status` errors, encodings and framing.
//!
//! This crate has no async code and no I/O. Everything here is a value or a function from values to values, so that the
//! store, the cache, the server, the client and the tests can all use it without depending on each other.

pub mod accept;
pub mod age;
pub mod clock;
pub mod continue_token;
pub mod encoded;
pub mod field_error;
pub mod field_errors;
pub mod fields;
pub mod glob;
pub mod go_json;
pub mod go_text;
pub mod gvk;
pub mod int_or_string;
pub mod json;
pub mod label_selector;
pub mod labels;
pub mod line_diff;
pub mod media;
pub mod names;
pub mod object_meta;
pub mod options;
pub mod peek;
pub mod quantity;
pub mod query;
pub mod random_name;
pub mod revision;
pub mod scan;
pub mod status;
pub mod timestamp;
pub mod yaml;

pub use clock::Clock;
pub use field_error::{FieldError, Path};
pub use field_errors::Errors;
pub use gvk::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use revision::Revision;
pub use status::Status;
