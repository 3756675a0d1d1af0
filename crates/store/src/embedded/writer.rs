//! The one thread that writes: waiting writes become one transaction, and each is answered after its sync.
//!
//! A turn of the loop takes everything that waits, applies it to the ledger and the file, commits (which syncs), and only
//! then lets anyone know: first the tail, then the announcement for watches, then the callers. If the commit fails the
//! ledger goes back to where it was and nobody sees anything. While the thread syncs, the next group gathers; and whoever
//! was answered just now is given a moment to come back, because a sync costs the same for one write as for many.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use machinery::Revision;
use rusqlite::{Connection, Statement};
use tokio::sync::{mpsc, oneshot};

use super::answers::{Answer, Answers, Outcomes};
use super::compaction::{Compaction, Leftover};
use super::fault::{Fault, Outcome};
use super::keeper::Checkpoints;
use super::ledger::{Collection, Ledger, Standing};
use super::lock::DirectoryLock;
use super::row::{ByRevision, row_sum, size_of};
use super::{EmbeddedOptions, Shared};
use crate::entry::{Change, Entry};
use crate::error::{EngineError, ReadError, WriteError};
use crate::key::Key;

/// The most commands one transaction takes; more wait for the next.
const GROUP_MAX: usize = 512;

/// How often the time is written beside the revision it belongs to.
const MARK_INTERVAL_MS: i64 = 5_000;

/// The longest a write waits for others to share its sync, and how often the writer looks whether they are there. Never
/// longer than the last sync took, and never when the last group was a single write: a lone caller waits for nobody.
const COMPANY_MAX: Duration = Duration::from_millis(1);
const COMPANY_LOOK: Duration = Duration::from_micros(50);

/// Under load, one step of compaction for every so many groups.
const GROUPS_PER_COMPACTION_STEP: u32 = 4;

pub(super) enum Command {
    Write(Write),
    Compact {
        at: Revision,
        answer: oneshot::Sender<Result<(), ReadError>>,
    },
    /// Time to look for history that may go.
    Sweep,
    Close {
        answer: oneshot::Sender<()>,
    },
}

pub(super) struct Write {
    pub(super) key: Key,
    /// `None` deletes.
    pub(super) value: Option<Bytes>,
    /// `None` expects nothing to be there.
    pub(super) expected: Option<Revision>,
    pub(super) answer: Answer,
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) ledger: Ledger,
    pub(super) shared: Arc<Shared>,
    pub(super) options: EmbeddedOptions,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) answers: Answers,
    pub(super) checkpoints: Checkpoints,
    pub(super) last_mark_unix_ms: i64,
    /// The directory is ours until the file is closed.
    pub(super) lock: Arc<DirectoryLock>,
}

/// Every statement of the write path, prepared once.
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
    fn prepare(connection: &'c Connection) -> Result<Self, Fault> {
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

    pub(super) fn commit(&mut self) -> Result<(), Fault> {
        Ok(self.commit.execute(()).map(drop)?)
    }

    pub(super) fn save_state(&mut self, ledger: &Ledger) -> Result<(), Fault> {
        let state = &ledger.state;
        let (revision, floor) = (state.revision.0 as i64, state.floor.0 as i64);
        self.update_state.execute((revision, floor, state.tally.rows, state.tally.digest, state.sum()))?;
        Ok(())
    }

    pub(super) fn mark(&mut self, revision: Revision, unix_ms: i64) -> Result<(), Fault> {
        Ok(self.insert_mark.execute((revision.0 as i64, unix_ms)).map(drop)?)
    }
}

/// Undoes one write in the ledger.
struct Undo {
    key: Key,
    before: Option<Standing>,
    /// The collection's newest change before this one.
    prior: Revision,
    new_collection: bool,
    frees: u64,
}

/// Where the loop of the thread stands.
struct Turn {
    /// Why no more writes are taken, once a sync has failed.
    poisoned: Option<String>,
    compaction: Compaction,
    groups_since_step: u32,
    /// How many writes the last group had, and how long it took to make it last.
    last_writes: usize,
    last_took: Duration,
}

impl Writer {
    /// Runs until the store is closed or forgotten.
    pub(super) fn run(self) {
        let Writer {
            connection,
            mut ledger,
            shared,
            options,
            mut commands,
            answers,
            mut checkpoints,
            mut last_mark_unix_ms,
            lock,
        } = self;
        let closing = match Statements::prepare(&connection) {
            Ok(mut statements) => {
                let mut turn = Turn::new(Compaction::new(options.retention));
                let mut waiting = Vec::with_capacity(GROUP_MAX);
                let mut closing = Vec::new();
                let mut open = true;
                while open {
                    open = gather(&mut commands, &mut waiting, &turn);
                    let mut writes = Vec::with_capacity(waiting.len());
                    for command in waiting.drain(..) {
                        match command {
                            Command::Write(write) => writes.push(write),
                            Command::Compact { at, answer } => {
                                turn.compaction.request(at, answer, &ledger);
                            }
                            Command::Sweep => turn.compaction.sweep_now(),
                            Command::Close { answer } => {
                                closing.push(answer);
                                open = false;
                            }
                        }
                    }
                    if !writes.is_empty() {
                        let now = unix_ms(&options);
                        let group = Group {
                            ledger: &mut ledger,
                            statements: &mut statements,
                            shared: &shared,
                            answers: &answers,
                            undo: Vec::with_capacity(writes.len()),
                            fresh: Vec::with_capacity(writes.len()),
                            mark: (now - last_mark_unix_ms >= MARK_INTERVAL_MS).then_some(now),
                        };
                        if let Some(now) = group.mark {
                            last_mark_unix_ms = now;
                        }
                        turn.last_writes = writes.len();
                        let began = Instant::now();
                        group.run(&connection, writes, &mut turn.poisoned, &mut checkpoints);
                        turn.last_took = began.elapsed();
                        turn.groups_since_step += 1;
                    }
                    if turn.compaction_is_due(commands.is_empty()) {
                        turn.groups_since_step = 0;
                        let now = unix_ms(&options);
                        let step = turn.compaction.step(&connection, &mut statements, &mut ledger, &shared, now);
                        if let Err(fault) = step {
                            turn.after_fault(&connection, &shared, &fault);
                        }
                    }
                    let copying = checkpoints.finish_if_asked(&connection);
                    if !copying.is_zero() {
                        let mut pauses = shared.pauses.lock();
                        pauses.checkpoint = pauses.checkpoint.max(copying);
                    }
                }
                drop(statements);
                commands.close();
                closing
            }
            Err(fault) => {
                tracing::error!(%fault, "the store cannot prepare its statements; nothing will be written");
                Vec::new()
            }
        };
        // Whoever still waits in the channel learns it from its dropped answer.
        drop(commands);
        shared.close();
        checkpoints.close(connection);
        drop(lock);
        for answer in closing {
            let _ = answer.send(());
        }
    }
}

/// Waits for work; false once nobody can send any.
fn gather(commands: &mut mpsc::Receiver<Command>, waiting: &mut Vec<Command>, turn: &Turn) -> bool {
    if turn.compaction.has_work() && turn.poisoned.is_none() {
        while waiting.len() < GROUP_MAX {
            match commands.try_recv() {
                Ok(command) => waiting.push(command),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => return !waiting.is_empty(),
            }
        }
        return true;
    }
    let open = commands.blocking_recv_many(waiting, GROUP_MAX) > 0;
    // Callers that were answered together come back one after the other. The first of them would have a sync of its own,
    // and the others wait for it.
    let patience = turn.last_took.min(COMPANY_MAX);
    let began = Instant::now();
    while open && waiting.len() < turn.last_writes && began.elapsed() < patience {
        std::thread::sleep(COMPANY_LOOK);
        while waiting.len() < GROUP_MAX
            && let Ok(command) = commands.try_recv()
        {
            waiting.push(command);
        }
    }
    open
}

impl Turn {
    fn new(compaction: Compaction) -> Self {
        Turn { poisoned: None, compaction, groups_since_step: 0, last_writes: 0, last_took: Duration::ZERO }
    }

    fn compaction_is_due(&self, idle: bool) -> bool {
        self.compaction.has_work()
            && self.poisoned.is_none()
            && (idle || self.groups_since_step >= GROUPS_PER_COMPACTION_STEP)
    }

    fn after_fault(&mut self, connection: &Connection, shared: &Shared, fault: &Fault) {
        rollback(connection);
        self.compaction.give_up(fault);
        if shared.outcome(fault) == Outcome::Lost {
            poison(&mut self.poisoned, fault);
        }
    }
}

fn poison(poisoned: &mut Option<String>, fault: &Fault) {
    tracing::error!(%fault, "writing to the disk failed; the store takes no more writes until it is opened again");
    *poisoned = Some(fault.to_string());
}

fn rollback(connection: &Connection) {
    // SQLite has already rolled back after some errors; then there is nothing to do and it says so.
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::warn!(%error, "a failed transaction could not be rolled back");
    }
}

fn unix_ms(options: &EmbeddedOptions) -> i64 {
    let now = (options.clock)();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// One transaction of writes.
struct Group<'a, 'c> {
    ledger: &'a mut Ledger,
    statements: &'a mut Statements<'c>,
    shared: &'a Shared,
    answers: &'a Answers,
    undo: Vec<Undo>,
    /// What the group changes, in order of revision, for the tail and the watches.
    fresh: Vec<Change>,
    /// The time to note beside the group's last revision.
    mark: Option<i64>,
}

impl Group<'_, '_> {
    fn run(
        mut self,
        connection: &Connection,
        writes: Vec<Write>,
        poisoned: &mut Option<String>,
        checkpoints: &mut Checkpoints,
    ) {
        if let Some(reason) = poisoned {
            for write in writes {
                let _ = write.answer.send(Err(WriteError::Poisoned(reason.clone())));
            }
            return;
        }
        let state_before = self.ledger.state;
        let mut outcomes = Vec::with_capacity(writes.len());
        let done = self.apply_all(writes, &mut outcomes);
        match done {
            Ok(bytes) => {
                checkpoints.wrote(bytes);
                let answers = self.answers;
                self.publish();
                answers.send(outcomes);
            }
            Err(fault) => {
                rollback(connection);
                self.take_back();
                self.ledger.state = state_before;
                let outcome = self.shared.outcome(&fault);
                if outcome == Outcome::Lost {
                    poison(poisoned, &fault);
                } else {
                    tracing::warn!(%fault, writes = outcomes.len(), "a group of writes failed");
                }
                for (answer, _) in outcomes {
                    let _ = answer.send(Err(match outcome {
                        Outcome::Full => WriteError::Full(fault.to_string()),
                        Outcome::Lost => WriteError::Unknown(fault.to_string()),
                        Outcome::Refused => WriteError::Unavailable(EngineError::new(fault.to_string())),
                    }));
                }
            }
        }
    }

    /// Everything up to and including the commit. Returns about how much went to the log.
    fn apply_all(&mut self, writes: Vec<Write>, outcomes: &mut Outcomes) -> Result<usize, Fault> {
        let mut writes = writes.into_iter();
        let mut bytes = 0;
        let applied = (|| {
            self.statements.begin()?;
            for write in writes.by_ref() {
                let size = write.value.as_ref().map_or(0, Bytes::len);
                let Write { key, value, expected, answer } = write;
                let outcome = self.apply(key, value, expected);
                match outcome {
                    Ok(Ok(revision)) => {
                        bytes += size;
                        outcomes.push((answer, Ok(revision)));
                    }
                    Ok(Err(refused)) => outcomes.push((answer, Err(refused))),
                    // One damaged row must not fail the others: nothing of this write has touched the transaction.
                    Err(fault @ Fault::Corrupt(_)) => {
                        tracing::error!(%fault, "a write needs a value that is damaged");
                        outcomes.push((answer, Err(WriteError::Unavailable(EngineError::new(fault.to_string())))));
                    }
                    Err(fault) => {
                        outcomes.push((answer, Ok(Revision::ZERO)));
                        return Err(fault);
                    }
                }
            }
            if !self.fresh.is_empty() {
                self.statements.save_state(self.ledger)?;
                if let Some(now) = self.mark {
                    self.statements.mark(self.ledger.state.revision, now)?;
                }
            }
            self.statements.commit()
        })();
        // Those that were not reached share the fate of the group.
        outcomes.extend(writes.map(|write| (write.answer, Ok(Revision::ZERO))));
        applied.map(|()| bytes)
    }

    /// One write: checked against the ledger, put into the transaction and the ledger.
    fn apply(
        &mut self,
        key: Key,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) -> Result<Result<Revision, WriteError>, Fault> {
        let before = self.ledger.keys.get(&key).copied();
        if before.map(|standing| standing.revision) != expected {
            let current = before.map(|standing| self.entry(&key, standing.revision)).transpose()?;
            return Ok(Err(match (expected, current) {
                (None, Some(current)) => WriteError::Exists(current),
                (expected, current) => WriteError::Conflict { key, expected: expected.unwrap_or_default(), current },
            }));
        }
        let previous = before.map(|standing| self.entry(&key, standing.revision)).transpose()?;

        let revision = self.ledger.state.revision.next();
        let replaced = before.map_or(Revision::ZERO, |standing| standing.revision);
        let size = size_of(value.as_deref());
        let (Collection { id, last: prior, .. }, new_collection) = self.collection(&key)?;
        let frees = u64::from(before.is_some()) + u64::from(value.is_none());
        self.undo.push(Undo { key: key.clone(), before, prior, new_collection, frees });
        let sum = row_sum(revision, key.as_str(), replaced, prior, value.as_deref());
        self.statements.insert_change.execute((
            revision.0 as i64,
            key.as_str(),
            replaced.0 as i64,
            prior.0 as i64,
            size,
            sum,
            value.as_deref(),
        ))?;
        if frees > 0 {
            let bytes = before.map_or(0, |standing| u64::from(standing.bytes));
            let leftover = Leftover { at: revision, previous: replaced, bytes, deletes: value.is_none() };
            self.statements.insert_history.execute((
                id,
                revision.0 as i64,
                replaced.0 as i64,
                bytes as i64,
                leftover.deletes,
                leftover.sum(id),
            ))?;
        }

        self.ledger.state.revision = revision;
        self.ledger.state.tally.add(key.as_str(), revision, size);
        self.ledger.stand_at(&key, value.as_ref().map(|value| Standing { revision, bytes: value.len() as u32 }));
        self.ledger.leave_behind(&key, before, frees, revision);
        self.fresh.push(Change { key, revision, value, previous });
        Ok(Ok(revision))
    }

    /// What a key holds at its current revision, from memory where possible.
    fn entry(&mut self, key: &Key, revision: Revision) -> Result<Entry, Fault> {
        // A value of this very group is not in the tail yet. The revisions of a group have no holes.
        if let Some(first) = self.fresh.first()
            && let Some(position) = revision.0.checked_sub(first.revision.0)
            && let Some(value) = self.fresh.get(position as usize).and_then(|change| change.value.as_ref())
        {
            return Ok(Entry { key: key.clone(), revision, value: value.clone() });
        }
        if let Some(entry) = self.shared.tail.read().entry(revision) {
            return Ok(entry);
        }
        let read = self.statements.by_revision.entry(key.as_str(), revision);
        read.map_err(|fault| if fault.is_corruption() { Fault::Corrupt(fault.to_string()) } else { fault })
    }

    /// The collection of a key, and whether it was made just now.
    fn collection(&mut self, key: &Key) -> Result<(Collection, bool), Fault> {
        let name = key.collection();
        if let Some(collection) = self.ledger.collections.get(name) {
            return Ok((*collection, false));
        }
        let id = self.ledger.collections.values().map(|collection| collection.id).max().unwrap_or(0) + 1;
        let collection = Collection { id, ..Collection::default() };
        self.statements.insert_collection.execute((id, name, collection.sum(name)))?;
        self.ledger.collections.insert(name.into(), collection);
        Ok((collection, true))
    }

    /// The group is on disk: now everyone may know.
    fn publish(self) {
        if self.fresh.is_empty() {
            return;
        }
        if self.undo.iter().any(|undo| undo.new_collection) {
            *self.shared.floors.write() = self.ledger.floors();
        }
        {
            let mut stats = self.shared.stats.lock();
            *stats = self.ledger.stats();
            stats.last_sync = Some(SystemTime::now());
        }
        {
            let mut lasts = self.shared.lasts.write();
            for change in &self.fresh {
                match lasts.get_mut(change.key.collection()) {
                    Some(last) => *last = change.revision,
                    None => drop(lasts.insert(change.key.collection().into(), change.revision)),
                }
            }
        }
        {
            let mut tail = self.shared.tail.write();
            self.fresh.into_iter().for_each(|change| tail.push(change));
        }
        self.shared.announce(self.ledger.state.revision);
    }

    /// The group failed: the ledger goes back to where it was, newest write first.
    fn take_back(&mut self) {
        while let Some(Undo { key, before, prior, new_collection, frees }) = self.undo.pop() {
            // A write that failed half-way is on the undo list but not yet in the ledger.
            if self.fresh.len() > self.undo.len() {
                self.fresh.pop();
                self.ledger.stand_at(&key, before);
                self.ledger.take_up(&key, before, frees, prior);
            }
            if new_collection {
                self.ledger.collections.remove(key.collection());
            }
        }
    }
}

impl Ledger {
    /// Moves a key to where it stands now.
    fn stand_at(&mut self, key: &Key, now: Option<Standing>) {
        let before = match now {
            Some(now) => self.keys.insert(key.clone(), now),
            None => self.keys.remove(key),
        };
        self.object_bytes += now.map_or(0, |now| u64::from(now.bytes));
        self.object_bytes -= before.map_or(0, |before| u64::from(before.bytes));
    }

    /// Counts what a change leaves in history, and makes it the newest of its collection.
    fn leave_behind(&mut self, key: &Key, before: Option<Standing>, frees: u64, last: Revision) {
        self.history += frees;
        self.history_bytes += before.map_or(0, |before| u64::from(before.bytes));
        if let Some(collection) = self.collections.get_mut(key.collection()) {
            collection.pending += u64::from(frees > 0);
            collection.last = last;
        }
    }

    /// The opposite of [`Ledger::leave_behind`].
    fn take_up(&mut self, key: &Key, before: Option<Standing>, frees: u64, last: Revision) {
        self.history -= frees;
        self.history_bytes -= before.map_or(0, |before| u64::from(before.bytes));
        if let Some(collection) = self.collections.get_mut(key.collection()) {
            collection.pending -= u64::from(frees > 0);
            collection.last = last;
        }
    }
}
