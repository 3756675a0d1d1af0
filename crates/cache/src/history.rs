//! The recent changes of a collection, in order, shared by all watchers.
//!
//! Bounded by number and by the bytes of superseded objects that it keeps alive. Older changes are still in the store's
//! history, from which a watcher that is far behind catches up.

use std::collections::VecDeque;
use std::sync::Arc;

use machinery::Revision;

use crate::event::Event;

/// Limits of the history in memory, for each collection.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    pub changes_max: usize,
    /// Bytes of objects that only history holds.
    pub bytes_max: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        HistoryLimits { changes_max: 10_000, bytes_max: 16 << 20 }
    }
}

/// Events after `floor`, oldest first.
#[derive(Debug)]
pub struct History {
    events: VecDeque<Arc<Event>>,
    /// Every event after this revision is in `events`.
    floor: Revision,
    bytes: usize,
    limits: HistoryLimits,
}

impl History {
    pub(crate) fn new(floor: Revision, limits: HistoryLimits) -> Self {
        History { events: VecDeque::new(), floor, bytes: 0, limits }
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += weight(&event);
        self.events.push_back(event);
        while self.events.len() > self.limits.changes_max
            || (self.bytes > self.limits.bytes_max && self.events.len() > 1)
        {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= weight(&oldest);
            self.floor = oldest.revision();
        }
    }

    pub(crate) fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// Every event after this revision is present.
    #[must_use]
    pub fn floor(&self) -> Revision {
        self.floor
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Up to `max` events after `revision`, which must not be older than the floor.
    pub(crate) fn after(&self, revision: Revision, max: usize) -> impl Iterator<Item = &Arc<Event>> {
        debug_assert!(revision >= self.floor, "walking history from before its floor");
        let from = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(from..).take(max)
    }

    /// Events after `revision`, newest first: to undo them.
    pub(crate) fn back_to(&self, revision: Revision) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter().rev().take_while(move |event| event.revision() > revision)
    }
}

/// Bytes of an event itself, roughly: its allocation, two references and the slot in the queue.
const EVENT_BYTES: usize = 128;

/// Bytes that history keeps alive for an event: the superseded object, and the event itself.
fn weight(event: &Event) -> usize {
    EVENT_BYTES + event.previous().map_or(0, |item| item.len())
}
