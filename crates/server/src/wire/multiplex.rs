//! HTTP/2: polls all streams of a connection in the connection's task and sends their frames in one write.
//!
//! By default hyper spawns a task for each stream. An event for a hundred watches of one connection then runs a hundred
//! tasks, each of which wakes the connection's task, and makes a write for every frame; a single watch takes two tasks for
//! each event. Polling the streams in the connection's task and joining their writes took 1 000 watches on ten connections
//! from 10.0 to 4.9 µs an event (`docs/performance.md`):
//!
//! ```text
//! wake ──► streams with pending events ──► connection: frames ──► CoalescingIo ──► one write
//! ```
//!
//! Responses are still computed in separate tasks, so that a connection with many requests uses all processors.

use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream as _;
use futures::stream::FuturesUnordered;
use http::{Response, StatusCode};
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

use crate::limits::Limits;
use crate::wire::body::ResponseBody;
use crate::wire::connection::{Activity, GracefulShutdown, Handler, MonitoredIo, RequestService, ResponseFuture};
use crate::wire::wake::WakeGate;

const WINDOW: u32 = 256 * 1024;
const FRAME: u32 = 64 * 1024;
/// A peer that disappears without closing is detected after the sum of these two.
const KEEP_ALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
/// Bytes joined before they are written: four full TLS records.
const BUFFERED_MAX: usize = 64 * 1024;

/// An HTTP/2 connection and its streams.
pub(crate) struct Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    connection: Pin<Box<Connection<IO, H>>>,
    streams: Streams,
    new_streams: NewStreams,
    io: CoalescingIo<IO>,
    gate: WakeGate,
}

type Connection<IO, H> = http2::Connection<MonitoredIo<CoalescingIo<IO>>, RequestService<H>, NewStreams>;
type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<IO, H> Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    pub(crate) fn new(io: IO, requests: RequestService<H>, activity: &Arc<Activity>, limits: &Limits) -> Self {
        let (new_streams, io) = (NewStreams::default(), CoalescingIo::new(io));
        let mut builder = http2::Builder::new(new_streams.clone());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams_per_connection_max)
            .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * 4)
            .max_frame_size(FRAME)
            // Bytes that a stream may buffer beyond the client's window: one batch, then it waits.
            .max_send_buf_size(limits.watch_batch_bytes_max)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        let monitored = MonitoredIo::new(io.clone(), Bytes::new(), activity);
        Multiplexed {
            connection: Box::pin(builder.serve_connection(monitored, requests)),
            streams: Streams::default(),
            new_streams,
            io,
            gate: WakeGate::default(),
        }
    }
}

impl<IO, H> Future for Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            // A stream that sends wakes its connection, which is polled next anyway.
            this.gate.hold(cx);
            this.streams.poll(cx);
            this.gate.release();
            let ended = this.connection.as_mut().poll(&mut this.gate.context());
            if ended.is_ready() {
                return ended;
            }
            let arrived = std::mem::take(&mut *this.new_streams.0.lock());
            if arrived.is_empty() {
                break;
            }
            this.streams.open.extend(arrived);
        }
        // A socket that is full wakes the task once it accepts bytes again.
        match this.io.0.lock().poll_write_all(cx) {
            Poll::Ready(Err(error)) => {
                tracing::trace!(%error, "connection can no longer be written to");
                Poll::Ready(Ok(()))
            }
            _ => Poll::Pending,
        }
    }
}

impl<IO, H> GracefulShutdown for Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    fn start_shutdown(self: Pin<&mut Self>) {
        self.get_mut().connection.as_mut().graceful_shutdown();
    }
}

/// The executor given to hyper: collects new streams until [`Multiplexed`] moves them into its own set.
#[derive(Clone, Default)]
pub(crate) struct NewStreams(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for NewStreams {
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

/// The open streams.
#[derive(Default)]
struct Streams {
    open: FuturesUnordered<Stream>,
    gate: WakeGate,
}

impl Streams {
    /// Polls all streams that were woken.
    ///
    /// h2 wakes a stream while it sends, and `FuturesUnordered` returns to the task after two such wakes: only two frames
    /// would be joined. So the set is polled again here, at most once for each stream; a stream that wakes itself without
    /// end cannot keep the connection from being polled.
    fn poll(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.open.len() + 2 {
            self.gate.hold(cx);
            while let Poll::Ready(Some(())) = Pin::new(&mut self.open).poll_next(&mut self.gate.context()) {}
            if !self.gate.release() {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }
}

/// A socket that buffers writes until the connection has no more frames, or until [`BUFFERED_MAX`] bytes are buffered.
///
/// hyper owns one handle and flushes it after every frame, which does nothing; the task that polls the connection owns the
/// other and writes after each poll.
pub(crate) struct CoalescingIo<IO>(Arc<Mutex<Outgoing<IO>>>);

impl<IO> Clone for CoalescingIo<IO> {
    fn clone(&self) -> Self {
        CoalescingIo(Arc::clone(&self.0))
    }
}

impl<IO> CoalescingIo<IO> {
    fn new(io: IO) -> Self {
        CoalescingIo(Arc::new(Mutex::new(Outgoing { io, buffered: Vec::new(), written: 0, unflushed: false })))
    }
}

struct Outgoing<IO> {
    io: IO,
    /// The bytes from `written` on are still to be written. Unallocated while empty.
    buffered: Vec<u8>,
    written: usize,
    unflushed: bool,
}

impl<IO: AsyncWrite + Unpin> Outgoing<IO> {
    /// Buffers as much as fits.
    fn poll_buffer(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<std::io::Result<usize>> {
        if self.buffered.len() >= BUFFERED_MAX {
            ready!(self.poll_write_buffered(cx))?;
        }
        let mut room = BUFFERED_MAX - self.buffered.len();
        let before = self.buffered.len();
        if self.buffered.capacity() == 0 {
            self.buffered.reserve_exact(slices.iter().map(|slice| slice.len()).sum::<usize>().min(room));
        }
        for slice in slices {
            let taken = slice.len().min(room);
            self.buffered.extend_from_slice(&slice[..taken]);
            room -= taken;
        }
        Poll::Ready(Ok(self.buffered.len() - before))
    }

    fn poll_write_buffered(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.written < self.buffered.len() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.buffered[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.unflushed = true;
        }
        self.buffered.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes everything that is buffered, flushes, and frees the buffer.
    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_write_buffered(cx))?;
        self.buffered = Vec::new();
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for CoalescingIo<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for CoalescingIo<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().poll_buffer(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.0.lock().poll_buffer(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut outgoing = self.0.lock();
        ready!(outgoing.poll_write_all(cx))?;
        Pin::new(&mut outgoing.io).poll_shutdown(cx)
    }
}

/// Computes a response in a separate task, which is aborted when the returned future is dropped.
pub(crate) fn spawn_response(response: ResponseFuture) -> ResponseFuture {
    Box::pin(ResponseTask(tokio::spawn(response)))
}

struct ResponseTask(JoinHandle<Response<ResponseBody>>);

impl Future for ResponseTask {
    type Output = Response<ResponseBody>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0).poll(cx).map(|response| {
            // Handlers turn panics into responses themselves; this covers one that did not.
            response.unwrap_or_else(|_| {
                let mut broken = Response::new(ResponseBody::empty());
                *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                broken
            })
        })
    }
}

impl Drop for ResponseTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use super::*;
    use crate::wire::wake::tests::CountingTask;

    /// Accepts `room` bytes in all, and records each write.
    #[derive(Default)]
    struct Socket {
        writes: Vec<Vec<u8>>,
        flushes: usize,
        room: usize,
    }

    impl AsyncWrite for Socket {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Poll::Pending;
            }
            self.room -= taken;
            self.writes.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn coalescing(room: usize) -> CoalescingIo<Socket> {
        CoalescingIo::new(Socket { room, ..Socket::default() })
    }

    fn write(io: &mut CoalescingIo<Socket>, bytes: &[u8]) -> Option<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(io).poll_write(&mut cx, bytes) {
            Poll::Ready(written) => Some(written.unwrap()),
            Poll::Pending => None,
        }
    }

    fn write_all(io: &CoalescingIo<Socket>) -> bool {
        io.0.lock().poll_write_all(&mut Context::from_waker(Waker::noop())).map(Result::unwrap).is_ready()
    }

    /// Wakes itself on each of its first `times` polls, and counts its polls.
    fn self_waking(times: usize, polls: &Arc<AtomicUsize>) -> Stream {
        let (mut left, polls) = (times, Arc::clone(polls));
        Box::pin(std::future::poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            if left > 0 {
                left -= 1;
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        }))
    }

    #[test]
    fn streams_that_are_woken_while_they_send_all_send_in_one_turn() {
        let (polls, (task, waker)) = (Arc::<AtomicUsize>::default(), CountingTask::new());
        let mut streams = Streams::default();
        streams.open.extend((0..100).map(|_| self_waking(1, &polls)));
        streams.poll(&mut Context::from_waker(&waker));
        assert_eq!(polls.load(Ordering::SeqCst), 200);
        assert_eq!(task.wakes(), 0, "the task is not polled again for it");
    }

    #[test]
    fn a_stream_that_never_rests_does_not_keep_the_connection_waiting() {
        let (polls, (task, waker)) = (Arc::<AtomicUsize>::default(), CountingTask::new());
        let mut streams = Streams::default();
        streams.open.push(self_waking(usize::MAX, &polls));
        streams.poll(&mut Context::from_waker(&waker));
        assert!(task.wakes() > 0, "the task is polled again for it");
        assert!(polls.load(Ordering::SeqCst) < 10, "the turn is bounded by the number of streams");
    }

    #[test]
    fn frames_leave_in_one_write_when_the_connection_is_done() {
        let mut io = coalescing(usize::MAX);
        let mut cx = Context::from_waker(Waker::noop());
        for frame in ["one ", "two ", "three"] {
            assert_eq!(write(&mut io, frame.as_bytes()), Some(frame.len()));
            assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
        }
        assert!(io.0.lock().io.writes.is_empty());
        assert!(write_all(&io));
        let outgoing = io.0.lock();
        assert_eq!((outgoing.io.writes.as_slice(), outgoing.io.flushes), (&[b"one two three".to_vec()][..], 1));
        assert_eq!(outgoing.buffered.capacity(), 0, "an idle connection holds no buffer");
    }

    #[test]
    fn a_socket_that_takes_nothing_holds_the_connection_back() {
        let mut io = coalescing(0);
        let frame = vec![7; BUFFERED_MAX / 2 + 1];
        assert_eq!(write(&mut io, &frame), Some(frame.len()));
        assert_eq!(write(&mut io, &frame), Some(BUFFERED_MAX - frame.len()), "as much as fits");
        assert_eq!(write(&mut io, &frame), None);
        assert!(!write_all(&io));
        io.0.lock().io.room = BUFFERED_MAX - 1;
        assert!(!write_all(&io));
        assert_eq!(write(&mut io, &frame), None, "not before all of it is written");
        io.0.lock().io.room = 1;
        assert!(write_all(&io));
        assert_eq!(write(&mut io, &frame), Some(frame.len()));
        assert_eq!(io.0.lock().io.writes.iter().map(Vec::len).sum::<usize>(), BUFFERED_MAX);
    }
}
