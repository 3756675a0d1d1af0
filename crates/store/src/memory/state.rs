//! The state of the memory engine: versions of each key, the log of changes, and the floor of each collection.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use machinery::Revision;
use tokio::time::Instant;

use crate::contract::{Batch, ListQuery, Stats};
use crate::entry::{Change, Entry, Snapshot};
use crate::error::{ReadError, WatchError, WriteError};
use crate::feed::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX};
use crate::key::{Key, Prefix};
use crate::retention::Retention;

/// Changes that a write removes at most: more than it adds, so that a sweep ends.
const SWEEP_STEP: usize = 64;

pub(super) struct State {
    retention: Retention,
    revision: Revision,
    /// Every retained version of a key, oldest first. A key without versions is not here.
    keys: BTreeMap<Key, Vec<Version>>,
    /// Every retained change. Collections are compacted separately, so there are gaps.
    log: BTreeMap<Revision, Change>,
    collections: HashMap<Box<str>, Collection>,
    /// Set by [`State::raise_floor`] for all collections, including those that do not exist yet.
    floor: Revision,
    swept: Instant,
    sweeping: bool,
    stats: Stats,
}

struct Version {
    revision: Revision,
    /// `None` is a delete.
    value: Option<Bytes>,
}

#[derive(Default)]
struct Collection {
    /// The newest removed change: states from here on can be read, changes after it watched.
    floor: Revision,
    /// The retained changes, oldest first.
    changes: VecDeque<(Revision, Instant)>,
}

impl State {
    pub(super) fn new(retention: Retention) -> Self {
        State {
            retention,
            revision: Revision::ZERO,
            keys: BTreeMap::new(),
            log: BTreeMap::new(),
            collections: HashMap::new(),
            floor: Revision::ZERO,
            swept: Instant::now(),
            sweeping: false,
            stats: Stats::default(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { revision: self.revision, ..self.stats.clone() }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        let version = self.keys.get(key)?.last()?;
        Some(Entry { key: key.clone(), revision: version.revision, value: version.value.clone()? })
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

    /// Puts or deletes if the key is at `expected` (`None`: absent).
    pub(super) fn write(
        &mut self,
        key: Key,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        let previous = self.get(&key);
        match (expected, &previous) {
            (None, None) => {}
            (None, Some(_)) => return Err(WriteError::Exists(previous.expect("matched as present"))),
            (Some(expected), Some(current)) if current.revision == expected => {}
            (Some(expected), _) => return Err(WriteError::Conflict { key, expected, current: previous }),
        }

        self.revision = self.revision.next();
        let revision = self.revision;
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
        let now = Instant::now();
        if !self.collections.contains_key(key.collection()) {
            self.collections.insert(key.collection().into(), Collection::default());
        }
        if let Some(collection) = self.collections.get_mut(key.collection()) {
            collection.changes.push_back((revision, now));
        }
        self.keys.entry(key.clone()).or_default().push(Version { revision, value: value.clone() });
        self.log.insert(revision, Change { key, revision, value, previous });
        self.sweep(now);
        Ok(revision)
    }

    pub(super) fn list(&self, query: &ListQuery) -> Result<Snapshot, ReadError> {
        let at = query.at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(ReadError::Future { asked: at, current: self.revision });
        }
        let oldest = self.floor(&query.prefix);
        if at < oldest {
            return Err(ReadError::Compacted { asked: at, oldest });
        }
        let start = match query.start_after.as_deref() {
            Some(after) if after >= query.prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(query.prefix.as_str()),
        };
        let mut snapshot = Snapshot { revision: at, entries: Vec::new(), remaining: 0 };
        for (key, versions) in self.keys.range::<str, _>((start, Bound::Unbounded)) {
            if !query.prefix.contains(key) {
                break;
            }
            let Some(version) = versions.iter().rev().find(|version| version.revision <= at) else { continue };
            let Some(value) = &version.value else { continue };
            if query.limit > 0 && snapshot.entries.len() == query.limit {
                snapshot.remaining += 1;
                continue;
            }
            snapshot.entries.push(Entry { key: key.clone(), revision: version.revision, value: value.clone() });
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
                changes.push(change.clone());
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
            let freed = self.remove_where(SWEEP_STEP, |collection, oldest| {
                collection.changes.len() as u64 > changes_min && now.duration_since(oldest.1) > age_min
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
        let mut removed = 0;
        for collection in self.collections.values_mut() {
            while removed < limit {
                let Some(oldest) = collection.changes.front().filter(|oldest| may_remove(collection, oldest)) else {
                    break;
                };
                let revision = oldest.0;
                collection.changes.pop_front();
                collection.floor = collection.floor.max(revision);
                removed += 1;
                if let Some(change) = self.log.remove(&revision) {
                    remove_versions(&mut self.keys, &mut self.stats, &change);
                }
            }
        }
        removed
    }
}

/// Frees the version that a removed change replaced, and the change's own if it is a delete.
fn remove_versions(keys: &mut BTreeMap<Key, Vec<Version>>, stats: &mut Stats, change: &Change) {
    let Some(versions) = keys.get_mut(&change.key) else { return };
    let before = versions.len();
    versions.retain(|version| {
        version.revision > change.revision || (version.revision == change.revision && version.value.is_some())
    });
    stats.history -= (before - versions.len()) as u64;
    if let Some(previous) = &change.previous {
        stats.history_bytes -= previous.value.len() as u64;
    }
    if versions.is_empty() {
        keys.remove(&change.key);
    }
}
