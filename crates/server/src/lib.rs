//! The HTTP side of list-watch: listeners, TLS, who asks, what for, in which form; and bodies that stream.
//!
//! A request's way through the files:
//!
//! - [`listener`] accepts it, [`tls`] and [`certs`] secure it, [`connection`] reads it, over HTTP/2 with `multiplex`;
//!   [`service`] is the whole server as one function, which a caller in the same process uses without any of these
//! - [`authentication`] and [`identity`] say who asks, [`request_info`] what for, [`authorization`] whether
//! - [`routing`] finds the handler, `handlers` has one file a verb; [`negotiation`] chooses the form of the answer
//! - `webhooks` calls those who convert custom resources
//! - [`body`] and [`chunk`] carry the answer out, `streaming` a watch over HTTP/1.1, [`websocket`] in messages; [`reply`], [`warnings`] and [`compression`]
//!   dress it
//! - [`discovery`], [`openapi`], [`health`], [`version`]: paths that are no resource
//! - [`limits`] bounds all of it, [`metrics`] counts it, [`deadline`], [`shutdown`] and [`drain`] end it
//! - [`kubeconfig`]: the file that tells clients where the server is

pub mod authentication;
pub mod authorization;
pub mod body;
pub mod certs;
pub mod chunk;
pub mod compression;
pub mod connection;
pub mod deadline;
pub mod discovery;
pub mod drain;
pub mod error;
mod handlers;
pub mod health;
pub mod identity;
pub mod kubeconfig;
pub mod limits;
pub mod listener;
pub mod metrics;
mod multiplex;
pub mod negotiation;
pub mod openapi;
pub mod peer;
pub mod reply;
pub mod request_info;
pub mod routing;
pub mod service;
pub mod shutdown;
mod streaming;
pub mod tls;
pub mod version;
pub mod warnings;
mod webhooks;
pub mod websocket;

pub use service::{Config, InProcess, Server};
