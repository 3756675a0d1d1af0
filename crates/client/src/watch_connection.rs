//! A connection for one watch, read where the watch is read.
//!
//! Below `kube`'s client each connection has a task of its own. An event then takes two tasks and three turns: the
//! connection's, which reads the socket and hands the bytes on; the reader's, which asks for more; and the connection's once
//! more, to hear that. A watch shares its connection with nobody, so here whoever reads the watch moves its connection too,
//! and an event is one turn of one task.
//!
//! Everything else a client sends goes the usual way: it is short, and there a pool of connections pays.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt;
use kube::client::Body;
use tower::{Layer, Service};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin>;

/// Sends watches one way and everything else another.
#[derive(Clone)]
pub(crate) struct ByVerb<W> {
    pub(crate) watches: W,
}

impl<W: Clone, S> Layer<S> for ByVerb<W> {
    type Service = Ways<W, S>;

    fn layer(&self, others: S) -> Self::Service {
        Ways { watches: self.watches.clone(), others }
    }
}

/// The two ways.
pub(crate) struct Ways<W, S> {
    watches: W,
    others: S,
}

impl<W, S> Service<Request<Body>> for Ways<W, S>
where
    W: Service<Request<Body>, Response = Response<AnyBody>, Error = BoxError> + Clone + Send + 'static,
    W::Future: Send,
    S: Service<Request<Body>, Response = Response<AnyBody>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.others.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !is_watch(request.uri()) {
            return Box::pin(self.others.call(request));
        }
        let mut watches = self.watches.clone();
        Box::pin(async move {
            poll_fn(|cx| watches.poll_ready(cx)).await?;
            watches.call(request).await
        })
    }
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default().as_bytes();
    form_urlencoded::parse(query).any(|(name, value)| name == "watch" && matches!(&*value, "true" | "1"))
}

/// Opens a connection for each request it is given.
#[derive(Clone)]
pub(crate) struct OwnConnection<C> {
    pub(crate) connector: C,
    /// For the connection to stand, TLS included.
    pub(crate) connect_timeout: Option<Duration>,
}

impl<C> Service<Request<Body>> for OwnConnection<C>
where
    C: Service<Uri> + Clone + Send + 'static,
    C::Response: rt::Read + rt::Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { mut connector, connect_timeout } = self.clone();
        Box::pin(async move {
            let address = request.uri().clone();
            let connect = async {
                poll_fn(|cx| connector.poll_ready(cx)).await.map_err(Into::into)?;
                connector.call(address).await.map_err(Into::into)
            };
            let io = match connect_timeout {
                Some(limit) => tokio::time::timeout(limit, connect).await.map_err(|_| Box::new(TooSlow))??,
                None => connect.await?,
            };
            let (mut sender, connection) = http1::handshake(io).await?;
            let mut connection = Moved::new(connection);
            let answer = sender.send_request(to_origin(request)?);
            let response = connection.beside(answer).await?;
            Ok(response.map(|body| Box::new(WatchBody { connection, body }) as AnyBody))
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("connecting timed out")]
struct TooSlow;

/// The request as a server reads it: its path alone, and the host as a header.
fn to_origin(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let uri = std::mem::take(request.uri_mut());
    if let Some(authority) = uri.authority()
        && !request.headers().contains_key(header::HOST)
    {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        request.headers_mut().insert(header::HOST, HeaderValue::from_str(host)?);
    }
    *request.uri_mut() = uri.path_and_query().map_or(Ok(Uri::from_static("/")), |path| path.as_str().parse())?;
    Ok(request)
}

/// The two need two or three. A socket whose task has had its share of work asks to be polled again, and means later.
const ROUNDS_MAX: usize = 8;

/// A connection and its turns, which are taken by whoever waits for what it brings.
struct Moved<C> {
    /// Unset once it has ended.
    connection: Option<C>,
    turn: Arc<Turn>,
    /// Of `turn`.
    waker: Waker,
}

impl<C: Future<Output = hyper::Result<()>> + Unpin> Moved<C> {
    fn new(connection: C) -> Self {
        let turn = Arc::<Turn>::default();
        Self { connection: Some(connection), waker: turn.clone().into(), turn }
    }

    /// Moves the connection until `wanted` is there, or both have to wait. What the two tell each other wakes nobody: it only
    /// makes this go round once more.
    fn poll<T>(&mut self, cx: &Context<'_>, mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.turn.begin(cx.waker());
        for _ in 0..ROUNDS_MAX {
            let mut own = Context::from_waker(&self.waker);
            if let Some(connection) = &mut self.connection
                && Pin::new(connection).poll(&mut own).is_ready()
            {
                // Why it ended is told to whoever waits for its answer or its body.
                self.connection = None;
            }
            if let Poll::Ready(ready) = wanted(&mut own) {
                self.turn.end();
                return Poll::Ready(ready);
            }
            if self.turn.pause() {
                return Poll::Pending;
            }
        }
        self.turn.end();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    async fn beside<F: Future>(&mut self, wanted: F) -> F::Output {
        let mut wanted = std::pin::pin!(wanted);
        poll_fn(|cx| self.poll(cx, |own| wanted.as_mut().poll(own))).await
    }
}

/// Whom to wake: during a turn nobody, only the turn goes on.
#[derive(Default)]
struct Turn {
    state: AtomicU8,
    reader: AtomicWaker,
}

/// Nobody moves the connection: wake the reader.
const AWAY: u8 = 0;
/// The reader moves it.
const HERE: u8 = 1;
/// The reader moves it, and there is more to do.
const MORE: u8 = 2;

impl Turn {
    fn begin(&self, reader: &Waker) {
        self.reader.register(reader);
        self.state.store(HERE, Ordering::SeqCst);
    }

    /// True if there was nothing more to do.
    fn pause(&self) -> bool {
        let paused = self.state.compare_exchange(HERE, AWAY, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !paused {
            self.state.store(HERE, Ordering::SeqCst);
        }
        paused
    }

    /// The reader has something and comes back for more by itself.
    fn end(&self) {
        self.state.store(AWAY, Ordering::SeqCst);
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let here = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now != AWAY).then_some(MORE));
        if here.is_err() {
            self.reader.wake();
        }
    }
}

/// The body of a watch, with its connection. Dropping it closes the connection.
struct WatchBody<C> {
    connection: Moved<C>,
    body: Incoming,
}

impl<C: Future<Output = hyper::Result<()>> + Unpin> HttpBody for WatchBody<C> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { connection, body } = self.get_mut();
        connection.poll(cx, |own| Pin::new(&mut *body).poll_frame(own)).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Reader(AtomicUsize);

    impl Wake for Reader {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_happens_within_a_turn_wakes_nobody_and_is_not_forgotten() {
        let (reader, turn) = (Arc::<Reader>::default(), Arc::<Turn>::default());
        let (readers, turns) = (Waker::from(reader.clone()), Waker::from(turn.clone()));
        let woken = || reader.0.load(Ordering::SeqCst);
        turn.begin(&readers);
        turns.wake_by_ref();
        assert_eq!((turn.pause(), woken()), (false, 0), "go round once more");
        assert_eq!((turn.pause(), woken()), (true, 0));
        turns.wake_by_ref();
        assert_eq!(woken(), 1, "nobody is there: the reader must come");
        turn.begin(&readers);
        turn.end();
        turns.wake_by_ref();
        assert_eq!(woken(), 2);
    }

    #[test]
    fn a_connection_that_always_wants_another_turn_gets_it_later() {
        let restless = poll_fn(|cx: &mut Context<'_>| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let reader = Arc::<Reader>::default();
        let readers = Waker::from(reader.clone());
        let mut connection = Moved::new(restless);
        assert_eq!(connection.poll(&Context::from_waker(&readers), |_| Poll::<()>::Pending), Poll::Pending);
        assert_eq!(reader.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn watches_are_told_from_everything_else() {
        for (uri, watches) in [
            ("/api/v1/pods?watch=true&resourceVersion=5", true),
            ("/api/v1/pods?labelSelector=a&watch=1", true),
            ("/api/v1/pods?watch=false", false),
            ("/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("/api/v1/pods", false),
        ] {
            assert_eq!(is_watch(&Uri::from_static(uri)), watches, "{uri}");
        }
    }

    #[test]
    fn a_server_is_asked_by_path_and_host() {
        let sent = |uri: &'static str| {
            let request = to_origin(Request::get(uri).body(Body::empty()).unwrap()).unwrap();
            (request.uri().to_string(), request.headers()[header::HOST].to_str().unwrap().to_owned())
        };
        assert_eq!(sent("https://[::1]:6443/api?watch=1"), ("/api?watch=1".to_owned(), "[::1]:6443".to_owned()));
        assert_eq!(sent("https://user:word@example.com"), ("/".to_owned(), "example.com".to_owned()));
    }
}
