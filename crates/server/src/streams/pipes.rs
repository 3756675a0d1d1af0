//! The streams of bytes that one connection carries: bounded pipes on one side, numbered frames on the other.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Bytes that wait in one direction of one stream; a writer of more waits.
pub const PIPE_BYTES_MAX: usize = 32 * 1024;
/// Bytes that are sent in one frame.
const FRAME_BYTES: usize = 16 * 1024;
/// Frames that wait to be sent on a connection.
const FRAMES_WAITING_MAX: usize = 8;
/// A connection that is silent for this long is closed, as a kubelet does it.
pub const STREAM_IDLE_MAX: Duration = Duration::from_secs(4 * 60 * 60);
/// A client, or the other end of a pipe, that takes no byte for this long is disconnected.
pub const STREAM_STALL_MAX: Duration = Duration::from_secs(10 * 60);
/// Time that a client has to read the rest once a session has ended.
pub const STREAM_CLOSE_MAX: Duration = Duration::from_secs(10);
/// Time that a client has to open all streams of a session.
pub const STREAM_CREATION_MAX: Duration = Duration::from_secs(30);

/// The reading end of a pipe. Without it, writing fails.
pub(super) type PipeReader = DuplexStream;
/// The writing end of a pipe. The reader sees the end when it is shut down or dropped.
pub(super) type PipeWriter = DuplexStream;

/// A pipe; one direction of a duplex stream, since the halves of `tokio::io::simplex` do not notice that the other is dropped.
pub(super) fn pipe() -> (PipeReader, PipeWriter) {
    tokio::io::duplex(PIPE_BYTES_MAX)
}

/// Writes to a pipe of which the reader may stall: its connection cannot notice meanwhile that the client is gone.
pub(super) async fn feed(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(FRAME_BYTES) {
        let written = timeout(STREAM_STALL_MAX, to.write_all(piece)).await;
        written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
    Ok(())
}

/// What is sent to the client.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// Accepts a stream of the client.
    Accept(u32),
    Data(u32, Bytes),
    /// Nothing more is written to a stream.
    End(u32),
    /// Gives up a stream.
    Reset(u32),
    Pong(u32),
    /// Closes the connection.
    Close,
}

/// The frames that wait to be sent.
pub(super) fn frames() -> (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
    mpsc::channel(FRAMES_WAITING_MAX)
}

/// The connection is closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

/// Writes to one stream of a connection.
#[derive(Clone, Debug)]
pub(super) struct StreamWriter {
    pub(super) stream: u32,
    pub(super) frames: mpsc::Sender<Outgoing>,
}

impl StreamWriter {
    pub(super) async fn write(&self, bytes: impl Into<Bytes>) -> Result<(), Closed> {
        self.frames.send(Outgoing::Data(self.stream, bytes.into())).await.map_err(|_| Closed)
    }

    pub(super) async fn end(&self) -> Result<(), Closed> {
        self.frames.send(Outgoing::End(self.stream)).await.map_err(|_| Closed)
    }

    pub(super) async fn reset(&self) -> Result<(), Closed> {
        self.frames.send(Outgoing::Reset(self.stream)).await.map_err(|_| Closed)
    }

    /// Sends everything that is read from `from`.
    pub(super) async fn send_all(&self, mut from: impl AsyncRead + Unpin) -> Result<(), Closed> {
        let mut buffer = vec![0; FRAME_BYTES];
        loop {
            match from.read(&mut buffer).await {
                Ok(0) | Err(_) => return Ok(()),
                Ok(len) => self.write(Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default())).await?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sp_2_a_pipe_without_progress_is_given_up() {
        let (reader, mut writer) = pipe();
        feed(&mut writer, &vec![0; PIPE_BYTES_MAX]).await.unwrap();
        let error = feed(&mut writer, b"more").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(reader);
        assert_eq!(feed(&mut writer, b"more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
