//! Connections over real sockets, with a handler of the test: TLS, both protocols, streaming, idle connections, drain.
//!
//! - [`world`]: the server under test and small clients

mod drain;
mod handshake;
mod silence;
mod smuggling;
mod streaming;
mod world;
