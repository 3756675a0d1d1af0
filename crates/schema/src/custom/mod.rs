//! Kinds that a CustomResourceDefinition adds at run time, and the processing of their objects.
//!
//! - [`installed`]: a definition that the server knows, and the kinds that it adds
//! - [`definition`]: the part of a definition that a kind keeps
//! - [`structural`]: the schema of a version, compiled
//! - `prune`, `fill`, `embedded`: removal of unknown fields, defaults, metadata of embedded objects
//! - [`decode`]: decodes request bodies and stored objects
//! - `object`, `validate`, `checks`, `formats`, `lists`: validation of objects
//! - [`columns`], [`jsonpath`]: table columns
//!
//! A schema is compiled when its kind is first used: an unused definition costs its text and its names.

mod checks;
pub mod columns;
pub mod decode;
pub mod definition;
mod embedded;
mod fill;
mod formats;
pub mod installed;
pub mod jsonpath;
mod lists;
mod object;
mod prune;
pub mod structural;
mod validate;

pub use definition::{Conversion, Definition, Scale, Version};
pub use installed::{Condition, Installed, Names};
pub use structural::Schema;

pub(crate) use object::{
    validate_create, validate_default, validate_embedded, validate_status_update, validate_update,
};

/// Reports whether a format is checked for a type.
pub(crate) fn is_known_format(kind: &str, format: &str) -> bool {
    formats::Format::for_type(kind, format).is_some()
}
