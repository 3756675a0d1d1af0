//! Connections: from an accepted socket to the bytes of a response.
//!
//! - [`listener`] accepts connections, [`tls`] secures them, [`peer`] describes the other end, `gate` is where a lab refuses and cuts
//!   them
//! - [`connection`] serves one connection: HTTP/1.1, or HTTP/2 with [`multiplex`]
//! - [`body`] holds request and response bodies, [`chunk`] the pieces of a response, [`compression`] its gzip form
//! - `slow` sends a body at a limited speed
//! - [`streaming`] sends a watch over HTTP/1.1, [`websocket`] in WebSocket messages
//! - [`drain`] ends open watches when the server stops, [`wake`] has the wakers of connection tasks, [`turn`] ends the turn of one that
//!   sends much

pub mod body;
pub mod chunk;
pub mod compression;
pub mod connection;
pub mod drain;
mod gate;
pub mod listener;
pub(crate) mod multiplex;
pub mod peer;
mod slow;
pub(crate) mod streaming;
pub mod tls;
pub(crate) mod turn;
pub(crate) mod wake;
pub mod websocket;
