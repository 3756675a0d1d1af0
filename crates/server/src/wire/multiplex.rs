//! HTTP/2: all streams of a connection in the connection's own task, and their frames in one write.
//!
//! Left alone, hyper gives each stream a task. An event for a hundred watches of one connection is then a hundred tasks, each
//! of which wakes the connection's, and a write for every frame; a single watch takes two tasks for each event. Here streams
//! are polled where the connection is:
//!
//! ```text
//! woken ──► streams that have something to say ──► connection: frames ──► joined ──► one write
//! ```
//!
//! Answers are still made in tasks of their own, so that a connection with many requests keeps all processors busy.

use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::Bytes;
use futures::Stream as _;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use http::{Response, StatusCode};
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

use crate::limits::Limits;
use crate::wire::body::ResponseBody;
use crate::wire::connection::{Activity, Answer, Gentle, Handler, Heard, Requests};

const WINDOW: u32 = 256 * 1024;
const FRAME: u32 = 64 * 1024;
/// A peer that vanished without a word is noticed after both of these.
const KEEP_ALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
/// What is joined before it is written: four full TLS records.
const JOINED_MAX: usize = 64 * 1024;

/// A connection and its streams.
pub(crate) struct Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    connection: Pin<Box<Connection<IO, H>>>,
    streams: Streams,
    arrivals: Arrivals,
    joined: Joined<IO>,
    bell: Bell,
}

/// hyper's part of it.
type Connection<IO, H> = http2::Connection<Heard<Joined<IO>>, Requests<H>, Arrivals>;
type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<IO, H> Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    pub(crate) fn new(io: IO, requests: Requests<H>, activity: &Arc<Activity>, limits: &Limits) -> Self {
        let (arrivals, joined) = (Arrivals::default(), Joined::new(io));
        let mut builder = http2::Builder::new(arrivals.clone());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams_per_connection_max)
            .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * 4)
            .max_frame_size(FRAME)
            // What a stream may hold beyond what the client's window allows: one batch, then it waits.
            .max_send_buf_size(limits.watch_batch_bytes_max)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        let heard = Heard::new(joined.clone(), Bytes::new(), activity);
        Multiplexed {
            connection: Box::pin(builder.serve_connection(heard, requests)),
            streams: Streams::default(),
            arrivals,
            joined,
            bell: Bell::default(),
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
            // A stream that sends rings for its connection, which is next anyway.
            this.bell.muffle(cx);
            this.streams.poll(cx);
            this.bell.unmuffle();
            let ended = this.connection.as_mut().poll(&mut this.bell.context());
            if ended.is_ready() {
                return ended;
            }
            let arrived = std::mem::take(&mut *this.arrivals.0.lock());
            if arrived.is_empty() {
                break;
            }
            this.streams.open.extend(arrived);
        }
        // A socket that takes no more for now wakes the task when it does again.
        match this.joined.0.lock().poll_out(cx) {
            Poll::Ready(Err(error)) => {
                tracing::trace!(%error, "cannot be written to any more");
                Poll::Ready(Ok(()))
            }
            _ => Poll::Pending,
        }
    }
}

impl<IO, H> Gentle for Multiplexed<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    fn end_gently(self: Pin<&mut Self>) {
        self.get_mut().connection.as_mut().graceful_shutdown();
    }
}

/// Where hyper leaves new streams, since it cannot be given the set itself.
#[derive(Clone, Default)]
pub(crate) struct Arrivals(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Arrivals {
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

/// The streams that are open.
#[derive(Default)]
struct Streams {
    open: FuturesUnordered<Stream>,
    bell: Bell,
}

impl Streams {
    /// Polls all that have something to do.
    ///
    /// h2 wakes a stream while it sends, and a set in which two have been woken like that leaves the others for another turn
    /// of the task: two frames would be joined and no more. So it gets its turns here, as many as there are streams; one that
    /// never stops waking itself does not keep the connection from being polled.
    fn poll(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.open.len() + 2 {
            self.bell.muffle(cx);
            while let Poll::Ready(Some(())) = Pin::new(&mut self.open).poll_next(&mut self.bell.context()) {}
            if !self.bell.unmuffle() {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }
}

/// Wakes the task, except while it is muffled: then it remembers that it was rung. A task that wakes itself is polled once
/// more, mostly for nothing.
struct Bell {
    state: Arc<BellState>,
    ringing: Waker,
}

#[derive(Default)]
struct BellState {
    muffled: AtomicU8,
    task: AtomicWaker,
}

const HEARD: u8 = 0;
const MUFFLED: u8 = 1;
const MUFFLED_AND_RUNG: u8 = 2;

impl Default for Bell {
    fn default() -> Self {
        let state = Arc::<BellState>::default();
        Bell { ringing: Waker::from(Arc::clone(&state)), state }
    }
}

impl Bell {
    fn muffle(&self, cx: &Context<'_>) {
        self.state.task.register(cx.waker());
        self.state.muffled.store(MUFFLED, Ordering::SeqCst);
    }

    /// Whether it was rung meanwhile.
    fn unmuffle(&self) -> bool {
        self.state.muffled.swap(HEARD, Ordering::SeqCst) == MUFFLED_AND_RUNG
    }

    fn context(&self) -> Context<'_> {
        Context::from_waker(&self.ringing)
    }
}

impl Wake for BellState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let rung = self.muffled.compare_exchange(MUFFLED, MUFFLED_AND_RUNG, Ordering::SeqCst, Ordering::SeqCst);
        if rung == Err(HEARD) {
            self.task.wake();
        }
    }
}

/// A socket whose writes are held back until the connection has nothing more to say, or until there is enough.
///
/// hyper owns one handle and asks to flush after every frame, which is not heard; the task that polls the connection has the
/// other and writes after each poll.
pub(crate) struct Joined<IO>(Arc<Mutex<Outgoing<IO>>>);

impl<IO> Clone for Joined<IO> {
    fn clone(&self) -> Self {
        Joined(Arc::clone(&self.0))
    }
}

impl<IO> Joined<IO> {
    fn new(io: IO) -> Self {
        Joined(Arc::new(Mutex::new(Outgoing { io, held: Vec::new(), written: 0, unflushed: false })))
    }
}

struct Outgoing<IO> {
    io: IO,
    /// Not written yet from `written` on; no buffer while there is nothing.
    held: Vec<u8>,
    written: usize,
    unflushed: bool,
}

impl<IO: AsyncWrite + Unpin> Outgoing<IO> {
    /// Takes as much as there is room for.
    fn poll_take(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<std::io::Result<usize>> {
        if self.held.len() >= JOINED_MAX {
            ready!(self.poll_write_held(cx))?;
        }
        let mut room = JOINED_MAX - self.held.len();
        let before = self.held.len();
        if self.held.capacity() == 0 {
            self.held.reserve_exact(slices.iter().map(|slice| slice.len()).sum::<usize>().min(room));
        }
        for slice in slices {
            let taken = slice.len().min(room);
            self.held.extend_from_slice(&slice[..taken]);
            room -= taken;
        }
        Poll::Ready(Ok(self.held.len() - before))
    }

    fn poll_write_held(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.written < self.held.len() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.held[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.unflushed = true;
        }
        self.held.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes everything that is held, and lets go of the buffer.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(self.poll_write_held(cx))?;
        self.held = Vec::new();
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Joined<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Joined<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().poll_take(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.0.lock().poll_take(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let mut outgoing = self.0.lock();
        ready!(outgoing.poll_out(cx))?;
        Pin::new(&mut outgoing.io).poll_shutdown(cx)
    }
}

/// Makes an answer in a task of its own, which ends with whoever waits for it.
pub(crate) fn elsewhere(answer: Answer) -> Answer {
    let making = Making(tokio::spawn(answer));
    Box::pin(making)
}

struct Making(JoinHandle<Response<ResponseBody>>);

impl Future for Making {
    type Output = Response<ResponseBody>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0).poll(cx).map(|made| {
            // Handlers turn panics into answers themselves; this is for one that did not.
            made.unwrap_or_else(|_| {
                let mut broken = Response::new(ResponseBody::empty());
                *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                broken
            })
        })
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes at a time, and remembers each write.
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

    fn joined(room: usize) -> Joined<Socket> {
        Joined::new(Socket { room, ..Socket::default() })
    }

    fn write(joined: &mut Joined<Socket>, bytes: &[u8]) -> Option<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(joined).poll_write(&mut cx, bytes) {
            Poll::Ready(written) => Some(written.unwrap()),
            Poll::Pending => None,
        }
    }

    fn out(joined: &Joined<Socket>) -> bool {
        joined.0.lock().poll_out(&mut Context::from_waker(Waker::noop())).map(Result::unwrap).is_ready()
    }

    #[derive(Default)]
    struct Counting(std::sync::atomic::AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wakes itself this often, each time it is polled, and counts how often that was.
    fn self_waking(times: usize, polls: &Arc<Counting>) -> Stream {
        let (mut left, polls) = (times, Arc::clone(polls));
        Box::pin(std::future::poll_fn(move |cx| {
            polls.0.fetch_add(1, Ordering::SeqCst);
            if left > 0 {
                left -= 1;
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        }))
    }

    #[test]
    fn streams_that_are_woken_while_they_send_all_send_in_one_turn() {
        let (polls, woken) = (Arc::<Counting>::default(), Arc::<Counting>::default());
        let mut streams = Streams::default();
        streams.open.extend((0..100).map(|_| self_waking(1, &polls)));
        let waker = Waker::from(Arc::clone(&woken));
        streams.poll(&mut Context::from_waker(&waker));
        assert_eq!(polls.0.load(Ordering::SeqCst), 200);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "the task is not polled again for it");
    }

    #[test]
    fn a_stream_that_never_rests_does_not_keep_the_connection_waiting() {
        let (polls, woken) = (Arc::<Counting>::default(), Arc::<Counting>::default());
        let mut streams = Streams::default();
        streams.open.push(self_waking(usize::MAX, &polls));
        let waker = Waker::from(Arc::clone(&woken));
        streams.poll(&mut Context::from_waker(&waker));
        assert!(woken.0.load(Ordering::SeqCst) > 0, "it gets its next turn");
    }

    #[test]
    fn what_rings_after_the_turn_is_heard() {
        let woken = Arc::<Counting>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let bell = Bell::default();
        bell.muffle(&Context::from_waker(&waker));
        bell.ringing.wake_by_ref();
        assert_eq!((bell.unmuffle(), woken.0.load(Ordering::SeqCst)), (true, 0));
        bell.ringing.wake_by_ref();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn frames_leave_in_one_write_when_the_connection_is_done() {
        let mut joined = joined(usize::MAX);
        let mut cx = Context::from_waker(Waker::noop());
        for frame in ["one ", "two ", "three"] {
            assert_eq!(write(&mut joined, frame.as_bytes()), Some(frame.len()));
            assert!(Pin::new(&mut joined).poll_flush(&mut cx).is_ready());
        }
        assert!(joined.0.lock().io.writes.is_empty());
        assert!(out(&joined));
        let outgoing = joined.0.lock();
        assert_eq!((outgoing.io.writes.as_slice(), outgoing.io.flushes), (&[b"one two three".to_vec()][..], 1));
        assert_eq!(outgoing.held.capacity(), 0, "an idle connection holds no buffer");
    }

    #[test]
    fn a_socket_that_takes_nothing_holds_the_connection_back() {
        let mut joined = joined(0);
        let frame = vec![7; JOINED_MAX / 2 + 1];
        assert_eq!(write(&mut joined, &frame), Some(frame.len()));
        assert_eq!(write(&mut joined, &frame), Some(JOINED_MAX - frame.len()), "as much as there is room for");
        assert_eq!(write(&mut joined, &frame), None);
        assert!(!out(&joined));
        joined.0.lock().io.room = JOINED_MAX - 1;
        assert!(!out(&joined));
        assert_eq!(write(&mut joined, &frame), None, "not before all of it is written");
        joined.0.lock().io.room = 1;
        assert!(out(&joined));
        assert_eq!(write(&mut joined, &frame), Some(frame.len()));
        assert_eq!(joined.0.lock().io.writes.iter().map(Vec::len).sum::<usize>(), JOINED_MAX);
    }
}
