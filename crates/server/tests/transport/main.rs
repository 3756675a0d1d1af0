//! Connections over real sockets, with a handler of the test's own: TLS, both protocols, streaming, silence, drain.
//!
//! - [`world`]: the server under test and small clients

mod drain;
mod handshake;
mod silence;
mod streaming;
mod world;
