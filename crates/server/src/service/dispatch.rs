//! Who answers an authorized request: the server behind an APIService, or a handler, on the pool if its work is heavy.

use std::sync::Arc;
use std::time::Duration;

use access::identity::User;
use http::request::Parts;
use http::{Extensions, StatusCode};
use machinery::Status;
use registry::api_services::RemoteService;
use registry::kinds::Kinds;
use registry::{Registry, Target};

use super::places::InFlight;
use super::respond::Refusal;
use super::{Inner, Server};
use crate::aggregation::{Aggregator, MergedDiscovery, Passed};
use crate::request::handlers::{self, Call};
use crate::request::reply::Reply;
use crate::request::request_info::{RequestInfo, segments};
use crate::request::routing::{ResourceRoute, Route, route};
use crate::request::waiting::WritePlaces;
use crate::wire::body::RequestBody;
use crate::wire::peer::Peer;
use crate::worlds::Worlds;

/// A request that another server serves.
pub(super) struct Passing<'a> {
    pub(super) remote: &'a RemoteService,
    pub(super) parts: &'a Parts,
    pub(super) user: &'a Arc<User>,
    pub(super) extensions: Extensions,
    /// None for a watch.
    pub(super) deadline: Option<Duration>,
}

impl Server {
    /// Passes a request to the server that serves its group version.
    pub(super) async fn pass(
        &self,
        passing: Passing<'_>,
        body: &mut RequestBody,
        in_flight: &mut InFlight,
    ) -> Result<Reply, Refusal> {
        let inner = &*self.0;
        let Passing { remote, parts, user, extensions, deadline } = passing;
        let Some(aggregator) = inner.aggregation() else { return Err(Status::router_not_found().into()) };
        let (bytes, _charged) = inner.read_body(body, user).await?;
        if in_flight.place.is_none() {
            inner.place(&inner.metrics.inflight_writes, user, in_flight, || 1).await?;
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
    pub(super) async fn write(
        &self,
        call: &Call<'_>,
        parts: &Parts,
        peer: &Arc<Peer>,
        route: ResourceRoute,
        body: &mut RequestBody,
        extensions: Extensions,
        in_flight: &mut InFlight,
    ) -> Result<Reply, Refusal> {
        let inner = &*self.0;
        let (bytes, _charged) = inner.read_body(body, call.user).await?;
        if let Some(write) = call.write.as_ref().filter(|_| !holds_secrets(&route.target)) {
            write.set_body(&bytes);
        }
        inner.place(&inner.metrics.inflight_writes, call.user, in_flight, || 1).await?;
        let places = Arc::new(WritePlaces::new(in_flight.place.take(), &inner.metrics));
        let call = &Call { place: Some(Arc::clone(&places)), ..call.clone() };
        let collection = route.target.kind.collection.clone();
        let by_size = inner.weight(&route, parts, bytes.len());
        // Objects of a lab are small; what their writes start belongs to the threads of the server, not to those of the pool.
        let is_lab = !Arc::ptr_eq(call.registry, &inner.registry);
        if by_size.is_none() && (is_lab || !inner.costly.contains(&collection)) {
            let work = handlers::answer(call, Route::Resource(route), bytes, extensions);
            let answer = if is_lab { work.await } else { inner.costly.measure(&collection, work).await };
            in_flight.place = places.take();
            return Ok(answer?);
        }
        let weight = by_size.unwrap_or(bytes.len());
        let (server, peer, user) = (self.clone(), Arc::clone(peer), Arc::clone(call.user));
        let (method, headers, query) = (parts.method.clone(), parts.headers.clone(), call.query.clone());
        let path = call.path.to_owned();
        let registry = Arc::clone(call.registry);
        let (warnings, annotations) = (call.warnings.clone(), call.annotations.clone());
        let (place, trace, write) = (call.place.clone(), call.trace.clone(), call.write.clone());
        let version = call.version;
        let work = async move {
            let call = Call {
                server: &server.0,
                registry: &registry,
                method: &method,
                path: &path,
                headers: &headers,
                query: &query,
                user: &user,
                peer: &peer,
                warnings: &warnings,
                annotations: &annotations,
                version,
                write,
                as_of: None,
                place,
                trace,
            };
            let work = handlers::answer(&call, Route::Resource(route), bytes, extensions);
            match by_size {
                Some(_) => work.await,
                None => server.0.costly.measure(&collection, work).await,
            }
        };
        let answer = inner.heavy.run_write(call.share(), weight, Arc::clone(&places), work).await;
        in_flight.place = places.take();
        Ok(answer?)
    }
}

impl Server {
    /// The registry of the lab, if a request is about its objects; none if it is about those of the cluster.
    pub(super) async fn lab_registry(&self, route: &Route) -> Result<Option<Arc<Registry>>, Status> {
        match (self.0.lab.get(), route) {
            (Some(lab), Route::Resource(route)) if route.target.kind.gvk.group == lab.group => {
                lab.objects.registry(self.downgrade()).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Inner {
    pub(super) fn route(&self, info: &RequestInfo<'_>) -> Route {
        let kinds = self.registry.kinds();
        if self.aggregation().is_some()
            && let ["apis", group] = segments(&info.path).as_slice()
            && let Some(group) = self.merged_discovery(&kinds).and_then(|merged| merged.group(group))
        {
            return Route::AggregatedGroup(group);
        }
        route(info, &kinds)
    }

    /// Handles writes to objects that stand for worlds; none for all other objects.
    pub(crate) fn worlds_of(&self, target: &Target) -> Option<&Arc<dyn Worlds>> {
        let lab = self.lab.get()?;
        self.worlds.get().filter(|_| target.kind.gvk.group == lab.group)
    }

    /// Passes requests to other servers; none if this one serves everything.
    pub(super) fn aggregation(&self) -> Option<&Arc<Aggregator>> {
        self.aggregator.get().filter(|_| self.registry.api_services().has_remotes())
    }

    /// Discovery with the groups of other servers; none if there are no others.
    pub(crate) fn merged_discovery(&self, kinds: &Arc<Kinds>) -> Option<Arc<MergedDiscovery>> {
        self.aggregation()?.discovery(kinds)
    }
}

/// Whether bodies of requests for a target hold secrets, which are shown to those alone who may read them.
fn holds_secrets(target: &Target) -> bool {
    let (group, subresource) = (target.kind.gvk.group.as_str(), target.subresource.as_deref());
    matches!(
        (group, target.kind.plural.as_str(), subresource),
        ("", "secrets", _) | ("", "serviceaccounts", Some("token")) | ("authentication.k8s.io", "tokenreviews", _)
    )
}
