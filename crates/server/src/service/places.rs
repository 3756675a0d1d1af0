//! What a request takes of the server: seats and slots while it is in flight, and the bytes it works on.

use access::identity::User;
use http::request::Parts;
use machinery::query::Query;

use super::Inner;
use crate::fairness::{self, Flow, Place};
use crate::limits::Slots;
use crate::request::reply::{self, Reply};
use crate::request::request_info::{RequestInfo, Verb};
use crate::request::routing::ResourceRoute;

/// The collection of custom resource definitions.
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The flow of a request, and its place among those in flight.
#[derive(Default)]
pub(super) struct InFlight {
    /// None until its user is known, and for requests that are not limited by their flow.
    pub(super) flow: Option<Flow>,
    /// A caller in the same process, such as a controller, is not limited: it waits for its own requests.
    pub(super) is_local: bool,
    pub(super) place: Option<Place>,
}

impl Inner {
    /// Takes a place in flight: seats of the request's priority level, for which it may have to wait, and a slot. Requests of
    /// an exempt level need none.
    pub(super) async fn place(
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
    pub(super) fn width(&self, info: &RequestInfo<'_>, query: &Query) -> usize {
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

    /// Returns the bytes that a write works on, if it is heavy by its size.
    pub(super) fn weight(&self, route: &ResourceRoute, parts: &Parts, body_bytes: usize) -> Option<usize> {
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
}
