//! A watch: on a collection, on the old `/watch/` paths, over HTTP or WebSocket.

use std::task::{Context, Poll};

use http::{Extensions, Method};
use machinery::options::ListOptions;
use machinery::{Status, fields};
use registry::watch_view::Frames;
use registry::{Encoding, Target, WatchView};

use crate::limits::Place;
use crate::metrics::{About, OpenWatch};
use crate::request::handlers::{Call, scope};
use crate::request::reply::{self, Reply};
use crate::request::routing::ResourceRoute;
use crate::wire::body::{EventSource, Events, Observer, ResponseBody, WatchBody};
use crate::wire::websocket;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, extensions: Extensions) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = options(call, route)?;
    let metrics = &call.server.metrics;
    let Some(place) = metrics.watches_open.take() else {
        metrics.refused(metrics.watches_open.name());
        return Ok(reply::overloaded());
    };
    // The name of the old paths is in the field selector now.
    let target = Target { name: None, ..route.target.clone() };
    let mut view = call.server.registry.watch(&target, &options).await?;
    view.set_form(asked.form);
    let drain = call.server.drain.ticket();
    let bytes_max = call.server.limits.watch_batch_bytes_max;
    let is_protobuf = asked.form.encoding == Encoding::Protobuf;
    if websocket::is_upgrade(call.headers) && call.method == Method::GET {
        view.leave_out_lengths();
        let source = Box::new(Watching(view));
        let watch = WatchBody::new(source, Box::new(Uncounted(place)), drain, bytes_max);
        let frames = if is_protobuf { websocket::Frames::Binary } else { websocket::Frames::Text };
        return Ok(websocket::answer(call.headers, extensions, watch, frames));
    }
    let source = Box::new(Watching(view));
    let kind = &target.kind;
    let series = metrics.watch(&About {
        verb: "WATCH",
        group: &kind.gvk.group,
        version: &kind.gvk.version,
        resource: &kind.plural,
        scope: scope(&target),
        ..About::default()
    });
    let counted = Counted { open: series.open(), _place: place };
    let watch = WatchBody::new(source, Box::new(counted), drain, bytes_max);
    let content_type = if is_protobuf { reply::PROTOBUF_WATCH } else { reply::JSON };
    Ok(reply::with_body(200, content_type, ResponseBody::watch(watch)))
}

/// Checked by the rules of a list when only the path says "watch", as the reference does.
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

/// The registry's view as a source of events.
struct Watching(WatchView);

impl EventSource for Watching {
    fn poll_events(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Events>> {
        self.0.poll_frames(cx, bytes_max).map(|frames| {
            frames.map(|frames| {
                let Frames { segments, ends, last, settled, .. } = frames;
                Events { segments, ends, last, settled }
            })
        })
    }
}

/// Counts what is sent over HTTP.
struct Counted {
    open: OpenWatch,
    _place: Place,
}

impl Observer for Counted {
    fn sent(&mut self, events: &Events) {
        let mut from = 0;
        for &end in &events.ends {
            let bytes = events.segments.get(from..end).unwrap_or_default().iter().map(|part| part.len()).sum();
            self.open.sent(bytes);
            from = end;
        }
    }
}

/// Events of a WebSocket are not counted, as in the reference; its place is.
struct Uncounted(#[allow(dead_code, reason = "held for its Drop")] Place);

impl Observer for Uncounted {
    fn sent(&mut self, _: &Events) {}
}
