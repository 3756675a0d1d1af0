//! What the served kinds look like to programs: OpenAPI documents, of built-in and custom kinds alike.
//!
//! - `document`: which documents there are, and their bytes
//! - `operations`, `parameters`: the paths of a kind and what can be done there
//! - `definitions`: the schema of a built-in kind, from the table of types; `published` are the columns only documents need
//! - `custom`: the schema of a custom kind, from its CustomResourceDefinition
//! - `texts`: what kinds and fields are for, in words
//! - `version2`: the same in the form of OpenAPI 2
//! - `message`: the same as protobuf messages
//!
//! Nothing here is kept: who serves documents decides for how long. Their hashes are known without making them.

mod custom;
mod definitions;
mod document;
mod message;
mod operations;
mod parameters;
mod published;
mod texts;
mod version2;

pub use document::{Encoding, Source};
pub(crate) use texts::Texts;

#[cfg(test)]
mod tests;
