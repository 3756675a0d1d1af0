//! Field ownership: `metadata.managedFields`, updated by every write, and server-side apply.
//!
//! - [`set`], [`element`]: sets of paths and their wire form, `fieldsV1`
//! - `compare`: the differences of two objects, as sets
//! - `created`: the fields that the creator of an object owns, without a comparison
//! - [`entries`]: the list in the metadata
//! - `resets`: fields that a request cannot write
//! - [`track_update`]: ownership after a create, an update or a patch
//! - [`scale`]: ownership through the scale subresource
//! - [`apply()`]: server-side apply, based on `check`, `merge` and `last_applied`; [`merge_unowned`]: the same without
//!   ownership, for mutating policies
//!
//! Ownership is determined on the object that a client sent, with defaults, before admission changes it.

pub mod apply;
mod check;
mod compare;
mod created;
pub mod element;
pub mod entries;
mod last_applied;
mod merge;
mod mutate;
mod resets;
pub mod scale;
pub mod set;
mod update;

pub use apply::{ApplyError, Configuration, Conflict, apply, read};
pub use created::Known;
pub use mutate::merge_unowned;
pub use update::{Convert, Subject, Writer, keep_times_if_unchanged, manager, track_create, track_update};

#[cfg(test)]
mod apply_tests;
#[cfg(test)]
mod tests;
