//! The server for callers in the same process: a tower service, without a socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::identity::User;
use bytes::Bytes;
use http::{HeaderValue, Request, header};

use crate::disturbance::LostAnswer;
use crate::service::Server;
use crate::wire::body::{Broken, BytesBody, RequestBody};
use crate::wire::peer::Peer;

impl Server {
    /// The server as a tower service for a caller in the same process, authenticated as this user:
    /// `kube::Client::new(server.in_process(user), "default")`.
    #[must_use]
    pub fn in_process(&self, user: User) -> InProcess {
        InProcess { server: self.clone(), peer: Arc::new(Peer::in_process(user)), agent: None }
    }
}

/// A caller in the same process. Implements tower's `Service`.
#[derive(Clone)]
pub struct InProcess {
    server: Server,
    peer: Arc<Peer>,
    agent: Option<HeaderValue>,
}

impl InProcess {
    /// Sets the user agent of requests that have none; managed fields and the log name it.
    #[must_use]
    pub fn agent(mut self, program: &'static str) -> Self {
        self.agent = Some(HeaderValue::from_static(program));
        self
    }

    /// Not generic, so that requests are compiled in this crate and not for each type of body in the caller's.
    fn respond(&self, request: Request<RequestBody>) -> InProcessFuture {
        let (server, peer) = (self.server.clone(), Arc::clone(&self.peer));
        Box::pin(async move {
            let reply = server.call(request, peer).await;
            match reply.extensions().get::<LostAnswer>() {
                Some(_) => Err(Broken),
                None => Ok(reply.map(BytesBody::from)),
            }
        })
    }
}

type InProcessFuture = Pin<Box<dyn Future<Output = Result<http::Response<BytesBody>, Broken>> + Send>>;

impl<B> tower_service::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<BytesBody>;
    type Error = Broken;
    type Future = InProcessFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(agent) = &self.agent {
            request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| agent.clone());
        }
        self.respond(request.map(RequestBody::other))
    }
}
