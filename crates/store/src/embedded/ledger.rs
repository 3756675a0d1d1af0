//! What the writer knows without asking the disk: where every key stands, and how far back each collection reaches.
//!
//! Owned by the writer thread alone. It is rebuilt at open from one scan of the key index, which at the same time proves
//! that index against the tally; about a hundred bytes for each object.

use std::collections::HashMap;

use machinery::Revision;
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::row::{DELETED, Tally, revision};
use crate::contract::Stats;
use crate::key::{Key, Prefix};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The current revision and size of every key that is there.
    pub(super) keys: HashMap<Key, Standing>,
    pub(super) collections: HashMap<Box<str>, Collection>,
    pub(super) state: State,
    pub(super) object_bytes: u64,
    /// Changes that are kept but not current: replaced values and deletes.
    pub(super) history: u64,
    pub(super) history_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) revision: Revision,
    pub(super) bytes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Collection {
    pub(super) id: i64,
    /// The newest revision whose leftovers are gone: states from here on can be read, changes after it watched.
    pub(super) floor: Revision,
    /// The newest change, for the next one to name. At open: the newest that is still there, which does as well.
    pub(super) last: Revision,
    /// Rows of `history`: changes that leave something to remove once the floor passes them.
    pub(super) pending: u64,
}

/// The one row of `state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The last revision given out. Kept apart from `changes`, where the newest row may be removed.
    pub(super) revision: Revision,
    /// The floor of all collections, also of those that do not exist yet.
    pub(super) floor: Revision,
    pub(super) tally: Tally,
}

/// Floors for those who ask before they read: a copy for other threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    all: Revision,
    collections: HashMap<Box<str>, Revision>,
}

impl Floors {
    pub(super) fn of(&self, prefix: &Prefix) -> Revision {
        let own = match prefix.collection() {
            Some(name) => self.collections.get(name).copied(),
            None => {
                let held = self.collections.iter().filter(|(name, _)| prefix.may_hold(name));
                held.map(|(_, floor)| *floor).max()
            }
        };
        self.all.max(own.unwrap_or_default())
    }

    /// What the transaction of this connection sees.
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

fn read_collection(row: &rusqlite::Row<'_>) -> Result<(Box<str>, Collection), Fault> {
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
        // The row before the one at hand: the last row of a key is where it stands.
        let mut last: Option<(Key, Revision, i64)> = None;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            let (revision, size) = (revision(row, 1)?, row.get::<_, i64>(2)?);
            if !(DELETED..=i64::from(u32::MAX)).contains(&size) {
                return Err(Fault::Corrupt(format!("{key:?} has an impossible size, {size}")));
            }
            if revision > self.state.revision {
                return Err(Fault::Corrupt(format!(
                    "{key:?} has revision {revision}, beyond the last one given out, {}",
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
                        self.stand(complete);
                    }
                }
            }
            // A search trusts the order; a scan only shows it.
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
            self.stand(complete);
        }
        if tally != self.state.tally {
            return Err(Fault::Corrupt(format!(
                "the key index has {} rows where {} were written, or other ones",
                tally.rows, self.state.tally.rows
            )));
        }
        Ok(())
    }

    fn stand(&mut self, (key, revision, size): (Key, Revision, i64)) {
        if size == DELETED {
            self.history += 1;
        } else {
            self.object_bytes += size as u64;
            self.keys.insert(key, Standing { revision, bytes: size as u32 });
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

    /// The newest change of each collection.
    pub(super) fn lasts(&self) -> HashMap<Box<str>, Revision> {
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
