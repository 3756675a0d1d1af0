//! The server as one function, from a request and its peer to a response. No socket is needed.
//!
//! Steps of a request (spec 02 §1.1): deadline, authentication, impersonation, limits, authorization, routing, handler.
//! Every failure on the way becomes a response, a panic included.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use http::{Extensions, HeaderName, HeaderValue, Method, Request, StatusCode, Version, header};
use machinery::Status;
use machinery::clock::Clock;
use machinery::query::Query;
use prometheus_client::registry::Registry as MetricsRegistry;
use registry::admission::trace::Trace;
use registry::api_services::RemoteService;
use registry::kinds::Kinds;
use registry::{Annotations, Registry, Warnings};
use tokio::net::TcpListener;

use crate::aggregation::{Aggregator, MergedDiscovery, Passed};
use crate::audit::{self, Arrival, Auditor, Ending};
use crate::authorization::Inspection;
use crate::fairness::metrics::FairnessMetrics;
use crate::fairness::{self, Fairness, Flow, Place};
use crate::limits::{Limits, Slot, Slots};
use crate::metrics::{Metrics, RequestLabels, RequestSeries};
use crate::request::authentication::front_proxy::strip_credentials;
use crate::request::authentication::{Authenticator, Notes, Unauthenticated};
use crate::request::deadline;
use crate::request::discovery::DiscoveryBodies;
use crate::request::handlers::{self, Call};
use crate::request::heavy::HeavyPool;
use crate::request::impersonation;
use crate::request::negotiation::{accept_header, pretty};
use crate::request::openapi::OpenApiDocuments;
use crate::request::reply::{self, Reply};
use crate::request::request_info::{RequestInfo, Verb, segments};
use crate::request::routing::{ResourceRoute, Route, route};
use crate::request::traces::AdmissionTraces;
use crate::request::waiting::WritePlaces;
use crate::request::warnings;
use crate::shutdown::Shutdown;
use crate::wire::body::{BodyError, ReadTerms, RequestBody, ResponseBody};
use crate::wire::compression;
use crate::wire::connection::{Handler, ResponseFuture};
use crate::wire::drain::Drain;
use crate::wire::listener;
use crate::wire::peer::Peer;
use crate::wire::tls::Tls;
use access::authorizer::{Attributes, Authorizer};
use access::identity::User;

/// The collection of custom resource definitions.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");
const VARY_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// The parts of a server besides its registry.
pub struct Config {
    pub limits: Limits,
    pub authenticator: Authenticator,
    pub authorizer: Arc<dyn Authorizer>,
    /// What the server shows about its decisions.
    pub inspection: Inspection,
    /// Writes whose admission is traced; the last ones are kept. Zero traces only those that request it.
    pub traced_writes: usize,
    /// Whether refusals of admission name everything that is known of them.
    pub explain_refusals: bool,
    /// Served at `/metrics`; the server adds its own metrics to those registered here.
    pub metrics: MetricsRegistry,
    /// The server's own metrics, which its webhooks share.
    pub server_metrics: Arc<Metrics>,
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
    pub(crate) metrics_registry: Arc<MetricsRegistry>,
    pub(crate) clock: Clock,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) inspection: Inspection,
    pub(crate) traces: AdmissionTraces,
    pub(crate) impersonations: impersonation::Modes,
    pub(crate) drain: Arc<Drain>,
    pub(crate) discovery: DiscoveryBodies,
    pub(crate) openapi: OpenApiDocuments,
    pub(crate) heavy: HeavyPool,
    pub(crate) fairness: Arc<Fairness>,
    /// None until an audit log is set.
    pub(crate) auditor: OnceLock<Arc<Auditor>>,
    /// None until it is set: then some group versions may be served by others.
    pub(crate) aggregator: OnceLock<Arc<Aggregator>>,
}

impl Server {
    #[must_use]
    pub fn new(registry: Arc<Registry>, config: Config) -> Self {
        let metrics = config.server_metrics;
        let mut metrics_registry = config.metrics;
        metrics.register(&mut metrics_registry);
        let openapi = OpenApiDocuments::new(&config.limits);
        let heavy = HeavyPool::new(&config.limits, &metrics);
        let fairness = Arc::new(Fairness::new(&config.limits));
        metrics_registry.register_collector(Box::new(FairnessMetrics(Arc::clone(&fairness))));
        Server(Arc::new(Inner {
            registry,
            limits: Arc::new(config.limits),
            metrics,
            metrics_registry: Arc::new(metrics_registry),
            clock: config.clock,
            authenticator: config.authenticator,
            authorizer: config.authorizer,
            inspection: config.inspection,
            traces: AdmissionTraces::new(config.traced_writes, config.explain_refusals),
            impersonations: impersonation::Modes::default(),
            drain: Arc::default(),
            discovery: DiscoveryBodies::default(),
            openapi,
            heavy,
            fairness,
            auditor: OnceLock::new(),
            aggregator: OnceLock::new(),
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
    pub fn authenticator(&self) -> &Authenticator {
        &self.0.authenticator
    }

    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.0.inspection
    }

    /// Passes requests to aggregated servers from now on. Only the first aggregator is used.
    pub fn set_aggregator(&self, aggregator: Arc<Aggregator>) {
        let _ = self.0.aggregator.set(aggregator);
    }

    /// Records requests from now on. Only the first audit log is used.
    pub fn set_auditor(&self, auditor: Arc<Auditor>) {
        let _ = self.0.auditor.set(auditor);
    }

    #[must_use]
    pub fn auditor(&self) -> Option<&Arc<Auditor>> {
        self.0.auditor.get()
    }

    /// Responds to one request.
    pub async fn call(&self, request: Request<RequestBody>, peer: Arc<Peer>) -> Reply {
        let inner = &self.0;
        let began = Instant::now();
        let (mut parts, mut body) = request.into_parts();
        let audit_id = parts.headers.get(AUDIT_ID).cloned().unwrap_or_else(audit_id);
        let mut record = RequestRecord::default();
        if let Some(auditor) = inner.auditor.get() {
            record.annotations = Annotations::recording();
            record.audit = Some(auditor.arrival(&audit_id, began));
        }
        let response = AssertUnwindSafe(self.respond(&mut parts, &mut body, &peer, &mut record)).catch_unwind().await;
        let query_of = |parts: &Parts| Query::parse(parts.uri.query().unwrap_or_default());
        let mut ending = Ending::Replied;
        let mut reply = match response {
            Ok(Ok(reply)) => reply,
            Ok(Err(status)) => {
                let pretty = pretty(&parts.headers, &query_of(&parts));
                let reply = reply::status(&status, accept_header(&parts.headers), pretty);
                ending = Ending::Refused(status);
                reply
            }
            Err(panic) => {
                inner.metrics.panics.fetch_add(1, Ordering::Relaxed);
                let why = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                tracing::error!(method = %parts.method, path = parts.uri.path(), why, "request handler panicked");
                ending = Ending::Panicked(why);
                reply::status(&Status::internal("the request made the server panic; see its log"), None, false)
            }
        };
        if record.closes {
            reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if record.no_sniff {
            reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, reply::NOSNIFF);
        }
        warnings::add(reply.headers_mut(), &record.warnings.take());
        if let Some(trace) = record.trace.take() {
            inner.traces.end(&trace, &parts, &audit_id, &mut reply, &record.annotations);
        }
        if let Some(audit) = record.audit {
            audit.end(&mut reply, ending).await;
        }
        reply = inner.compress(reply, &parts).await;
        if !body.is_read() && parts.version != Version::HTTP_2 && !reply.body().is_watch() {
            inner.finish_body(&mut body, &parts, &mut reply).await;
        }
        // Kept until the response is sent: a client that does not read its responses gets no more of them.
        reply.body_mut().set_place(record.in_flight.place);
        let headers = reply.headers_mut();
        if let Some(flow) = &record.in_flight.flow {
            flow.add_headers(headers);
        }
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
            as_user = record.impersonation.as_ref().map_or("", |granted| granted.user.name.as_str()),
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
}

/// The flow of a request, and its place among those in flight.
#[derive(Default)]
struct InFlight {
    /// None until its user is known, and for requests that are not limited by their flow.
    flow: Option<Flow>,
    /// A caller in the same process, such as a controller, is not limited: it waits for its own requests.
    is_local: bool,
    place: Option<Place>,
}

/// A request that another server serves.
struct Passing<'a> {
    remote: &'a RemoteService,
    parts: &'a Parts,
    user: &'a Arc<User>,
    extensions: Extensions,
    /// None for a watch.
    deadline: Option<Duration>,
}

/// Facts collected while a request is handled, for its `Warning` headers, its metrics and its log line.
#[derive(Default)]
struct RequestRecord {
    /// The user that was authenticated.
    user: Option<Arc<User>>,
    /// The user on whose behalf it acts.
    impersonation: Option<impersonation::Impersonation>,
    /// The response is a refusal that a browser must not take for another type.
    no_sniff: bool,
    /// The connection ends after the response: HTTP/2 without credentials costs more than it may.
    closes: bool,
    in_flight: InFlight,
    /// The steps of admission, if they are traced.
    trace: Option<Arc<Trace>>,
    series: Option<Arc<RequestSeries>>,
    warnings: Warnings,
    annotations: Annotations,
    /// Only with an audit log.
    audit: Option<Box<Arrival>>,
}

impl Server {
    async fn respond(
        &self,
        parts: &mut Parts,
        body: &mut RequestBody,
        peer: &Arc<Peer>,
        record: &mut RequestRecord,
    ) -> Result<Reply, Status> {
        let inner = &*self.0;
        let extensions = std::mem::take(&mut parts.extensions);
        // The server is no proxy to hosts of the client's choice.
        if parts.method == Method::CONNECT {
            return Err(Status::router_method_not_allowed());
        }
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query)?;
        let verb = info.resource.as_ref().map_or(Verb::Get, |resource| resource.verb);
        let is_watch = verb == Verb::Watch;
        let deadline = match is_watch {
            true => Ok(None),
            false => deadline::request_timeout(&query, inner.limits.request_timeout).map(Some),
        };
        if let (Err(_), Some(audit)) = (&deadline, &mut record.audit) {
            audit.open(parts, &info, peer, None, &mut record.annotations);
        }
        let deadline = deadline?;

        let now = inner.clock.now();
        let authenticated = match inner.authenticator.of_connection(peer, now) {
            Some(user) => Ok(Arc::clone(user)),
            None => {
                let notes = Notes { warnings: &record.warnings, annotations: &record.annotations };
                let (headers, path) = (&parts.headers, &*info.path);
                let found =
                    Box::pin(inner.authenticator.authenticate(Unauthenticated { headers, path, peer, now, notes }))
                        .await;
                record.closes = parts.version == Version::HTTP_2
                    && found.as_ref().is_ok_and(|user| user.in_group(access::identity::UNAUTHENTICATED));
                found
            }
        };
        if let Some(audit) = &mut record.audit {
            audit.open(parts, &info, peer, authenticated.as_ref().ok(), &mut record.annotations);
            if let Err(refusal) = audit.begin(&parts.uri).await {
                return Ok(refusal);
            }
        }
        let mut user = authenticated?;
        strip_credentials(&mut parts.headers, inner.authenticator.front_proxy.as_ref());
        record.user = Some(Arc::clone(&user));
        if let Some(wanted) = impersonation::parse(&parts.headers).inspect_err(|_| record.no_sniff = true)? {
            let request = Attributes { user: &user, verb: &info.verb(), what: info.what() };
            let granted = inner.impersonations.impersonate(&*inner.authorizer, &wanted, &request).await;
            let granted = granted.inspect_err(|_| record.no_sniff = true)?;
            user = Arc::clone(&granted.user);
            if let Some(audit) = &mut record.audit {
                audit.impersonate(&granted.user, granted.mode.constraint().unwrap_or_default());
            }
            record.impersonation = Some(granted);
            impersonation::strip(&mut parts.headers);
        }
        let parts = &*parts;
        // A write takes its place when its body is there: a client that sends slowly holds none.
        record.in_flight.is_local = peer.address.is_none();
        if is_watch || !audit::is_long_running(&info) {
            record.in_flight.flow =
                inner.fairness.classify(&inner.registry.flow_table(), &user, &info.verb(), &info.what());
        }
        if !verb.writes() {
            let width = || inner.width(&info, &query);
            if let Err(refusal) = inner.place(&inner.metrics.inflight_reads, &user, &mut record.in_flight, width).await
            {
                return Ok(refusal);
            }
        }
        let attributes = Attributes { user: &user, verb: &info.verb(), what: info.what() };
        let decision = inner.authorizer.authorize(&attributes).get().await;
        if record.annotations.are_kept() {
            audit::note_decision(&record.annotations, &decision);
        }
        inner.inspection.record(&attributes, &decision, || inner.clock.now());
        if !decision.allowed {
            record.no_sniff = true;
            if !decision.error.is_empty() {
                return Ok(reply::undecided(&parts.uri, &decision.error));
            }
            return Err(inner.inspection.refusal(&attributes, &decision));
        }

        if let Some(remote) = inner.aggregation().and_then(|aggregator| aggregator.server_of(&info.path)) {
            let labels = RequestLabels {
                verb: verb.metric(),
                group: &remote.group,
                version: &remote.version,
                ..RequestLabels::default()
            };
            record.series = Some(inner.metrics.request(&labels));
            let passing = Passing { remote: &remote, parts, user: &user, extensions, deadline };
            return Box::pin(self.pass(passing, body, &mut record.in_flight)).await;
        }
        let actor = record.user.as_deref().unwrap_or(&user);
        record.trace = inner.traces.begin(parts, &[actor, &user]);
        let route = inner.route(&info);
        record.series = Some(inner.metrics.request(&request_labels(&info, &route, &query)));
        let call = Call {
            server: inner,
            method: &parts.method,
            path: parts.uri.path(),
            headers: &parts.headers,
            query: &query,
            user: &user,
            peer,
            warnings: &record.warnings,
            annotations: &record.annotations,
            place: None,
            trace: record.trace.clone(),
        };
        let in_flight = &mut record.in_flight;
        let work = async {
            match route {
                Route::Resource(route) if route.verb.writes() => {
                    // Boxed: its state is larger than that of the reads, which are the common case.
                    Box::pin(self.write(&call, parts, peer, route, body, extensions, in_flight)).await
                }
                route => handlers::answer(&call, route, Bytes::new(), extensions).await,
            }
        };
        let response = match deadline {
            None => work.await,
            Some(deadline) => tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
                inner.metrics.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(Status::timeout("request did not complete within the allotted timeout"))
            }),
        };
        if is_watch {
            record.in_flight.place = None;
        }
        response
    }

    /// Passes a request to the server that serves its group version.
    async fn pass(
        &self,
        passing: Passing<'_>,
        body: &mut RequestBody,
        in_flight: &mut InFlight,
    ) -> Result<Reply, Status> {
        let inner = &*self.0;
        let Passing { remote, parts, user, extensions, deadline } = passing;
        let Some(aggregator) = inner.aggregation() else { return Err(Status::router_not_found()) };
        let (bytes, _charged) = inner.read_body(body, user).await?;
        if in_flight.place.is_none()
            && let Err(refusal) = inner.place(&inner.metrics.inflight_writes, user, in_flight, || 1).await
        {
            return Ok(refusal);
        }
        let passed = Passed {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            body: bytes,
            user,
            extensions,
            timeout: deadline,
            drain: inner.drain.ticket(),
            bytes_max: inner.limits.watch_batch_bytes_max,
        };
        let reply = aggregator.pass(remote, passed).await;
        // A stream lasts, and is no request in flight.
        if reply.body().is_watch() || reply.status() == StatusCode::SWITCHING_PROTOCOLS {
            in_flight.place = None;
        }
        Ok(reply)
    }

    /// Handles a write: reads its body, then takes a place in flight, then runs the handler, on the pool if it is heavy.
    async fn write(
        &self,
        call: &Call<'_>,
        parts: &Parts,
        peer: &Arc<Peer>,
        route: ResourceRoute,
        body: &mut RequestBody,
        extensions: Extensions,
        in_flight: &mut InFlight,
    ) -> Result<Reply, Status> {
        let inner = &*self.0;
        let (bytes, _charged) = inner.read_body(body, call.user).await?;
        if let Err(refusal) = inner.place(&inner.metrics.inflight_writes, call.user, in_flight, || 1).await {
            return Ok(refusal);
        }
        let places = Arc::new(WritePlaces::new(in_flight.place.take(), &inner.metrics));
        let call = &Call { place: Some(Arc::clone(&places)), ..call.clone() };
        let Some(weight) = inner.weight(&route, parts, bytes.len()) else {
            let answer = handlers::answer(call, Route::Resource(route), bytes, extensions).await;
            in_flight.place = places.take();
            return answer;
        };
        let (server, peer, user) = (self.clone(), Arc::clone(peer), Arc::clone(call.user));
        let (method, headers, query) = (parts.method.clone(), parts.headers.clone(), call.query.clone());
        let path = call.path.to_owned();
        let (warnings, annotations) = (call.warnings.clone(), call.annotations.clone());
        let (place, trace) = (call.place.clone(), call.trace.clone());
        let work = async move {
            let call = Call {
                server: &server.0,
                method: &method,
                path: &path,
                headers: &headers,
                query: &query,
                user: &user,
                peer: &peer,
                warnings: &warnings,
                annotations: &annotations,
                place,
                trace,
            };
            handlers::answer(&call, Route::Resource(route), bytes, extensions).await
        };
        let answer = inner.heavy.run_write(call.share(), weight, Arc::clone(&places), work).await;
        in_flight.place = places.take();
        answer
    }
}

impl Inner {
    fn route(&self, info: &RequestInfo<'_>) -> Route {
        let kinds = self.registry.kinds();
        if self.aggregation().is_some()
            && let ["apis", group] = segments(&info.path).as_slice()
            && let Some(group) = self.merged_discovery(&kinds).and_then(|merged| merged.group(group))
        {
            return Route::AggregatedGroup(group);
        }
        route(info, &kinds)
    }

    /// Passes requests to other servers; none if this one serves everything.
    fn aggregation(&self) -> Option<&Arc<Aggregator>> {
        self.aggregator.get().filter(|_| self.registry.api_services().has_remotes())
    }

    /// Discovery with the groups of other servers; none if there are no others.
    pub(crate) fn merged_discovery(&self, kinds: &Arc<Kinds>) -> Option<Arc<MergedDiscovery>> {
        self.aggregation()?.discovery(kinds)
    }

    /// Takes a place in flight: seats of the request's priority level, for which it may have to wait, and a slot. Requests of
    /// an exempt level need none.
    async fn place(
        &self,
        slots: &Slots,
        user: &User,
        in_flight: &mut InFlight,
        width: impl FnOnce() -> usize,
    ) -> Result<(), Reply> {
        let flow = in_flight.flow.as_ref();
        if in_flight.is_local || flow.map_or_else(|| user.is_master(), Flow::is_exempt) {
            in_flight.place = Some(Place::new(slots.force(1), None));
            return Ok(());
        }
        let seat = match flow {
            Some(flow) => self.fairness.seat(flow, user, width()).await.map_err(|_| reply::overloaded())?,
            None => None,
        };
        let Some(slot) = slots.take_for(&user.name, 1) else {
            self.metrics.refused(slots.name());
            return Err(reply::overloaded());
        };
        in_flight.place = Some(Place::new(slot, seat));
        Ok(())
    }

    /// The seats that a read takes.
    fn width(&self, info: &RequestInfo<'_>, query: &Query) -> usize {
        let Some(resource) = info.resource.as_ref().filter(|one| one.verb == Verb::List) else { return 1 };
        let kinds = self.registry.kinds();
        let Some(kind) = kinds.get(&resource.group, &resource.version, &resource.resource) else { return 1 };
        if !resource.attributes().name.is_empty() {
            return 1;
        }
        let objects = self.registry.cache().collection(&kind.collection).len();
        let limit = query.get("limit").and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
        fairness::list_width(limit.map_or(objects, |limit: usize| limit.min(objects)))
    }

    /// Reads the body of a request, within the limits on its size and speed and on the size of all bodies. They are charged
    /// for as long as the returned slot is held.
    async fn read_body(&self, body: &mut RequestBody, user: &User) -> Result<(Bytes, Slot), Status> {
        let (limits, metrics) = (&self.limits, &self.metrics);
        let mut charged = metrics.body_bytes.force(0);
        let is_master = user.is_master();
        let mut charge =
            |bytes: usize| if is_master { charged.grow(bytes) } else { charged.grow_for(&user.name, bytes) };
        let terms = ReadTerms {
            bytes_max: limits.body_bytes_max,
            grace: limits.body_grace,
            bytes_per_second_min: limits.body_bytes_per_second_min,
            charge: &mut charge,
        };
        let (limit, status) = match body.read(terms).await {
            Ok(bytes) => return Ok((bytes, charged)),
            Err(BodyError::Broken(why)) => return Err(Status::bad_request(why)),
            Err(BodyError::TooLarge) => {
                let max = limits.body_bytes_max;
                ("body_bytes_max", Status::request_entity_too_large(format_args!("limit is {max}")))
            }
            Err(BodyError::NoBudget) => {
                let why = "the bodies of all requests are too large together, please try again later";
                (metrics.body_bytes.name(), Status::too_many_requests(why, 1))
            }
            Err(BodyError::TooSlow) => {
                let mut status = Status::timeout("the body of the request arrived too slowly");
                status.code = 408;
                ("body_bytes_per_second_min", status)
            }
        };
        metrics.refused(limit);
        Err(status)
    }

    /// Returns the bytes that a write works on, if it is heavy.
    fn weight(&self, route: &ResourceRoute, parts: &Parts, body_bytes: usize) -> Option<usize> {
        let target = &route.target;
        let query_bytes = parts.uri.query().map_or(0, str::len);
        let mut bytes = body_bytes.max(query_bytes);
        let collection = self.registry.cache().collection(&target.kind.collection);
        let mut heavy = bytes >= self.limits.heavy_bytes_min || query_bytes >= self.limits.heavy_query_bytes_min;
        match &target.name {
            // A small patch of a large object decodes, compares and encodes the object.
            Some(name) => {
                let namespace = target.namespace.as_deref().filter(|_| target.kind.namespaced);
                let stored = collection.key(namespace, name).and_then(|key| collection.get(&key));
                let stored_bytes = stored.map_or(0, |item| item.len());
                heavy |= stored_bytes >= self.limits.heavy_bytes_min;
                bytes = bytes.max(stored_bytes);
            }
            None if route.verb == Verb::DeleteCollection => heavy |= collection.len() >= self.limits.heavy_checks_min,
            None => {}
        }
        // The schemas and rules of a definition are compiled, which takes long for their size.
        heavy |= target.kind.collection == DEFINITIONS;
        heavy.then_some(bytes)
    }

    /// Reads the rest of the body of a refused request over HTTP/1.1, or announces that the connection is closed after the
    /// response.
    async fn finish_body(&self, body: &mut RequestBody, parts: &Parts, reply: &mut Reply) {
        let limits = &self.limits;
        // A client that waits for `100 Continue` sends no body after another response, and reading would ask for it.
        let waits = parts.headers.contains_key(header::EXPECT);
        let (bytes_max, time_max) = match reply.status() {
            StatusCode::PAYLOAD_TOO_LARGE => (limits.body_bytes_max.saturating_mul(4), limits.body_grace),
            StatusCode::REQUEST_TIMEOUT => (0, Duration::ZERO),
            _ => (limits.discard_bytes_max, limits.discard_timeout),
        };
        if waits || !body.discard(bytes_max, time_max).await {
            reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    async fn compress(&self, reply: Reply, parts: &Parts) -> Reply {
        let bytes = reply.body().whole_len().filter(|len| *len > compression::BYTES_MIN);
        let Some(bytes) = bytes else { return reply };
        if reply.headers().contains_key(header::CONTENT_ENCODING) || !compression::accepted(&parts.headers) {
            return reply;
        }
        let (head, body) = reply.into_parts();
        let chunk = match body.into_whole() {
            Ok(chunk) => chunk,
            Err(body) => return Reply::from_parts(head, body),
        };
        let uncompressed = chunk.clone();
        let budget = self.metrics.unsent_bytes.clone();
        let work = async move {
            let compressed = compression::gzip(chunk);
            let charged = budget.force(compressed.len());
            Ok((compressed, charged))
        };
        match self.heavy.run(None, bytes, work).await {
            Ok((compressed, charged)) => {
                let mut reply = Reply::from_parts(head, ResponseBody::whole(compressed).until_sent(charged));
                reply.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
                reply.headers_mut().append(header::VARY, VARY_ENCODING);
                reply
            }
            Err(_) => {
                let charged = self.metrics.unsent_bytes.force(bytes);
                Reply::from_parts(head, ResponseBody::whole(uncompressed).until_sent(charged))
            }
        }
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
                Route::Issuer | Route::IssuerKeys => "openid",
                Route::Metrics => "metrics",
                Route::OpenApiV2 | Route::OpenApiV3(_) => "openapi",
                Route::CoreVersions
                | Route::Groups
                | Route::Group(_)
                | Route::AggregatedGroup(_)
                | Route::Resources(..) => "discovery",
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

    fn stalled(&self) {
        self.0.metrics.stalled.fetch_add(1, Ordering::Relaxed);
        self.0.metrics.refused("response_stall_timeout_seconds");
    }
}
