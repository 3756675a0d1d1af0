//! One group of writes: applied, committed and published together.
//!
//! A result becomes an answer only after the commit: until then results are in [`Group::commit`] alone, and a group that
//! fails has no results, so that no lost write can be acknowledged.

use bytes::Bytes;
use machinery::Revision;

use super::Shared;
use super::answers::{Answer, Outcomes, WriteResult};
use super::compaction::HistoryRow;
use super::fault::{CommitFailure, Fault};
use super::ledger::{Collection, Ledger, LedgerWrite, State};
use super::row::size_of;
use super::statements::Statements;
use crate::entry::{Change, Entry};
use crate::error::{EngineError, WriteError};
use crate::key::Key;

/// A write that waits for its group.
pub(super) struct Write {
    pub(super) request: WriteRequest,
    pub(super) answer: Answer,
}

pub(super) struct WriteRequest {
    pub(super) key: Key,
    /// `None` deletes.
    pub(super) value: Option<Bytes>,
    /// `None` expects the key to be absent.
    pub(super) expected: Option<Revision>,
}

/// One transaction of writes, not committed yet.
pub(super) struct Group<'a, 'c> {
    ledger: &'a mut Ledger,
    statements: &'a mut Statements<'c>,
    shared: &'a Shared,
    state_before: State,
    undo: Vec<Undo>,
    /// The group's changes in order of revision, without gaps.
    changes: Vec<Change>,
}

/// A group that is on disk. The only source of results for callers.
pub(super) struct Committed {
    /// One for each request, in order.
    results: Vec<WriteResult>,
    changes: Vec<Change>,
    adds_collection: bool,
    /// About how much the group added to the write-ahead log.
    pub(super) bytes: usize,
}

struct Undo {
    write: LedgerWrite,
    adds_collection: bool,
}

impl<'a, 'c> Group<'a, 'c> {
    pub(super) fn new(ledger: &'a mut Ledger, statements: &'a mut Statements<'c>, shared: &'a Shared) -> Self {
        let state_before = ledger.state();
        Group { ledger, statements, shared, state_before, undo: Vec::new(), changes: Vec::new() }
    }

    /// Applies and commits the requests. `mark_unix_ms` is the time to record for the last revision, if one is due.
    ///
    /// On a fault the ledger is as it was before; the caller rolls the transaction back.
    pub(super) fn commit(mut self, requests: Vec<WriteRequest>, mark_unix_ms: Option<i64>) -> Result<Committed, Fault> {
        match self.transaction(requests, mark_unix_ms) {
            Ok((results, bytes)) => {
                let adds_collection = self.undo.iter().any(|undo| undo.adds_collection);
                Ok(Committed { results, changes: self.changes, adds_collection, bytes })
            }
            Err(fault) => {
                self.undo();
                Err(fault)
            }
        }
    }

    fn transaction(
        &mut self,
        requests: Vec<WriteRequest>,
        mark_unix_ms: Option<i64>,
    ) -> Result<(Vec<WriteResult>, usize), Fault> {
        let mut results = Vec::with_capacity(requests.len());
        let mut bytes = 0;
        self.statements.begin()?;
        for request in requests {
            let size = request.value.as_ref().map_or(0, Bytes::len);
            let result = match self.apply(request) {
                Ok(result) => result,
                // One damaged row must not fail the others: nothing of this write has touched the transaction.
                Err(fault @ Fault::Corrupt(_)) => {
                    tracing::error!(%fault, "a write needs a value that is damaged");
                    Err(WriteError::Unavailable(EngineError::new(fault.to_string())))
                }
                Err(fault) => return Err(fault),
            };
            if result.is_ok() {
                bytes += size;
            }
            results.push(result);
        }
        if !self.changes.is_empty() {
            self.statements.save_state(&self.ledger.state())?;
            if let Some(now) = mark_unix_ms {
                self.statements.insert_mark(self.ledger.revision(), now)?;
            }
        }
        self.statements.commit()?;
        Ok((results, bytes))
    }

    /// Checks one write against the ledger, and adds it to the transaction and the ledger.
    fn apply(&mut self, request: WriteRequest) -> Result<WriteResult, Fault> {
        let WriteRequest { key, value, expected } = request;
        let before = self.ledger.key(&key);
        let previous = before.map(|state| self.entry(&key, state.revision)).transpose()?;
        match (expected, previous.as_ref().map(|previous| previous.revision)) {
            (None, None) => {}
            (Some(expected), Some(current)) if current == expected => {}
            (Some(expected), _) => return Ok(Err(WriteError::Conflict { key, expected, current: previous })),
            (None, Some(_)) => return Ok(Err(WriteError::Exists(previous.expect("matched as present")))),
        }

        let revision = self.ledger.revision().next();
        let (Collection { id, last: prior, .. }, adds_collection) = self.collection(&key)?;
        let superseded = u64::from(before.is_some()) + u64::from(value.is_none());
        let write = LedgerWrite { key: key.clone(), before, superseded, prior };
        self.undo.push(Undo { write, adds_collection });
        let size = size_of(value.as_deref());
        let replaced = previous.as_ref().map_or(Revision::ZERO, |previous| previous.revision);
        let change = Change { key, revision, value, previous };
        self.statements.insert_change(&change, prior)?;
        if superseded > 0 {
            let bytes = before.map_or(0, |state| u64::from(state.bytes));
            let row = HistoryRow { at: revision, previous: replaced, bytes, deletes: change.is_delete() };
            self.statements.insert_history(id, &row)?;
        }
        let write = &self.undo.last().expect("pushed above").write;
        self.ledger.add_write(write, revision, size);
        self.changes.push(change);
        Ok(Ok(revision))
    }

    /// The value of a key at its current revision, from memory where possible.
    fn entry(&mut self, key: &Key, revision: Revision) -> Result<Entry, Fault> {
        // A value of this very group is not in the tail yet. The revisions of a group have no gaps.
        if let Some(first) = self.changes.first()
            && let Some(position) = revision.0.checked_sub(first.revision.0)
            && let Some(value) = self.changes.get(position as usize).and_then(|change| change.value.as_ref())
        {
            return Ok(Entry { key: key.clone(), revision, value: value.clone() });
        }
        if let Some(entry) = self.shared.tail.read().entry(revision) {
            return Ok(entry);
        }
        let read = self.statements.entry(key, revision);
        read.map_err(|fault| if fault.is_corruption() { Fault::Corrupt(fault.to_string()) } else { fault })
    }

    /// The collection of a key, and whether this call has added it.
    fn collection(&mut self, key: &Key) -> Result<(Collection, bool), Fault> {
        let name = key.collection();
        if let Some(collection) = self.ledger.collection(name) {
            return Ok((*collection, false));
        }
        let collection = self.ledger.new_collection();
        self.statements.insert_collection(name, &collection)?;
        self.ledger.add_collection(name, collection);
        Ok((collection, true))
    }

    /// Takes every write of the group out of the ledger, newest first.
    fn undo(&mut self) {
        while let Some(Undo { write, adds_collection }) = self.undo.pop() {
            // A write that failed half-way is on the undo list but not yet in the ledger.
            if self.changes.len() > self.undo.len() {
                self.changes.pop();
                self.ledger.undo_write(&write);
            }
            if adds_collection {
                self.ledger.remove_collection(write.key.collection());
            }
        }
        self.ledger.restore_state(self.state_before);
    }
}

impl Committed {
    /// Makes the changes visible to reads, statistics and watches, in that order. Returns each caller with its result.
    pub(super) fn publish(self, answers: Vec<Answer>, ledger: &Ledger, shared: &Shared) -> Outcomes {
        let Committed { results, changes, adds_collection, bytes: _ } = self;
        debug_assert_eq!(answers.len(), results.len(), "one result for each caller");
        if !changes.is_empty() {
            if adds_collection {
                *shared.floors.write() = ledger.floors();
            }
            {
                let mut stats = shared.stats.lock();
                *stats = ledger.stats();
                stats.last_sync = Some(shared.clock.now().into());
            }
            {
                let mut newest = shared.newest_changes.write();
                for change in &changes {
                    match newest.get_mut(change.key.collection()) {
                        Some(revision) => *revision = change.revision,
                        None => drop(newest.insert(change.key.collection().into(), change.revision)),
                    }
                }
            }
            {
                let mut tail = shared.tail.write();
                changes.into_iter().for_each(|change| tail.push(change));
            }
            shared.announce(ledger.revision());
        }
        answers.into_iter().zip(results).collect()
    }
}

/// The error of every write of a group that failed with `fault`.
pub(super) fn group_error(failure: CommitFailure, fault: &Fault) -> WriteError {
    match failure {
        CommitFailure::Full => WriteError::Full(fault.to_string()),
        CommitFailure::Lost => WriteError::Unknown(fault.to_string()),
        CommitFailure::Refused => WriteError::Unavailable(EngineError::new(fault.to_string())),
    }
}
