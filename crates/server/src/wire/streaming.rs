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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::{Buf as _, Bytes};
use futures::task::AtomicWaker;
use http::header;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::body::{Events, Held, WatchBody};
use crate::wire::chunk::Chunk;
use crate::wire::connection::Taken;

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
    /// Nothing comes after what is being written before the task is woken for it.
    settled: bool,
    ear: Ear,
    /// What the client sent while it is being answered.
    early: Vec<u8>,
}

impl<IO> Stream<IO> {
    /// Begins with the head of the answer. Gives what is to be kept for as long as the watch lives. `early` was read from the
    /// socket behind the request.
    pub(crate) fn new(io: IO, taken: Taken, early: Bytes) -> Option<(Self, Held)> {
        let out = head(&taken.response, taken.keep_alive).into();
        let (watch, held) = taken.response.into_body().into_watch().ok()?;
        Some((
            Stream {
                io,
                watch: Some(watch),
                out,
                unflushed: false,
                settled: false,
                ear: Ear::default(),
                early: early.to_vec(),
            },
            held,
        ))
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
                // What comes meanwhile wakes the task, and cannot be written either: it is asked for later.
                self.settled = false;
                return self.poll_gone(cx);
            }
            let Some(watch) = &mut self.watch else { return Poll::Ready(Ok(())) };
            if std::mem::take(&mut self.settled) {
                return self.poll_gone(cx);
            }
            match watch.poll_next(cx) {
                Poll::Ready(Some(events)) => {
                    self.settled = events.settled;
                    self.out = chunk(events);
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

    /// Never ready, unless the client is gone: then it is an error.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if !self.ear.has_heard(cx) {
            return Poll::Pending;
        }
        let waker = self.ear.waker();
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

/// Tells whether a socket has something to be read. Most polls are for events, and a look at the socket costs as much as
/// finding the event.
#[derive(Default)]
struct Ear {
    rung: Arc<Rung>,
    /// Whom it wakes.
    task: Option<Waker>,
}

#[derive(Default)]
struct Rung {
    is_quiet: AtomicBool,
    task: AtomicWaker,
}

impl Ear {
    /// Whether the socket was heard since the last time this was asked; the first time it was. The socket must be read then,
    /// with [`Ear::waker`].
    fn has_heard(&mut self, cx: &Context<'_>) -> bool {
        let has_heard = !self.rung.is_quiet.swap(true, Ordering::SeqCst);
        let is_other = self.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker()));
        if is_other {
            self.task = Some(cx.waker().clone());
        }
        // A ring takes the waker with it. One that comes right now finds none; what it is about is read next.
        if has_heard || is_other {
            self.rung.task.register(cx.waker());
        }
        has_heard || is_other
    }

    /// For whoever reads the socket next.
    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.rung))
    }
}

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_quiet.store(false, Ordering::SeqCst);
        self.task.wake();
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
    line(header::DATE.as_str().as_bytes(), crate::request::openapi::http_date(std::time::SystemTime::now()).as_bytes());
    if !keep_alive {
        line(header::CONNECTION.as_str().as_bytes(), b"close");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::OnceLock;

    use parking_lot::Mutex;

    use super::*;
    use crate::wire::body::{EventSource, Observer, ResponseBody};
    use crate::wire::drain::Drain;

    /// Both ends of a watch, as a test moves them.
    #[derive(Default)]
    struct Ends {
        /// Batches of events that are there; whoever takes one is told of the next.
        events: VecDeque<&'static str>,
        asked: usize,
        /// Bytes that the client takes.
        room: usize,
        written: String,
        gone: bool,
        /// Who reads the socket.
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
        fn poll_events(&mut self, _: &mut Context<'_>, _: usize) -> Poll<Option<Events>> {
            let mut ends = self.0.lock();
            ends.asked += 1;
            let Some(event) = ends.events.pop_front() else { return Poll::Pending };
            let segments = vec![Bytes::from_static(event.as_bytes())];
            Poll::Ready(Some(Events { segments, ends: vec![1], last: false, settled: true }))
        }
    }

    struct Ignore;

    impl Observer for Ignore {
        fn sent(&mut self, _: &Events) {}
    }

    /// A watch whose head is sent, and its ends.
    fn open() -> (Stream<Shared>, Shared) {
        let ends = Shared::default();
        ends.0.lock().room = usize::MAX;
        let drain = Arc::new(Drain::default());
        let watch = WatchBody::new(Box::new(ends.clone()), Box::new(Ignore), drain.ticket(), 1024);
        let response = http::Response::new(ResponseBody::watch(watch));
        let (mut stream, _) = Stream::new(ends.clone(), Taken { response, keep_alive: true }, Bytes::new()).unwrap();
        assert!(poll(&mut stream).is_pending());
        ends.0.lock().written.clear();
        (stream, ends)
    }

    /// All who poll are the same task.
    fn poll(stream: &mut Stream<Shared>) -> Poll<std::io::Result<()>> {
        static TASK: OnceLock<Waker> = OnceLock::new();
        stream.poll(&mut Context::from_waker(TASK.get_or_init(|| Waker::from(Arc::<Counting>::default()))))
    }

    #[test]
    fn an_event_is_taken_and_sent_with_one_question_and_no_look_at_the_socket() {
        let (mut stream, ends) = open();
        let (asked, reads) = {
            let ends = ends.0.lock();
            (ends.asked, ends.reads)
        };
        for times in 1..=3 {
            ends.0.lock().events.push_back("event\n");
            assert!(poll(&mut stream).is_pending());
            let ends = ends.0.lock();
            assert_eq!(ends.written, "6\r\nevent\n\r\n".repeat(times));
            assert_eq!((ends.asked, ends.reads), (asked + times, reads));
        }
    }

    #[test]
    fn what_came_while_nothing_could_be_written_is_asked_for_afterwards() {
        let (mut stream, ends) = open();
        ends.0.lock().room = 4;
        ends.0.lock().events.push_back("first\n");
        assert!(poll(&mut stream).is_pending());
        // It wakes the task, which can do nothing about it yet.
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
            let reader = ends.0.lock().reader.take().expect("somebody reads");
            reader.wake();
            assert!(matches!(poll(&mut stream), Poll::Ready(Err(_))), "with an event: {has_event}");
        }
    }

    #[derive(Default)]
    struct Counting(std::sync::atomic::AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_socket_that_is_heard_wakes_the_task_every_time_and_the_one_it_is_in() {
        let (mut stream, ends) = open();
        for _ in 0..3 {
            let woken = Arc::<Counting>::default();
            let task = Waker::from(Arc::clone(&woken));
            for times in 1..=3 {
                assert!(stream.poll(&mut Context::from_waker(&task)).is_pending());
                let reader = ends.0.lock().reader.clone().expect("somebody reads");
                reader.wake();
                assert_eq!(woken.0.load(Ordering::SeqCst), times);
            }
        }
    }

    #[test]
    fn sizes_are_hexadecimal() {
        for bytes in [0, 9, 10, 15, 16, 255, 256, 3_618, usize::MAX] {
            assert_eq!(size_line(bytes), format!("{bytes:x}\r\n"));
        }
    }
}
