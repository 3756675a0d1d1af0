//! Deletions that follow others: dependents after their owners, the contents of a namespace before it.
//!
//! - `garbage`: the garbage collector
//! - `namespaces`: the end of a namespace

pub(crate) mod garbage;
pub(crate) mod namespaces;
