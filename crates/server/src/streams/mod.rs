//! Logs of containers, commands in them and connections to them.
//!
//! - [`containers`]: the interface to the program that runs the containers
//! - `request`: from an authorized request to one of the three
//! - `log`, `command`, `forward`: `pods/log`; `pods/exec` and `pods/attach`; `pods/portforward`
//! - [`websocket`], [`spdy`]: the protocols; `pipes`: the bounded streams that they carry
//!
//! A connection has a few pipes of [`pipes::PIPE_BYTES_MAX`] and nothing else that grows: a writer that is faster than its
//! reader waits.

pub mod containers;
pub mod pipes;
pub mod spdy;
pub mod websocket;

mod command;
mod forward;
mod log;
mod request;

pub(crate) use request::{UntilClosed, answer, needs_upgrade};
