//! Objects of built-in kinds as the protobuf messages of Go clients, byte for byte.
//!
//! - `wire`: numbers, lengths and tags; the only module that reads single bytes
//! - `layout`: field numbers of messages
//! - `write`: encodes a value in normal form
//! - `read`: decodes a message, which is not trusted
//! - [`envelope`]: framing: objects with their kind, lists, watch events
//!
//! The encoding is that of the code that gogo/protobuf generates for Kubernetes, which has rules of its own: a field
//! that is not a pointer is written even if it is zero, fields are in the order of their numbers, maps are sorted,
//! numbers are not packed.
//!
//! Written by hand: with `prost-reflect` the descriptors would be a second table of all kinds, the rules of gogo would
//! still be applied here, and objects would pass through dynamic messages in addition to JSON values.

pub mod envelope;
mod layout;
mod read;
pub(crate) mod wire;
mod write;

pub use envelope::{Envelope, open};
pub(crate) use layout::Layout;
pub use read::read;
pub use write::{WriteError, write};

#[cfg(test)]
mod tests;
