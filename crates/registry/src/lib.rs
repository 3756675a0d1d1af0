//! The rules of objects: every verb on every kind.
//!
//! The registry is between the server, which knows HTTP, and the store and cache, which know bytes. Verbs are generic over
//! kinds; a kind is data (crate `schema`) and, where that is not enough, a [behaviour](kinds).
//!
//! - [`registry`]: the verbs as methods, and the parts they use; [`settings`]; `seed`: objects of every cluster
//! - [`request`]: target, body, options and user of a request
//! - [`audit`]: what the audit event of a request needs from its handling
//! - [`read`]: get, list, watch, and how answers are shown
//! - [`computed`]: kinds whose objects are not stored; [`orders`]: kinds whose writes make something happen
//! - [`write`]: create, update, patch, apply, delete, and the commit to the store; `body` decodes
//! - [`admission`]: plugins that change or refuse a write by looking at other objects
//! - [`api_services`]: which server serves a group version
//! - [`reserve`]: service addresses, node ports and quota shares, held by a write until it is made
//! - [`kinds`]: code of single kinds, and the kinds that CustomResourceDefinitions add
//! - `roles/`: roles and bindings, the index of their rights, and what is granted by writing them
//! - `subresources/`: scale, binding, eviction, tokens, and what needs a node
//! - `versions`: kinds that are served in a version they are not stored in; `conversion_webhook`: custom ones that a webhook
//!   converts
//! - `storage`: the store and its cache; `collections`: their names; `failure`: their errors as a `Status`
//! - `node_graph`: the objects that each node's pods lead to
//! - [`flows`]: the flow of a request, and its share of the server
//! - `interrupted`: finishes deletions that a kill interrupted
//! - [`unstored`]: bodies that are handled elsewhere; [`expiry`]: events that are too old; [`metrics`] of the cache

pub mod admission;
pub mod api_services;
pub mod audit;
mod body;
mod collections;
pub mod computed;
mod conversion_webhook;
pub mod expiry;
mod failure;
pub mod flows;
mod interrupted;
pub mod kinds;
mod meta;
pub mod metrics;
mod node_graph;
pub mod orders;
pub mod read;
pub mod registry;
pub mod request;
pub mod reserve;
mod roles;
mod seed;
pub mod settings;
mod storage;
mod subresources;
pub mod unstored;
mod versions;
mod write;

pub use admission::selection::PluginSelection;
pub use audit::{Annotations, AuditLevel};
pub use cache::WatchScope;
pub use conversion_webhook::Webhooks;
pub use read::form::{Encoding, Form, IncludeObject, MetaVersion, Shape};
pub use read::segments::Segments;
pub use read::view::{ListView, MadeList, Outcome, View};
pub use read::watch_view::{EventNote, EventNotes, Frames, WatchView};
pub use registry::Registry;
pub use request::{Body, Context, PatchBody, Target, Warnings, WriteObserver, WriteRequest};
pub use schema::warnings::deprecation;
pub use schema::{discovery, kind, openapi};
pub use settings::Settings;
pub use subresources::node::{NODE_SUBRESOURCES, NodeConnection};
pub use subresources::token::{TokenGrant, TokenTerms};
pub use subresources::token_claims::LegacyToken;
