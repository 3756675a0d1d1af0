//! The HTTP side of list-watch: listeners, TLS, authentication, routing, response encodings and streaming bodies.
//!
//! The path of a request through the modules:
//!
//! - `wire/` accepts a connection, secures it, reads requests from it and writes responses to it
//! - `request/` authenticates, authorizes and routes a request, and has a handler for each verb
//! - [`service`] joins the two: the whole server as one function from request to response, which `in_process` gives to callers in the
//!   same process without `wire/`
//! - [`certs`] is the certificate authority, [`kubeconfig`] the file that clients connect with
//! - [`authorization`] has the authorizers of a configuration
//! - [`aggregation`] passes requests to the servers behind APIServices
//! - [`webhooks`] calls conversion and admission webhooks; [`services`] finds the addresses of Services
//! - [`streams`] has the logs of containers and the connections to them
//! - [`usage`] has the group `metrics.k8s.io`
//! - [`page`] is a web page beside the API
//! - [`audit`] records who did what; [`disturbance`] and [`observation`] are where a lab meets the server
//! - [`queues`] shows the work that controllers have still to do
//! - [`worlds`] finds the control plane that a request is for
//! - `fairness` keeps one client from starving others
//! - [`limits`] holds every bound, [`metrics`] counts requests and watches, [`shutdown`] stops the server

pub mod aggregation;
pub mod audit;
pub mod authorization;
pub mod certs;
pub mod disturbance;
pub mod error;
mod fairness;
mod http_date;
mod in_process;
pub mod kubeconfig;
pub mod limits;
pub mod metrics;
pub mod observation;
pub mod page;
mod process_metrics;
pub mod queues;
mod request;
pub mod service;
pub mod services;
pub mod shutdown;
pub mod signing;
pub mod streams;
pub mod usage;
pub mod webhooks;
mod wire;
pub mod worlds;

pub use in_process::InProcess;
pub use request::{
    authentication, deadline, discovery, health, impersonation, negotiation, openapi, operation, reply, request_info,
    routing, version, warnings,
};
pub use service::{Config, Server};
pub use wire::{body, chunk, compression, connection, drain, listener, peer, tls, websocket};
