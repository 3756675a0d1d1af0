//! Calls of the server to others over HTTPS: webhooks, issuers of tokens, audit sinks, aggregated servers.
//!
//! ```no_run
//! # async fn example() -> Result<(), outbound::Error> {
//! use outbound::{Client, ClientLimits, Endpoint, Request, Roots, TlsOptions};
//!
//! let client = Client::new(ClientLimits::default());
//! let tls = client.tls(&TlsOptions { roots: Roots::bundle("-----BEGIN CERTIFICATE-----…"), ..TlsOptions::default() })?;
//! let endpoint = Endpoint::new("https://hook.shop.svc:443/validate?timeout=10s", tls)?.at("127.0.0.1:9443");
//! let answer = client.send(&endpoint, Request::post_json("{}")).await?;
//! println!("{} {}", answer.status, answer.body.len());
//! # Ok(())
//! # }
//! ```
//!
//! - [`client`] sends a request and reads the answer, or streams both: time, size and memory are bounded, redirects are not followed
//! - [`endpoint`] is a URL, the address to connect to if it is not the URL's host, trust and credentials
//! - [`tls`] makes and shares TLS configurations; `trust` verifies certificates by the rules and with the texts of Go
//! - [`kubeconfig`] reads endpoints and credentials from a kubeconfig file
//! - [`services`] is where the address of a Service comes from: the trait, and addresses that were given at start
//! - [`error`] has the texts that Go programs print for the same failures: clients and tests compare them
//! - `connect` and `pool` open and keep connections; `ending` is how they may end
//! - `testing` has certificates and TLS servers for tests, with the feature of that name
//!
//! Connections are HTTP/1.1, kept after use and shared by all calls to the same address with the same server name, roots and client
//! certificate.

pub mod client;
mod connect;
mod ending;
pub mod endpoint;
pub mod error;
mod go_text;
pub mod kubeconfig;
mod pool;
pub mod services;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
mod trust;

pub use client::{Answer, AnswerBody, Budget, Charge, Client, ClientLimits, OutgoingBody, Request, empty, whole};
pub use endpoint::{Credential, Endpoint};
pub use error::{Error, ErrorKind};
pub use kubeconfig::Kubeconfig;
pub use services::{ServiceAddresses, ServiceResolver};
pub use tls::{Identity, Roots, Tls, TlsOptions};
