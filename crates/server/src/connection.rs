//! One connection: HTTP/1.1 or HTTP/2 over a socket, watched for silence, ended gently when the server stops.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::body::{RequestBody, ResponseBody};
use crate::drain::Drain;
use crate::limits::Limits;
use crate::peer::Peer;

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
pub async fn serve<IO, H>(io: IO, protocol: Protocol, handler: H, peer: Peer, limits: &Limits, lease: Lease)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let activity = Arc::new(Activity::new(protocol));
    let ticket = handler.drain().ticket();
    let io = Heard { io: TokioIo::new(io), activity: Arc::clone(&activity) };
    let service = Requests { handler, peer: Arc::new(peer), activity: Arc::clone(&activity), lease };
    // Boxed, so that the task of an idle connection is as large as its protocol needs and no larger.
    let ended = match protocol {
        Protocol::Http1 => {
            let mut builder = conn::http1::Builder::new();
            builder
                .half_close(false)
                .max_buf_size(limits.header_bytes_max.max(HTTP1_BUFFER_MIN))
                // The watchdog knows a silent connection from a slow request; hyper's timer does not.
                .header_read_timeout(None);
            let connection = Box::pin(builder.serve_connection(io, service).with_upgrades());
            Box::pin(drive(connection, &activity, ticket, limits)).await
        }
        Protocol::Http2 => {
            let mut builder = conn::http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.streams_per_connection_max)
                .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
                .initial_stream_window_size(HTTP2_WINDOW)
                .initial_connection_window_size(HTTP2_WINDOW * 4)
                .max_frame_size(HTTP2_FRAME)
                // What a stream may hold beyond what the client's window allows: one batch, then it waits.
                .max_send_buf_size(limits.watch_batch_bytes_max)
                .keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
            let connection = Box::pin(builder.serve_connection(io, service));
            Box::pin(drive(connection, &activity, ticket, limits)).await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "connection ended");
    }
}

/// hyper takes no smaller one.
const HTTP1_BUFFER_MIN: usize = 8192;
const HTTP2_WINDOW: u32 = 256 * 1024;
const HTTP2_FRAME: u32 = 64 * 1024;
/// A peer that vanished without a word is noticed after both of these.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// hyper's two connections, as far as [`drive`] needs them.
trait Gentle: Future<Output = hyper::Result<()>> {
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

impl<IO, H> Gentle for conn::http2::Connection<IO, Requests<H>, TokioExecutor>
where
    IO: Read + Write + Unpin,
    H: Handler,
{
    fn end_gently(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Polls a connection, its watchdog, and the sign that the server stops.
async fn drive<C: Gentle>(
    mut connection: Pin<Box<C>>,
    activity: &Activity,
    mut drain: crate::drain::Ticket,
    limits: &Limits,
) -> hyper::Result<()> {
    let mut ending = false;
    let mut watchdog = pin!(tokio::time::sleep(limits.header_read_timeout.min(limits.idle_timeout)));
    poll_fn(move |cx| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
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
                        return Poll::Ready(Ok(()));
                    }
                    ending = true;
                    connection.as_mut().end_gently();
                }
                Judgement::TooSlow => return Poll::Ready(Ok(())),
            }
        }
    })
    .await
}

/// What a connection is doing, for its watchdog. Times are milliseconds since it began; zero is never.
#[derive(Debug)]
struct Activity {
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
struct Requests<H> {
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
        let http2 = request.version() == Version::HTTP_2;
        request.extensions_mut().insert(self.lease.clone());
        let answer = self.handler.handle(request.map(RequestBody::from), &self.peer);
        Box::pin(async move {
            let response = answer.await;
            if http2 && response.status() == StatusCode::UNAUTHORIZED {
                active.0.unwelcome.store(true, Ordering::Relaxed);
            }
            Ok(response.map(|body| body.holding(active)))
        })
    }
}

/// A socket that tells when something was read from it.
struct Heard<IO> {
    io: TokioIo<IO>,
    activity: Arc<Activity>,
}

impl<IO: AsyncRead + Unpin> Read for Heard<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
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
