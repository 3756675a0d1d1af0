//! A watch that has an HTTP/1.1 connection to itself: chunks, written by hand.
//!
//! Written here and not by hyper for two numbers. An idle watch holds the TLS session and nothing else, where hyper keeps
//! a read and a write buffer of 8 KB each; and a batch of events is one vectored write of the shared slices, with nothing
//! between the watch and the socket. hyper gets the connection back when the watch has ended.
//!
//! On the wire, for two events that were pending together:
//!
//! ```text
//! HTTP/1.1 200 OK\r\n
//! content-type: application/json\r\n …
//! transfer-encoding: chunked\r\n\r\n
//! 1a2\r\n{"type":"ADDED",…}\n{"type":"MODIFIED",…}\n\r\n
//! 0\r\n\r\n
//! ```

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::header;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::{Events, Held, WatchBody};
use crate::chunk::Chunk;
use crate::connection::Taken;

/// A client may send its next request early; more than this of it is not read before the watch ends.
const EARLY_MAX: usize = 16 * 1024;
/// Slices in one write; the kernel takes up to 1024, TLS joins them into records anyway.
const SLICES: usize = 64;
const LINE_END: Bytes = Bytes::from_static(b"\r\n");
const LAST_CHUNK: Bytes = Bytes::from_static(b"0\r\n\r\n");

/// A watch on its way to its end.
pub(crate) struct Stream<IO> {
    io: IO,
    /// None once its end is on the way out.
    watch: Option<WatchBody>,
    /// What is being written.
    out: Chunk,
    /// Written, but maybe still inside the TLS session.
    unflushed: bool,
    /// What the client sent while it is being answered.
    early: Vec<u8>,
}

impl<IO> Stream<IO> {
    /// Begins with the head of the answer. Gives what is to be kept for as long as the watch lives. `early` was read from the
    /// socket behind the request.
    pub(crate) fn new(io: IO, taken: Taken, early: Bytes) -> Option<(Self, Held)> {
        let out = head(&taken.response, taken.keep_alive).into();
        let (watch, held) = taken.response.into_body().into_watch().ok()?;
        Some((Stream { io, watch: Some(watch), out, unflushed: false, early: early.to_vec() }, held))
    }

    /// The socket, and what was read from it.
    pub(crate) fn into_parts(self) -> (IO, Bytes) {
        (self.io, self.early.into())
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Stream<IO> {
    /// Ready when the last byte is flushed; an error when the client is gone.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            if self.poll_write_out(cx)?.is_pending() {
                return self.poll_gone(cx);
            }
            let Some(watch) = &mut self.watch else { return Poll::Ready(Ok(())) };
            match watch.poll_next(cx) {
                Poll::Ready(Some(events)) => self.out = chunk(events),
                Poll::Ready(None) => {
                    self.watch = None;
                    self.out = LAST_CHUNK.into();
                }
                Poll::Pending => return self.poll_gone(cx),
            }
        }
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.out.has_remaining() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.out.chunks_vectored(&mut slices);
            let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..filled]))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Never ready, unless the client is gone: then it is an error.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.early.len() < EARLY_MAX {
            let mut read = [0; 256];
            let mut read = ReadBuf::new(&mut read);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into()));
            }
            self.early.extend_from_slice(read.filled());
        }
        Poll::Pending
    }
}

fn chunk(events: Events) -> Chunk {
    let mut segments = events.segments;
    let bytes: usize = segments.iter().map(Bytes::len).sum();
    segments.push(LINE_END);
    Chunk::with_front(size_line(bytes), segments)
}

/// The line before a chunk. By hand, since every event to every watcher has one.
fn size_line(mut bytes: usize) -> Bytes {
    let mut line = [0; 2 * size_of::<usize>() + 2];
    let mut at = line.len() - 2;
    line[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        line[at] = b"0123456789abcdef"[bytes % 16];
        bytes /= 16;
        if bytes == 0 {
            return Bytes::copy_from_slice(&line[at..]);
        }
    }
}

fn head<B>(response: &http::Response<B>, keep_alive: bool) -> Bytes {
    let mut head = Vec::with_capacity(512);
    let status = response.status();
    head.extend_from_slice(
        format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default()).as_bytes(),
    );
    let mut line = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    for (name, value) in response.headers() {
        line(name.as_str().as_bytes(), value.as_bytes());
    }
    line(header::TRANSFER_ENCODING.as_str().as_bytes(), b"chunked");
    line(header::DATE.as_str().as_bytes(), crate::openapi::http_date(std::time::SystemTime::now()).as_bytes());
    if !keep_alive {
        line(header::CONNECTION.as_str().as_bytes(), b"close");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_hexadecimal() {
        for bytes in [0, 9, 10, 15, 16, 255, 256, 3_618, usize::MAX] {
            assert_eq!(size_line(bytes), format!("{bytes:x}\r\n"));
        }
    }
}
