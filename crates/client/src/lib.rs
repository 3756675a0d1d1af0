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
//! A program that prints what happens to pods:
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
//! The mechanism, once around: the [`reflector`] asks for everything, as a stream if the server can, and hands the whole
//! set over at once; then it watches from the version of that set. Each change goes through a [`queue`] into the
//! [`store`], and from there, under the same lock, into the mailbox of every handler. A connection that breaks is opened
//! again at the last version; only a version that the server has forgotten leads to a new set, and then what changed in
//! between is computed by comparing: what is gone becomes an *inferred* deletion. A handler usually does no more than put
//! the key of an object into a [`workqueue`]; a [`controller`] takes keys out, one run a key at a time, and compares what
//! is with what should be.
//!
//! The parts:
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
pub mod retry;
pub mod retry_watcher;
mod revision;
#[cfg(test)]
mod scripted;
pub mod store;
mod watch_connection;
pub mod wire;
pub mod workqueue;

pub use error::{ApiFailure, Error, TransportKind};
pub use key::{InvalidKey, Key};
pub use object::{Encoded, Object, RawObject, Undecodable};
pub use revision::ResourceVersion;
