//! SPDY/3.1, as older clients and the port forwards of newer ones speak it.
//!
//! There is no maintained crate for it, and little of it is needed: streams that the client opens, their data and their ends. There
//! are no windows: the reference's implementation has none, and a slow stream holds up its connection.

pub mod frame;
pub mod headers;

mod connection;
mod dictionary;

pub(super) use connection::{NewStream, STREAMS_MAX, serve};
