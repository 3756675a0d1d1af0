//! The versioned log of objects: one contract, three engines, one behaviour suite.
//!
//! - [`contract`]: the [`Store`] trait and the guarantees of each call
//! - [`key`], [`entry`], [`error`]: the nouns of the contract
//! - [`restore`]: the way back to a state of the past
//! - [`retention`]: the amount of history an engine keeps
//! - `memory`, `embedded` (SQLite), `etcd`: the engines, each behind a feature of the same name
//! - `suite`: the behaviour suite, one named check for each guarantee, run against every engine
//!
//! The store knows nothing of Kubernetes: keys are paths, values are bytes.

pub mod contract;
pub mod entry;
pub mod error;
pub mod key;
pub mod restore;
pub mod retention;

#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "memory")]
pub mod memory;

#[cfg(feature = "suite")]
pub mod suite;

#[cfg(any(feature = "memory", feature = "embedded"))]
mod feed;

pub use contract::{Batch, Changes, HealthCheck, HealthProblem, ListQuery, Stats, Store, StoreFuture, Write};
pub use entry::{Change, DamagedEntry, Entry, Snapshot};
pub use error::{ReadError, WatchError, WriteError};
pub use key::{Key, Prefix};
pub use machinery::Revision;
pub use restore::Restored;
pub use retention::Retention;
