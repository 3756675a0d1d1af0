//! Test tools of dogwatch. A dev-dependency only.
//!
//! - [`fake_server`]: an API server that does what a script says, over a real socket
//! - [`gauge`]: what a program that follows a server costs
//! - [`history`]: what watchers were told, and what must be true of it

pub mod fake_server;
pub mod gauge;
pub mod history;
