//! Calls of the server by itself: a webhook at `kubernetes.default.svc`, which an aggregated server serves behind us.
//!
//! Such a call may need a webhook in turn, which may be the same one. Each call is a task of its own, so that calls within
//! calls do not use up the stack of one thread, and knows how many calls it is within, and how many the client's request has
//! caused altogether.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use access::identity::User;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use outbound::{Answer, Error, ErrorKind, Request};
use tokio::task::JoinSet;
use tower_service::Service as _;

use crate::certs::ADMIN_GROUP;
use crate::limits::{Slot, Slots};
use crate::service::{Inner, Server};

/// The user of calls that the server makes to itself.
const USER: &str = "system:apiserver";
/// Calls of the server by itself that may be within one another. A webhook behind an aggregated server needs one.
const DEPTH_MAX: usize = 8;

/// Calls of the server by itself for one request of a client, in all. Each call may need several webhooks, so that the depth alone
/// would allow very many.
const CALLS_MAX: usize = 100;

tokio::task_local! {
    /// The calls that the request of this task belongs to.
    static CHAIN: Chain;
}

/// Calls of the server by itself for one request of a client.
#[derive(Clone, Debug, Default)]
struct Chain {
    /// How many calls this request is within.
    depth: usize,
    /// How many were made for the client's request so far.
    made: Arc<AtomicUsize>,
}

impl Chain {
    fn current() -> Chain {
        CHAIN.try_with(Chain::clone).unwrap_or_default()
    }

    /// Counts one more call, and returns the chain that it is in.
    fn extend(&self) -> Result<Chain, Error> {
        let refuse = |why: String| Err(Error::new(ErrorKind::Configuration, why));
        if self.depth >= DEPTH_MAX {
            return refuse(format!("the server already calls itself {DEPTH_MAX} times for this request"));
        }
        if self.made.fetch_add(1, Ordering::Relaxed) >= CALLS_MAX {
            return refuse(format!("the server has already made {CALLS_MAX} calls to itself for this request"));
        }
        Ok(Chain { depth: self.depth + 1, made: Arc::clone(&self.made) })
    }
}

/// Work for the request of this task that another task is to do: calls are counted there as they are here.
pub(crate) fn within_same_calls<F: Future>(work: F) -> impl Future<Output = F::Output> {
    CHAIN.scope(Chain::current(), work)
}

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
        let _ = self.0.set(Arc::downgrade(&server.0));
    }

    /// Handles a request without a connection.
    pub(crate) async fn send(&self, url: &str, request: Request, budget: Slots) -> Result<Answer, Error> {
        let Some(inner) = self.0.get().and_then(Weak::upgrade) else {
            return Err(Error::new(ErrorKind::Resolution, "the server is not ready"));
        };
        let chain = Chain::current().extend()?;
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
        let answer = async move {
            let answered = Server(inner).in_process(user).call(call).await;
            let response = answered.map_err(|error| Error::new(ErrorKind::Closed, error.to_string()))?;
            let (head, body) = response.into_parts();
            let body = read(body, bytes_max, &budget).await?;
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        // Dropping the set aborts the call.
        let mut task = JoinSet::new();
        task.spawn(CHAIN.scope(chain, answer));
        // The server's own limits end a call too; this is the webhook's.
        match tokio::time::timeout(timeout, task.join_next()).await {
            Ok(Some(Ok(answer))) => answer,
            Ok(_) => Err(Error::new(ErrorKind::Closed, "the call ended without an answer")),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "context deadline exceeded")),
        }
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
    Ok(Bytes::from_owner(Charged { bytes: whole, _charged: charged }))
}

/// Bytes that are charged for as long as they exist.
struct Charged {
    bytes: Vec<u8>,
    _charged: Slot,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::body::ResponseBody;

    #[tokio::test]
    async fn answers_are_charged_until_they_are_dropped() {
        let budget = Slots::new("bytes", 5);
        let answer = |text: &'static str| ResponseBody::whole(Bytes::from_static(text.as_bytes())).into();
        let first = read(answer("abc"), 5, &budget).await.unwrap();
        assert_eq!((&*first, budget.taken()), (&b"abc"[..], 3));
        let refused = read(answer("def"), 5, &budget).await.unwrap_err();
        assert_eq!((refused.kind(), budget.taken()), (ErrorKind::NoBudget, 3));
        drop(first);
        assert_eq!(budget.taken(), 0);
        assert!(read(answer("def"), 5, &budget).await.is_ok());
        assert_eq!(read(answer("abcdef"), 5, &budget).await.unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[tokio::test]
    async fn another_task_of_a_request_is_within_the_same_calls() {
        assert_eq!(Chain::current().depth, 0);
        let chain = Chain { depth: 3, ..Chain::default() };
        let there = || async { tokio::spawn(within_same_calls(async { Chain::current() })).await.unwrap() };
        let there = CHAIN.scope(chain.clone(), async { there().await }).await;
        assert_eq!(there.depth, 3);
        assert!(Arc::ptr_eq(&there.made, &chain.made));
    }

    #[test]
    fn calls_are_bounded_in_depth_and_in_number() {
        let mut chain = Chain::default();
        for _ in 0..DEPTH_MAX {
            chain = chain.extend().unwrap();
        }
        assert!(chain.extend().unwrap_err().to_string().contains("8 times"));
        // Two calls within each call would be 510; the branches share one count.
        fn calls(chain: &Chain) -> usize {
            (0..2).filter_map(|_| chain.extend().ok()).map(|within| 1 + calls(&within)).sum()
        }
        assert_eq!(calls(&Chain::default()), CALLS_MAX);
    }
}
