//! Calls of the server by itself: a webhook at `kubernetes.default.svc`, which an aggregated server serves behind us.

use std::sync::{OnceLock, Weak};

use access::identity::User;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use outbound::{Answer, Error, ErrorKind, Request};
use tower_service::Service as _;

use crate::certs::ADMIN_GROUP;
use crate::limits::Slots;
use crate::service::{Inner, Server};

/// The user of calls that the server makes to itself.
const USER: &str = "system:apiserver";

/// The server, once there is one. Weak, since it holds the registry, which holds what calls webhooks.
#[derive(Default)]
pub(crate) struct OwnServer(OnceLock<Weak<Inner>>);

impl std::fmt::Debug for OwnServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnServer")
    }
}

impl OwnServer {
    pub(crate) fn set(&self, server: &Server) {
        let _ = self.0.set(std::sync::Arc::downgrade(&server.0));
    }

    /// Handles a request without a connection.
    pub(crate) async fn send(&self, url: &str, request: Request, budget: Slots) -> Result<Answer, Error> {
        let Some(inner) = self.0.get().and_then(Weak::upgrade) else {
            return Err(Error::new(ErrorKind::Resolution, "the server is not ready"));
        };
        let uri: http::Uri = url.parse().map_err(|error| Error::new(ErrorKind::Configuration, format!("{error}")))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let timeout = request.timeout;
        let mut call = http::Request::new(Full::new(request.body));
        *call.method_mut() = request.method;
        *call.uri_mut() = path.parse().map_err(|error| Error::new(ErrorKind::Configuration, format!("{error}")))?;
        *call.headers_mut() = request.headers;
        let bytes_max = inner.limits.webhook_response_bytes_max;
        let groups = [ADMIN_GROUP, "system:authenticated"].map(str::to_owned).into();
        let user = User { name: USER.to_owned(), groups, ..User::default() };
        let answer = async {
            let Ok(response) = Server(inner).in_process(user).call(call).await;
            let (head, body) = response.into_parts();
            let body = read(body, bytes_max, &budget).await?;
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        // The server's own limits end a call too; this is the webhook's.
        tokio::time::timeout(timeout, Box::pin(answer))
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "context deadline exceeded")))
    }
}

async fn read(mut body: crate::wire::body::BytesBody, bytes_max: usize, budget: &Slots) -> Result<Bytes, Error> {
    let mut charged = budget.force(0);
    let mut whole = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(Error::new(ErrorKind::TooLarge, format!("the answer has more than {bytes_max} bytes")));
        }
        if !charged.grow(data.len()) {
            return Err(Error::new(ErrorKind::NoBudget, "the answers of all calls are too large together"));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}
