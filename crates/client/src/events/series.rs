//! The recorder of `events.k8s.io/v1` Events: repetitions become a series that is counted in memory and written
//! periodically (EV-7).

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use lru::LruCache;
use machinery::Clock;
use serde_json::json;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::core::EventType;
use super::sink::{EventSink, Write, deliver};
use super::{QUEUE, event_name, namespace_of};
use crate::metrics::Counter;

/// Interval at which running series are written.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// Silence after which a series has ended; a single event is forgotten after the same time.
const QUIET: Duration = Duration::from_secs(6 * 60);
/// Longest note; longer ones are cut.
const NOTE_BYTES_MAX: usize = 1024;
/// Events of which repetitions are recognised.
pub(super) const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");

/// An event to record.
#[derive(Debug, Clone)]
pub struct NewEvent<'a> {
    /// The object that it is about.
    pub regarding: &'a ObjectReference,
    /// Another object that is involved.
    pub related: Option<&'a ObjectReference>,
    /// Expected or not.
    pub kind: EventType,
    /// The reason, in one word.
    pub reason: &'a str,
    /// The action taken, in one word.
    pub action: &'a str,
    /// The text for people.
    pub note: &'a str,
}

/// An event that the server would refuse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an event needs {0}")]
pub struct InvalidEvent(&'static str);

/// Records events. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct SeriesRecorder {
    queue: mpsc::Sender<Event>,
    controller: Arc<str>,
    instance: Arc<str>,
    dropped: Arc<Counter>,
    clock: Clock,
}

/// Writes the events of its recorders to the sink.
pub struct SeriesWriter {
    queue: mpsc::Receiver<Event>,
    series: Series,
}

impl SeriesRecorder {
    /// Creates a recorder for one instance of a controller, and the writer that has to run for it.
    pub fn new(sink: Arc<dyn EventSink<Event>>, controller: &str, instance: &str) -> (Self, SeriesWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let recorder = Self {
            queue: sender,
            controller: controller.into(),
            instance: instance.into(),
            dropped: Arc::default(),
            clock: Clock::system(),
        };
        (recorder, SeriesWriter { queue: receiver, series: Series { sink, known: LruCache::new(KNOWN_MAX) } })
    }

    /// Takes the times of events from `clock` instead of the machine's.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Queues an event. Only an event that the server would refuse is an error; a note that is too long is cut.
    pub fn record(&self, new: &NewEvent<'_>) -> Result<(), InvalidEvent> {
        if new.reason.is_empty() {
            return Err(InvalidEvent("a reason"));
        }
        if new.action.is_empty() {
            return Err(InvalidEvent("an action"));
        }
        let now = self.clock.now();
        let mut event = Event {
            regarding: Some(new.regarding.clone()),
            related: new.related.cloned(),
            type_: Some(new.kind.as_str().into()),
            reason: Some(new.reason.into()),
            action: Some(new.action.into()),
            note: Some(cut(new.note).into()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.to_string()),
            reporting_instance: Some(self.instance.to_string()),
            ..Event::default()
        };
        event.metadata.name = Some(event_name(new.regarding.name.as_deref().unwrap_or_default(), now));
        event.metadata.namespace = Some(namespace_of(new.regarding));
        if self.queue.try_send(event).is_err() {
            self.dropped.inc();
        }
        Ok(())
    }

    /// Events that did not fit the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

fn cut(note: &str) -> &str {
    &note[..note.floor_char_boundary(NOTE_BYTES_MAX)]
}

impl SeriesWriter {
    /// Writes until `stop`, or until all recorders are gone and everything is written.
    pub async fn run(mut self, stop: CancellationToken) {
        let write_all = async {
            let mut refresh = tokio::time::interval_at(Instant::now() + REFRESH, REFRESH);
            let mut end_quiet = tokio::time::interval_at(Instant::now() + QUIET, QUIET);
            loop {
                tokio::select! {
                    biased;
                    event = self.queue.recv() => match event {
                        Some(event) => self.series.take(event).await,
                        None => return,
                    },
                    _ = refresh.tick() => self.series.refresh().await,
                    _ = end_quiet.tick() => self.series.end_quiet().await,
                }
            }
        };
        let _ = stop.run_until_cancelled(write_all).await;
    }
}

/// The fields that make two events repetitions of each other. The note is not one of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    kind: Option<String>,
    action: Option<String>,
    reason: Option<String>,
    controller: Option<String>,
    instance: Option<String>,
    regarding: String,
    related: String,
}

struct Known {
    event: Event,
    last: Instant,
}

struct Series {
    sink: Arc<dyn EventSink<Event>>,
    /// The least recent one is forgotten where there are more than [`KNOWN_MAX`].
    known: LruCache<Identity, Known>,
}

impl Series {
    async fn take(&mut self, event: Event) {
        let identity = identity(&event);
        let now = Instant::now();
        if let Some(known) = self.known.get_mut(&identity) {
            known.last = now;
            let last_observed_time = event.event_time.expect("a recorded event has its time");
            let begins = known.event.series.is_none();
            let count = known.event.series.as_ref().map_or(1, |series| series.count).saturating_add(1);
            known.event.series = Some(EventSeries { count, last_observed_time });
            if begins {
                self.write(&identity).await;
            }
            return;
        }
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        if let Some(written) = deliver(&*self.sink, namespace, Write::Create(event)).await {
            self.known.put(identity, Known { event: without_managers(written), last: now });
        }
    }

    async fn refresh(&mut self) {
        let running: Vec<Identity> =
            self.known.iter().filter(|(_, k)| k.event.series.is_some()).map(|(identity, _)| identity.clone()).collect();
        for identity in running {
            self.write(&identity).await;
        }
    }

    async fn end_quiet(&mut self) {
        let quiet: Vec<Identity> = self
            .known
            .iter()
            .filter(|(_, k)| k.last.elapsed() >= QUIET)
            .map(|(identity, _)| identity.clone())
            .collect();
        for identity in quiet {
            if self.known.peek(&identity).is_some_and(|known| known.event.series.is_some()) {
                self.write(&identity).await;
            }
            self.known.pop(&identity);
        }
    }

    async fn write(&mut self, identity: &Identity) {
        let Some(known) = self.known.peek_mut(identity) else { return };
        let event = known.event.clone();
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let name = event.metadata.name.clone().unwrap_or_default();
        let mut or_create = event.clone();
        or_create.metadata.resource_version = None;
        or_create.metadata.uid = None;
        let write = Write::Patch { name, patch: json!({"series": event.series}), or_create };
        if let Some(written) = deliver(&*self.sink, namespace, write).await {
            known.event.metadata = without_managers(written).metadata;
        }
    }
}

/// Without its managed fields, which are most of a stored event and are not needed.
fn without_managers(mut event: Event) -> Event {
    event.metadata.managed_fields = None;
    event
}

fn identity(event: &Event) -> Identity {
    let reference = |object: Option<&ObjectReference>| {
        object
            .map(|o| {
                let parts = [&o.kind, &o.namespace, &o.name, &o.uid, &o.api_version, &o.field_path];
                parts.map(|part| part.as_deref().unwrap_or_default()).join("\u{0}")
            })
            .unwrap_or_default()
    };
    Identity {
        kind: event.type_.clone(),
        action: event.action.clone(),
        reason: event.reason.clone(),
        controller: event.reporting_controller.clone(),
        instance: event.reporting_instance.clone(),
        regarding: reference(event.regarding.as_ref()),
        related: reference(event.related.as_ref()),
    }
}
