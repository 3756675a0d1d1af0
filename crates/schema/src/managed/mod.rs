//! Who owns which field of an object: `metadata.managedFields`, kept by every write, and server-side apply upon it.
//!
//! - [`set`], [`element`]: sets of paths and their form on the wire, `fieldsV1`
//! - `compare`: what changed between two objects, as sets
//! - `created`: what the maker of an object owns, without comparing
//! - [`entries`]: the list in the metadata
//! - `resets`: fields that a request cannot write
//! - [`track_update`]: ownership after a create, an update or a patch
//! - [`scale`]: the same through the scale subresource
//! - [`apply()`]: server-side apply, out of `check`, `merge` and `last_applied`
//!
//! Ownership is decided on the object that a client sent, defaults filled in, before admission changes it.

pub mod apply;
mod check;
mod compare;
mod created;
pub mod element;
pub mod entries;
mod last_applied;
mod merge;
mod resets;
pub mod scale;
pub mod set;
mod update;

pub use apply::{ApplyError, Configuration, Conflict, apply, read};
pub use created::Known;
pub use update::{Convert, Subject, Writer, keep_times_if_unchanged, manager, track_create, track_update};

#[cfg(test)]
mod apply_tests;
#[cfg(test)]
mod tests;
