//! Kinds that a CustomResourceDefinition adds at run time: what data says about them, and what follows for their objects.
//!
//! - [`definition`]: a definition's JSON to kinds; what a kind keeps of it
//! - [`structural`]: the schema of a version, compiled
//! - `prune`, `fill`, `embedded`: unknown fields go, defaults come, metadata inside of objects is read as metadata
//! - [`decode`]: a request's body, or a stored text, to an object
//! - `validate`, `checks`, `formats`, `lists`: what is wrong with an object by its schema
//! - [`columns`], [`jsonpath`]: what a table shows
//!
//! A schema is compiled when its kind is first used: a definition nobody uses costs its text and its names.

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

/// Whether a format is one that is checked for a type.
pub(crate) fn is_known_format(kind: &str, format: &str) -> bool {
    formats::Format::of(kind, format).is_some()
}
