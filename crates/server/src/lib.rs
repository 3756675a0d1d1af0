//! The HTTP side of list-watch: listeners, TLS, who asks, what for, in which form; and bodies that stream.
//!
//! - [`certs`]: the certificate authority and what it signs; [`kubeconfig`]: the file clients read
//! - [`limits`]: every bound by name; [`shutdown`]: how the server is told to stop

pub mod authentication;
pub mod authorization;
pub mod body;
pub mod certs;
pub mod chunk;
pub mod compression;
pub mod connection;
pub mod deadline;
pub mod drain;
pub mod error;
pub mod health;
pub mod identity;
pub mod kubeconfig;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod peer;
pub mod request_info;
pub mod shutdown;
pub mod tls;
pub mod version;
pub mod warnings;
pub mod websocket;
