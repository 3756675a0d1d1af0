//! YAML bodies: parsed into JSON values, and written as the reference writes them.
//!
//! `read` resolves words as YAML 1.1 does (`yes`, `off` and a bare `y` are booleans), as clients expect from other servers;
//! `write` is the block style with its rules for quoting and folding; `scalar` resolves the type of a word; `lines` finds the line
//! of a field for an error about it.
//!
//! The parser's events are those of `granit-parser`. The writer is written by hand because its text must equal that of Go's
//! `sigs.k8s.io/yaml` byte for byte (quoting, folding, natural order of keys), which `serde-saphyr` does not offer.

mod lines;
mod read;
mod scalar;
mod style;
mod write;

pub use lines::{line_of, with_line};
pub use read::{Document, read};
pub use write::to_yaml;
