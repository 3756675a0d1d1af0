//! The path of one request, top to bottom: deadline, user, place in flight, rights, and then the handler that answers it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use access::authorizer::{Attributes, Verdict};
use access::identity::User;
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Version};
use machinery::Status;
use machinery::query::Query;

use super::dispatch::Passing;
use super::labels::request_labels;
use super::record::RequestRecord;
use super::{Inner, Server};
use crate::audit;
use crate::metrics::RequestLabels;
use crate::metrics::access::Authenticated;
use crate::observation::WriteRecord;
use crate::request::authentication::front_proxy::strip_credentials;
use crate::request::authentication::{Notes, Unauthenticated};
use crate::request::deadline;
use crate::request::disturbed_watch::{agent, disturbed};
use crate::request::handlers::{self, Call};
use crate::request::impersonation;
use crate::request::reply::{self, Reply};
use crate::request::request_info::{RequestInfo, ResourceInfo, Verb};
use crate::request::routing::Route;
use crate::wire::body::RequestBody;
use crate::wire::peer::Peer;

/// Why a request ends before a handler answers it.
pub(super) enum Refusal {
    /// An error that is encoded as the request wants it.
    Status(Status),
    /// A response that has the same bytes for every request.
    Reply(Box<Reply>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Refusal::Status(status)
    }
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Refusal::Reply(Box::new(reply))
    }
}

/// A request whose user may send it.
struct Admitted<'a> {
    info: &'a RequestInfo<'a>,
    query: &'a Query,
    verb: Verb,
    user: &'a Arc<User>,
    /// None for a watch.
    deadline: Option<Duration>,
}

/// A parsed request. What it is about outlives it, wherever its handling ends.
struct Kept<'a, 'r> {
    info: RequestInfo<'r>,
    resource: &'a mut Option<ResourceInfo>,
}

impl<'r> Deref for Kept<'_, 'r> {
    type Target = RequestInfo<'r>;

    fn deref(&self) -> &RequestInfo<'r> {
        &self.info
    }
}

impl Drop for Kept<'_, '_> {
    fn drop(&mut self) {
        *self.resource = self.info.resource.take();
    }
}

impl Server {
    pub(super) async fn respond(
        &self,
        parts: &mut Parts,
        body: &mut RequestBody,
        peer: &Arc<Peer>,
        record: &mut RequestRecord,
        resource: &mut Option<ResourceInfo>,
    ) -> Result<Reply, Refusal> {
        let inner = &*self.0;
        let extensions = std::mem::take(&mut parts.extensions);
        // The server is no proxy to hosts of the client's choice.
        if parts.method == Method::CONNECT {
            return Err(Status::router_method_not_allowed().into());
        }
        if let Some(answered) = inner.answer_page(parts, body).await {
            return Ok(answered?);
        }
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query)?;
        let info = Kept { info, resource };
        let verb = info.resource.as_ref().map_or(Verb::Get, |resource| resource.verb);

        let deadline = inner.deadline(parts, &info, &query, peer, record)?;
        let user = inner.authenticate(parts, &info, peer, record).await?;
        strip_credentials(&mut parts.headers, inner.authenticator.front_proxy.as_ref());
        let user = inner.impersonate(&mut parts.headers, &info, user, record).await?;
        inner.disturb(parts, &info, &user, record).await?;
        inner.enter(&info, &query, &user, peer, record).await?;
        inner.authorize(parts, &info, &user, record).await?;
        let admitted = Admitted { info: &info, query: &query, verb, user: &user, deadline };
        self.dispatch(admitted, parts, body, extensions, peer, record).await
    }

    /// Answers a request: by the server behind an APIService, or by a handler within the deadline.
    async fn dispatch(
        &self,
        admitted: Admitted<'_>,
        parts: &Parts,
        body: &mut RequestBody,
        extensions: Extensions,
        peer: &Arc<Peer>,
        record: &mut RequestRecord,
    ) -> Result<Reply, Refusal> {
        let inner = &*self.0;
        let Admitted { info, query, verb, user, deadline } = admitted;
        if let Some(remote) = inner.aggregation().and_then(|aggregator| aggregator.server_of(&info.path)) {
            let labels = RequestLabels {
                verb: verb.metric(),
                group: &remote.group,
                version: &remote.version,
                ..RequestLabels::default()
            };
            record.series = Some(inner.metrics.request(&labels));
            let passing = Passing { remote: &remote, parts, user, extensions, deadline };
            return Box::pin(self.pass(passing, body, &mut record.in_flight)).await;
        }
        let actor = record.user.as_deref().unwrap_or(user);
        record.trace = inner.traces.begin(parts, &[actor, user]);
        let route = inner.route(info);
        record.write = inner.record_of_write(parts, info, query, user);
        record.series = Some(inner.metrics.request(&request_labels(info, &route, query)));
        let lab_registry = self.lab_registry(&route).await?;
        let call = Call {
            server: inner,
            registry: lab_registry.as_ref().unwrap_or(&inner.registry),
            method: &parts.method,
            path: parts.uri.path(),
            headers: &parts.headers,
            query,
            user,
            peer,
            warnings: &record.warnings,
            annotations: &record.annotations,
            version: parts.version,
            write: record.write.clone(),
            as_of: record.as_of,
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
                route => Ok(handlers::answer(&call, route, Bytes::new(), extensions).await?),
            }
        };
        let response = match deadline {
            None => work.await,
            Some(deadline) => tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
                inner.metrics.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(Status::timeout("request did not complete within the allotted timeout").into())
            }),
        };
        if verb == Verb::Watch {
            record.in_flight.place = None;
        }
        response
    }
}

impl Inner {
    /// The time that the request may take; none for a watch.
    fn deadline(
        &self,
        parts: &Parts,
        info: &RequestInfo<'_>,
        query: &Query,
        peer: &Peer,
        record: &mut RequestRecord,
    ) -> Result<Option<Duration>, Status> {
        if info.resource.as_ref().is_some_and(|resource| resource.verb == Verb::Watch) {
            return Ok(None);
        }
        let deadline = deadline::request_timeout(query, self.limits.request_timeout).map(Some);
        if let (Err(_), Some(audit)) = (&deadline, &mut record.audit) {
            audit.open(parts, info, peer, None, &mut record.annotations);
        }
        deadline
    }

    /// The user of the request. The audit trail begins here, and has a refused request too.
    async fn authenticate(
        &self,
        parts: &Parts,
        info: &RequestInfo<'_>,
        peer: &Peer,
        record: &mut RequestRecord,
    ) -> Result<Arc<User>, Refusal> {
        let machine = self.certificates_clock.now();
        let counts = &self.metrics.access;
        let authenticated = match self.authenticator.of_connection(peer, machine) {
            Some(user) => {
                counts.authenticated(Authenticated::As(&user.name), None);
                Ok(Arc::clone(user))
            }
            None => {
                let notes = Notes { warnings: &record.warnings, annotations: &record.annotations };
                let (headers, path, began) = (&parts.headers, &*info.path, Instant::now());
                let now = self.clock.now();
                let request = Unauthenticated { headers, path, peer, now, machine, notes };
                let found = Box::pin(self.authenticator.authenticate(request)).await;
                let outcome = match &found {
                    Ok(user) => Authenticated::As(&user.name),
                    Err(refused) if refused.has_credentials => Authenticated::WrongCredentials,
                    Err(_) => Authenticated::NoCredentials,
                };
                counts.authenticated(outcome, Some(began.elapsed()));
                record.closes = parts.version == Version::HTTP_2
                    && found.as_ref().is_ok_and(|user| user.in_group(access::identity::UNAUTHENTICATED));
                found.map_err(|refused| refused.status)
            }
        };
        if let Some(audit) = &mut record.audit {
            audit.open(parts, info, peer, authenticated.as_ref().ok(), &mut record.annotations);
            audit.begin(&parts.uri).await?;
        }
        let user = authenticated?;
        record.user = Some(Arc::clone(&user));
        Ok(user)
    }

    /// The user on whose behalf the request acts, which is its own user without the headers of impersonation.
    async fn impersonate(
        &self,
        headers: &mut HeaderMap,
        info: &RequestInfo<'_>,
        user: Arc<User>,
        record: &mut RequestRecord,
    ) -> Result<Arc<User>, Status> {
        let Some(wanted) = impersonation::parse(headers).inspect_err(|_| record.no_sniff = true)? else {
            return Ok(user);
        };
        let request = Attributes { user: &user, verb: &info.verb(), what: info.what() };
        let granted = self.impersonations.impersonate(&*self.authorizer, &wanted, &request).await;
        let granted = granted.inspect_err(|_| record.no_sniff = true)?;
        let user = Arc::clone(&granted.user);
        if let Some(audit) = &mut record.audit {
            audit.impersonate(&granted.user, granted.mode.constraint().unwrap_or_default());
        }
        record.impersonation = Some(granted);
        impersonation::strip(headers);
        Ok(user)
    }

    /// Lets happen what a lab wants to happen to the request. Nothing happens to requests for the lab itself.
    async fn disturb(
        &self,
        parts: &Parts,
        info: &RequestInfo<'_>,
        user: &User,
        record: &mut RequestRecord,
    ) -> Result<(), Status> {
        let Some(lab) = self.lab.get().filter(|lab| lab.disturbances.active().load(Ordering::Relaxed)) else {
            return Ok(());
        };
        let Some(resource) = info.resource.as_ref().filter(|resource| resource.group != lab.group) else {
            return Ok(());
        };
        let disturbance = lab.disturbances.of_request(&disturbed(&self.world, resource, &parts.headers, user));
        if disturbance.faults.is_empty() {
            return Ok(());
        }
        record.annotations.set("lab.dogwatch.dev/faults", disturbance.faults.join(","));
        record.faults = disturbance.faults;
        record.loses_answer = disturbance.loses_answer;
        (record.as_of, record.bytes_per_second) = (disturbance.as_of, disturbance.bytes_per_second);
        tokio::time::sleep(disturbance.delay).await;
        disturbance.answer.map_or(Ok(()), |status| Err(*status))
    }

    /// The record of a write to the objects of the cluster, with a lab.
    fn record_of_write(
        &self,
        parts: &Parts,
        info: &RequestInfo<'_>,
        query: &Query,
        user: &Arc<User>,
    ) -> Option<Arc<dyn WriteRecord>> {
        let lab = self.lab.get()?;
        info.resource.as_ref().filter(|resource| resource.verb.writes() && resource.group != lab.group)?;
        let manager = query.get("fieldManager").unwrap_or_default();
        Some(lab.recorder.write_begins(&user.name, agent(&parts.headers), manager))
    }

    /// Classifies the request by its flow and takes a place in flight for a read. A write takes its place when its body is
    /// there: a client that sends slowly holds none.
    async fn enter(
        &self,
        info: &RequestInfo<'_>,
        query: &Query,
        user: &User,
        peer: &Peer,
        record: &mut RequestRecord,
    ) -> Result<(), Reply> {
        let verb = info.resource.as_ref().map_or(Verb::Get, |resource| resource.verb);
        record.in_flight.is_local = peer.address.is_none();
        if verb == Verb::Watch || !audit::is_long_running(info) {
            record.in_flight.flow =
                self.fairness.classify(&self.registry.flow_table(), user, &info.verb(), &info.what());
        }
        if verb.writes() {
            return Ok(());
        }
        let width = || self.width(info, query);
        self.place(&self.metrics.inflight_reads, user, &mut record.in_flight, width).await
    }

    /// Refuses what the user may not do.
    async fn authorize(
        &self,
        parts: &Parts,
        info: &RequestInfo<'_>,
        user: &User,
        record: &mut RequestRecord,
    ) -> Result<(), Refusal> {
        let attributes = Attributes { user, verb: &info.verb(), what: info.what() };
        let (decision, took) = match self.authorizer.authorize(&attributes) {
            Verdict::Now(decision) => (decision, None),
            Verdict::Later(decision) => {
                let began = Instant::now();
                (decision.await, Some(began.elapsed()))
            }
        };
        self.metrics.access.authorized(&decision, took);
        if record.annotations.are_kept() {
            audit::note_decision(&record.annotations, &decision);
        }
        self.inspection.record(&attributes, &decision, || self.clock.now());
        if decision.allowed {
            return Ok(());
        }
        record.no_sniff = true;
        if !decision.error.is_empty() {
            return Err(reply::undecided(&parts.uri, &decision.error).into());
        }
        Err(self.inspection.refusal(&attributes, &decision).into())
    }
}
