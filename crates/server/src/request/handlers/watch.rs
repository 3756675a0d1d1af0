//! Watches: on a collection or on the deprecated `/watch/` paths, over HTTP or WebSocket.

use std::sync::Arc;

use http::{Extensions, Method, Version};
use machinery::labels::Requirement;
use machinery::options::ListOptions;
use machinery::{Status, fields};
use registry::{Encoding, Frames, Target, WatchView};

use crate::disturbance::Disturbed;
use crate::limits::Slot;
use crate::metrics::{OpenWatch, RequestLabels};
use crate::observation::{OpenWatchRecord, Opened};
use crate::request::disturbed_watch::{DisturbedWatch, agent};
use crate::request::handlers::recheck::{Rechecked, WatchRequest};
use crate::request::handlers::{Call, scope};
use crate::request::reply::{self, Reply};
use crate::request::routing::ResourceRoute;
use crate::wire::body::{EventSource, Observer, ResponseBody, WatchBody};
use crate::wire::websocket::{self, MessageKind};

/// Watches with at most this many terms in their selector are bounded by their number alone.
const SELECTOR_TERMS_FREE: usize = 16;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, extensions: Extensions) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = options(call, route).await?;
    let metrics = &call.server.metrics;
    let selector = selector_slot(call, &options)?;
    let Some(slot) = metrics.watches_open.take() else {
        metrics.refused(metrics.watches_open.name());
        return Ok(reply::overloaded());
    };
    // The name in a `/watch/` path has become a field selector.
    let target = Target { name: None, ..route.target.clone() };
    let mut view = match call.as_of {
        Some(at) => call.registry.watch_at(&target, &options, at).await?,
        None => call.registry.watch(&target, &options).await?,
    };
    view.set_form(asked.form);
    let drain = call.server.drain.ticket();
    let bytes_max = call.server.limits.watch_batch_bytes_max;
    let is_protobuf = asked.form.encoding == Encoding::Protobuf;
    if websocket::is_upgrade(call.headers) && call.method == Method::GET {
        view.leave_out_lengths();
        let (source, seen) = source(call, &target, &options, view, "websocket");
        let uncounted = Uncounted { seen, _slots: (slot, selector) };
        let watch = WatchBody::new(source, Box::new(uncounted), drain, bytes_max);
        let kind = if is_protobuf { MessageKind::Binary } else { MessageKind::Text };
        return Ok(websocket::upgrade(call.headers, extensions, watch, kind));
    }
    let kind = &target.kind;
    let series = metrics.watch(&RequestLabels {
        verb: "WATCH",
        group: &kind.gvk.group,
        version: &kind.gvk.version,
        resource: &kind.plural,
        scope: scope(&target),
        ..RequestLabels::default()
    });
    let protocol = match call.version {
        _ if call.peer.address.is_none() => "in-process",
        Version::HTTP_2 => "h2",
        _ => "http/1.1",
    };
    let (source, seen) = source(call, &target, &options, view, protocol);
    let counted = Counted { open: series.open(), seen, _slot: slot, _selector: selector };
    let watch = WatchBody::new(source, Box::new(counted), drain, bytes_max);
    let content_type = if is_protobuf { reply::PROTOBUF_WATCH } else { reply::JSON };
    Ok(reply::with_body(200, content_type, ResponseBody::watch(watch)))
}

/// The events of a watch, with what a lab does to them, and the record that it keeps.
fn source(
    call: &Call<'_>,
    target: &Target,
    options: &ListOptions,
    mut view: WatchView,
    protocol: &'static str,
) -> (Box<dyn EventSource>, Option<OpenWatchRecord>) {
    let Some(lab) = call.server.lab.get().filter(|lab| target.kind.gvk.group != lab.group) else {
        return (checked(call, target, options, view), None);
    };
    view.note_events(Arc::clone(lab.disturbances.active()));
    let request = Disturbed {
        world: Arc::clone(&call.server.world),
        verb: "watch",
        group: target.kind.gvk.group.clone(),
        resource: target.kind.plural.clone(),
        subresource: String::new(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: options.field_selector.equality("metadata.name").unwrap_or_default().to_owned(),
        user: call.user.name.clone(),
        agent: agent(call.headers).to_owned(),
    };
    let text = |name: &str| call.query.get(name).unwrap_or_default().to_owned();
    let record = lab.recorder.watch_opened(Opened {
        request: request.clone(),
        labels: text("labelSelector"),
        fields: text("fieldSelector"),
        protocol,
        scope: view.scope(),
    });
    let events = checked(call, target, options, view);
    let (disturbances, revision) = (Arc::clone(&lab.disturbances), call.registry.cache().revision());
    let watch = DisturbedWatch::new(events, request, disturbances, Arc::clone(&record), revision);
    (Box::new(watch), Some(OpenWatchRecord(record)))
}

/// The events of a watch; with a check of the right to it, if the server is to end watches whose user has lost it.
fn checked(call: &Call<'_>, target: &Target, options: &ListOptions, view: WatchView) -> Box<dyn EventSource> {
    if !call.server.inspection.recheck_watches || call.user.is_master() {
        return Box::new(view);
    }
    let gvk = &target.kind.gvk;
    let request = WatchRequest {
        user: Arc::clone(call.user),
        group: gvk.group.to_string(),
        version: gvk.version.to_string(),
        resource: target.kind.plural.clone(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: options.field_selector.equality("metadata.name").unwrap_or_default().to_owned(),
        labels: call.query.get("labelSelector").map(str::to_owned),
        fields: call.query.get("fieldSelector").map(str::to_owned),
    };
    Box::new(Rechecked::new(view, request, Arc::clone(&call.server.authorizer)))
}

/// The options of the query, validated as those of a list when only the path asks for a watch, as the reference does.
async fn options(call: &Call<'_>, route: &ResourceRoute) -> Result<ListOptions, Status> {
    let mut options = call.list_options().await?;
    options.watch = true;
    if let Some(name) = &route.target.name {
        let selector = &options.field_selector;
        if !selector.is_everything() && selector.equality("metadata.name") != Some(name) {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        if selector.is_everything() {
            options.field_selector = fields::Selector::equal("metadata.name", name);
        }
    }
    Ok(options)
}

/// Charges the memory of a long selector for as long as the watch is open.
fn selector_slot(call: &Call<'_>, options: &ListOptions) -> Result<Option<Slot>, Status> {
    let terms = options.label_selector.requirements();
    if terms.len() <= SELECTOR_TERMS_FREE {
        return Ok(None);
    }
    let text_bytes = |text: &str| text.len().next_multiple_of(16);
    let bytes = terms.iter().map(|term| {
        let values: usize = term.values().iter().map(|value| size_of::<String>() + text_bytes(value)).sum();
        size_of::<Requirement>() + text_bytes(term.key()) + values
    });
    let (bytes, budget) = (bytes.sum(), &call.server.metrics.selector_bytes);
    let slot = match call.share() {
        Some(user) => budget.take_for(user, bytes),
        None => budget.take_many(bytes),
    };
    if slot.is_none() {
        call.server.metrics.refused(budget.name());
        let why = "the selectors of open watches are too long together, please try again later";
        return Err(Status::too_many_requests(why, 1));
    }
    Ok(slot)
}

/// Counts the events sent over HTTP.
struct Counted {
    open: OpenWatch,
    seen: Option<OpenWatchRecord>,
    _slot: Slot,
    _selector: Option<Slot>,
}

impl Observer for Counted {
    fn sent(&mut self, frames: &Frames) {
        let mut from = 0;
        for &end in &frames.ends {
            let bytes = frames.segments.get(from..end).unwrap_or_default().iter().map(|part| part.len()).sum();
            self.open.sent(bytes);
            from = end;
        }
        if let Some(seen) = &self.seen {
            seen.0.sent(frames);
        }
    }
}

/// Holds the slots of a watch over WebSocket, whose events are not counted, as in the reference.
struct Uncounted {
    seen: Option<OpenWatchRecord>,
    _slots: (Slot, Option<Slot>),
}

impl Observer for Uncounted {
    fn sent(&mut self, frames: &Frames) {
        if let Some(seen) = &self.seen {
            seen.0.sent(frames);
        }
    }
}
