//! Sends requests and reads answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::connect::{Connection, connect};
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};
use crate::go_text;
use crate::pool::{Key, Pool};
use crate::tls::{Tls, TlsCache, TlsOptions};

/// The body of a request that is sent.
pub type OutgoingBody = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A body without bytes.
#[must_use]
pub fn empty() -> OutgoingBody {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A body of these bytes.
#[must_use]
pub fn whole(bytes: Bytes) -> OutgoingBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// Bounds of a client.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Largest answer of [`Client::send`].
    pub answer_bytes_max: usize,
    /// Time after which a kept connection is not used again.
    pub idle_timeout: Duration,
    /// Kept connections to one endpoint.
    pub idle_per_endpoint_max: usize,
    /// Kept connections.
    pub idle_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            answer_bytes_max: 64 * 1024 * 1024,
            idle_timeout: Duration::from_secs(90),
            idle_per_endpoint_max: 25,
            idle_max: 256,
        }
    }
}

/// A limit on the bytes of all answers of a client.
pub trait Budget: fmt::Debug + Send + Sync {
    /// Begins an answer.
    fn charge(&self) -> Box<dyn Charge>;
}

/// The share of one answer; released when dropped, with the last reference to the answer's bytes.
pub trait Charge: Send + Sync {
    /// Adds bytes; false when the limit is reached.
    fn grow(&mut self, bytes: usize) -> bool;
}

/// A request whose body and answer are read as a whole.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Time of the whole call: connecting, the request, and reading the answer.
    pub timeout: Duration,
    /// Time for which a loopback address that refuses the connection is tried again.
    pub refused_wait: Duration,
}

impl Request {
    #[must_use]
    pub fn get() -> Self {
        Request {
            method: Method::GET,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: Duration::from_secs(30),
            refused_wait: Duration::ZERO,
        }
    }

    /// A POST of JSON.
    #[must_use]
    pub fn post_json(body: impl Into<Bytes>) -> Self {
        let mut request = Request { method: Method::POST, body: body.into(), ..Request::get() };
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
        request
    }

    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    #[must_use]
    pub fn user_agent(mut self, agent: &'static str) -> Self {
        self.headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        self
    }
}

/// An answer with its whole body. Redirects are answers like others.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A client of HTTPS servers. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    pool: Arc<Pool>,
    tls: Arc<TlsCache>,
    answer_bytes_max: usize,
    budget: Option<Arc<dyn Budget>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("answer_bytes_max", &self.answer_bytes_max).finish_non_exhaustive()
    }
}

impl Client {
    #[must_use]
    pub fn new(limits: ClientLimits) -> Self {
        Client {
            pool: Pool::new(limits.idle_timeout, limits.idle_per_endpoint_max, limits.idle_max),
            tls: Arc::default(),
            answer_bytes_max: limits.answer_bytes_max,
            budget: None,
        }
    }

    /// Charges answers to a budget while they are read and used.
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<dyn Budget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The TLS configuration of these options: made at first use, then shared.
    pub fn tls(&self, options: &TlsOptions) -> Result<Tls, Error> {
        self.tls.get(options)
    }

    /// Sends a request to the path of the endpoint's URL and reads the answer. Errors name method and URL.
    pub async fn send(&self, endpoint: &Endpoint, request: Request) -> Result<Answer, Error> {
        let method = request.method.clone();
        self.exchange(endpoint, request).await.map_err(|error| error.of(&method, endpoint.url()))
    }

    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Answer, Error> {
        let deadline = Instant::now() + request.timeout;
        let path = endpoint.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut head = http::Request::new(whole(request.body));
        *head.method_mut() = request.method;
        *head.uri_mut() = path.parse().map_err(|error| Error::new(ErrorKind::Configuration, format!("{error}")))?;
        *head.headers_mut() = request.headers;
        let response = timeout_at(deadline, self.start(endpoint, head, request.refused_wait))
            .await
            .unwrap_or_else(|_| Err(Error::timeout()))?;
        let (head, body) = response.into_parts();
        let body = timeout_at(deadline, self.read(body)).await.unwrap_or_else(|_| Err(Error::timeout()));
        let body = body.map_err(Error::reading)?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// Sends a request with its own path and body, and returns the answer once its head is there. The body is streamed; an answer
    /// `101 Switching Protocols` can be upgraded with `hyper::upgrade::on` before the response is dropped.
    pub async fn open(
        &self,
        endpoint: &Endpoint,
        request: http::Request<OutgoingBody>,
    ) -> Result<http::Response<AnswerBody>, Error> {
        self.start(endpoint, request, Duration::ZERO).await
    }

    async fn start(
        &self,
        endpoint: &Endpoint,
        mut request: http::Request<OutgoingBody>,
        refused_wait: Duration,
    ) -> Result<http::Response<AnswerBody>, Error> {
        let headers = request.headers_mut();
        if !headers.contains_key(header::HOST) {
            let host = endpoint.uri.authority().map_or("", |authority| authority.as_str());
            let host =
                HeaderValue::from_str(host).map_err(|error| Error::new(ErrorKind::Configuration, error.to_string()))?;
            headers.insert(header::HOST, host);
        }
        if let Some(credential) = &endpoint.credential {
            headers.insert(header::AUTHORIZATION, credential.value());
        }
        let key = Key::of(endpoint);
        // A kept connection may end before it has the request, or before it answers a read; the next one gets it then.
        while let Some(mut connection) = self.pool.take(&key).await {
            let again = replay(&request);
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answer(response, key, connection)),
                Err(mut error) => match error.take_message().or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(go_text::exchange(error.error())),
                },
            }
        }
        let mut connection = connect(endpoint, refused_wait).await?;
        let response = connection.sender.send_request(request).await.map_err(|error| go_text::exchange(&error))?;
        Ok(self.answer(response, key, connection))
    }

    fn answer(
        &self,
        response: http::Response<Incoming>,
        key: Key,
        connection: Connection,
    ) -> http::Response<AnswerBody> {
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let pool = (!upgraded).then(|| Arc::clone(&self.pool));
        response.map(|body| {
            let mut body = AnswerBody { body, connection: Some(connection), key: Some(key), pool };
            if body.body.is_end_stream() {
                body.finish();
            }
            body
        })
    }

    /// Reads an answer, within the limits on its size and on that of all answers.
    async fn read(&self, mut body: AnswerBody) -> Result<Bytes, Error> {
        let mut charge = self.budget.as_ref().map(|budget| budget.charge());
        // Copied: a body of many small frames would keep more memory than it has bytes.
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if whole.len() + data.len() > self.answer_bytes_max {
                let why = format!("the answer has more than {} bytes", self.answer_bytes_max);
                return Err(Error::new(ErrorKind::TooLarge, why));
            }
            if charge.as_mut().is_some_and(|charge| !charge.grow(data.len())) {
                let why = "the answers of all calls are too large together";
                return Err(Error::new(ErrorKind::NoBudget, why));
            }
            whole.extend_from_slice(&data);
        }
        Ok(match charge {
            None => whole.into(),
            Some(charge) => Bytes::from_owner(Charged { bytes: whole, _charge: charge }),
        })
    }
}

/// A copy of a request that may be sent twice: a read without a body.
fn replay(request: &http::Request<OutgoingBody>) -> Option<http::Request<OutgoingBody>> {
    if !request.method().is_safe() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = http::Request::new(empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Bytes with their share of the budget.
struct Charged {
    bytes: Vec<u8>,
    _charge: Box<dyn Charge>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of an answer. Its connection is kept for other calls once it was read to the end, and closed if it is dropped before.
pub struct AnswerBody {
    body: Incoming,
    connection: Option<Connection>,
    key: Option<Key>,
    /// None if the connection cannot be used again.
    pool: Option<Arc<Pool>>,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerBody")
    }
}

impl AnswerBody {
    fn finish(&mut self) {
        if let (Some(pool), Some(key)) = (self.pool.take(), self.key.take())
            && let Some(connection) = self.connection.take()
        {
            pool.put(key, connection);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => {
                this.pool = None;
                let error = match go_text::exchange(&error) {
                    // The head of the answer was there.
                    error if error.why() == "EOF" => Error::new(ErrorKind::Closed, "unexpected EOF"),
                    error => error,
                };
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
