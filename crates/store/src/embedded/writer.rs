//! The writer thread: waiting writes become one transaction, and each is answered after its sync.
//!
//! A turn of the loop takes every waiting command, applies the writes to the ledger and the file, and commits, which syncs.
//! Only then it publishes the group: first the tail, then the announcement for watches, then the answers to the callers. If
//! the commit fails, the ledger is restored and nothing is published. While the thread syncs, the next group gathers;
//! and callers that were just answered get a moment to send again, because a sync costs the same for one write as for many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::Revision;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::answers::Answers;
use super::checkpointer::Checkpoints;
use super::compaction::Compaction;
use super::fault::{CommitFailure, Fault};
use super::group::{Group, Write, group_error};
use super::ledger::Ledger;
use super::lock::DirectoryLock;
use super::statements::Statements;
use super::{EmbeddedOptions, Shared};
use crate::error::{ReadError, WriteError};

/// Commands in one transaction at most; more wait for the next.
const GROUP_MAX: usize = 512;

/// Interval at which the time is recorded with the revision it belongs to.
const MARK_INTERVAL_MS: i64 = 5_000;

/// The longest a group waits for more writes to share its sync. Never longer than the last sync took, and never after a
/// group of one: a lone caller must not wait.
const GROUP_WAIT_MAX: Duration = Duration::from_millis(1);

/// Interval at which a waiting group looks for more writes.
const GROUP_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Under load, groups of writes for each step of compaction.
const GROUPS_PER_COMPACTION_STEP: u32 = 4;

pub(super) enum Command {
    Write(Write),
    Compact {
        at: Revision,
        answer: oneshot::Sender<Result<(), ReadError>>,
    },
    /// Looks for history that retention no longer keeps.
    Sweep,
    Close {
        answer: oneshot::Sender<()>,
    },
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
    /// Held until the file is closed.
    pub(super) lock: Arc<DirectoryLock>,
}

impl Writer {
    /// Runs until the store is closed or dropped.
    pub(super) fn run(self) {
        let Writer {
            connection,
            ledger,
            shared,
            options,
            mut commands,
            answers,
            mut checkpoints,
            last_mark_unix_ms,
            lock,
        } = self;
        let closing = match Statements::prepare(&connection) {
            Ok(statements) => {
                let writing = WriteLoop {
                    connection: &connection,
                    statements,
                    ledger,
                    shared: &shared,
                    answers: &answers,
                    checkpoints: &mut checkpoints,
                    compaction: Compaction::new(options.retention),
                    poisoned: None,
                    last_mark_unix_ms,
                    groups_since_compaction: 0,
                    last_group: LastGroup::default(),
                };
                writing.run(&mut commands)
            }
            Err(fault) => {
                tracing::error!(%fault, "the store cannot prepare its statements; nothing will be written");
                Vec::new()
            }
        };
        // Callers still in the channel get an error from their dropped answer.
        drop(commands);
        shared.close();
        checkpoints.close(connection);
        drop(lock);
        for answer in closing {
            let _ = answer.send(());
        }
    }
}

/// The state of the writer thread while the store is open.
struct WriteLoop<'a> {
    connection: &'a Connection,
    statements: Statements<'a>,
    ledger: Ledger,
    shared: &'a Shared,
    answers: &'a Answers,
    checkpoints: &'a mut Checkpoints,
    compaction: Compaction,
    /// Set once a sync has failed or the files were removed: the reason why no more writes are accepted.
    poisoned: Option<String>,
    last_mark_unix_ms: i64,
    groups_since_compaction: u32,
    last_group: LastGroup,
}

#[derive(Clone, Copy, Default)]
struct LastGroup {
    writes: usize,
    /// From the first write to the end of the sync.
    took: Duration,
}

/// The commands of one turn, sorted.
#[derive(Default)]
struct Turn {
    writes: Vec<Write>,
    closing: Vec<oneshot::Sender<()>>,
}

impl WriteLoop<'_> {
    /// Handles commands until the store closes. Returns the callers of `close`, to be answered once the file is closed.
    fn run(mut self, commands: &mut mpsc::Receiver<Command>) -> Vec<oneshot::Sender<()>> {
        let mut waiting = Vec::with_capacity(GROUP_MAX);
        loop {
            let open = self.gather(commands, &mut waiting);
            let Turn { writes, closing } = self.sort(&mut waiting);
            if !writes.is_empty() {
                self.write_group(writes);
            }
            if self.compaction_is_due(commands.is_empty()) {
                self.compact_step();
            }
            self.finish_checkpoint();
            if !open || !closing.is_empty() {
                commands.close();
                return closing;
            }
        }
    }

    /// Waits for commands, unless there is history to compact meanwhile. Returns false once all senders are gone.
    fn gather(&self, commands: &mut mpsc::Receiver<Command>, waiting: &mut Vec<Command>) -> bool {
        if self.compaction.has_work() && self.poisoned.is_none() {
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
        // Callers that were answered together send again one after the other. Without the wait, the first of them would
        // get a sync of its own, and the others would wait for it.
        let wait_max = self.last_group.took.min(GROUP_WAIT_MAX);
        let began = Instant::now();
        while open && waiting.len() < self.last_group.writes && began.elapsed() < wait_max {
            std::thread::sleep(GROUP_POLL_INTERVAL);
            while waiting.len() < GROUP_MAX
                && let Ok(command) = commands.try_recv()
            {
                waiting.push(command);
            }
        }
        open
    }

    /// Passes requests on to compaction, and returns the rest.
    fn sort(&mut self, waiting: &mut Vec<Command>) -> Turn {
        let mut turn = Turn { writes: Vec::with_capacity(waiting.len()), closing: Vec::new() };
        for command in waiting.drain(..) {
            match command {
                Command::Write(write) => turn.writes.push(write),
                Command::Compact { at, answer } => self.compaction.request(at, answer, &self.ledger),
                Command::Sweep => {
                    self.shared.tail.write().age();
                    self.compaction.sweep_now();
                }
                Command::Close { answer } => turn.closing.push(answer),
            }
        }
        turn
    }

    fn write_group(&mut self, writes: Vec<Write>) {
        self.groups_since_compaction += 1;
        self.last_group.writes = writes.len();
        let began = Instant::now();
        if let (None, Err(reason)) = (&self.poisoned, self.shared.health.check_files()) {
            self.poisoned = Some(reason);
        }
        if let Some(reason) = &self.poisoned {
            for write in writes {
                let _ = write.answer.send(Err(WriteError::Poisoned(reason.clone())));
            }
        } else {
            self.commit_group(writes);
        }
        self.last_group.took = began.elapsed();
    }

    fn commit_group(&mut self, writes: Vec<Write>) {
        let (requests, answers): (Vec<_>, Vec<_>) =
            writes.into_iter().map(|write| (write.request, write.answer)).unzip();
        let mark = self.due_mark();
        match Group::new(&mut self.ledger, &mut self.statements, self.shared).commit(requests, mark) {
            Ok(committed) => {
                self.checkpoints.add_bytes(committed.bytes);
                self.shared.health.set_full(None);
                // Not acknowledged if the files were removed during the commit.
                let kept = self.shared.health.check_files();
                let mut outcomes = committed.publish(answers, &self.ledger, self.shared);
                if let Err(reason) = kept {
                    for (_, result) in outcomes.iter_mut().filter(|(_, result)| result.is_ok()) {
                        *result = Err(WriteError::Unknown(reason.clone()));
                    }
                    self.poisoned = Some(reason);
                }
                self.answers.send(outcomes);
            }
            Err(fault) => {
                rollback(self.connection);
                let failure = self.shared.classify(&fault);
                if failure == CommitFailure::Lost {
                    self.poison(&fault);
                } else {
                    tracing::warn!(%fault, writes = answers.len(), "a group of writes failed");
                }
                if failure == CommitFailure::Full {
                    self.shared.health.set_full(Some(fault.to_string()));
                }
                for answer in answers {
                    let _ = answer.send(Err(group_error(failure, &fault)));
                }
            }
        }
    }

    /// The time to record with this group, if the last one is old enough.
    fn due_mark(&mut self) -> Option<i64> {
        let now = self.now_unix_ms();
        let due = (now - self.last_mark_unix_ms >= MARK_INTERVAL_MS).then_some(now);
        self.last_mark_unix_ms = due.unwrap_or(self.last_mark_unix_ms);
        due
    }

    fn compaction_is_due(&self, idle: bool) -> bool {
        self.compaction.has_work()
            && self.poisoned.is_none()
            && (idle || self.groups_since_compaction >= GROUPS_PER_COMPACTION_STEP)
    }

    fn compact_step(&mut self) {
        self.groups_since_compaction = 0;
        let now = self.now_unix_ms();
        let step = self.compaction.step(self.connection, &mut self.statements, &mut self.ledger, self.shared, now);
        if let Err(fault) = step {
            rollback(self.connection);
            if self.compaction.block_damaged(&fault) {
                return;
            }
            self.compaction.give_up(&fault);
            if self.shared.classify(&fault) == CommitFailure::Lost {
                self.poison(&fault);
            }
        }
    }

    fn finish_checkpoint(&mut self) {
        let took = self.checkpoints.finish_if_requested(self.connection);
        if !took.is_zero() {
            let mut pauses = self.shared.pauses.lock();
            pauses.checkpoint = pauses.checkpoint.max(took);
        }
    }

    fn poison(&mut self, fault: &Fault) {
        tracing::error!(%fault, "writing to the disk failed; the store takes no more writes until it is opened again");
        self.poisoned = Some(fault.to_string());
        self.shared.health.set_poisoned(fault.to_string());
    }

    /// Milliseconds since 1970; zero for a clock before that.
    fn now_unix_ms(&self) -> i64 {
        self.shared.clock.now().as_millisecond().max(0)
    }
}

fn rollback(connection: &Connection) {
    // SQLite has already rolled back after some errors, and fails a second rollback.
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::warn!(%error, "a failed transaction could not be rolled back");
    }
}
