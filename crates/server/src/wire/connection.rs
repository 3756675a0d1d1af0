//! One connection: serves HTTP/1.1 or HTTP/2 on a socket, closes it when idle or slow, and drains it when the server stops.

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
use machinery::clock::Clock;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::disturbance::{Disturbances, LostAnswer};
use crate::fairness::Place;
use crate::limits::Limits;
use crate::wire::body::{Broken, Held, RequestBody, ResponseBody};
use crate::wire::chunk::Unsent;
use crate::wire::drain::{Drain, Ticket};
use crate::wire::multiplex::{self, Multiplexed};
use crate::wire::peer::Peer;
use crate::wire::streaming::Stream;
use crate::wire::turn::Turn;

/// A response that is being computed.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

/// Responds to requests; called by a connection for each request.
pub trait Handler: Clone + Send + Sync + 'static {
    fn handle(&self, request: Request<RequestBody>, peer: &Arc<Peer>) -> ResponseFuture;

    /// Begins when the server stops; open watches and connections end then.
    fn drain(&self) -> &Arc<Drain>;

    /// The clock for `Date` headers of watches; hyper writes those of all other responses.
    fn clock(&self) -> &Clock;

    /// A connection was closed because its client did not read a response.
    fn stalled(&self) {}

    /// What refuses and cuts connections; none without a lab.
    fn disturbances(&self) -> Option<&Arc<dyn Disturbances>> {
        None
    }
}

/// Held as long as any part of a connection exists. It is in the extensions of every request, so that an upgraded
/// connection counts until its new owner drops it.
#[derive(Clone, Debug)]
pub struct Lease(#[allow(dead_code, reason = "held for its Drop")] Arc<dyn std::any::Any + Send + Sync>);

impl Lease {
    pub fn new(held: impl std::any::Any + Send + Sync) -> Self {
        Lease(Arc::new(held))
    }
}

/// The protocol chosen in the handshake.
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
    let requests = RequestService { handler, peer: Arc::new(peer), activity, lease };
    let context = ConnectionContext { requests, ticket, limits, keep_alive: true, held: None };
    Connection(match protocol {
        Protocol::Http1 => Stage::Serving(Box::pin(serve_http1(io, Bytes::new(), context))),
        Protocol::Http2 => Stage::Serving(Box::pin(serve_http2(io, context))),
    })
}

/// A connection that is being served.
///
/// hyper reads requests and writes responses. A watch over HTTP/1.1 moves the socket to
/// [`streaming`](crate::wire::streaming), and hyper continues when the watch has ended. Each stage is in one box, so that an
/// idle connection is only as large as its protocol needs. There is no second box: an event wakes a thousand watches, none of
/// them in the processor's caches, and every pointer on the way to a socket is another wait for memory.
pub struct Connection<IO, H: Handler>(Stage<IO, H>);

/// Returns a watch that takes the socket over, or none at the end of the connection.
type Serving<IO, H> = Pin<Box<dyn Future<Output = Option<Handover<IO, H>>> + Send>>;

enum Stage<IO, H: Handler> {
    Serving(Serving<IO, H>),
    Streaming(Box<Handover<IO, H>>),
    Ended,
}

/// A watch and the socket that it took over.
struct Handover<IO, H: Handler> {
    stream: Stream<IO>,
    context: Box<ConnectionContext<H>>,
}

/// The state of a connection apart from its socket.
struct ConnectionContext<H: Handler> {
    requests: RequestService<H>,
    ticket: Ticket,
    limits: Arc<Limits>,
    /// Whether another request may follow the watch.
    keep_alive: bool,
    /// Dropped when the watch ends.
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
                    if let Stage::Streaming(handover) = std::mem::replace(stage, Stage::Ended) {
                        *stage = Stage::Serving(Box::pin(after_watch(*handover, ended)));
                    }
                }
                Stage::Serving(serving) => {
                    let handover = ready!(serving.as_mut().poll(cx));
                    *stage = handover.map_or(Stage::Ended, |handover| Stage::Streaming(Box::new(handover)));
                }
                Stage::Ended => return Poll::Ready(()),
            }
        }
    }
}

// These are not async functions: an async function reserves space for its arguments for its whole life, and a TLS session is
// larger than a kilobyte.

fn serve_http2<IO, H>(io: IO, context: ConnectionContext<H>) -> impl Future<Output = Option<Handover<IO, H>>> + Send
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let ConnectionContext { requests, mut ticket, limits, .. } = context;
    let (activity, handler) = (Arc::clone(&requests.activity), requests.handler.clone());
    let mut connection = Box::pin(Multiplexed::new(io, requests, &activity, &limits));
    async move {
        match drive(&mut connection, &activity, &mut ticket, &limits).await {
            Ok(Driven::Stalled) => handler.stalled(),
            Ok(_) => {}
            Err(error) => tracing::trace!(%error, "connection ended"),
        }
        None
    }
}

/// Serves until a watch takes the socket over.
fn serve_http1<IO, H>(
    io: IO,
    unread: Bytes,
    context: ConnectionContext<H>,
) -> impl Future<Output = Option<Handover<IO, H>>> + Send
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let ConnectionContext { requests, mut ticket, limits, .. } = context;
    let (activity, handler) = (Arc::clone(&requests.activity), requests.handler.clone());
    let mut builder = conn::http1::Builder::new();
    builder
        .half_close(false)
        .max_buf_size(limits.header_bytes_max.max(HTTP1_BUFFER_MIN))
        // The watchdog distinguishes an idle connection from a slow request; hyper's timer does not.
        .header_read_timeout(None);
    let monitored = MonitoredIo::new(io, unread, &activity);
    let mut connection = Box::pin(builder.serve_connection(monitored, requests).with_upgrades());
    async move {
        match drive(&mut connection, &activity, &mut ticket, &limits).await {
            Ok(Driven::Detached) => {}
            Ok(Driven::Ended) if activity.lingers.load(Ordering::Relaxed) => {
                if let Some(parts) = unpin(connection).into_parts() {
                    linger(parts.io.io.into_inner(), &limits).await;
                }
                return None;
            }
            Ok(Driven::Ended) => return None,
            Ok(Driven::Stalled) => {
                handler.stalled();
                return None;
            }
            Err(error) => {
                tracing::trace!(%error, "connection ended");
                return None;
            }
        }
        let detached = activity.detached.lock().take()?;
        // Unpinned, so that the connection can be taken apart: hyper's buffers are freed, the socket stays.
        let parts = unpin(connection).into_parts()?;
        // hyper's read buffer precedes the bytes that hyper had not read yet.
        let early = match parts.io.prefix.is_empty() {
            true => parts.read_buf,
            false => [parts.read_buf, parts.io.prefix].concat().into(),
        };
        let keep_alive = detached.keep_alive;
        let now = parts.service.handler.clock().now();
        let (stream, held) = Stream::new(parts.io.io.into_inner(), detached, early, now)?;
        let context = ConnectionContext { requests: parts.service, ticket, limits, keep_alive, held };
        Some(Handover { stream, context: Box::new(context) })
    }
}

/// Serves further requests after a watch, if the client is still connected and the connection is kept alive.
async fn after_watch<IO, H>(handover: Handover<IO, H>, ended: std::io::Result<()>) -> Option<Handover<IO, H>>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let Handover { stream, mut context } = handover;
    context.held = None;
    ended.ok()?;
    let (mut io, early) = stream.into_parts();
    if context.keep_alive {
        return serve_http1(io, early, *context).await;
    }
    let _ = io.shutdown().await;
    None
}

/// Reads and drops what the client still sends after the last response: closing a socket with unread bytes resets the
/// connection, and the client would not see the response.
async fn linger<IO: AsyncRead + Unpin>(mut io: IO, limits: &Limits) {
    let reading = async {
        let (mut unread, mut left) = ([0; 4096], limits.body_bytes_max.saturating_mul(4));
        while let Ok(count @ 1..) = io.read(&mut unread).await {
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(limits.discard_timeout, reading).await;
}

fn unpin<T: Unpin>(pinned: Pin<Box<T>>) -> T {
    *Pin::into_inner(pinned)
}

/// The smallest buffer that hyper accepts.
const HTTP1_BUFFER_MIN: usize = 8192;

/// A connection of either protocol, as [`drive`] uses it.
pub(crate) trait GracefulShutdown: Future<Output = hyper::Result<()>> {
    fn start_shutdown(self: Pin<&mut Self>);
}

impl<IO, S> GracefulShutdown for conn::http1::UpgradeableConnection<IO, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = ResponseBody>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    IO: Read + Write + Unpin + Send + 'static,
{
    fn start_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// The result of [`drive`].
#[derive(Debug, PartialEq, Eq)]
enum Driven {
    Ended,
    /// A watch takes the socket over.
    Detached,
    /// The client took no byte of a response for too long.
    Stalled,
}

/// Polls a connection, its watchdog, and the drain of the server.
async fn drive<C: GracefulShutdown>(
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
            if activity.has_detached.swap(false, Ordering::Relaxed) {
                return Poll::Ready(Ok(Driven::Detached));
            }
            if !ending && (drain.poll_begun(cx) || activity.close_after_response.load(Ordering::Relaxed)) {
                ending = true;
                connection.as_mut().start_shutdown();
                continue;
            }
            if watchdog.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match activity.idle_state(limits) {
                IdleState::Fine(_) if activity.is_active() => {
                    if activity.next_period() {
                        return Poll::Ready(Ok(Driven::Stalled));
                    }
                    watchdog.as_mut().reset(Instant::now() + limits.response_stall_timeout / STALL_PERIODS);
                }
                IdleState::Fine(wait) => watchdog.as_mut().reset(Instant::now() + wait),
                IdleState::Idle => {
                    // A connection that does not end now gets the same time once more.
                    watchdog.as_mut().reset(Instant::now() + limits.idle_timeout);
                    if ending {
                        return Poll::Ready(Ok(Driven::Ended));
                    }
                    ending = true;
                    connection.as_mut().start_shutdown();
                }
                IdleState::TooSlow => return Poll::Ready(Ok(Driven::Ended)),
            }
        }
    })
    .await
}

/// Full periods of the watchdog without a byte sent after which a response is stalled.
const STALL_PERIODS: u32 = 2;

/// Progress of a connection, for its watchdog. Times are milliseconds since `began`; zero means never.
pub(crate) struct Activity {
    protocol: Protocol,
    began: Instant,
    /// Requests whose response is not fully sent.
    active: AtomicUsize,
    /// The end of the last response.
    idle_since: AtomicU64,
    /// Arrival of the first byte after the last answered request.
    read_at: AtomicU64,
    /// Counts the periods of the watchdog while requests are active.
    period: AtomicUsize,
    /// Responses that are not fully sent, by the period in which a byte of them was sent last, modulo the length.
    unsent: [AtomicUsize; STALL_PERIODS as usize + 2],
    /// A request was refused before its body was read: what the client still sends is read before the socket is closed.
    lingers: AtomicBool,
    /// Set when a request was refused with 401: the client is not authenticated and the connection is closed.
    close_after_response: AtomicBool,
    /// A watch that takes the socket over; locked only when `has_detached` is set.
    detached: Mutex<Option<DetachedWatch>>,
    has_detached: AtomicBool,
}

/// A watch response that takes the socket over from hyper.
pub(crate) struct DetachedWatch {
    pub(crate) response: Response<ResponseBody>,
    /// Whether another request may follow the watch.
    pub(crate) keep_alive: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum IdleState {
    /// Within the limits; check again after this time.
    Fine(Duration),
    /// No request for longer than the limit.
    Idle,
    /// The headers of a request took longer than the limit.
    TooSlow,
}

impl Activity {
    fn new(protocol: Protocol) -> Self {
        Activity {
            protocol,
            began: Instant::now(),
            active: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            read_at: AtomicU64::new(0),
            period: AtomicUsize::new(0),
            unsent: Default::default(),
            lingers: AtomicBool::new(false),
            close_after_response: AtomicBool::new(false),
            detached: Mutex::new(None),
            has_detached: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn mark_read(&self) {
        if self.active.load(Ordering::Relaxed) == 0 && self.read_at.load(Ordering::Relaxed) == 0 {
            self.read_at.store(self.now(), Ordering::Relaxed);
        }
    }

    fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    fn unsent(&self, period: usize) -> &AtomicUsize {
        &self.unsent[period % self.unsent.len()]
    }

    /// Begins another period of the watchdog; returns whether a response made no progress for [`STALL_PERIODS`].
    fn next_period(&self) -> bool {
        let period = self.period.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // The oldest count that is still kept: one period is the current one, one may have begun shortly before its end.
        self.unsent(period.wrapping_add(1)).load(Ordering::Relaxed) > 0
    }

    fn idle_state(&self, limits: &Limits) -> IdleState {
        if self.is_active() {
            return IdleState::Fine(limits.idle_timeout);
        }
        let now = self.now();
        let left = |since: u64, limit: Duration| limit.checked_sub(Duration::from_millis(now.saturating_sub(since)));
        let read_at = self.read_at.load(Ordering::Relaxed);
        // HTTP/2 sends pings and settings between requests.
        if self.protocol == Protocol::Http1 && read_at > 0 {
            return match left(read_at, limits.header_read_timeout) {
                None | Some(Duration::ZERO) => IdleState::TooSlow,
                Some(wait) => IdleState::Fine(wait),
            };
        }
        match left(self.idle_since.load(Ordering::Relaxed), limits.idle_timeout) {
            None | Some(Duration::ZERO) => IdleState::Idle,
            Some(wait) => IdleState::Fine(wait.min(limits.header_read_timeout)),
        }
    }
}

/// Counts one request until its response is sent.
struct Active(Arc<Activity>);

impl Active {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.active.fetch_add(1, Ordering::Relaxed);
        activity.read_at.store(0, Ordering::Relaxed);
        Active(Arc::clone(activity))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response that is not fully sent, and its place among the requests in flight.
struct Sending {
    active: Active,
    /// The period in which a byte was sent last.
    period: usize,
    _place: Option<Place>,
}

impl Sending {
    fn new(active: Active, place: Option<Place>) -> Self {
        let period = active.0.period.load(Ordering::Relaxed);
        active.0.unsent(period).fetch_add(1, Ordering::Relaxed);
        Sending { active, period, _place: place }
    }
}

impl Unsent for Sending {
    fn progressed(&mut self) {
        let activity = &self.active.0;
        let period = activity.period.load(Ordering::Relaxed);
        if period != self.period {
            activity.unsent(period).fetch_add(1, Ordering::Relaxed);
            activity.unsent(self.period).fetch_sub(1, Ordering::Relaxed);
            self.period = period;
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.active.0.unsent(self.period).fetch_sub(1, Ordering::Relaxed);
    }
}

/// The service that hyper calls for each request.
pub(crate) struct RequestService<H> {
    handler: H,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    lease: Lease,
}

impl<H: Handler> Service<Request<Incoming>> for RequestService<H> {
    type Response = Response<ResponseBody>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Broken>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let active = Active::new(&self.activity);
        let version = request.version();
        // A watch may take the socket over if nothing else uses it: no unread body, no older protocol.
        let may_detach =
            version == Version::HTTP_11 && request.method() != Method::HEAD && request.body().is_end_stream();
        let keep_alive = !has_connection_close(request.headers());
        request.extensions_mut().insert(self.lease.clone());
        let mut response = self.handler.handle(request.map(RequestBody::from), &self.peer);
        if version == Version::HTTP_2 {
            response = multiplex::spawn_response(response);
        }
        Box::pin(async move {
            let mut response = response.await;
            if response.extensions().get::<LostAnswer>().is_some() {
                return Err(Broken);
            }
            if version == Version::HTTP_2
                && (response.status() == StatusCode::UNAUTHORIZED || has_connection_close(response.headers()))
            {
                // HTTP/2 has no such header: the connection ends with GOAWAY.
                response.headers_mut().remove(http::header::CONNECTION);
                active.0.close_after_response.store(true, Ordering::Relaxed);
            }
            if may_detach && response.body().is_watch() {
                let activity = Arc::clone(&active.0);
                let response = response.map(|body| body.holding(active));
                *activity.detached.lock() = Some(DetachedWatch { response, keep_alive });
                activity.has_detached.store(true, Ordering::Relaxed);
                // `drive` sees the flag next and takes the connection apart.
                match std::future::pending::<Infallible>().await {}
            }
            if version != Version::HTTP_2 && has_connection_close(response.headers()) {
                active.0.lingers.store(true, Ordering::Relaxed);
            }
            Ok(response.map(|mut body| match body.is_watch() {
                true => body.holding(active),
                false => {
                    let place = body.take_place();
                    body.until_sent(Sending::new(active, place))
                }
            }))
        })
    }
}

fn has_connection_close(headers: &http::HeaderMap) -> bool {
    headers
        .get_all(http::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("close"))
}

/// A socket that records reads in [`Activity`] and writes in turns.
pub(crate) struct MonitoredIo<IO> {
    io: TokioIo<IO>,
    /// Bytes read before hyper owned the socket; hyper reads these first.
    prefix: Bytes,
    activity: Arc<Activity>,
    turn: Turn,
}

impl<IO> MonitoredIo<IO> {
    pub(crate) fn new(io: IO, prefix: Bytes, activity: &Arc<Activity>) -> Self {
        MonitoredIo { io: TokioIo::new(io), prefix, activity: Arc::clone(activity), turn: Turn::default() }
    }
}

impl<IO: AsyncRead + Unpin> Read for MonitoredIo<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if !this.prefix.is_empty() {
            let count = this.prefix.len().min(buf.remaining());
            buf.put_slice(&this.prefix.split_to(count));
            this.activity.mark_read();
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        if read.is_ready() {
            this.activity.mark_read();
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> Write for MonitoredIo<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let MonitoredIo { io, turn, .. } = self.get_mut();
        turn.poll_write(cx, |cx| Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let MonitoredIo { io, turn, .. } = self.get_mut();
        turn.poll_write(cx, |cx| Pin::new(io).poll_write_vectored(cx, bufs))
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

    #[test]
    fn a_response_without_progress_is_stalled_after_two_whole_periods() {
        let activity = Arc::new(Activity::new(Protocol::Http2));
        let _watch = Active::new(&activity);
        assert!((0..10).all(|_| !activity.next_period()), "a watch is not a response that could stall");
        let mut slow = Sending::new(Active::new(&activity), None);
        for _ in 0..10 {
            assert!(!activity.next_period() && !activity.next_period());
            slow.progressed();
        }
        let stalled = Sending::new(Active::new(&activity), None);
        let periods = (1..).find(|_| {
            slow.progressed();
            activity.next_period()
        });
        assert_eq!(periods, Some(3), "part of a period, and two whole ones");
        drop((stalled, slow));
        assert!((0..10).all(|_| !activity.next_period()));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_and_slow_headers_are_distinguished() {
        let limits = Limits::default();
        let after = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let activity = Arc::new(Activity::new(Protocol::Http1));
        after(40).await;
        assert!(matches!(activity.idle_state(&limits), IdleState::Fine(_)), "nothing was sent yet");
        activity.mark_read();
        after(31).await;
        assert_eq!(activity.idle_state(&limits), IdleState::Fine(Duration::from_secs(1)));
        after(1).await;
        assert_eq!(activity.idle_state(&limits), IdleState::TooSlow);
        let active = Active::new(&activity);
        after(1000).await;
        assert_eq!(activity.idle_state(&limits), IdleState::Fine(limits.idle_timeout), "a watch may last");
        drop(active);
        after(89).await;
        assert_eq!(activity.idle_state(&limits), IdleState::Fine(Duration::from_secs(1)));
        after(1).await;
        assert_eq!(activity.idle_state(&limits), IdleState::Idle);
    }
}
