//! Who owns which field of an object: `metadata.managedFields`, kept by every write, and server-side apply upon it.
//!
//! - [`set`], [`element`]: sets of paths and their form on the wire, `fieldsV1`
//! - `compare`: what changed between two objects, as sets
//! - [`entries`]: the list in the metadata
//! - `resets`: fields that a request cannot write
//! - [`track_update`]: ownership after a create, an update or a patch
//!
//! Ownership is decided on the object that a client sent, defaults filled in, before admission changes it.

#[allow(dead_code, reason = "apply uses the rest")]
mod compare;
pub mod element;
pub mod entries;
mod resets;
#[allow(dead_code, reason = "apply uses the rest")]
pub mod set;
mod update;

pub use update::{Convert, Subject, Writer, keep_times_if_unchanged, manager, track_update};

#[cfg(test)]
mod tests;
