//! The whole server over TLS on a registry in memory. Rows are named after the specification: `s01_15_13` is row 13 of
//! section 15 of 01.
//!
//! - [`world`]: the server under test and its clients

mod audit;
mod authentication;
mod bounds;
mod fairness;
mod forms;
mod health;
mod in_process;
mod limits;
mod protobuf;
mod refusals;
mod reviews;
mod roles;
mod streams;
mod tokens;
mod watches;
mod websockets;
mod world;
