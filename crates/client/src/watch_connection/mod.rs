//! A connection for one watch, read by the task that reads the watch.
//!
//! Below `kube`'s client each connection has a task of its own. An event then takes two tasks and three polls: the
//! connection's task reads the socket and sends the bytes on; the reader's task receives them and requests more; and the
//! connection's task runs once more for that request. A watch does not share its connection, so here its reader reads the
//! socket itself, and an event is one poll of one task.
//!
//! HTTP/1.1 is implemented here, with `httparse` for the head and the chunk sizes, although `hyper::client::conn::http1` could
//! be polled in the same task: without hyper between the reader and TLS an event of an informer costs 88 µs instead of 107 µs
//! (measured side by side, `cargo xtask informers`). The code is small because a watch is one request without a body, on a
//! connection that is never reused.
//!
//! - this file: selects the watches among all requests, and opens a connection for each
//! - `exchange`: sends the request and reads the head of the response
//! - `body`: reads the body of the response
//!
//! All other requests use `kube`'s client: they are short, and a pool of connections pays off for them.

mod body;
mod exchange;

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::TryFutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use http_body::Body as HttpBody;
use hyper::rt;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tower::{Layer, Service, ServiceExt};

pub use body::ResponseBody;
pub use exchange::exchange;

/// The error of a connection, below the classes of [`crate::Error`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin>;

/// Layer that routes watches to `watches` and all other requests to the inner service.
#[derive(Clone)]
pub(crate) struct WatchLayer<W> {
    pub(crate) watches: W,
}

impl<W: Clone, S> Layer<S> for WatchLayer<W> {
    type Service = WatchRouter<W, S>;

    fn layer(&self, others: S) -> Self::Service {
        WatchRouter { watches: self.watches.clone(), others }
    }
}

/// The service of a [`WatchLayer`].
pub(crate) struct WatchRouter<W, S> {
    watches: W,
    others: S,
}

impl<W, S> Service<Request<Body>> for WatchRouter<W, S>
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
        if !is_watch(&request) {
            return Box::pin(self.others.call(request));
        }
        Box::pin(self.watches.clone().oneshot(request))
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default().as_bytes();
    request.method() == Method::GET
        && form_urlencoded::parse(query).any(|(name, value)| name == "watch" && matches!(&*value, "true" | "1"))
}

/// Service that opens a connection for each request.
#[derive(Clone)]
pub(crate) struct DedicatedConnections<C> {
    pub(crate) connector: C,
    /// Limit for the whole handshake, TLS included.
    pub(crate) connect_timeout: Option<Duration>,
}

impl<C> Service<Request<Body>> for DedicatedConnections<C>
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
        let Self { connector, connect_timeout } = self.clone();
        Box::pin(async move {
            let connect = connector.oneshot(request.uri().clone()).map_err(Into::into);
            let io = match connect_timeout {
                Some(limit) => tokio::time::timeout(limit, connect).await.map_err(|_| Box::new(ConnectTimeout))??,
                None => connect.await?,
            };
            let response = exchange(TokioIo::new(io), &request.into_parts().0).await?;
            Ok(response.map(|body| Box::new(body) as AnyBody))
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("connecting timed out")]
struct ConnectTimeout;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_handshake_without_a_response_times_out() {
        let silent =
            tower::service_fn(|_: Uri| std::future::pending::<Result<TokioIo<tokio::io::DuplexStream>, BoxError>>());
        let own = DedicatedConnections { connector: silent, connect_timeout: Some(Duration::from_secs(30)) };
        let request = Request::get("https://h/api/v1/pods?watch=1").body(Body::empty()).unwrap();
        let error = own.oneshot(request).await.err().map(|error| crate::Error::from_transport(&*error));
        let kind = crate::error::TransportKind::Timeout;
        assert!(matches!(error, Some(crate::Error::Transport { kind: found, .. }) if found == kind), "{error:?}");
    }

    #[test]
    fn only_get_requests_with_watch_set_are_watches() {
        for (method, uri, watches) in [
            ("GET", "/api/v1/pods?watch=true&resourceVersion=5", true),
            ("GET", "/api/v1/pods?labelSelector=a&watch=1", true),
            ("GET", "/api/v1/pods?watch=false", false),
            ("GET", "/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("GET", "/api/v1/pods", false),
            ("DELETE", "/api/v1/pods?watch=true", false),
        ] {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            assert_eq!(is_watch(&request), watches, "{method} {uri}");
        }
    }
}
