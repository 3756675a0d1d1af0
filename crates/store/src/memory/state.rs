//! The state of the memory engine: the current entries, the log of changes, and the floor of each collection.
//!
//! All of it is persistent: a copy shares everything with its original until one of them writes. The state at an older revision is the
//! current one with later changes undone.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, Vector};
use machinery::Revision;
use tokio::time::Instant;

use crate::contract::{Batch, ListQuery, Stats, Write};
use crate::entry::{Change, Entry, Snapshot};
use crate::error::{ReadError, WatchError, WriteError};
use crate::feed::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX};
use crate::key::{Key, Prefix};
use crate::restore::{Restored, differences};
use crate::retention::Retention;

/// Changes that a write removes at most: more than it adds, so that a sweep ends.
const SWEEP_STEP: usize = 64;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct State {
    retention: Retention,
    revision: Revision,
    entries: Entries,
    /// Every retained change. Collections are compacted separately, so there are gaps.
    log: OrdMap<Revision, Arc<Change>>,
    collections: Arc<BTreeMap<Arc<str>, Collection>>,
    /// Set by [`State::raise_floor`] for all collections, including those that do not exist yet.
    floor: Revision,
    /// Changes after this one outlive their age and number.
    held: Option<Revision>,
    swept: Instant,
    sweeping: bool,
    stats: Stats,
}

type Entries = OrdMap<Key, Value>;

/// The value of a key, and the revision of the write that made it.
#[derive(Clone)]
struct Value {
    revision: Revision,
    bytes: Bytes,
}

impl Value {
    fn entry(&self, key: &Key) -> Entry {
        Entry { key: key.clone(), revision: self.revision, value: self.bytes.clone() }
    }
}

#[derive(Clone, Default)]
struct Collection {
    /// The newest removed change: states from here on can be read, changes after it watched.
    floor: Revision,
    /// The retained changes, oldest first.
    changes: Vector<(Revision, Instant)>,
}

impl State {
    pub(super) fn new(retention: Retention) -> Self {
        State {
            retention,
            revision: Revision::ZERO,
            entries: OrdMap::new(),
            log: OrdMap::new(),
            collections: Arc::default(),
            floor: Revision::ZERO,
            held: None,
            swept: Instant::now(),
            sweeping: false,
            stats: Stats::default(),
        }
    }

    /// The state of another store, without its history.
    pub(super) fn of(snapshot: Snapshot, retention: Retention) -> Self {
        let mut state = State { revision: snapshot.revision, floor: snapshot.revision, ..State::new(retention) };
        state.stats.objects = snapshot.entries.len() as u64;
        for Entry { key, revision, value } in snapshot.entries {
            state.stats.object_bytes += value.len() as u64;
            state.entries.insert(key, Value { revision, bytes: value });
        }
        state
    }

    /// A copy at a retained revision, with the history before it. It goes on from there by itself.
    pub(super) fn fork(&self, at: Option<Revision>) -> Result<Self, ReadError> {
        let at = self.readable(at, &Prefix::everything())?;
        let mut fork = State { held: None, ..self.clone() };
        while let Some((revision, change)) = fork.log.get_max().filter(|(revision, _)| *revision > at).cloned() {
            fork.log.remove(&revision);
            fork.undo(&change);
        }
        fork.revision = at;
        Ok(fork)
    }

    /// Takes back the newest change.
    fn undo(&mut self, change: &Change) {
        undo(&mut self.entries, change);
        let stats = &mut self.stats;
        if let Some(value) = &change.value {
            stats.objects -= 1;
            stats.object_bytes -= value.len() as u64;
        }
        if let Some(previous) = &change.previous {
            stats.objects += 1;
            stats.object_bytes += previous.value.len() as u64;
        }
        forget(stats, change);
        if let Some(collection) = Arc::make_mut(&mut self.collections).get_mut(change.key.collection()) {
            collection.changes.pop_back();
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { revision: self.revision, ..self.stats.clone() }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.entries.get(key).map(|value| value.entry(key))
    }

    /// The oldest revision of this prefix that can be read and watched from.
    pub(super) fn floor(&self, prefix: &Prefix) -> Revision {
        let own = match prefix.collection() {
            Some(name) => self.collections.get(name).map(|collection| collection.floor),
            None => self
                .collections
                .iter()
                .filter(|(name, _)| prefix.may_hold(name))
                .map(|(_, collection)| collection.floor)
                .max(),
        };
        self.floor.max(own.unwrap_or_default())
    }

    /// Keeps the changes after a revision, whatever their age and number; none keeps no more than the retention.
    pub(super) fn hold(&mut self, after: Option<Revision>) {
        self.held = after;
    }

    /// Makes all writes if each key is at what is expected of it, and none otherwise. Returns the revision of the last one.
    pub(super) fn write_all(&mut self, writes: Vec<Write>) -> Result<Revision, WriteError> {
        for write in &writes {
            self.check(&write.key, write.expected)?;
        }
        let now = Instant::now();
        for Write { key, value, .. } in writes {
            self.commit(key, value, now);
        }
        Ok(self.revision)
    }

    /// Makes the entries equal to these.
    pub(super) fn restore(&mut self, wanted: &[Entry]) -> Result<Restored, WriteError> {
        let current: Vec<Entry> = self.entries.iter().map(|(key, value)| value.entry(key)).collect();
        let writes = differences(&current, wanted);
        let mut restored = Restored::default();
        restored.count(&writes);
        restored.revision = self.write_all(writes)?;
        Ok(restored)
    }

    /// Puts or deletes if the key is at `expected` (`None`: absent).
    pub(super) fn write(
        &mut self,
        key: Key,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        self.check(&key, expected)?;
        self.commit(key, value, Instant::now());
        Ok(self.revision)
    }

    fn check(&self, key: &Key, expected: Option<Revision>) -> Result<(), WriteError> {
        match (expected, self.get(key)) {
            (None, None) => Ok(()),
            (None, Some(current)) => Err(WriteError::Exists(current)),
            (Some(expected), Some(current)) if current.revision == expected => Ok(()),
            (Some(expected), current) => Err(WriteError::Conflict { key: key.clone(), expected, current }),
        }
    }

    fn commit(&mut self, key: Key, value: Option<Bytes>, now: Instant) {
        self.revision = self.revision.next();
        let revision = self.revision;
        let previous = match &value {
            Some(bytes) => self.entries.insert(key.clone(), Value { revision, bytes: bytes.clone() }),
            None => self.entries.remove(&key),
        };
        let previous = previous.map(|old| Entry { key: key.clone(), revision: old.revision, value: old.bytes });
        if let Some(previous) = &previous {
            self.stats.objects -= 1;
            self.stats.object_bytes -= previous.value.len() as u64;
            self.stats.history += 1;
            self.stats.history_bytes += previous.value.len() as u64;
        }
        match &value {
            Some(value) => {
                self.stats.objects += 1;
                self.stats.object_bytes += value.len() as u64;
            }
            None => self.stats.history += 1,
        }
        let collections = Arc::make_mut(&mut self.collections);
        match collections.get_mut(key.collection()) {
            Some(collection) => collection.changes.push_back((revision, now)),
            None => {
                let changes = Vector::unit((revision, now));
                collections.insert(key.collection().into(), Collection { changes, ..Collection::default() });
            }
        }
        self.log.insert(revision, Arc::new(Change { key, revision, value, previous }));
        self.sweep(now);
    }

    /// The revision to read at; refuses what has not happened and what is compacted.
    fn readable(&self, at: Option<Revision>, prefix: &Prefix) -> Result<Revision, ReadError> {
        let at = at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(ReadError::Future { asked: at, current: self.revision });
        }
        let oldest = self.floor(prefix);
        if at < oldest {
            return Err(ReadError::Compacted { asked: at, oldest });
        }
        Ok(at)
    }

    /// The entries below a prefix at a readable revision, and others as they may be.
    fn entries_at(&self, at: Revision, prefix: &Prefix) -> Entries {
        let mut entries = self.entries.clone();
        let later = self.log.range((Bound::Excluded(at), Bound::Unbounded)).rev().map(|(_, change)| change);
        later.filter(|change| prefix.contains(&change.key)).for_each(|change| undo(&mut entries, change));
        entries
    }

    pub(super) fn list(&self, query: &ListQuery) -> Result<Snapshot, ReadError> {
        let at = self.readable(query.at, &query.prefix)?;
        let start = match query.start_after.as_deref() {
            Some(after) if after >= query.prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(query.prefix.as_str()),
        };
        let mut snapshot = Snapshot { revision: at, entries: Vec::new(), remaining: 0, damaged: Vec::new() };
        for (key, value) in self.entries_at(at, &query.prefix).range::<_, str>((start, Bound::Unbounded)) {
            if !query.prefix.contains(key) {
                break;
            }
            if query.limit > 0 && snapshot.entries.len() == query.limit {
                snapshot.remaining += 1;
                continue;
            }
            snapshot.entries.push(value.entry(key));
        }
        Ok(snapshot)
    }

    pub(super) fn changes(&self, prefix: &Prefix, after: Revision) -> Result<Batch, WatchError> {
        let oldest = self.floor(prefix);
        if after < oldest {
            return Err(WatchError::Compacted { asked: after, oldest });
        }
        let mut changes = Vec::new();
        let mut bytes = 0;
        for (revision, change) in self.log.range((Bound::Excluded(after), Bound::Unbounded)) {
            if prefix.contains(&change.key) {
                bytes += change.value.as_ref().map_or(0, Bytes::len);
                changes.push(Change::clone(change));
                if changes.len() == BATCH_CHANGES_MAX || bytes >= BATCH_BYTES_MAX {
                    return Ok(Batch { changes, revision: *revision });
                }
            }
        }
        Ok(Batch { changes, revision: self.revision })
    }

    /// Refuses reads below `at` from now on; [`State::remove_below_floor`] then frees the changes.
    pub(super) fn raise_floor(&mut self, at: Revision) -> Result<(), ReadError> {
        if at > self.revision {
            return Err(ReadError::Future { asked: at, current: self.revision });
        }
        self.floor = self.floor.max(at);
        Ok(())
    }

    /// Frees up to `limit` changes below the floor. Returns true if there may be more.
    pub(super) fn remove_below_floor(&mut self, limit: usize) -> bool {
        let floor = self.floor;
        self.remove_where(limit, |_, oldest| oldest.0 <= floor) == limit
    }

    /// Frees history beyond the retention, a bounded part with each write.
    fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) >= self.retention.interval {
            self.swept = now;
            self.sweeping = true;
        }
        let Retention { age_min, changes_min, history_bytes_max, .. } = self.retention;
        if self.sweeping {
            let held = self.held;
            let freed = self.remove_where(SWEEP_STEP, |collection, oldest| {
                collection.changes.len() as u64 > changes_min
                    && now.duration_since(oldest.1) > age_min
                    && held.is_none_or(|held| oldest.0 <= held)
            });
            self.sweeping = freed == SWEEP_STEP;
        }
        for _ in 0..SWEEP_STEP {
            if self.stats.history_bytes <= history_bytes_max {
                break;
            }
            let oldest = self.collections.values().filter_map(|collection| collection.changes.front()).min();
            let Some((oldest, _)) = oldest.copied() else { break };
            self.remove_where(1, |_, front| front.0 == oldest);
        }
    }

    /// Removes, collection by collection, the oldest changes for which `may_remove` holds. Returns their number.
    fn remove_where(&mut self, limit: usize, may_remove: impl Fn(&Collection, &(Revision, Instant)) -> bool) -> usize {
        let is_due =
            |collection: &Collection| collection.changes.front().is_some_and(|oldest| may_remove(collection, oldest));
        // Looked at first: what is shared with another store is copied only if something is to be removed.
        if !self.collections.values().any(is_due) {
            return 0;
        }
        let mut removed = 0;
        for collection in Arc::make_mut(&mut self.collections).values_mut() {
            while removed < limit && is_due(collection) {
                let Some((revision, _)) = collection.changes.pop_front() else { break };
                collection.floor = collection.floor.max(revision);
                removed += 1;
                if let Some(change) = self.log.remove(&revision) {
                    forget(&mut self.stats, &change);
                }
            }
        }
        removed
    }
}

/// Takes a change back.
fn undo(entries: &mut Entries, change: &Change) {
    match &change.previous {
        Some(Entry { key, revision, value }) => {
            entries.insert(key.clone(), Value { revision: *revision, bytes: value.clone() });
        }
        None => {
            entries.remove(&change.key);
        }
    }
}

/// Counts a change out that is no longer kept: the value that it replaced, and itself if it is a delete.
fn forget(stats: &mut Stats, change: &Change) {
    stats.history -= u64::from(change.is_delete());
    if let Some(previous) = &change.previous {
        stats.history -= 1;
        stats.history_bytes -= previous.value.len() as u64;
    }
}
