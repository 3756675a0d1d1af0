//! Authentication as flags and files configure it.
//!
//! - [`world`]: a server on a socket with such flags, and its clients
//! - `impersonation`: with roles
//! - `starting`: flags and files that are refused
//! - `sources`: issuers, front proxies, bootstrap tokens
//! - `reloading`: files that change while the server runs

mod impersonation;
mod reloading;
mod sources;
mod starting;
mod world;
