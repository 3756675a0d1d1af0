//! What goes when something else went: dependents after their owners, the contents of a namespace before it.
//!
//! - `resources`: what the server serves, as it says itself
//! - `garbage`: the garbage collector
//! - `namespaces`: the end of a namespace

pub(crate) mod garbage;
pub(crate) mod namespaces;
mod resources;
