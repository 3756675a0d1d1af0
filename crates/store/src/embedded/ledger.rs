//! The writer's index in memory: the state of every key, and how far back each collection reaches.
//!
//! Owned by the writer thread alone. It is rebuilt at open from one scan of the key index, which also verifies that index
//! against the tally. It takes about a hundred bytes for each object.

use std::collections::HashMap;

use machinery::Revision;
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::row::{DELETED, Tally, revision};
use crate::contract::Stats;
use crate::key::{Key, Prefix};

/// Changed only through its methods, which keep the counts in step with the keys.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The keys that exist.
    keys: HashMap<Key, KeyState>,
    collections: HashMap<Box<str>, Collection>,
    state: State,
    object_bytes: u64,
    /// Changes that are kept but not current: replaced values and deletes.
    history: u64,
    history_bytes: u64,
}

/// The current revision and size of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyState {
    pub(super) revision: Revision,
    pub(super) bytes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Collection {
    pub(super) id: i64,
    /// The newest revision whose superseded rows are removed: states from here on can be read, changes after it watched.
    pub(super) floor: Revision,
    /// The newest change, which the next one names as its predecessor. At open: the newest that is still stored, which
    /// serves as well.
    pub(super) last: Revision,
    /// Rows of `history`: changes with something to remove once the floor passes them.
    pub(super) pending: u64,
}

/// One write in the ledger, and what it takes to undo it.
#[derive(Debug)]
pub(super) struct LedgerWrite {
    pub(super) key: Key,
    pub(super) before: Option<KeyState>,
    /// Rows that compaction may remove because of this write: the replaced value, and the write itself if it is a delete.
    pub(super) superseded: u64,
    /// The collection's newest change before this one.
    pub(super) prior: Revision,
}

/// The single row of table `state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The last revision assigned. Stored apart from `changes`, whose newest row may be removed.
    pub(super) revision: Revision,
    /// The floor of all collections, including those that do not exist yet.
    pub(super) floor: Revision,
    pub(super) tally: Tally,
}

/// A copy of the floors for other threads, which check them before a read.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    all: Revision,
    collections: HashMap<Box<str>, Revision>,
}

impl Floors {
    /// The oldest revision of this prefix that can be read and watched from.
    pub(super) fn floor(&self, prefix: &Prefix) -> Revision {
        let own = match prefix.collection() {
            Some(name) => self.collections.get(name).copied(),
            None => {
                let held = self.collections.iter().filter(|(name, _)| prefix.may_hold(name));
                held.map(|(_, floor)| *floor).max()
            }
        };
        self.all.max(own.unwrap_or_default())
    }

    /// Reads the floors within the connection's transaction.
    pub(super) fn read(connection: &Connection) -> Result<Self, Fault> {
        let mut statement = connection.prepare_cached("SELECT id, name, floor, sum FROM collections")?;
        let mut rows = statement.query(())?;
        let mut collections = HashMap::new();
        while let Some(row) = rows.next()? {
            let (name, collection) = read_collection(row)?;
            collections.insert(name, collection.floor);
        }
        Ok(Floors { all: State::read(connection)?.floor, collections })
    }
}

impl State {
    pub(super) fn read(connection: &Connection) -> Result<Self, Fault> {
        let mut statement =
            connection.prepare_cached("SELECT revision, floor, rows, digest, sum FROM state WHERE id = 1")?;
        let read = statement.query_row((), |row| {
            Ok((|| {
                let tally = Tally { rows: row.get(2)?, digest: row.get(3)? };
                let state = State { revision: revision(row, 0)?, floor: revision(row, 1)?, tally };
                let sum: u32 = row.get(4)?;
                if sum == state.sum() { Ok(state) } else { Err(damaged("the state row")) }
            })())
        });
        read.optional()?.unwrap_or_else(|| Err(Fault::Corrupt("the state row is missing".to_owned())))
    }

    pub(super) fn sum(&self) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        for number in [self.revision.0, self.floor.0, self.tally.rows as u64, self.tally.digest as u64] {
            sum.update(&number.to_le_bytes());
        }
        sum.finalize()
    }
}

impl Collection {
    pub(super) fn sum(&self, name: &str) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.id.to_le_bytes());
        sum.update(&self.floor.0.to_le_bytes());
        sum.update(name.as_bytes());
        sum.finalize()
    }
}

pub(super) fn read_collection(row: &rusqlite::Row<'_>) -> Result<(Box<str>, Collection), Fault> {
    let name: Box<str> = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?.into();
    let collection = Collection { id: row.get(0)?, floor: revision(row, 2)?, ..Collection::default() };
    let sum: u32 = row.get(3)?;
    if sum == collection.sum(&name) { Ok((name, collection)) } else { Err(damaged(&format!("collection {name:?}"))) }
}

fn damaged(what: &str) -> Fault {
    Fault::Corrupt(format!("{what} does not match its checksum"))
}

impl Ledger {
    pub(super) fn load(connection: &Connection) -> Result<Self, Fault> {
        let mut ledger = Ledger { state: State::read(connection)?, ..Ledger::default() };
        ledger.load_collections(connection)?;
        ledger.load_keys(connection)?;
        Ok(ledger)
    }

    fn load_keys(&mut self, connection: &Connection) -> Result<(), Fault> {
        let mut statement = connection
            .prepare("SELECT key, revision, size FROM changes INDEXED BY changes_by_key ORDER BY key, revision")?;
        let mut rows = statement.query(())?;
        let mut tally = Tally::default();
        // The previous row: the last row of a key is its current state.
        let mut last: Option<(Key, Revision, i64)> = None;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            let (revision, size) = (revision(row, 1)?, row.get::<_, i64>(2)?);
            if !(DELETED..=i64::from(u32::MAX)).contains(&size) {
                return Err(Fault::Corrupt(format!("{key:?} has an impossible size, {size}")));
            }
            if revision > self.state.revision {
                return Err(Fault::Corrupt(format!(
                    "{key:?} has revision {revision}, beyond the last one assigned, {}",
                    self.state.revision
                )));
            }
            tally.add(key, revision, size);
            let mut follows = false;
            match &mut last {
                Some((last_key, last_revision, last_size)) if last_key.as_str() == key => {
                    self.history += 1;
                    self.history_bytes += (*last_size).max(0) as u64;
                    follows = *last_revision < revision;
                    (*last_revision, *last_size) = (revision, size);
                }
                _ => {
                    let key = Key::new(key).map_err(|error| Fault::Corrupt(error.to_string()))?;
                    follows |= last.as_ref().is_none_or(|(before, ..)| *before < key);
                    if let Some(complete) = last.replace((key, revision, size)) {
                        self.load_key(complete);
                    }
                }
            }
            // Searches rely on the order of the index, and only a scan can verify it.
            if !follows {
                return Err(Fault::Corrupt(format!("the key index is out of order at {key:?}")));
            }
            let collection = last.as_ref().and_then(|(key, ..)| self.collections.get_mut(key.collection()));
            let Some(collection) = collection else {
                return Err(Fault::Corrupt(format!("the collection of {key:?} is missing")));
            };
            collection.last = collection.last.max(revision);
        }
        if let Some(complete) = last {
            self.load_key(complete);
        }
        if tally != self.state.tally {
            return Err(Fault::Corrupt(format!(
                "the key index has {} rows where {} were written, or other ones",
                tally.rows, self.state.tally.rows
            )));
        }
        Ok(())
    }

    fn load_key(&mut self, (key, revision, size): (Key, Revision, i64)) {
        if size == DELETED {
            self.history += 1;
        } else {
            self.object_bytes += size as u64;
            self.keys.insert(key, KeyState { revision, bytes: size as u32 });
        }
    }

    fn load_collections(&mut self, connection: &Connection) -> Result<(), Fault> {
        let mut statement = connection.prepare("SELECT id, name, floor, sum FROM collections")?;
        let mut count = connection.prepare("SELECT count(*) FROM history WHERE collection = ?1")?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (name, mut collection) = read_collection(row)?;
            collection.pending = count.query_row((collection.id,), |row| row.get::<_, i64>(0))? as u64;
            self.collections.insert(name, collection);
        }
        Ok(())
    }

    /// The state of a key, if it exists.
    pub(super) fn key(&self, key: &Key) -> Option<KeyState> {
        self.keys.get(key).copied()
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Restores the state row after a failed transaction. Keys and collections are undone separately.
    pub(super) fn restore_state(&mut self, state: State) {
        self.state = state;
    }

    pub(super) fn revision(&self) -> Revision {
        self.state.revision
    }

    pub(super) fn history_bytes(&self) -> u64 {
        self.history_bytes
    }

    pub(super) fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.get(name)
    }

    pub(super) fn collections(&self) -> impl Iterator<Item = (&str, &Collection)> {
        self.collections.iter().map(|(name, collection)| (&**name, collection))
    }

    /// A collection with an unused id. It is not in the ledger until [`Ledger::add_collection`].
    pub(super) fn new_collection(&self) -> Collection {
        let id = self.collections.values().map(|collection| collection.id).max().unwrap_or(0) + 1;
        Collection { id, ..Collection::default() }
    }

    pub(super) fn add_collection(&mut self, name: &str, collection: Collection) {
        self.collections.insert(name.into(), collection);
    }

    pub(super) fn remove_collection(&mut self, name: &str) {
        self.collections.remove(name);
    }

    /// Adds a write that is in the transaction. Its collection must exist.
    pub(super) fn add_write(&mut self, write: &LedgerWrite, revision: Revision, size: i64) {
        self.state.revision = revision;
        self.state.tally.add(write.key.as_str(), revision, size);
        let now = (size != DELETED).then_some(KeyState { revision, bytes: size as u32 });
        self.set_key(&write.key, now);
        self.add_history(write, revision);
    }

    /// Reverts [`Ledger::add_write`] for the newest write, except for the state row.
    pub(super) fn undo_write(&mut self, write: &LedgerWrite) {
        self.set_key(&write.key, write.before);
        self.undo_history(write);
    }

    fn set_key(&mut self, key: &Key, now: Option<KeyState>) {
        let before = match now {
            Some(now) => self.keys.insert(key.clone(), now),
            None => self.keys.remove(key),
        };
        self.object_bytes += bytes_of(now);
        self.object_bytes -= bytes_of(before);
    }

    /// Counts what a write moves to history, and makes it the newest change of its collection.
    fn add_history(&mut self, write: &LedgerWrite, revision: Revision) {
        self.history += write.superseded;
        self.history_bytes += bytes_of(write.before);
        if let Some(collection) = self.collections.get_mut(write.key.collection()) {
            collection.pending += u64::from(write.superseded > 0);
            collection.last = revision;
        }
    }

    fn undo_history(&mut self, write: &LedgerWrite) {
        self.history -= write.superseded;
        self.history_bytes -= bytes_of(write.before);
        if let Some(collection) = self.collections.get_mut(write.key.collection()) {
            collection.pending -= u64::from(write.superseded > 0);
            collection.last = write.prior;
        }
    }

    /// Raises the floor of all collections.
    pub(super) fn raise_floor(&mut self, at: Revision) {
        self.state.floor = self.state.floor.max(at);
    }

    /// Takes a removed row of `changes` out of the tally.
    pub(super) fn remove_row(&mut self, key: &str, revision: Revision, size: i64) {
        self.state.tally.remove(key, revision, size);
    }

    /// Counts the rows and bytes that a committed compaction step has removed from history.
    pub(super) fn remove_history(&mut self, rows: u64, bytes: u64) {
        self.history -= rows;
        self.history_bytes = self.history_bytes.saturating_sub(bytes);
    }

    /// Moves the floor of a collection past `removed` rows of `history`.
    pub(super) fn move_floor(&mut self, name: &str, floor: Revision, removed: u64) {
        if let Some(collection) = self.collections.get_mut(name) {
            collection.floor = floor;
            collection.pending -= removed;
        }
    }

    /// The newest change of each collection.
    pub(super) fn newest_changes(&self) -> HashMap<Box<str>, Revision> {
        self.collections.iter().map(|(name, collection)| (name.clone(), collection.last)).collect()
    }

    pub(super) fn floors(&self) -> Floors {
        let collections = self.collections.iter();
        let collections = collections.map(|(name, collection)| (name.clone(), collection.floor)).collect();
        Floors { all: self.state.floor, collections }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            objects: self.keys.len() as u64,
            object_bytes: self.object_bytes,
            history: self.history,
            history_bytes: self.history_bytes,
            revision: self.state.revision,
            ..Stats::default()
        }
    }
}

fn bytes_of(state: Option<KeyState>) -> u64 {
    state.map_or(0, |state| u64::from(state.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undone_write_leaves_every_count_as_it_was() {
        let key = Key::new("core/pods/a").expect("well formed");
        let mut ledger = Ledger::default();
        let collection = ledger.new_collection();
        ledger.add_collection(key.collection(), collection);
        let write = |ledger: &Ledger, size: i64| {
            let before = ledger.key(&key);
            let superseded = u64::from(before.is_some()) + u64::from(size == DELETED);
            let prior = ledger.collection(key.collection()).expect("added").last;
            LedgerWrite { key: key.clone(), before, superseded, prior }
        };
        for (revision, size) in [(1, 10), (2, 7), (3, DELETED), (4, 0)] {
            let (state, before) = (ledger.state(), format!("{ledger:?}"));
            let write = write(&ledger, size);
            ledger.add_write(&write, Revision(revision), size);
            assert_eq!(ledger.revision(), Revision(revision));
            assert_eq!(ledger.stats().object_bytes, size.max(0) as u64);
            let after = format!("{ledger:?}");
            ledger.undo_write(&write);
            ledger.restore_state(state);
            assert_eq!(format!("{ledger:?}"), before, "write {revision}");
            ledger.add_write(&write, Revision(revision), size);
            assert_eq!(format!("{ledger:?}"), after, "write {revision} again");
        }
        let stats = ledger.stats();
        assert_eq!((stats.objects, stats.history, stats.history_bytes), (1, 3, 17));
    }
}
