//! Reduction of a stream of events: similar ones are combined, equal ones counted, floods dropped (EV-2).

use std::collections::BTreeSet;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lru::LruCache;
use serde_json::json;
use tokio::time::Instant;

use super::sink::Write;

/// Entries of each cache.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");
/// The number of different messages at which similar events are combined.
const SIMILAR_MAX: usize = 10;
/// A pause of this long between similar events starts their count over.
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// The budget of one source for one object, and how long until one more is allowed.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

const COMBINED: &str = "(combined from similar events): ";

/// The fields that make events similar.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Similar {
    source: String,
    host: String,
    object: String,
    kind: String,
    reason: String,
    reporter: String,
}

/// The fields that make events equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Equal {
    similar: Similar,
    /// `None` if they were combined.
    message: Option<String>,
}

struct Messages {
    seen: BTreeSet<String>,
    last: Instant,
}

/// What is remembered of an event: not the event itself, of which thousands would take some ten megabytes.
struct Written {
    count: i32,
    name: String,
    first_timestamp: Option<Time>,
}

pub(super) struct Correlator {
    similar: LruCache<Similar, Messages>,
    written: LruCache<Equal, Written>,
    budgets: LruCache<(String, String, String, String), (f64, Instant)>,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self { similar: LruCache::new(ENTRIES), written: LruCache::new(ENTRIES), budgets: LruCache::new(ENTRIES) }
    }

    /// Returns the write for an event; `None` if it is dropped.
    pub(super) fn correlate(&mut self, event: Event) -> Option<(Equal, Write<Event>)> {
        let now = Instant::now();
        let (equal, event) = self.combine(event, now);
        let write = self.count(&equal, event);
        self.within_budget(&equal.similar, now).then_some((equal, write))
    }

    /// Remembers the event as the server returned it.
    pub(super) fn written(&mut self, equal: Equal, event: Event) {
        let name = event.metadata.name.unwrap_or_default();
        let count = event.count.unwrap_or(1);
        self.written.put(equal, Written { count, name, first_timestamp: event.first_timestamp });
    }

    fn combine(&mut self, mut event: Event, now: Instant) -> (Equal, Event) {
        let similar = similar(&event);
        let message = event.message.clone().unwrap_or_default();
        let fresh = || Messages { seen: BTreeSet::new(), last: now };
        let messages = self.similar.get_or_insert_mut(similar.clone(), fresh);
        if now - messages.last > SIMILAR_WINDOW {
            messages.seen.clear();
        }
        messages.last = now;
        messages.seen.insert(message.clone());
        if messages.seen.len() < SIMILAR_MAX {
            return (Equal { similar, message: Some(message) }, event);
        }
        // The set never grows beyond the limit.
        messages.seen.pop_first();
        event.message = Some(format!("{COMBINED}{message}"));
        (Equal { similar, message: None }, event)
    }

    fn count(&mut self, equal: &Equal, mut event: Event) -> Write<Event> {
        let Some(known) = self.written.get(equal) else { return Write::Create(event) };
        let count = known.count.saturating_add(1);
        event.count = Some(count);
        event.first_timestamp = known.first_timestamp.clone();
        let patch = json!({
            "count": count,
            "lastTimestamp": event.last_timestamp,
            "message": event.message,
        });
        Write::Patch { name: known.name.clone(), patch, or_create: event }
    }

    fn within_budget(&mut self, similar: &Similar, now: Instant) -> bool {
        let key = (similar.source.clone(), similar.host.clone(), similar.object.clone(), similar.kind.clone());
        let (tokens, at) = self.budgets.get_or_insert_mut(key, || (BURST, now));
        *tokens = (*tokens + (now - *at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *at = now;
        let allowed = *tokens >= 1.0;
        if allowed {
            *tokens -= 1.0;
        }
        allowed
    }
}

fn similar(event: &Event) -> Similar {
    let source = event.source.clone().unwrap_or_default();
    let o = &event.involved_object;
    let parts = [&o.kind, &o.namespace, &o.name, &o.uid, &o.api_version, &o.field_path];
    Similar {
        source: source.component.unwrap_or_default(),
        host: source.host.unwrap_or_default(),
        object: parts.map(|part| part.as_deref().unwrap_or_default()).join("\u{0}"),
        kind: event.type_.clone().unwrap_or_default(),
        reason: event.reason.clone().unwrap_or_default(),
        reporter: event.reporting_component.clone().unwrap_or_default(),
    }
}
