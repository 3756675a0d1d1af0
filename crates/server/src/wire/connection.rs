//! One connection: HTTP/1.1 or HTTP/2 over a socket, watched for silence, ended gently when the server stops.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::limits::Limits;
use crate::wire::body::{Held, RequestBody, ResponseBody};
use crate::wire::drain::{Drain, Ticket};
use crate::wire::multiplex::{self, Multiplexed};
use crate::wire::peer::Peer;
use crate::wire::streaming::Stream;

/// An answer on its way.
pub type Answer = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

/// What answers requests. A connection hands it each request with what is known of the other end.
pub trait Handler: Clone + Send + Sync + 'static {
    fn handle(&self, request: Request<RequestBody>, peer: &Arc<Peer>) -> Answer;

    /// Raised when the server stops; open watches and connections end then.
    fn drain(&self) -> &Arc<Drain>;
}

/// Held as long as anything of a connection lives. It is in the extensions of every request, so that an upgraded
/// connection counts until its new owner drops it.
#[derive(Clone, Debug)]
pub struct Lease(#[allow(dead_code, reason = "held for its Drop")] Arc<dyn std::any::Any + Send + Sync>);

impl Lease {
    pub fn new(held: impl std::any::Any + Send + Sync) -> Self {
        Lease(Arc::new(held))
    }
}

/// Which protocol the handshake agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Serves a connection until either side ends it.
pub fn serve<IO, H>(
    io: IO,
    protocol: Protocol,
    handler: H,
    peer: Peer,
    limits: Arc<Limits>,
    lease: Lease,
) -> Connection<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let activity = Arc::new(Activity::new(protocol));
    let ticket = handler.drain().ticket();
    let requests = Requests { handler, peer: Arc::new(peer), activity, lease };
    let line = Line { requests, ticket, limits, keep_alive: true, held: None };
    Connection(match protocol {
        Protocol::Http1 => Stage::Serving(Box::pin(serve_http1(io, Bytes::new(), line))),
        Protocol::Http2 => Stage::Serving(Box::pin(serve_http2(io, line))),
    })
}

/// A connection that is being served.
///
/// hyper reads requests and writes answers, except for watches: for those it hands the socket over to
/// [`streaming`](crate::wire::streaming), and takes it back when the watch has ended. Each is in a box, so that an idle connection is
/// as large as its protocol needs, and in one only: an event wakes a thousand watches, each of which is out of the processor's
/// caches, and every box more on the way to its socket would be another wait for memory.
pub struct Connection<IO, H: Handler>(Stage<IO, H>);

/// Ends with a watch that is to have the socket, or with the connection.
type Serving<IO, H> = Pin<Box<dyn Future<Output = Option<Handover<IO, H>>> + Send>>;

enum Stage<IO, H: Handler> {
    Serving(Serving<IO, H>),
    Streaming(Box<Handover<IO, H>>),
    Over,
}

/// The socket, and the watch that has it.
struct Handover<IO, H: Handler> {
    stream: Stream<IO>,
    line: Box<Line<H>>,
}

/// What a connection has beside its socket.
struct Line<H: Handler> {
    requests: Requests<H>,
    ticket: Ticket,
    limits: Arc<Limits>,
    /// Whether another request may follow the watch.
    keep_alive: bool,
    /// What goes when the watch does.
    held: Held,
}

impl<IO, H> Future for Connection<IO, H>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Connection(stage) = self.get_mut();
        loop {
            match stage {
                Stage::Streaming(handover) => {
                    let ended = ready!(handover.stream.poll(cx));
                    if let Stage::Streaming(handover) = std::mem::replace(stage, Stage::Over) {
                        *stage = Stage::Serving(Box::pin(after_watch(*handover, ended)));
                    }
                }
                Stage::Serving(serving) => {
                    let handover = ready!(serving.as_mut().poll(cx));
                    *stage = handover.map_or(Stage::Over, |handover| Stage::Streaming(Box::new(handover)));
                }
                Stage::Over => return Poll::Ready(()),
            }
        }
    }
}

// What both protocols begin with is done before their futures are made: an async function keeps room for its arguments as
// long as it lives, and a TLS session is a kilobyte and more.

fn serve_http2<IO, H>(io: IO, line: Line<H>) -> impl Future<Output = Option<Handover<IO, H>>> + Send
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let Line { requests, mut ticket, limits, .. } = line;
    let activity = Arc::clone(&requests.activity);
    let mut connection = Box::pin(Multiplexed::new(io, requests, &activity, &limits));
    async move {
        if let Err(error) = drive(&mut connection, &activity, &mut ticket, &limits).await {
            tracing::trace!(%error, "connection ended");
        }
        None
    }
}

/// Serves until a watch wants the socket for itself.
fn serve_http1<IO, H>(io: IO, unread: Bytes, line: Line<H>) -> impl Future<Output = Option<Handover<IO, H>>> + Send
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let Line { requests, mut ticket, limits, .. } = line;
    let activity = Arc::clone(&requests.activity);
    let mut builder = conn::http1::Builder::new();
    builder
        .half_close(false)
        .max_buf_size(limits.header_bytes_max.max(HTTP1_BUFFER_MIN))
        // The watchdog knows a silent connection from a slow request; hyper's timer does not.
        .header_read_timeout(None);
    let heard = Heard::new(io, unread, &activity);
    let mut connection = Box::pin(builder.serve_connection(heard, requests).with_upgrades());
    async move {
        match drive(&mut connection, &activity, &mut ticket, &limits).await {
            Ok(Driven::Taken) => {}
            Ok(Driven::Ended) => return None,
            Err(error) => {
                tracing::trace!(%error, "connection ended");
                return None;
            }
        }
        let taken = activity.taken.lock().take()?;
        // Unpinned, so that the connection can be taken apart: hyper's buffers go, the socket stays.
        let parts = unpin(connection).into_parts()?;
        // What hyper has read comes before what it was still to be given.
        let early = match parts.io.prefix.is_empty() {
            true => parts.read_buf,
            false => [parts.read_buf, parts.io.prefix].concat().into(),
        };
        let keep_alive = taken.keep_alive;
        let (stream, held) = Stream::new(parts.io.io.into_inner(), taken, early)?;
        Some(Handover { stream, line: Box::new(Line { requests: parts.service, ticket, limits, keep_alive, held }) })
    }
}

/// Goes on after a watch, if the client is still there and may ask for something else.
async fn after_watch<IO, H>(handover: Handover<IO, H>, ended: std::io::Result<()>) -> Option<Handover<IO, H>>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let Handover { stream, mut line } = handover;
    line.held = None;
    ended.ok()?;
    let (mut io, early) = stream.into_parts();
    if line.keep_alive {
        return serve_http1(io, early, *line).await;
    }
    let _ = io.shutdown().await;
    None
}

fn unpin<T: Unpin>(pinned: Pin<Box<T>>) -> T {
    *Pin::into_inner(pinned)
}

/// hyper takes no smaller one.
const HTTP1_BUFFER_MIN: usize = 8192;

/// Connections of both protocols, as far as [`drive`] needs them.
pub(crate) trait Gentle: Future<Output = hyper::Result<()>> {
    fn end_gently(self: Pin<&mut Self>);
}

impl<IO, S> Gentle for conn::http1::UpgradeableConnection<IO, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = ResponseBody>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    IO: Read + Write + Unpin + Send + 'static,
{
    fn end_gently(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// How [`drive`] ends.
#[derive(Debug, PartialEq, Eq)]
enum Driven {
    Ended,
    /// A watch is to be streamed on the socket.
    Taken,
}

/// Polls a connection, its watchdog, and the sign that the server stops.
async fn drive<C: Gentle>(
    connection: &mut Pin<Box<C>>,
    activity: &Activity,
    drain: &mut Ticket,
    limits: &Limits,
) -> hyper::Result<Driven> {
    let mut ending = false;
    let mut watchdog = pin!(tokio::time::sleep(limits.header_read_timeout.min(limits.idle_timeout)));
    poll_fn(move |cx| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended.map(|()| Driven::Ended));
            }
            if activity.has_taken.swap(false, Ordering::Relaxed) {
                return Poll::Ready(Ok(Driven::Taken));
            }
            if !ending && (drain.poll_begun(cx) || activity.unwelcome.load(Ordering::Relaxed)) {
                ending = true;
                connection.as_mut().end_gently();
                continue;
            }
            if watchdog.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match activity.judge(limits) {
                Judgement::Fine(wait) => watchdog.as_mut().reset(Instant::now() + wait),
                Judgement::Idle => {
                    // If it does not end now, it has the same time again.
                    watchdog.as_mut().reset(Instant::now() + limits.idle_timeout);
                    if ending {
                        return Poll::Ready(Ok(Driven::Ended));
                    }
                    ending = true;
                    connection.as_mut().end_gently();
                }
                Judgement::TooSlow => return Poll::Ready(Ok(Driven::Ended)),
            }
        }
    })
    .await
}

/// What a connection is doing, for its watchdog. Times are milliseconds since it began; zero is never.
pub(crate) struct Activity {
    protocol: Protocol,
    began: Instant,
    /// Requests whose answer is not fully sent.
    active: AtomicUsize,
    /// When the last answer was done.
    quiet_since: AtomicU64,
    /// When the first byte came that is not part of an answered request.
    heard_at: AtomicU64,
    /// A request was refused as nobody's: the connection has no future.
    unwelcome: AtomicBool,
    /// A watch that wants the socket for itself; looked at only when `has_taken` says so.
    taken: Mutex<Option<Taken>>,
    has_taken: AtomicBool,
}

/// An answer that is a watch, and what becomes of the connection after it.
pub(crate) struct Taken {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) keep_alive: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    /// Look again then.
    Fine(Duration),
    /// Nothing was asked for too long.
    Idle,
    /// A request's headers do not get complete.
    TooSlow,
}

impl Activity {
    fn new(protocol: Protocol) -> Self {
        Activity {
            protocol,
            began: Instant::now(),
            active: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(0),
            heard_at: AtomicU64::new(0),
            unwelcome: AtomicBool::new(false),
            taken: Mutex::new(None),
            has_taken: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn heard(&self) {
        if self.active.load(Ordering::Relaxed) == 0 && self.heard_at.load(Ordering::Relaxed) == 0 {
            self.heard_at.store(self.now(), Ordering::Relaxed);
        }
    }

    fn judge(&self, limits: &Limits) -> Judgement {
        if self.active.load(Ordering::Relaxed) > 0 {
            return Judgement::Fine(limits.idle_timeout);
        }
        let now = self.now();
        let left = |since: u64, limit: Duration| limit.checked_sub(Duration::from_millis(now.saturating_sub(since)));
        let heard_at = self.heard_at.load(Ordering::Relaxed);
        // Over HTTP/2 there are pings and settings between requests.
        if self.protocol == Protocol::Http1 && heard_at > 0 {
            return match left(heard_at, limits.header_read_timeout) {
                None | Some(Duration::ZERO) => Judgement::TooSlow,
                Some(wait) => Judgement::Fine(wait),
            };
        }
        match left(self.quiet_since.load(Ordering::Relaxed), limits.idle_timeout) {
            None | Some(Duration::ZERO) => Judgement::Idle,
            Some(wait) => Judgement::Fine(wait.min(limits.header_read_timeout)),
        }
    }
}

/// One request being answered, until its answer is sent.
struct Active(Arc<Activity>);

impl Active {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.active.fetch_add(1, Ordering::Relaxed);
        activity.heard_at.store(0, Ordering::Relaxed);
        Active(Arc::clone(activity))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.quiet_since.store(self.0.now(), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The service hyper calls.
pub(crate) struct Requests<H> {
    handler: H,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    lease: Lease,
}

impl<H: Handler> Service<Request<Incoming>> for Requests<H> {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let active = Active::new(&self.activity);
        let version = request.version();
        // A watch may have the socket if nothing else is on it: no body that was not read, no older protocol.
        let may_take =
            version == Version::HTTP_11 && request.method() != Method::HEAD && request.body().is_end_stream();
        let keep_alive = !header_says_close(request.headers());
        request.extensions_mut().insert(self.lease.clone());
        let mut answer = self.handler.handle(request.map(RequestBody::from), &self.peer);
        if version == Version::HTTP_2 {
            answer = multiplex::elsewhere(answer);
        }
        Box::pin(async move {
            let response = answer.await;
            if version == Version::HTTP_2 && response.status() == StatusCode::UNAUTHORIZED {
                active.0.unwelcome.store(true, Ordering::Relaxed);
            }
            if may_take && response.body().is_watch() {
                let activity = Arc::clone(&active.0);
                let response = response.map(|body| body.holding(active));
                *activity.taken.lock() = Some(Taken { response, keep_alive });
                activity.has_taken.store(true, Ordering::Relaxed);
                // `drive` looks next, and takes the connection apart.
                match std::future::pending::<Infallible>().await {}
            }
            Ok(response.map(|body| body.holding(active)))
        })
    }
}

fn header_says_close(headers: &http::HeaderMap) -> bool {
    headers
        .get_all(http::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("close"))
}

/// A socket that tells when something was read from it.
pub(crate) struct Heard<IO> {
    io: TokioIo<IO>,
    /// Read before hyper came (again); it is given these first.
    prefix: Bytes,
    activity: Arc<Activity>,
}

impl<IO> Heard<IO> {
    pub(crate) fn new(io: IO, prefix: Bytes, activity: &Arc<Activity>) -> Self {
        Heard { io: TokioIo::new(io), prefix, activity: Arc::clone(activity) }
    }
}

impl<IO: AsyncRead + Unpin> Read for Heard<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if !this.prefix.is_empty() {
            let count = this.prefix.len().min(buf.remaining());
            buf.put_slice(&this.prefix.split_to(count));
            this.activity.heard();
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        if read.is_ready() {
            this.activity.heard();
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> Write for Heard<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_and_slow_headers_are_told_apart() {
        let limits = Limits::default();
        let after = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let activity = Arc::new(Activity::new(Protocol::Http1));
        after(40).await;
        assert!(matches!(activity.judge(&limits), Judgement::Fine(_)), "nothing was sent yet");
        activity.heard();
        after(31).await;
        assert_eq!(activity.judge(&limits), Judgement::Fine(Duration::from_secs(1)));
        after(1).await;
        assert_eq!(activity.judge(&limits), Judgement::TooSlow);
        let active = Active::new(&activity);
        after(1000).await;
        assert_eq!(activity.judge(&limits), Judgement::Fine(limits.idle_timeout), "a watch may last");
        drop(active);
        after(89).await;
        assert_eq!(activity.judge(&limits), Judgement::Fine(Duration::from_secs(1)));
        after(1).await;
        assert_eq!(activity.judge(&limits), Judgement::Idle);
    }
}
