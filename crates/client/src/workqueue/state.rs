//! The sets of a work queue: keys that wait, keys in work, delayed keys.
//!
//! A key is *dirty* when it needs work and *processing* while a worker has it; it is in line when it is dirty and not
//! processing. That is all of de-duplication (WQ-1, WQ-2).
//!
//! Lines of different priority are served by weight: after [`HIGH_PER_LOW`] keys of the highest line, one key of the lower line
//! that has waited longest. Strict priority starves the rest under steady load.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::{Item, KeyState, Priority};

/// Number of keys of the highest line between two keys of lower ones.
const HIGH_PER_LOW: u32 = 8;

pub(super) struct State<T> {
    /// In line, by priority and then by arrival.
    lines: BTreeMap<Reverse<Priority>, BTreeMap<u64, Waiting<T>>>,
    in_line: usize,
    dirty: HashMap<T, Dirty>,
    processing: HashMap<T, Instant>,
    /// Delayed keys, by due time.
    delayed: BTreeMap<(Instant, u64), (T, Priority)>,
    delayed_keys: HashMap<T, (Instant, u64)>,
    next_arrival: u64,
    /// Number of keys taken from the highest line since one was taken from a lower.
    high_streak: u32,
    shut_down: bool,
}

struct Waiting<T> {
    item: T,
    since: Instant,
}

struct Dirty {
    priority: Priority,
    /// Its position in line; `None` while it is processing.
    arrival: Option<u64>,
    since: Instant,
}

pub(super) struct TakenItem<T> {
    pub(super) item: T,
    pub(super) priority: Priority,
    pub(super) waited: Duration,
}

impl<T: Item> State<T> {
    pub(super) fn new() -> Self {
        Self {
            lines: BTreeMap::new(),
            in_line: 0,
            dirty: HashMap::new(),
            processing: HashMap::new(),
            delayed: BTreeMap::new(),
            delayed_keys: HashMap::new(),
            next_arrival: 0,
            high_streak: 0,
            shut_down: false,
        }
    }

    /// True if the key was not dirty before.
    pub(super) fn add(&mut self, item: T, priority: Priority, now: Instant) -> bool {
        if self.shut_down {
            return false;
        }
        if let Some(dirty) = self.dirty.get(&item) {
            if priority > dirty.priority {
                self.raise(item, priority);
            }
            return false;
        }
        let arrival = (!self.processing.contains_key(&item)).then(|| self.enter_line(item.clone(), priority, now));
        self.dirty.insert(item, Dirty { priority, arrival, since: now });
        true
    }

    /// Moves a key to the end of a higher line.
    fn raise(&mut self, item: T, priority: Priority) {
        let Some(dirty) = self.dirty.get_mut(&item) else { return };
        let (old, arrival, since) = (dirty.priority, dirty.arrival, dirty.since);
        dirty.priority = priority;
        if let Some(arrival) = arrival {
            self.leave_line(old, arrival);
            let arrival = self.enter_line(item.clone(), priority, since);
            if let Some(dirty) = self.dirty.get_mut(&item) {
                dirty.arrival = Some(arrival);
            }
        }
    }

    fn enter_line(&mut self, item: T, priority: Priority, since: Instant) -> u64 {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.lines.entry(Reverse(priority)).or_default().insert(arrival, Waiting { item, since });
        self.in_line += 1;
        arrival
    }

    fn leave_line(&mut self, priority: Priority, arrival: u64) -> Option<Waiting<T>> {
        let line = self.lines.get_mut(&Reverse(priority))?;
        let waiting = line.remove(&arrival)?;
        if line.is_empty() {
            self.lines.remove(&Reverse(priority));
        }
        self.in_line -= 1;
        Some(waiting)
    }

    pub(super) fn add_at(&mut self, item: T, at: Instant, priority: Priority) {
        if self.shut_down {
            return;
        }
        let mut priority = priority;
        let mut at = at;
        if let Some(known) = self.delayed_keys.remove(&item)
            && let Some((_, known_priority)) = self.delayed.remove(&known)
        {
            priority = priority.max(known_priority);
            at = at.min(known.0);
        }
        let place = (at, self.next_arrival);
        self.next_arrival += 1;
        self.delayed_keys.insert(item.clone(), place);
        self.delayed.insert(place, (item, priority));
    }

    /// Moves due keys into line, behind earlier ones of the same priority. Returns how many were added.
    pub(super) fn promote_due(&mut self, now: Instant) -> usize {
        let mut added = 0;
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (item, priority) = entry.remove();
            self.delayed_keys.remove(&item);
            added += usize::from(self.add(item, priority, now));
        }
        added
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<TakenItem<T>> {
        let priority = self.next_line()?;
        let arrival = *self.lines.get(&Reverse(priority))?.first_key_value()?.0;
        let waiting = self.leave_line(priority, arrival)?;
        self.dirty.remove(&waiting.item);
        self.processing.insert(waiting.item.clone(), now);
        Some(TakenItem { item: waiting.item, priority, waited: now - waiting.since })
    }

    fn next_line(&mut self) -> Option<Priority> {
        let mut lines = self.lines.iter();
        let (Reverse(highest), _) = lines.next()?;
        let oldest = |line: &BTreeMap<u64, Waiting<T>>| line.first_key_value().map(|(_, waiting)| waiting.since);
        let lower = lines.min_by_key(|(_, line)| oldest(line)).map(|(Reverse(priority), _)| *priority);
        match lower {
            Some(lower) if self.high_streak >= HIGH_PER_LOW => {
                self.high_streak = 0;
                Some(lower)
            }
            lower => {
                self.high_streak = if lower.is_some() { self.high_streak + 1 } else { 0 };
                Some(*highest)
            }
        }
    }

    /// Ends the processing of a key. True if it is in line again.
    pub(super) fn done(&mut self, item: &T, now: Instant) -> bool {
        self.processing.remove(item);
        let Some(dirty) = self.dirty.get(item) else { return false };
        let priority = dirty.priority;
        let arrival = self.enter_line(item.clone(), priority, now);
        if let Some(dirty) = self.dirty.get_mut(item) {
            dirty.arrival = Some(arrival);
        }
        true
    }

    pub(super) fn shut_down(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
        self.delayed_keys.clear();
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    pub(super) fn has_ready(&self) -> bool {
        self.in_line > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.processing.is_empty()
    }

    pub(super) fn remainder(&self) -> Vec<T> {
        let working = self.processing.keys();
        working.chain(self.dirty.keys().filter(|item| !self.processing.contains_key(item))).cloned().collect()
    }

    /// The keys: in work, in line, delayed.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&T, KeyState)> {
        let working = self.processing.keys().map(|item| (item, KeyState::Working));
        let in_line = self.lines.values().flat_map(BTreeMap::values);
        let delayed = self.delayed.iter().map(|((at, _), (item, _))| (item, KeyState::Delayed(*at)));
        working.chain(in_line.map(|waiting| (&waiting.item, KeyState::Queued))).chain(delayed)
    }

    pub(super) fn depth(&self) -> usize {
        self.in_line
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn processing(&self) -> usize {
        self.processing.len()
    }

    /// Sum and maximum of the times that unfinished work has taken.
    pub(super) fn running_times(&self, now: Instant) -> (Duration, Duration) {
        let times = self.processing.values().map(|started| now - *started);
        times.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), time| (sum + time, longest.max(time)))
    }
}
