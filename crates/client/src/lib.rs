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
//! A program that prints the changes of pods:
//!
//! ```no_run
//! use client::informer::{InformerConfig, SharedInformer, SubscriptionOptions};
//! use client::list_watch::ApiListWatch;
//! use k8s_openapi::api::core::v1::Pod;
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn run() -> Result<(), client::Error> {
//! let client = client::connect::from_environment().await?;
//! let informer = SharedInformer::<Pod>::new(ApiListWatch::all::<Pod>(client), InformerConfig::default());
//! let print = |event| {
//!     println!("{event:?}");
//!     std::future::ready(())
//! };
//! informer.add_handler(SubscriptionOptions::default(), print).expect("a new informer has not stopped");
//! informer.run(CancellationToken::new()).await.expect("a new informer was not started");
//! # Ok(())
//! # }
//! ```
//!
//! The [`reflector`] requests the whole set, as a stream if the server can, and replaces the old set at once; then it watches
//! from the version of that set. Each change passes through a [`queue`] into the [`store`], and from there, under the same
//! lock, into the mailbox of every handler. After a broken connection the watch resumes at the last version; only if the server
//! no longer has that version, the set is listed again. The changes in between are then computed by comparison: an object that
//! is missing is an *inferred* deletion. A handler usually just adds the key of an object to a [`workqueue`]; a
//! [`controller`] takes keys out, with at most one run for each key at a time, and compares the actual with the desired state.
//!
//! The modules:
//!
//! - [`list_watch`]: the source of objects; [`pager`] and [`retry_watcher`] use it too
//! - [`reflector`]: keeps a target equal to the server, through every failure
//! - [`queue`]: changes on their way to the store
//! - [`store`]: the set, its indices, its snapshots
//! - [`informer`]: one watch for many handlers
//! - [`workqueue`]: keys that need work
//! - [`controller`]: from events to reconcile runs; [`expectations`], [`retry`]
//! - [`leader`]: leader election
//! - [`events`]: event recorders

pub mod backoff;
pub mod connect;
pub mod consistency;
pub mod controller;

mod envelope;
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
mod resource_version;
pub mod retry;
pub mod retry_watcher;
#[cfg(test)]
mod scripted;
pub mod store;
// Public for its fuzz target, which feeds it the bytes of a hostile server.
#[doc(hidden)]
pub mod watch_connection;
pub mod wire;
pub mod workqueue;

pub use error::{ApiFailure, Error, TransportKind};
pub use key::{InvalidKey, Key};
pub use object::{Encoded, Object, RawObject, Stored, Undecodable};
pub use resource_version::ResourceVersion;
