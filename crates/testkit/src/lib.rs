//! Test tools of dogwatch. A dev-dependency only.
//!
//! - [`fake_server`]: an API server that does what a script says, over a real socket

pub mod fake_server;
