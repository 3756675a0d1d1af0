//! The recent changes of a collection, in order, shared by all watchers.
//!
//! Bounded by number, by age, and by the bytes of superseded objects that it keeps alive. Older changes are still in the store's
//! history, from which a watcher that is far behind catches up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use machinery::Revision;
use tokio::time::Instant;

use crate::event::Event;

/// Limits of the history in memory, for each collection.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    pub changes_max: usize,
    /// Bytes of objects that only history holds.
    pub bytes_max: usize,
    /// Age at which a change leaves memory, within a fifth. The store may keep it for longer.
    pub age_max: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        HistoryLimits { changes_max: 10_000, bytes_max: 16 << 20, age_max: Duration::from_secs(300) }
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
    /// The newest event at some moments of the last [`HistoryLimits::age_max`], oldest first.
    marks: VecDeque<(Instant, Revision)>,
}

impl History {
    pub(crate) fn new(floor: Revision, limits: HistoryLimits) -> Self {
        History { events: VecDeque::new(), floor, bytes: 0, limits, marks: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += weight(&event);
        self.events.push_back(event);
        while self.events.len() > self.limits.changes_max
            || (self.bytes > self.limits.bytes_max && self.events.len() > 1)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.events.pop_front() {
            self.bytes -= weight(&oldest);
            self.floor = oldest.revision();
        }
    }

    /// Drops events that are too old. Called regularly, it needs no time for each event: it records the newest one now, and
    /// drops what was there at the last call that is long enough ago.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, newest)) = self.marks.front().copied()
            && now.duration_since(at) >= self.limits.age_max
        {
            self.marks.pop_front();
            while self.events.front().is_some_and(|event| event.revision() <= newest) {
                self.drop_oldest();
            }
        }
        if let Some(newest) = self.events.back().map(|event| event.revision())
            && self.marks.back().is_none_or(|(_, marked)| *marked < newest)
        {
            self.marks.push_back((now, newest));
        }
        if self.events.capacity() > 64 && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.len() * 2);
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

#[cfg(test)]
mod tests {
    use store::Key;

    use super::*;
    use crate::item::Item;
    use crate::spec::Spec;

    fn event(revision: u64) -> Arc<Event> {
        let stored = br#"{"kind":"K","apiVersion":"v1","metadata":{"name":"n"}}"#;
        let key = Key::new("core/pods/n").unwrap();
        let item = Arc::new(Item::new(key, Revision(revision), stored, &Spec::default()).unwrap());
        Arc::new(Event::new(Revision(revision), Some(Arc::clone(&item)), Some(item)))
    }

    #[test]
    fn changes_leave_memory_with_age_and_the_floor_follows() {
        let mut history = History::new(Revision(0), HistoryLimits::default());
        let age = history.limits().age_max;
        let start = Instant::now();
        (1..=1000).for_each(|revision| history.push(event(revision)));
        history.expire(start);
        (1001..=1003).for_each(|revision| history.push(event(revision)));
        history.expire(start + age / 2);
        assert_eq!((history.len(), history.floor()), (1003, Revision(0)), "still young");
        history.expire(start + age);
        assert_eq!((history.len(), history.floor()), (3, Revision(1000)));
        assert_eq!(history.after(Revision(1000), 10).count(), 3);
        assert!(history.events.capacity() < 100, "the queue is given back");
        history.expire(start + age * 2);
        assert_eq!((history.len(), history.bytes(), history.floor()), (0, 0, Revision(1003)));
        history.expire(start + age * 4);
        assert!(history.marks.is_empty(), "an idle collection has no marks");
    }
}
