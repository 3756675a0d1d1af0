//! Certificates and TLS servers for the tests of this and other crates. Only with the feature `testing`.

mod certificates;
mod server;

pub use certificates::{Authority, Leaf};
pub use server::{Reply, Seen, TestServer, acceptor, free_address};
