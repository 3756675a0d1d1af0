//! What each verb means for each resource.
//!
//! Between the server, which knows HTTP, and the store and cache, which know bytes: the rules of objects. One file a
//! verb; each is generic over kinds, which are data (crate `schema`).
//!
//! - [`registry`]: what all verbs share: kinds, cache, store, clock; and what a server holds from its first start
//! - [`request`]: what a verb is asked: target, body, who asks
//! - reading: `get`, `list`, `watch`; answers are a [`view`] (or a [`watch_view`]) shown in a [`form`] as [`segments`];
//!   `protobuf` is how they look in that form
//! - writing: `create`, `update`, `patch`, `apply`, `delete`, `delete_collection`; `body` reads what was sent, `write` commits
//!   a change if nothing came in between, `failure` says why the store refused; `templates` are specs that were sent before
//! - [`admission`]: what other objects say about a write (namespaces, limits, quotas, classes, …)
//! - `subresources/`: scale, binding, eviction, finalize, and those that need a node
//! - `definitions/`: kinds that CustomResourceDefinitions add
//! - `versions`: kinds that are served in a version they are not stored in
//! - `conversion_webhook`: versions of custom resources that a webhook converts
//! - [`reserve`]: service addresses, node ports and quota shares, reserved by a write until it is made
//! - `storage`: the store and its cache
//! - [`unstored`]: bodies that are answered elsewhere
//! - `expiry`: events that are too old; [`metrics`]: what the cache has counted

pub mod admission;
mod apply;
mod body;
mod collections;
mod conversion_webhook;
mod create;
mod definitions;
mod delete;
mod delete_collection;
pub mod expiry;
mod failure;
pub mod form;
mod get;
mod list;
mod meta;
pub mod metrics;
mod patch;
mod protobuf;
pub mod registry;
pub mod request;
pub mod reserve;
mod seed;
pub mod segments;
mod storage;
mod subresources;
mod templates;
pub mod unstored;
mod update;
mod versions;
pub mod view;
mod watch;
pub mod watch_view;
mod write;

pub use conversion_webhook::Webhooks;
pub use form::{Encoding, Form, IncludeObject, MetaVersion, Shape};
pub use registry::{Registry, Settings};
pub use request::{Body, Context, PatchBody, Target, UserInfo, Warnings};
pub use schema::warnings::deprecation;
pub use schema::{discovery, kind, kinds, openapi};
pub use segments::Segments;
pub use subresources::node::QUESTIONS;
pub use subresources::token::TokenGrant;
pub use view::{ListView, Outcome, View};
pub use watch_view::{Frames, WatchView};
