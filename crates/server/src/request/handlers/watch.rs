//! Watches: on a collection or on the deprecated `/watch/` paths, over HTTP or WebSocket.

use http::{Extensions, Method};
use machinery::options::ListOptions;
use machinery::{Status, fields};
use registry::{Encoding, Frames, Target};

use crate::limits::Slot;
use crate::metrics::{OpenWatch, RequestLabels};
use crate::request::handlers::{Call, scope};
use crate::request::reply::{self, Reply};
use crate::request::routing::ResourceRoute;
use crate::wire::body::{Observer, ResponseBody, WatchBody};
use crate::wire::websocket::{self, MessageKind};

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, extensions: Extensions) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = options(call, route)?;
    let metrics = &call.server.metrics;
    let Some(slot) = metrics.watches_open.take() else {
        metrics.refused(metrics.watches_open.name());
        return Ok(reply::overloaded());
    };
    // The name in a `/watch/` path has become a field selector.
    let target = Target { name: None, ..route.target.clone() };
    let mut view = call.server.registry.watch(&target, &options).await?;
    view.set_form(asked.form);
    let drain = call.server.drain.ticket();
    let bytes_max = call.server.limits.watch_batch_bytes_max;
    let is_protobuf = asked.form.encoding == Encoding::Protobuf;
    if websocket::is_upgrade(call.headers) && call.method == Method::GET {
        view.leave_out_lengths();
        let watch = WatchBody::new(Box::new(view), Box::new(Uncounted(slot)), drain, bytes_max);
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
    let counted = Counted { open: series.open(), _slot: slot };
    let watch = WatchBody::new(Box::new(view), Box::new(counted), drain, bytes_max);
    let content_type = if is_protobuf { reply::PROTOBUF_WATCH } else { reply::JSON };
    Ok(reply::with_body(200, content_type, ResponseBody::watch(watch)))
}

/// The options of the query, validated as those of a list when only the path asks for a watch, as the reference does.
fn options(call: &Call<'_>, route: &ResourceRoute) -> Result<ListOptions, Status> {
    let mut options = ListOptions::from_query(call.query)?;
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

/// Counts the events sent over HTTP.
struct Counted {
    open: OpenWatch,
    _slot: Slot,
}

impl Observer for Counted {
    fn sent(&mut self, frames: &Frames) {
        let mut from = 0;
        for &end in &frames.ends {
            let bytes = frames.segments.get(from..end).unwrap_or_default().iter().map(|part| part.len()).sum();
            self.open.sent(bytes);
            from = end;
        }
    }
}

/// Holds the slot of a watch over WebSocket, whose events are not counted, as in the reference.
struct Uncounted(#[allow(dead_code, reason = "held for its Drop")] Slot);

impl Observer for Uncounted {
    fn sent(&mut self, _: &Frames) {}
}
