//! Watches over HTTP/1.1: writes the response head and the chunks without hyper.
//!
//! hyper keeps a read and a write buffer of 8 KB each for the whole life of a watch. Here an idle watch holds only the TLS
//! session: an idle watcher was measured at 12.9 kB in all (`docs/performance.md`). A batch of events is one vectored write
//! of shared slices, with nothing between the watch and the socket. hyper gets the connection back after the watch.
//!
//! The bytes sent for two events that were pending together:
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
use jiff::Timestamp;
use registry::Frames;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http_date::http_date;
use crate::wire::body::{Held, WatchBody};
use crate::wire::chunk::Chunk;
use crate::wire::connection::DetachedWatch;
use crate::wire::wake::ReadReadiness;

/// Bytes of the client's next request that are read before the watch ends.
const EARLY_MAX: usize = 16 * 1024;
/// Slices in one write. The kernel accepts up to 1024; TLS joins them into records anyway.
const SLICES: usize = 64;
const LINE_END: Bytes = Bytes::from_static(b"\r\n");
const LAST_CHUNK: Bytes = Bytes::from_static(b"0\r\n\r\n");

/// A watch that is being sent on a connection of its own.
pub(crate) struct Stream<IO> {
    io: IO,
    /// None once the last chunk is being written.
    watch: Option<WatchBody>,
    /// The bytes that are being written.
    out: Chunk,
    /// Bytes were written that may still be inside the TLS session.
    unflushed: bool,
    /// The source of events wakes the task before it has more than what is being written.
    settled: bool,
    readable: ReadReadiness,
    /// Bytes that the client sent during the watch: the start of its next request.
    early: Vec<u8>,
}

impl<IO> Stream<IO> {
    /// Starts with the head of the response. `early` was read from the socket after the request. The returned `Held` must
    /// be kept for as long as the watch.
    pub(crate) fn new(io: IO, detached: DetachedWatch, early: Bytes, now: Timestamp) -> Option<(Self, Held)> {
        let out = head(&detached.response, detached.keep_alive, now).into();
        let (watch, held) = detached.response.into_body().into_watch().ok()?;
        Some((
            Stream {
                io,
                watch: Some(watch),
                out,
                unflushed: false,
                settled: false,
                readable: ReadReadiness::default(),
                early: early.to_vec(),
            },
            held,
        ))
    }

    /// The socket, and the bytes read from it.
    pub(crate) fn into_parts(self) -> (IO, Bytes) {
        (self.io, self.early.into())
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Stream<IO> {
    /// Ready when the last byte is flushed; an error when the client has disconnected.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            if self.poll_write_out(cx)?.is_pending() {
                // Events that arrive now cannot be written either: poll the watch again once the socket accepts bytes.
                self.settled = false;
                return self.poll_gone(cx);
            }
            let Some(watch) = &mut self.watch else { return Poll::Ready(Ok(())) };
            if std::mem::take(&mut self.settled) {
                return self.poll_gone(cx);
            }
            match watch.poll_next(cx) {
                Poll::Ready(Some(frames)) => {
                    self.settled = frames.settled;
                    self.out = chunk(frames);
                }
                // Without its last chunk, the response is not complete.
                Poll::Ready(None) if watch.is_broken() => {
                    return Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
                }
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

    /// Pending as long as the client is connected, then an error.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if !self.readable.take_ready(cx) {
            return Poll::Pending;
        }
        let waker = self.readable.waker();
        let cx = &mut Context::from_waker(&waker);
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

fn chunk(frames: Frames) -> Chunk {
    let mut segments = frames.segments;
    let bytes: usize = segments.iter().map(Bytes::len).sum();
    segments.push(LINE_END);
    Chunk::with_front(size_line(bytes), segments)
}

/// The size line before a chunk. Formatted by hand, since every event to every watcher has one.
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

fn head<B>(response: &http::Response<B>, keep_alive: bool, now: Timestamp) -> Bytes {
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
    line(header::DATE.as_str().as_bytes(), http_date(now).as_bytes());
    if !keep_alive {
        line(header::CONNECTION.as_str().as_bytes(), b"close");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, OnceLock};
    use std::task::Waker;

    use parking_lot::Mutex;

    use super::*;
    use crate::wire::body::{EventSource, Observer, ResponseBody};
    use crate::wire::drain::Drain;
    use crate::wire::wake::tests::CountingTask;

    /// Both ends of a watch, under the control of a test.
    #[derive(Default)]
    struct Ends {
        /// Pending batches of events.
        events: VecDeque<&'static str>,
        /// How often events were polled.
        polls: usize,
        /// Bytes that the client still accepts.
        room: usize,
        written: String,
        gone: bool,
        /// The waker of the last read.
        reader: Option<Waker>,
        reads: usize,
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Ends>>);

    impl AsyncRead for Shared {
        fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
            let mut ends = self.0.lock();
            ends.reads += 1;
            ends.reader = Some(cx.waker().clone());
            if ends.gone { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    impl AsyncWrite for Shared {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
            let mut ends = self.0.lock();
            let taken = bytes.len().min(ends.room);
            if taken == 0 {
                return Poll::Pending;
            }
            ends.room -= taken;
            ends.written.push_str(std::str::from_utf8(&bytes[..taken]).unwrap());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl EventSource for Shared {
        fn poll_frames(&mut self, _: &mut Context<'_>, _: usize) -> Poll<Option<Frames>> {
            let mut ends = self.0.lock();
            ends.polls += 1;
            let Some(event) = ends.events.pop_front() else { return Poll::Pending };
            let segments = vec![Bytes::from_static(event.as_bytes())];
            Poll::Ready(Some(Frames {
                segments,
                ends: vec![1],
                settled: true,
                bytes: event.len(),
                ..Frames::default()
            }))
        }
    }

    struct Ignore;

    impl Observer for Ignore {
        fn sent(&mut self, _: &Frames) {}
    }

    /// A watch whose head has been sent, and its ends.
    fn open() -> (Stream<Shared>, Shared) {
        let ends = Shared::default();
        ends.0.lock().room = usize::MAX;
        let drain = Arc::new(Drain::default());
        let watch = WatchBody::new(Box::new(ends.clone()), Box::new(Ignore), drain.ticket(), 1024);
        let response = http::Response::new(ResponseBody::watch(watch));
        let (mut stream, _) = Stream::new(
            ends.clone(),
            DetachedWatch { response, keep_alive: true },
            Bytes::new(),
            Timestamp::UNIX_EPOCH,
        )
        .unwrap();
        assert!(poll(&mut stream).is_pending());
        ends.0.lock().written.clear();
        (stream, ends)
    }

    /// Polls from one and the same task.
    fn poll(stream: &mut Stream<Shared>) -> Poll<std::io::Result<()>> {
        static TASK: OnceLock<Waker> = OnceLock::new();
        stream.poll(&mut Context::from_waker(TASK.get_or_init(|| CountingTask::new().1)))
    }

    #[test]
    fn an_event_is_taken_and_sent_with_one_poll_and_no_read_of_the_socket() {
        let (mut stream, ends) = open();
        let (polls, reads) = {
            let ends = ends.0.lock();
            (ends.polls, ends.reads)
        };
        for times in 1..=3 {
            ends.0.lock().events.push_back("event\n");
            assert!(poll(&mut stream).is_pending());
            let ends = ends.0.lock();
            assert_eq!(ends.written, "6\r\nevent\n\r\n".repeat(times));
            assert_eq!((ends.polls, ends.reads), (polls + times, reads));
        }
    }

    #[test]
    fn an_event_that_arrives_while_nothing_can_be_written_is_sent_afterwards() {
        let (mut stream, ends) = open();
        ends.0.lock().room = 4;
        ends.0.lock().events.push_back("first\n");
        assert!(poll(&mut stream).is_pending());
        // It wakes the task, which cannot write it yet.
        ends.0.lock().events.push_back("second\n");
        assert!(poll(&mut stream).is_pending());
        assert_eq!(ends.0.lock().written, "6\r\nf");
        ends.0.lock().room = usize::MAX;
        assert!(poll(&mut stream).is_pending());
        assert_eq!(ends.0.lock().written, "6\r\nfirst\n\r\n7\r\nsecond\n\r\n");
    }

    #[test]
    fn a_client_that_is_gone_is_noticed_between_events() {
        for has_event in [false, true] {
            let (mut stream, ends) = open();
            ends.0.lock().events.push_back("event\n");
            assert!(poll(&mut stream).is_pending());
            ends.0.lock().gone = true;
            if has_event {
                ends.0.lock().events.push_back("event\n");
            }
            let reader = ends.0.lock().reader.take().expect("the socket was read");
            reader.wake();
            assert!(matches!(poll(&mut stream), Poll::Ready(Err(_))), "with an event: {has_event}");
        }
    }

    #[test]
    fn a_readable_socket_wakes_the_current_task_every_time() {
        let (mut stream, ends) = open();
        for _ in 0..3 {
            let (task, waker) = CountingTask::new();
            for times in 1..=3 {
                assert!(stream.poll(&mut Context::from_waker(&waker)).is_pending());
                let reader = ends.0.lock().reader.clone().expect("the socket was read");
                reader.wake();
                assert_eq!(task.wakes(), times);
            }
        }
    }

    #[test]
    fn the_head_has_the_date_and_closes_a_connection_that_is_not_kept_alive() {
        let response = http::Response::builder().header("content-type", "application/json").body(()).unwrap();
        let now = "1994-11-06T08:49:37Z".parse().unwrap();
        let lines = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\
            date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert_eq!(head(&response, true, now), format!("{lines}\r\n"));
        assert_eq!(head(&response, false, now), format!("{lines}connection: close\r\n\r\n"));
    }

    #[test]
    fn sizes_are_hexadecimal() {
        for bytes in [0, 9, 10, 15, 16, 255, 256, 3_618, usize::MAX] {
            assert_eq!(size_line(bytes), format!("{bytes:x}\r\n"));
        }
    }
}
