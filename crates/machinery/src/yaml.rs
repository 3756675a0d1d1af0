//! YAML bodies: read into the JSON they stand for, and written as the reference writes them.
//!
//! `read` resolves words as YAML 1.1 does (`yes`, `off` and a bare `y` are booleans), because that is what clients meet
//! everywhere else; `write` is the block style with its rules for quoting and folding; `scalar` is what a word means.

mod read;
mod scalar;
mod style;
mod write;

pub use read::{Document, read};
pub use write::to_yaml;
