//! The prepared statements of the write path.

use rusqlite::{Connection, Statement};

use super::compaction::HistoryRow;
use super::fault::Fault;
use super::ledger::{Collection, State};
use super::row::{ByRevision, row_sum, size_of};
use crate::entry::{Change, Entry};
use crate::key::Key;
use machinery::Revision;

pub(super) struct Statements<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    insert_change: Statement<'c>,
    insert_history: Statement<'c>,
    insert_collection: Statement<'c>,
    update_state: Statement<'c>,
    insert_mark: Statement<'c>,
    by_revision: ByRevision<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> Result<Self, Fault> {
        Ok(Statements {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            insert_change: connection.prepare(
                "INSERT INTO changes (revision, key, previous, prior, size, sum, value)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            insert_history: connection.prepare(
                "INSERT INTO history (collection, revision, previous, bytes, deletes, sum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            insert_collection: connection
                .prepare("INSERT INTO collections (id, name, floor, sum) VALUES (?1, ?2, 0, ?3)")?,
            update_state: connection
                .prepare("UPDATE state SET revision = ?1, floor = ?2, rows = ?3, digest = ?4, sum = ?5 WHERE id = 1")?,
            insert_mark: connection.prepare("INSERT OR REPLACE INTO marks (revision, unix_ms) VALUES (?1, ?2)")?,
            by_revision: ByRevision::prepare(connection)?,
        })
    }

    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        Ok(self.begin.execute(()).map(drop)?)
    }

    /// Commits, which syncs unless durability is relaxed.
    pub(super) fn commit(&mut self) -> Result<(), Fault> {
        Ok(self.commit.execute(()).map(drop)?)
    }

    /// `prior` is the collection's newest change before this one, zero if there is none.
    pub(super) fn insert_change(&mut self, change: &Change, prior: Revision) -> Result<(), Fault> {
        let Change { key, revision, value, previous } = change;
        let (key, value) = (key.as_str(), value.as_deref());
        let replaced = previous.as_ref().map_or(Revision::ZERO, |previous| previous.revision);
        let (size, sum) = (size_of(value), row_sum(*revision, key, replaced, prior, value));
        let row = (revision.0 as i64, key, replaced.0 as i64, prior.0 as i64, size, sum, value);
        Ok(self.insert_change.execute(row).map(drop)?)
    }

    pub(super) fn insert_history(&mut self, collection: i64, row: &HistoryRow) -> Result<(), Fault> {
        let (at, replaced, bytes) = (row.at.0 as i64, row.previous.0 as i64, row.bytes as i64);
        let columns = (collection, at, replaced, bytes, row.deletes, row.sum(collection));
        Ok(self.insert_history.execute(columns).map(drop)?)
    }

    pub(super) fn insert_collection(&mut self, name: &str, collection: &Collection) -> Result<(), Fault> {
        Ok(self.insert_collection.execute((collection.id, name, collection.sum(name))).map(drop)?)
    }

    pub(super) fn save_state(&mut self, state: &State) -> Result<(), Fault> {
        let (revision, floor) = (state.revision.0 as i64, state.floor.0 as i64);
        self.update_state.execute((revision, floor, state.tally.rows, state.tally.digest, state.sum()))?;
        Ok(())
    }

    /// Records the time at which a revision was current.
    pub(super) fn insert_mark(&mut self, revision: Revision, unix_ms: i64) -> Result<(), Fault> {
        Ok(self.insert_mark.execute((revision.0 as i64, unix_ms)).map(drop)?)
    }

    pub(super) fn entry(&mut self, key: &Key, revision: Revision) -> Result<Entry, Fault> {
        self.by_revision.entry(key.as_str(), revision)
    }
}
