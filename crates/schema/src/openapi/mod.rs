//! OpenAPI documents of built-in and custom kinds.
//!
//! - `document`: the documents and their bytes
//! - `operations`, `parameters`: paths and operations of a kind
//! - `definitions`: the schema of a built-in kind, from the table of types; `published`: columns that only documents
//!   need
//! - `custom`: the schema of a custom kind, from its CustomResourceDefinition
//! - `texts`: descriptions of kinds and fields
//! - `version2`: conversion to OpenAPI 2
//! - `message`: encoding as protobuf messages
//!
//! Documents are not cached here; the server does that. Their hashes are known without building them.

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
