//! The server as one function, from a request and its peer to a response. No socket is needed.
//!
//! Steps of a request (spec 02 §1.1): deadline, authentication, impersonation, limits, authorization, routing, handler.
//! Every failure on the way becomes a response, a panic included.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, header};
use machinery::Status;
use machinery::clock::Clock;
use machinery::query::Query;
use prometheus_client::registry::Registry as MetricsRegistry;
use registry::{Registry, Warnings};
use tokio::net::TcpListener;

use crate::identity::User;
use crate::limits::Limits;
use crate::metrics::{Metrics, RequestLabels, RequestSeries};
use crate::request::authentication::{Authenticator, impersonation};
use crate::request::authorization::{Attributes, Authorizer, ResourceAttributes, What, forbidden};
use crate::request::deadline;
use crate::request::discovery::DiscoveryBodies;
use crate::request::handlers::{self, Call};
use crate::request::negotiation::{accept_header, pretty};
use crate::request::openapi::OpenApiDocuments;
use crate::request::reply::{self, Reply};
use crate::request::request_info::{RequestInfo, Verb};
use crate::request::routing::{ResourceRoute, Route, route};
use crate::request::warnings;
use crate::shutdown::Shutdown;
use crate::wire::body::{BytesBody, RequestBody, ResponseBody};
use crate::wire::compression;
use crate::wire::connection::{Handler, ResponseFuture};
use crate::wire::drain::Drain;
use crate::wire::listener;
use crate::wire::peer::Peer;
use crate::wire::tls::Tls;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");
const VARY_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// The parts of a server besides its registry.
pub struct Config {
    pub limits: Limits,
    pub authenticator: Authenticator,
    pub authorizer: Arc<dyn Authorizer>,
    /// Served at `/metrics`; the server adds its own metrics to those registered here.
    pub metrics: MetricsRegistry,
    /// The clock for token expiry, ages in tables, and dates in headers.
    pub clock: Clock,
}

/// A server. Cheap to clone; all clones share their state.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) metrics_registry: MetricsRegistry,
    pub(crate) clock: Clock,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) discovery: DiscoveryBodies,
    pub(crate) openapi: OpenApiDocuments,
}

impl Server {
    #[must_use]
    pub fn new(registry: Arc<Registry>, config: Config) -> Self {
        let metrics = Arc::new(Metrics::new(&config.limits));
        let mut metrics_registry = config.metrics;
        metrics.register(&mut metrics_registry);
        let openapi = OpenApiDocuments::new(&config.limits);
        Server(Arc::new(Inner {
            registry,
            limits: Arc::new(config.limits),
            metrics,
            metrics_registry,
            clock: config.clock,
            authenticator: config.authenticator,
            authorizer: config.authorizer,
            drain: Arc::default(),
            discovery: DiscoveryBodies::default(),
            openapi,
        }))
    }

    #[must_use]
    pub fn limits(&self) -> &Arc<Limits> {
        &self.0.limits
    }

    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    /// Responds to one request.
    pub async fn call(&self, request: Request<RequestBody>, peer: Arc<Peer>) -> Reply {
        let inner = &self.0;
        let began = Instant::now();
        let (mut parts, body) = request.into_parts();
        let audit_id = parts.headers.get(AUDIT_ID).cloned().unwrap_or_else(audit_id);
        let mut record = RequestRecord::default();
        let response = AssertUnwindSafe(inner.respond(&mut parts, body, &peer, &mut record)).catch_unwind().await;
        let query_of = |parts: &Parts| Query::parse(parts.uri.query().unwrap_or_default());
        let mut reply = match response {
            Ok(Ok(reply)) => reply,
            Ok(Err(status)) => {
                let pretty = pretty(&parts.headers, &query_of(&parts));
                reply::status(&status, accept_header(&parts.headers), pretty)
            }
            Err(panic) => {
                inner.metrics.panics.fetch_add(1, Ordering::Relaxed);
                let why = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                tracing::error!(method = %parts.method, path = parts.uri.path(), why, "request handler panicked");
                reply::status(&Status::internal("the request made the server panic; see its log"), None, false)
            }
        };
        warnings::add(reply.headers_mut(), &record.warnings.take());
        reply = compress(reply, &parts).await;
        let headers = reply.headers_mut();
        if !headers.contains_key(header::CACHE_CONTROL) {
            headers.insert(header::CACHE_CONTROL, NO_CACHE);
        }
        headers.insert(AUDIT_ID, audit_id);
        let took = began.elapsed();
        let series = record
            .series
            .unwrap_or_else(|| inner.metrics.request(&RequestLabels { verb: "other", ..RequestLabels::default() }));
        series.observe(reply.status().as_u16(), took, reply.body().whole_len());
        tracing::debug!(
            method = %parts.method,
            uri = %parts.uri,
            code = reply.status().as_u16(),
            ms = took.as_secs_f64() * 1e3,
            user = record.user.as_ref().map_or("", |user| user.name.as_str()),
            agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default(),
            "request"
        );
        if parts.method == Method::HEAD {
            *reply.body_mut() = ResponseBody::empty();
        }
        reply
    }

    /// Serves a listener until `shutdown`; see [`listener::run`]. Boxed, so that connections are compiled in this crate and not
    /// where the future is polled.
    pub fn serve(
        &self,
        listener: TcpListener,
        tls: Option<Tls>,
        shutdown: Shutdown,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (limits, metrics) = (Arc::clone(self.limits()), Arc::clone(self.metrics()));
        Box::pin(listener::run(listener, tls, self.clone(), limits, metrics, shutdown))
    }

    /// The server as a tower service for a caller in the same process, authenticated as this user:
    /// `kube::Client::new(server.in_process(user), "default")`.
    #[must_use]
    pub fn in_process(&self, user: User) -> InProcess {
        InProcess { server: self.clone(), peer: Arc::new(Peer::in_process(user)), agent: None }
    }
}

/// Facts collected while a request is handled, for its `Warning` headers, its metrics and its log line.
#[derive(Default)]
struct RequestRecord {
    user: Option<Arc<User>>,
    series: Option<Arc<RequestSeries>>,
    warnings: Warnings,
}

impl Inner {
    async fn respond(
        &self,
        parts: &mut Parts,
        body: RequestBody,
        peer: &Peer,
        record: &mut RequestRecord,
    ) -> Result<Reply, Status> {
        let extensions = std::mem::take(&mut parts.extensions);
        let parts = &*parts;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query)?;
        let verb = info.resource.as_ref().map_or(Verb::Get, |resource| resource.verb);
        let is_watch = verb == Verb::Watch;
        let deadline =
            if is_watch { None } else { Some(deadline::request_timeout(&query, self.limits.request_timeout)?) };

        let mut user = self.authenticator.authenticate(&parts.headers, peer, self.clock.now())?;
        record.user = Some(Arc::clone(&user));
        if let Some(wanted) = impersonation::parse(&parts.headers)? {
            user = self.impersonate(&user, wanted).await?;
            record.user = Some(Arc::clone(&user));
        }
        let slots = if verb.writes() { &self.metrics.inflight_writes } else { &self.metrics.inflight_reads };
        let slot = slots.take();
        if slot.is_none() && !user.is_master() {
            self.metrics.refused(slots.name());
            return Ok(reply::overloaded());
        }
        let attributes = Attributes { user: &user, verb: &info.verb(), what: info.what() };
        let decision = self.authorizer.authorize(&attributes).get().await;
        if !decision.allowed {
            return Err(forbidden(&attributes, &decision));
        }

        let route = route(&info, &self.registry.kinds());
        record.series = Some(self.metrics.request(&request_labels(&info, &route, &query)));
        let call = Call {
            server: self,
            method: &parts.method,
            headers: &parts.headers,
            query: &query,
            user: &user,
            peer,
            warnings: &record.warnings,
        };
        let work = handlers::answer(&call, route, body, extensions);
        let response = match deadline {
            None => work.await,
            Some(deadline) => tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
                self.metrics.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(Status::timeout("request did not complete within the allotted timeout"))
            }),
        };
        drop(slot);
        response
    }

    /// Returns the impersonated user, after each part of the impersonation is authorized as rules can name it.
    async fn impersonate(&self, user: &Arc<User>, wanted: impersonation::Impersonated) -> Result<Arc<User>, Status> {
        let mut required: Vec<ResourceAttributes<'_>> = Vec::new();
        let core = ResourceAttributes { version: "v1", ..ResourceAttributes::default() };
        let account = wanted.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        required.push(match account {
            Some((namespace, name)) => ResourceAttributes { resource: "serviceaccounts", namespace, name, ..core },
            None => ResourceAttributes { resource: "users", name: &wanted.name, ..core },
        });
        required.extend(wanted.groups.iter().map(|name| ResourceAttributes { resource: "groups", name, ..core }));
        let authentication = ResourceAttributes { group: "authentication.k8s.io", ..core };
        if !wanted.uid.is_empty() {
            required.push(ResourceAttributes { resource: "uids", name: &wanted.uid, ..authentication });
        }
        for (key, values) in &wanted.extra {
            required.extend(values.iter().map(|name| ResourceAttributes {
                resource: "userextras",
                subresource: key,
                name,
                ..authentication
            }));
        }
        for what in required {
            let attributes = Attributes { user, verb: "impersonate", what: What::Resource(what) };
            let decision = self.authorizer.authorize(&attributes).get().await;
            if !decision.allowed {
                return Err(forbidden(&attributes, &decision));
            }
        }
        Ok(Arc::new(wanted.into_user()))
    }
}

/// The metric labels of a request. They name only served kinds and paths, so that a client cannot invent labels.
fn request_labels<'a>(info: &'a RequestInfo<'_>, route: &'a Route, query: &Query) -> RequestLabels<'a> {
    let dry_run = if query.get("dryRun").is_some() { "All" } else { "" };
    match route {
        Route::Resource(ResourceRoute { verb, target, .. }) => RequestLabels {
            verb: verb.metric(),
            group: &target.kind.gvk.group,
            version: &target.kind.gvk.version,
            resource: &target.kind.plural,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            scope: handlers::scope(target),
            dry_run: if verb.writes() { dry_run } else { "" },
        },
        other => {
            let subresource = match other {
                Route::Health(endpoint, _) => endpoint,
                Route::Version => "version",
                Route::Metrics => "metrics",
                Route::OpenApiV2 | Route::OpenApiV3(_) => "openapi",
                Route::CoreVersions | Route::Groups | Route::Group(_) | Route::Resources(..) => "discovery",
                _ => "",
            };
            let verb = if *info.method == Method::GET { "GET" } else { "other" };
            RequestLabels { verb, subresource, ..RequestLabels::default() }
        }
    }
}

fn audit_id() -> HeaderValue {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    HeaderValue::from_str(uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text))
        .unwrap_or(HeaderValue::from_static(""))
}

async fn compress(reply: Reply, parts: &Parts) -> Reply {
    let large = reply.body().whole_len().is_some_and(|len| len > compression::BYTES_MIN);
    if !large || reply.headers().contains_key(header::CONTENT_ENCODING) || !compression::accepted(&parts.headers) {
        return reply;
    }
    let (head, body) = reply.into_parts();
    let chunk = match body.into_whole() {
        Ok(chunk) => chunk,
        Err(body) => return Reply::from_parts(head, body),
    };
    let uncompressed = chunk.clone();
    let compressed = tokio::task::spawn_blocking(move || compression::gzip(chunk)).await;
    match compressed {
        Ok(compressed) => {
            let mut reply = Reply::from_parts(head, ResponseBody::whole(compressed));
            reply.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
            reply.headers_mut().append(header::VARY, VARY_ENCODING);
            reply
        }
        Err(_) => Reply::from_parts(head, ResponseBody::whole(uncompressed)),
    }
}

impl Handler for Server {
    fn handle(&self, request: Request<RequestBody>, peer: &Arc<Peer>) -> ResponseFuture {
        let (server, peer) = (self.clone(), Arc::clone(peer));
        Box::pin(async move { server.call(request, peer).await })
    }

    fn drain(&self) -> &Arc<Drain> {
        &self.0.drain
    }

    fn clock(&self) -> &Clock {
        &self.0.clock
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
}

impl InProcess {
    /// Not generic, so that requests are compiled in this crate and not for each type of body in the caller's.
    fn respond(&self, request: Request<RequestBody>) -> InProcessFuture {
        let (server, peer) = (self.server.clone(), Arc::clone(&self.peer));
        Box::pin(async move { Ok(server.call(request, peer).await.map(BytesBody::from)) })
    }
}

type InProcessFuture = Pin<Box<dyn Future<Output = Result<http::Response<BytesBody>, Infallible>> + Send>>;

impl<B> tower_service::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<BytesBody>;
    type Error = Infallible;
    type Future = InProcessFuture;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(agent) = &self.agent {
            request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| agent.clone());
        }
        self.respond(request.map(RequestBody::other))
    }
}
