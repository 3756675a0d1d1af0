//! The audit log: who did what, when, and with which result.
//!
//! - [`policy`]: which requests are recorded, and how much of them; [`policy_file`] reads a policy
//! - [`stage`]: the moments of a request that have events
//! - [`event`]: an event and its JSON
//! - `arrival`, `trail`: a request from its arrival on, and its events; `aside`: events of large objects
//! - [`sinks`]: where events go
//! - [`settings`]: sinks and policy from files and flags
//! - [`metrics`]: counts of events and of those that were lost
//!
//! A server without a policy or without a sink has no [`Auditor`], and its requests pay nothing.

mod arrival;
mod aside;
pub mod event;
pub mod metrics;
pub mod policy;
pub mod policy_file;
pub mod settings;
pub mod sinks;
pub mod stage;
mod trail;

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method};
use machinery::clock::Clock;

use crate::audit::event::Line;
use crate::audit::metrics::AuditMetrics;
use crate::audit::policy::Policy;
use crate::audit::sinks::stream::Streams;
use crate::audit::sinks::{Delivery, PendingDelivery, Sink};
use crate::request::request_info::{RequestInfo, Verb};

pub(crate) use arrival::{Arrival, Ending, note_decision};

/// Subresources whose requests last until the client ends them.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// Records requests by a policy.
pub struct Auditor {
    policy: Policy,
    outputs: Vec<Output>,
    streams: Arc<Streams>,
    metrics: Arc<AuditMetrics>,
    clock: Clock,
}

/// A sink and how it is used.
pub struct Output {
    pub sink: Arc<dyn Sink>,
    /// Whether a request is refused when its first event cannot be written.
    pub strict: bool,
    /// Bytes of an event above which its objects are left out.
    pub truncate_bytes: Option<usize>,
}

impl Output {
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Output { sink, strict: false, truncate_bytes: None }
    }
}

impl Auditor {
    #[must_use]
    pub fn new(policy: Policy, mut outputs: Vec<Output>, metrics: Arc<AuditMetrics>, clock: Clock) -> Arc<Self> {
        let streams = Arc::<Streams>::default();
        outputs.push(Output::new(Arc::clone(&streams) as _));
        Arc::new(Auditor { policy, outputs, streams, metrics, clock })
    }

    #[must_use]
    pub fn metrics(&self) -> &Arc<AuditMetrics> {
        &self.metrics
    }

    /// The events as streams.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Writes everything that was recorded, within a bound of time. Events after this may be lost.
    pub async fn close(&self) {
        for output in &self.outputs {
            output.sink.close().await;
        }
    }

    /// A request that has arrived.
    pub(crate) fn arrival(self: &Arc<Self>, id: &HeaderValue, began: Instant) -> Box<Arrival> {
        Box::new(Arrival {
            auditor: Arc::clone(self),
            id: id.clone(),
            began,
            received: self.clock.now(),
            trail: None,
            has_user: false,
        })
    }

    /// Sends an event to all sinks. `without_objects` makes the same event for sinks that leave objects out.
    fn send(&self, line: &Line, without_objects: &mut dyn FnMut() -> Line) -> Sending {
        self.metrics.event();
        let mut sending = Sending::default();
        let mut short: Option<Line> = None;
        for (at, output) in self.outputs.iter().enumerate() {
            let mut line = line;
            if output.truncate_bytes.is_some_and(|max| line.json().len() > max) {
                line = short.get_or_insert_with(&mut *without_objects);
                if output.truncate_bytes.is_some_and(|max| line.json().len() > max) {
                    self.metrics.lost(output.sink.name(), 1, "the event is too large even without objects");
                    continue;
                }
            }
            match output.sink.send(line) {
                Delivery::Done => {}
                Delivery::Lost(why) => {
                    self.metrics.lost(output.sink.name(), 1, &why);
                    sending.refused |= output.strict;
                }
                Delivery::Pending(delivery) => sending.pending.push((at, delivery)),
            }
        }
        sending
    }

    /// Waits for the sinks that a request waits for. Returns whether the request may go on.
    async fn settle(&self, sending: Sending) -> bool {
        let mut refused = sending.refused;
        for (at, delivery) in sending.pending {
            let Some(output) = self.outputs.get(at) else { continue };
            if let Err(why) = delivery.await {
                self.metrics.lost(output.sink.name(), 1, &why);
                refused |= output.strict;
            }
        }
        !refused
    }
}

/// An event that some sinks are still writing.
#[derive(Default)]
struct Sending {
    /// A strict sink has lost the event.
    refused: bool,
    /// With the places of their outputs.
    pending: Vec<(usize, PendingDelivery)>,
}

/// Returns whether a request lasts until its client ends it.
pub(crate) fn is_long_running(info: &RequestInfo<'_>) -> bool {
    match &info.resource {
        Some(resource) => resource.verb == Verb::Watch || LONG_RUNNING.contains(&resource.subresource.as_str()),
        None => info.path.starts_with("/debug/pprof/") && *info.method == Method::GET,
    }
}
