//! Where audit events go.
//!
//! - [`log`]: a file with rotation, or standard output
//! - [`rotation`]: names, number and age of the old files
//! - [`batch`]: a buffer in front of another sink
//! - [`stream`]: the events as a stream, for a program that embeds the server
//! - [`webhook`]: another server

pub mod batch;
pub mod log;
pub mod rotation;
pub mod stream;
pub mod webhook;

use std::future::Future;
use std::pin::Pin;

use crate::audit::event::Line;

/// The mode of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A request waits until its event is written; a failure is counted.
    Blocking,
    /// As `Blocking`; a request whose first event cannot be written gets 500.
    BlockingStrict,
    /// Events are buffered; those beyond the buffer are dropped and counted.
    Batch,
}

/// An event on its way to a sink; the error is why it was lost.
pub type PendingDelivery = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What became of an event.
pub enum Delivery {
    Done,
    /// The reason is logged.
    Lost(String),
    /// The event is on its way; the request waits for it.
    Pending(PendingDelivery),
}

/// A destination of events.
pub trait Sink: Send + Sync {
    /// The name in metrics and in the log.
    fn name(&self) -> &'static str;

    fn send(&self, line: &Line) -> Delivery;

    /// Writes everything that was sent, within a bound of time.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
