//! Objects of the built-in kinds as the protobuf messages that Go programs send and read, byte for byte.
//!
//! - `wire`: numbers, lengths and tags; the only place that looks at single bytes
//! - `layout`: which field has which number in a message
//! - `write`: a value in its normal form to a message
//! - `read`: a message to a value; what arrives may be anything
//! - [`envelope`]: what goes around messages: objects with their kind, lists, watch events
//!
//! The messages are those of the reference's generated code, which has rules of its own: a field that is no pointer is
//! written also when it is zero, fields stand in the order of their numbers, maps are sorted, numbers are not packed.

pub mod envelope;
mod layout;
mod read;
pub(crate) mod wire;
mod write;

pub use envelope::{Opened, open};
pub(crate) use layout::Layout;
pub use read::read;
pub use write::{WriteError, write};

#[cfg(test)]
mod tests;
