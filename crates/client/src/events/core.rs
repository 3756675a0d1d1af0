//! The recorder of `core/v1` Events.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::correlate::Correlator;
use super::sink::{EventSink, deliver};
use super::{QUEUE, event_name, namespace_of};
use crate::metrics::Counter;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Expected.
    Normal,
    /// Unexpected.
    Warning,
}

impl EventType {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Records events. Cheap to clone; never blocks.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use client::events::{ApiEvents, EventRecorder, EventType};
/// use k8s_openapi::api::core::v1::ObjectReference;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client, pod: ObjectReference) {
/// let (recorder, writer) = EventRecorder::new(Arc::new(ApiEvents::new(client)), "scheduler", "host-1");
/// tokio::spawn(writer.run(CancellationToken::new()));
/// recorder.record(&pod, EventType::Warning, "FailedScheduling", "0/3 nodes are available");
/// # }
/// ```
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Event>,
    component: Arc<str>,
    host: Arc<str>,
    dropped: Arc<Counter>,
    clock: Clock,
}

/// Writes the events of its recorders to the sink.
pub struct EventWriter {
    queue: mpsc::Receiver<Event>,
    sink: Arc<dyn EventSink<Event>>,
}

impl EventRecorder {
    /// Creates a recorder for a component on a host, and the writer that has to run for it.
    pub fn new(sink: Arc<dyn EventSink<Event>>, component: &str, host: &str) -> (Self, EventWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let recorder = Self {
            queue: sender,
            component: component.into(),
            host: host.into(),
            dropped: Arc::default(),
            clock: Clock::system(),
        };
        (recorder, EventWriter { queue: receiver, sink })
    }

    /// Takes the times of events from `clock` instead of the machine's.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The same recorder for another host.
    #[must_use]
    pub fn on_host(&self, host: &str) -> Self {
        Self { host: host.into(), ..self.clone() }
    }

    /// Queues an event about an object. Drops and counts it if the queue is full.
    pub fn record(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) {
        let now = self.clock.now();
        let mut event = Event {
            involved_object: object.clone(),
            type_: Some(kind.as_str().into()),
            reason: Some(reason.into()),
            message: Some(message.into()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(EventSource {
                component: Some(self.component.to_string()),
                host: Some(self.host.to_string()),
            }),
            reporting_component: Some(self.component.to_string()),
            reporting_instance: Some(self.host.to_string()),
            ..Event::default()
        };
        event.metadata.name = Some(event_name(object.name.as_deref().unwrap_or_default(), now));
        event.metadata.namespace = Some(namespace_of(object));
        if self.queue.try_send(event).is_err() {
            self.dropped.inc();
        }
    }

    /// Events that did not fit the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

impl EventWriter {
    /// Writes until `stop`, or until all recorders are gone and everything is written.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut correlator = Correlator::new();
        let write_all = async {
            while let Some(event) = self.queue.recv().await {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                if let Some((equal, write)) = correlator.correlate(event)
                    && let Some(written) = deliver(&*self.sink, namespace, write).await
                {
                    correlator.written(equal, written);
                }
            }
        };
        let _ = stop.run_until_cancelled(write_all).await;
    }
}
