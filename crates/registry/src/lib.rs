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
//! - `conversion`: kinds that are served in a version they are not stored in
//! - `converter`: versions of custom resources that a webhook converts
//! - `allocation`: service addresses and node ports
//! - [`unstored`]: bodies that are answered elsewhere
//! - `expiry`: events that are too old; [`metrics`]: what the cache has counted

pub mod admission;
mod allocation;
mod apply;
mod body;
mod conversion;
mod converter;
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
mod seed;
pub mod segments;
mod subresources;
mod templates;
pub mod unstored;
mod update;
pub mod view;
mod watch;
pub mod watch_view;
mod write;

pub use converter::Webhooks;
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
