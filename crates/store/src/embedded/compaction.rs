//! Compaction of history, in small steps between groups of writes.
//!
//! Every change that replaces or deletes a value has a row in `history`: once the floor of its collection passes it, the
//! replaced value is removed, and the change itself if it is a delete. A step takes some of the oldest rows, moves the floor
//! past them and removes the changes they name, in one transaction, so that the file never claims more history than it has.
//!
//! Damage stops compaction of its own collection only: going past it could remove a delete whose value stays, so that a
//! deleted object would return.
//!
//! Steps are not synced: the next group's sync covers them, and a step lost in a power failure is simply done again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use machinery::Revision;
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::oneshot;

use super::Shared;
use super::fault::Fault;
use super::ledger::{Collection, Ledger};
use super::row::revision;
use super::statements::Statements;
use crate::error::{EngineError, ReadError};
use crate::retention::Retention;

/// Target duration of a step; no write waits for more than one.
const STEP_TIME: Duration = Duration::from_millis(4);
const STEP_ROWS_MIN: usize = 16;
const STEP_ROWS_MAX: usize = 512;

/// Bytes freed by a step at most: freeing a large value walks all its pages.
const STEP_BYTES_MAX: u64 = 4 * 1024 * 1024;

pub(super) struct Compaction {
    retention: Retention,
    /// Explicit requests: history up to here is removed from every collection.
    target: Revision,
    waiting: Vec<oneshot::Sender<Result<(), ReadError>>>,
    targeting: bool,
    sweeping: bool,
    step_rows: usize,
    /// Collections whose history is damaged. They keep it until the store is repaired.
    blocked: HashSet<Box<str>>,
    /// The collection in which the last step found damage.
    suspect: Option<Box<str>>,
}

/// The rules by which a row of history may be removed.
#[derive(Clone, Copy, Debug)]
struct RemovalRules {
    /// Explicit compaction: everything up to here.
    target: Revision,
    /// Changes up to here are older than the minimum age.
    aged: Revision,
    changes_min: u64,
    /// Size cap: everything up to here, as long as the cap is exceeded.
    capped: Revision,
    history_bytes_max: u64,
}

impl RemovalRules {
    fn allow(&self, at: Revision, pending: u64, history_bytes: u64) -> bool {
        at <= self.target
            || (at <= self.aged && pending > self.changes_min)
            || (at <= self.capped && history_bytes > self.history_bytes_max)
    }
}

/// A row of `history`: the rows of `changes` to remove once the floor passes `at`.
pub(super) struct HistoryRow {
    pub(super) at: Revision,
    /// The revision of the replaced value; zero if there was none.
    pub(super) previous: Revision,
    pub(super) bytes: u64,
    /// The change itself is a delete and is removed too.
    pub(super) deletes: bool,
}

impl HistoryRow {
    /// Checksum: a damaged row must not remove a change that is still needed.
    pub(super) fn sum(&self, collection: i64) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&collection.to_le_bytes());
        for number in [self.at.0, self.previous.0, self.bytes, u64::from(self.deletes)] {
            sum.update(&number.to_le_bytes());
        }
        sum.finalize()
    }
}

impl Compaction {
    pub(super) fn new(retention: Retention) -> Self {
        Compaction {
            retention,
            target: Revision::ZERO,
            waiting: Vec::new(),
            targeting: false,
            sweeping: false,
            step_rows: 64,
            blocked: HashSet::new(),
            suspect: None,
        }
    }

    pub(super) fn request(&mut self, at: Revision, answer: oneshot::Sender<Result<(), ReadError>>, ledger: &Ledger) {
        let current = ledger.revision();
        if at > current {
            let _ = answer.send(Err(ReadError::Future { asked: at, current }));
            return;
        }
        self.target = self.target.max(at);
        self.targeting = true;
        self.waiting.push(answer);
    }

    pub(super) fn sweep_now(&mut self) {
        self.sweeping = true;
    }

    pub(super) fn has_work(&self) -> bool {
        self.targeting || self.sweeping
    }

    /// Ends the current work after a failed step. The next request or sweep tries again.
    pub(super) fn give_up(&mut self, fault: &Fault) {
        tracing::warn!(%fault, "a step of compaction failed");
        self.targeting = false;
        self.sweeping = false;
        for answer in self.waiting.drain(..) {
            let _ = answer.send(Err(ReadError::Unavailable(EngineError::new(fault.to_string()))));
        }
    }

    /// Leaves out the collection in which a failed step found damage. Returns false if there is none: the fault is elsewhere.
    pub(super) fn block_damaged(&mut self, fault: &Fault) -> bool {
        let Some(name) = self.suspect.take().filter(|_| fault.is_corruption()) else { return false };
        tracing::error!(%fault, collection = %name, "damaged history is not compacted; the store needs a repair");
        self.blocked.insert(name)
    }

    /// Removes a bounded part of the history that the rules allow to remove.
    pub(super) fn step(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        ledger: &mut Ledger,
        shared: &Shared,
        now_unix_ms: i64,
    ) -> Result<(), Fault> {
        let started = Instant::now();
        shared.sync_commits(connection, false)?;
        let before = ledger.state();
        let held = shared.held();
        let stepped = self.transaction(connection, statements, ledger, held, now_unix_ms);
        let restored = shared.sync_commits(connection, true);
        let (plan, full) = match stepped {
            Ok(done) => done,
            Err(fault) => {
                ledger.restore_state(before);
                return Err(fault);
            }
        };
        restored?;
        plan.apply_to(ledger);
        *shared.floors.write() = ledger.floors();
        {
            let mut stats = shared.stats.lock();
            let last_sync = stats.last_sync;
            *stats = ledger.stats();
            stats.last_sync = last_sync;
        }
        if !full {
            self.targeting = false;
            self.sweeping = false;
            self.waiting.drain(..).for_each(|answer| drop(answer.send(Ok(()))));
        }
        let took = started.elapsed();
        {
            let mut pauses = shared.pauses.lock();
            pauses.compaction_step = pauses.compaction_step.max(took);
        }
        if took > STEP_TIME * 2 {
            self.step_rows = (self.step_rows / 2).max(STEP_ROWS_MIN);
        } else if took < STEP_TIME / 2 && full {
            self.step_rows = (self.step_rows * 2).min(STEP_ROWS_MAX);
        }
        Ok(())
    }

    /// Returns the executed plan, and whether the step was full, so that there may be more to remove.
    fn transaction(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_>,
        ledger: &mut Ledger,
        held: Revision,
        now_unix_ms: i64,
    ) -> Result<(Plan, bool), Fault> {
        statements.begin()?;
        ledger.raise_floor(self.target);
        let mut rules = self.rules(connection, ledger, statements, now_unix_ms)?;
        rules.aged = rules.aged.min(held);
        let mut plan = Plan::new(self.step_rows, ledger.history_bytes());
        for (name, collection) in ledger.collections().filter(|(name, _)| !self.blocked.contains(*name)) {
            let taken = plan.take(connection, name, collection, &rules);
            taken.inspect_err(|_| self.suspect = Some(name.into()))?;
        }
        // The size cap removes the oldest history of all collections first: one collection at a time, up to the oldest row
        // of the next.
        while !plan.is_full() && plan.history_bytes > self.retention.history_bytes_max {
            let mut oldest: Vec<(Revision, &str, &Collection)> = Vec::new();
            for (name, collection) in ledger.collections().filter(|(name, _)| !self.blocked.contains(*name)) {
                if let Some(front) = plan.front(connection, name, collection)? {
                    oldest.push((front, name, collection));
                }
            }
            oldest.sort_unstable_by_key(|(front, ..)| *front);
            let Some(&(_, name, collection)) = oldest.first() else { break };
            rules.capped = oldest.get(1).map_or(ledger.revision(), |(next, ..)| *next);
            let taken = plan.take(connection, name, collection, &rules);
            taken.inspect_err(|_| self.suspect = Some(name.into()))?;
        }
        self.suspect = None;
        plan.write(connection, ledger, &mut self.suspect)?;
        statements.save_state(&ledger.state())?;
        statements.commit()?;
        let full = plan.is_full();
        Ok((plan, full))
    }

    fn rules(
        &self,
        connection: &Connection,
        ledger: &Ledger,
        statements: &mut Statements<'_>,
        now_unix_ms: i64,
    ) -> Result<RemovalRules, Fault> {
        let age_min_ms = i64::try_from(self.retention.age_min.as_millis()).unwrap_or(i64::MAX);
        let aged_unix_ms = now_unix_ms.saturating_sub(age_min_ms);
        let mut newest = connection.prepare_cached("SELECT max(revision) FROM marks WHERE unix_ms <= ?1")?;
        let aged: Option<i64> = newest.query_row((aged_unix_ms,), |row| row.get(0))?;
        let aged = aged.unwrap_or(0);
        connection.prepare_cached("DELETE FROM marks WHERE revision < ?1")?.execute((aged,))?;
        // The last writes before an idle time have no mark after them yet, and would never reach the minimum age.
        let marked: Option<i64> =
            connection.prepare_cached("SELECT max(revision) FROM marks")?.query_row((), |row| row.get(0))?;
        if marked.unwrap_or(0) < ledger.revision().0 as i64 {
            statements.insert_mark(ledger.revision(), now_unix_ms)?;
        }
        Ok(RemovalRules {
            target: self.target,
            aged: Revision(aged as u64),
            changes_min: self.retention.changes_min,
            capped: Revision::ZERO,
            history_bytes_max: self.retention.history_bytes_max,
        })
    }
}

/// The work of one step: rows to remove, new floors, and the counts that follow.
struct Plan {
    rows_left: usize,
    bytes_left: u64,
    history_bytes: u64,
    history_freed: u64,
    /// Name, new floor, rows of history removed.
    moved: Vec<(Box<str>, Revision, u64)>,
    /// Each with the index of its collection in `moved`.
    rows: Vec<(usize, HistoryRow)>,
}

impl Plan {
    fn new(rows: usize, history_bytes: u64) -> Self {
        Plan {
            rows_left: rows,
            bytes_left: STEP_BYTES_MAX,
            history_bytes,
            history_freed: 0,
            moved: Vec::new(),
            rows: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.rows_left == 0 || self.bytes_left == 0
    }

    /// The floor of a collection and the rows it has left, after the part of this step that is planned already.
    fn progress(&self, name: &str, collection: &Collection) -> (Revision, u64) {
        let (mut floor_now, mut pending) = (collection.floor, collection.pending);
        for (_, floor, removed) in self.moved.iter().filter(|(moved, ..)| &**moved == name) {
            (floor_now, pending) = (floor_now.max(*floor), pending - removed);
        }
        (floor_now, pending)
    }

    /// The oldest row of a collection that is not part of this step yet.
    fn front(&self, connection: &Connection, name: &str, collection: &Collection) -> Result<Option<Revision>, Fault> {
        let (floor, pending) = self.progress(name, collection);
        if pending == 0 {
            return Ok(None);
        }
        let mut statement =
            connection.prepare_cached("SELECT min(revision) FROM history WHERE collection = ?1 AND revision > ?2")?;
        let front: Option<i64> =
            statement.query_row((collection.id, floor.0 as i64), |row| row.get(0)).optional()?.flatten();
        Ok(front.map(|front| Revision(front as u64)))
    }

    /// Adds the oldest rows of a collection, as long as the rules allow it and the step is not full.
    fn take(
        &mut self,
        connection: &Connection,
        name: &str,
        collection: &Collection,
        rules: &RemovalRules,
    ) -> Result<(), Fault> {
        let (mut floor, mut pending) = self.progress(name, collection);
        if pending == 0 || self.is_full() {
            return Ok(());
        }
        let mut statement = connection.prepare_cached(
            "SELECT revision, previous, bytes, deletes, sum FROM history
             WHERE collection = ?1 AND revision > ?2 ORDER BY revision LIMIT ?3",
        )?;
        let mut rows = statement.query((collection.id, floor.0 as i64, self.rows_left as i64))?;
        let mut removed = 0;
        while let Some(row) = rows.next()? {
            let at = revision(row, 0)?;
            if self.is_full() || !rules.allow(at, pending, self.history_bytes) {
                break;
            }
            let bytes: i64 = row.get(2)?;
            let removable =
                HistoryRow { at, previous: revision(row, 1)?, bytes: bytes.max(0) as u64, deletes: row.get(3)? };
            if row.get::<_, u32>(4)? != removable.sum(collection.id) {
                return Err(Fault::Corrupt(format!("the history of {name:?} is damaged at revision {at}")));
            }
            self.rows_left -= 1;
            self.bytes_left = self.bytes_left.saturating_sub(removable.bytes);
            self.history_bytes = self.history_bytes.saturating_sub(removable.bytes);
            self.rows.push((self.moved.len(), removable));
            floor = at;
            pending = pending.saturating_sub(1);
            removed += 1;
        }
        if removed > 0 {
            self.moved.push((name.into(), floor, removed));
        }
        Ok(())
    }

    /// Removes the changes that the rows name, and moves the floors. `suspect` is the collection of the change at hand.
    fn write(
        &mut self,
        connection: &Connection,
        ledger: &mut Ledger,
        suspect: &mut Option<Box<str>>,
    ) -> Result<(), Fault> {
        let mut remove =
            connection.prepare_cached("DELETE FROM changes WHERE revision = ?1 RETURNING key, revision, size")?;
        for (moved, row) in &self.rows {
            *suspect = self.moved.get(*moved).map(|(name, ..)| name.clone());
            let replaced = (!row.previous.is_zero()).then_some(row.previous);
            for gone in replaced.into_iter().chain(row.deletes.then_some(row.at)) {
                let mut rows = remove.query((gone.0 as i64,))?;
                let Some(row) = rows.next()? else {
                    return Err(Fault::Corrupt(format!("the change of revision {gone} is missing")));
                };
                let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                ledger.remove_row(key, revision(row, 1)?, row.get(2)?);
                self.history_freed += 1;
            }
        }
        *suspect = None;
        let mut clear = connection.prepare_cached("DELETE FROM history WHERE collection = ?1 AND revision <= ?2")?;
        let mut raise = connection.prepare_cached("UPDATE collections SET floor = ?2, sum = ?3 WHERE id = ?1")?;
        for (name, floor, _) in &self.moved {
            let Some(collection) = ledger.collection(name) else { continue };
            let collection = Collection { floor: *floor, ..*collection };
            clear.execute((collection.id, floor.0 as i64))?;
            raise.execute((collection.id, floor.0 as i64, collection.sum(name)))?;
        }
        Ok(())
    }

    /// Updates the ledger after the commit.
    fn apply_to(self, ledger: &mut Ledger) {
        let bytes = ledger.history_bytes().saturating_sub(self.history_bytes);
        ledger.remove_history(self.history_freed, bytes);
        for (name, floor, removed) in self.moved {
            ledger.move_floor(&name, floor, removed);
        }
    }
}
