//! Writing: each write is one etcd transaction that compares a revision, and reads the key if the comparison fails.

use bytes::Bytes;
use machinery::Revision;

use super::EtcdStore;
use super::fault::Fault;
use super::keyspace::{number, revision};
use super::messages::{
    Compare, CompareTarget, CompareWith, DeleteRangeRequest, Operation, PutRequest, RangeRequest, RequestOp,
    TxnRequest, TxnResponse,
};
use crate::entry::Entry;
use crate::error::{EngineError, ReadError, WriteError};
use crate::key::Key;

/// What a transaction did.
pub(super) enum Outcome {
    /// The comparison held; the change has this revision.
    Done(Revision),
    /// It did not; this was there at that moment.
    Differs(Option<Entry>),
}

impl EtcdStore {
    pub(super) async fn write_new(&self, key: Key, value: Bytes) -> Result<Revision, WriteError> {
        self.check_size(&value)?;
        let bytes = value.len();
        let etcd_key = self.keyspace.of(&key);
        let absent = compare(&etcd_key, Revision::ZERO);
        let put = Operation::Put(PutRequest { key: etcd_key.clone(), value });
        let outcome = match self.transact(etcd_key, absent, put).await {
            Ok(outcome) => outcome,
            Err(fault) => return Err(self.write_error(fault, &key, bytes, None).await),
        };
        match outcome {
            Outcome::Done(revision) => Ok(revision),
            Outcome::Differs(Some(current)) => Err(WriteError::Exists(current)),
            // The comparison and the read are one transaction: this would be an etcd that contradicts itself.
            Outcome::Differs(None) => Err(WriteError::Unavailable(EngineError::new(format!(
                "{key} exists and does not exist in the same answer of etcd"
            )))),
        }
    }

    pub(super) async fn write_over(&self, key: Key, value: Bytes, expected: Revision) -> Result<Revision, WriteError> {
        self.check_size(&value)?;
        let bytes = value.len();
        let put = Operation::Put(PutRequest { key: self.keyspace.of(&key), value });
        self.replace(key, put, bytes, expected).await
    }

    pub(super) async fn remove(&self, key: Key, expected: Revision) -> Result<Revision, WriteError> {
        let delete = Operation::DeleteRange(DeleteRangeRequest { key: self.keyspace.of(&key) });
        self.replace(key, delete, 0, expected).await
    }

    async fn replace(
        &self,
        key: Key,
        operation: Operation,
        bytes: usize,
        expected: Revision,
    ) -> Result<Revision, WriteError> {
        if expected.is_zero() {
            // To etcd, revision zero means "absent"; to the contract no entry has it.
            let current = self.read(&key).await.map_err(unwritten)?;
            return Err(WriteError::Conflict { key, expected, current });
        }
        let etcd_key = self.keyspace.of(&key);
        let unchanged = compare(&etcd_key, expected);
        let outcome = match self.transact(etcd_key, unchanged, operation).await {
            Ok(outcome) => outcome,
            Err(fault) => return Err(self.write_error(fault, &key, bytes, Some(expected)).await),
        };
        match outcome {
            Outcome::Done(revision) => Ok(revision),
            Outcome::Differs(current) => Err(WriteError::Conflict { key, expected, current }),
        }
    }

    /// Puts a fault into the words of the contract.
    async fn write_error(&self, fault: Fault, key: &Key, bytes: usize, before: Option<Revision>) -> WriteError {
        let Fault::Full(reason) = fault else { return fault.of_write(key, bytes) };
        // The write that fills etcd up may be applied and still be answered with "space exceeded". By then it is
        // decided, so what is there now tells, unless somebody else has written the key as well.
        match self.read(key).await {
            Ok(now) if now.as_ref().map(|entry| entry.revision) == before => WriteError::Full(reason),
            _ => WriteError::Unknown(reason),
        }
    }

    fn check_size(&self, value: &Bytes) -> Result<(), WriteError> {
        let (bytes, max) = (value.len(), self.value_bytes_max);
        if bytes > max { Err(WriteError::TooLarge { bytes, max }) } else { Ok(()) }
    }

    async fn transact(&self, key: Bytes, compare: Compare, operation: Operation) -> Result<Outcome, Fault> {
        let answer = self.cluster.txn(transaction(key, compare, operation)).await?;
        Ok(match applied(&answer) {
            Some(revision) => Outcome::Done(revision),
            None => {
                let range = answer.responses.into_iter().next().and_then(|response| response.range);
                let kv = range.and_then(|range| range.kvs.into_iter().next());
                Outcome::Differs(kv.and_then(|kv| self.keyspace.entry(kv)))
            }
        })
    }
}

/// If the comparison holds, do this; else read the key.
pub(super) fn transaction(key: Bytes, compare: Compare, operation: Operation) -> TxnRequest {
    let read = Operation::Range(RangeRequest { key, ..RangeRequest::default() });
    TxnRequest {
        compare: vec![compare],
        success: vec![RequestOp { operation: Some(operation) }],
        failure: vec![RequestOp { operation: Some(read) }],
    }
}

/// The revision of a transaction whose comparison held.
pub(super) fn applied(answer: &TxnResponse) -> Option<Revision> {
    answer.succeeded.then(|| answer.header.as_ref().map_or(Revision::ZERO, |header| revision(header.revision)))
}

/// Holds if the key's last change has this revision; zero: if there is no such key.
pub(super) fn compare(key: &Bytes, at: Revision) -> Compare {
    let (target, with) = if at.is_zero() {
        (CompareTarget::CreateRevision, CompareWith::CreateRevision(0))
    } else {
        (CompareTarget::ModRevision, CompareWith::ModRevision(number(at)))
    };
    Compare { result: 0, target: target.into(), key: key.clone(), with: Some(with) }
}

fn unwritten(error: ReadError) -> WriteError {
    match error {
        ReadError::Unavailable(error) => WriteError::Unavailable(error),
        other => WriteError::Unavailable(EngineError::new(other.to_string())),
    }
}
