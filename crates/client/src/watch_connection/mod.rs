//! A connection for one watch, read where the watch is read.
//!
//! Below `kube`'s client each connection has a task of its own. An event then takes two tasks and three turns: the
//! connection's, which reads the socket and hands the bytes on; the reader's, which asks for more; and the connection's once
//! more, to hear that. A watch shares its connection with nobody, so here whoever reads the watch reads its socket, and an
//! event is one turn of one task.
//!
//! - this file: which requests come here, and opening a connection for each
//! - `exchange`: the request sent, the head of its answer read
//! - `body`: the body of the answer, cut out of what the socket brings
//!
//! Everything else a client sends goes the usual way: it is short, and there a pool of connections pays.

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

use exchange::exchange;

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
        let Self { connector, connect_timeout } = self.clone();
        Box::pin(async move {
            let connect = connector.oneshot(request.uri().clone()).map_err(Into::into);
            let io = match connect_timeout {
                Some(limit) => tokio::time::timeout(limit, connect).await.map_err(|_| Box::new(TooSlow))??,
                None => connect.await?,
            };
            let answer = exchange(TokioIo::new(io), &request.into_parts().0).await?;
            Ok(answer.map(|body| Box::new(body) as AnyBody))
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("connecting timed out")]
struct TooSlow;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_a_handshake_is_given_up_in_time() {
        let silent =
            tower::service_fn(|_: Uri| std::future::pending::<Result<TokioIo<tokio::io::DuplexStream>, BoxError>>());
        let own = OwnConnection { connector: silent, connect_timeout: Some(Duration::from_secs(30)) };
        let request = Request::get("https://h/api/v1/pods?watch=1").body(Body::empty()).unwrap();
        let error = own.oneshot(request).await.err().map(|error| crate::Error::from_transport(&*error));
        let kind = crate::error::TransportKind::Timeout;
        assert!(matches!(error, Some(crate::Error::Transport { kind: found, .. }) if found == kind), "{error:?}");
    }

    #[test]
    fn watches_are_told_from_everything_else() {
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
