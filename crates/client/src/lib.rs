//! The client half of Kubernetes list-watch.
//!
//! ```text
//!   API server
//!      │ list, then watch
//!      ▼
//!   Reflector ──► InOrderQueue ──► Store ──► mailbox ──► handler ──► WorkQueue ──► reconcile
//!   one per         changes        set,      one per     yours       keys, each     yours,
//!   informer        in order       indices,  handler,                once, with     against
//!                                  version   coalesced               backoff        the store
//! ```
//!
//! - [`list_watch`]: where objects come from; [`pager`] and [`retry_watcher`] beside it
//! - [`reflector`]: keeps a target equal to the server, through every failure
//! - [`queue`]: changes on their way to the store
//! - [`store`]: the set, its indices, its snapshots
//! - [`informer`]: one watch for many handlers
//! - [`workqueue`]: keys that need work
//! - [`controller`]: from events to reconcile runs; [`expectations`], [`retry`]
//! - [`leader`]: one of many acts
//! - [`events`]: telling people

pub mod backoff;
pub mod connect;
pub mod consistency;
pub mod controller;

mod error;
pub mod events;
pub mod expectations;
pub mod informer;
mod key;
pub mod leader;
pub mod list_watch;
pub mod metrics;
pub mod object;
pub mod pager;
pub mod queue;
pub mod reflector;
pub mod retry;
pub mod retry_watcher;
mod revision;
#[cfg(test)]
mod scripted;
pub mod store;
pub mod wire;
pub mod workqueue;

pub use error::{ApiFailure, Error, TransportKind};
pub use key::{InvalidKey, Key};
pub use object::{Encoded, Object, RawObject, Undecodable};
pub use revision::ResourceVersion;
