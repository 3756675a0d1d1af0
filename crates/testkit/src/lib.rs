//! Test tools of dogwatch. A dev-dependency only.
//!
//! - [`fake_server`]: an API server with scripted responses, over a real socket
//! - [`gauge`]: the cost of a program that follows a server
//! - [`history`]: recorded events of watchers, and validators of them
//! - [`killable_store`]: a store that dies after a number of writes
//! - [`log_capture`]: the log of the current thread

pub mod fake_server;
pub mod gauge;
pub mod history;
pub mod killable_store;
pub mod log_capture;
