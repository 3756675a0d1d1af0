//! What containers say: the server knows the protocols, and an implementation of [`Containers`] answers.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use machinery::json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// Bytes from a client.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes to a client. Writing waits while the client reads slowly, and fails when it has disconnected.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A container of a pod.
#[derive(Clone)]
pub struct ContainerRef {
    /// The pod as JSON, as it was when the request arrived.
    pub pod: Bytes,
    /// The name of the container; empty for requests that are about the whole pod.
    pub container: String,
    /// Reads the pod as it is now; none when it is gone.
    pub current: Arc<dyn Fn() -> Option<Bytes> + Send + Sync>,
}

/// The standard streams of a command.
pub struct Session {
    pub stdin: Option<Reader>,
    pub stdout: Option<Writer>,
    /// None with a terminal, where both outputs are one.
    pub stderr: Option<Writer>,
    pub is_terminal: bool,
    /// The sizes of the client's terminal: columns and rows.
    pub resizes: mpsc::Receiver<(u16, u16)>,
}

/// What of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether later lines are sent until the container ends.
    pub follow: bool,
    /// Whether the log of the instance before the current one is wanted.
    pub previous: bool,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// Only lines since then.
    pub since: Option<Timestamp>,
    /// Only so many of the last lines.
    pub tail_lines: Option<u64>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
}

/// Why a request cannot be served, in the words of a node agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request cannot be served in the current state of the container.
    BadRequest(String),
    /// The container is not there, or cannot be reached.
    Internal(String),
}

/// The end of a command: its exit code, or why it could not run.
pub type CommandResult = Result<i32, String>;

/// Answers for containers. Every answer is a future that owns its streams; the server drops it when the client disconnects.
pub trait Containers: Send + Sync {
    /// Whether the containers of a node are answered for here.
    fn runs(&self, node: &Value) -> bool;

    /// Writes the log of a container.
    fn log(&self, of: ContainerRef, options: LogOptions, to: Writer) -> Result<BoxFuture<'static, ()>, Refusal>;

    /// Checks that a command could run in a container now, or its own process be joined.
    fn check_command(&self, of: &ContainerRef, is_attach: bool) -> Result<(), Refusal>;

    /// Runs a command.
    fn exec(&self, of: ContainerRef, command: Vec<String>, session: Session) -> BoxFuture<'static, CommandResult>;

    /// Joins the standard streams of a container's own process.
    fn attach(&self, of: ContainerRef, session: Session) -> BoxFuture<'static, CommandResult>;

    /// Checks that ports of a pod could be reached now.
    fn check_forward(&self, of: &ContainerRef) -> Result<(), Refusal>;

    /// Joins a connection to a port of a pod. An error is the reason why it failed.
    fn forward(&self, of: ContainerRef, port: u16, from: Reader, to: Writer) -> BoxFuture<'static, Result<(), String>>;
}
