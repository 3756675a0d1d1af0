//! Writes. Each is one etcd transaction that compares a revision, and reads the key if the comparison fails.

use bytes::Bytes;
use machinery::Revision;

use super::EtcdStore;
use super::fault::Fault;
use super::keyspace::{header_revision, number};
use super::messages::{
    Compare, CompareTarget, CompareWith, DeleteRangeRequest, Operation, PutRequest, RangeRequest, RequestOp,
    TxnRequest, TxnResponse,
};
use crate::entry::Entry;
use crate::error::{EngineError, ReadError, WriteError};
use crate::key::Key;

/// The result of a transaction.
pub(super) enum Outcome {
    /// The comparison held; the change has this revision.
    Applied(Revision),
    /// The comparison failed; this was the entry at that moment.
    Differs(Option<Entry>),
}

impl EtcdStore {
    pub(super) async fn write_new(&self, key: Key, value: Bytes) -> Result<Revision, WriteError> {
        self.check_size(&value)?;
        let bytes = value.len();
        let etcd_key = self.keyspace.object(&key);
        let absent = compare(&etcd_key, Revision::ZERO);
        let put = Operation::Put(PutRequest { key: etcd_key.clone(), value });
        let outcome = match self.transact(etcd_key, absent, put).await {
            Ok(outcome) => outcome,
            Err(fault) => return Err(self.write_error(fault, &key, bytes, None).await),
        };
        match outcome {
            Outcome::Applied(revision) => Ok(revision),
            Outcome::Differs(Some(current)) => Err(WriteError::Exists(current)),
            // The comparison and the read are one transaction, so etcd contradicts itself here.
            Outcome::Differs(None) => Err(WriteError::Unavailable(EngineError::new(format!(
                "{key} exists and does not exist in the same answer of etcd"
            )))),
        }
    }

    pub(super) async fn write_over(&self, key: Key, value: Bytes, expected: Revision) -> Result<Revision, WriteError> {
        self.check_size(&value)?;
        let bytes = value.len();
        let put = Operation::Put(PutRequest { key: self.keyspace.object(&key), value });
        self.replace(key, put, bytes, expected).await
    }

    pub(super) async fn remove(&self, key: Key, expected: Revision) -> Result<Revision, WriteError> {
        let delete = Operation::DeleteRange(DeleteRangeRequest { key: self.keyspace.object(&key) });
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
            // In etcd, revision zero means "absent"; in the contract no entry has it.
            let current = self.read(&key).await.map_err(unavailable)?;
            return Err(WriteError::Conflict { key, expected, current });
        }
        let etcd_key = self.keyspace.object(&key);
        let unchanged = compare(&etcd_key, expected);
        let outcome = match self.transact(etcd_key, unchanged, operation).await {
            Ok(outcome) => outcome,
            Err(fault) => return Err(self.write_error(fault, &key, bytes, Some(expected)).await),
        };
        match outcome {
            Outcome::Applied(revision) => Ok(revision),
            Outcome::Differs(current) => Err(WriteError::Conflict { key, expected, current }),
        }
    }

    /// Converts a fault into an error of the contract.
    async fn write_error(&self, fault: Fault, key: &Key, bytes: usize, before: Option<Revision>) -> WriteError {
        let Fault::Full(reason) = fault else { return fault.into_write_error(key, bytes) };
        // etcd may apply the write that fills it and still answer "space exceeded". The outcome is decided by then, so the
        // current entry shows it, unless another client has written the key as well.
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
        self.timeline.check()?;
        let at_least = self.timeline.highest();
        let answer = self.cluster.txn(transaction(key, compare, operation)).await?;
        let answered = header_revision(answer.header.as_ref()).map_err(|fault| Fault::Lost(fault.to_string()))?;
        // The write may have happened, but in a log that lacks acknowledged ones.
        let observed = self.timeline.observe_answer(answer.header.as_ref(), answered, at_least);
        observed.map_err(|fault| Fault::Lost(fault.to_string()))?;
        Ok(match applied(&answer)? {
            Some(revision) => Outcome::Applied(revision),
            None => {
                let range = answer.responses.into_iter().next().and_then(|response| response.range);
                let kv = range.and_then(|range| range.kvs.into_iter().next());
                Outcome::Differs(kv.and_then(|kv| self.keyspace.entry(kv)))
            }
        })
    }
}

/// A transaction that executes the operation if the comparison holds, and else reads the key.
pub(super) fn transaction(key: Bytes, compare: Compare, operation: Operation) -> TxnRequest {
    let read = Operation::Range(RangeRequest { key, ..RangeRequest::default() });
    TxnRequest {
        compare: vec![compare],
        success: vec![RequestOp { operation: Some(operation) }],
        failure: vec![RequestOp { operation: Some(read) }],
    }
}

/// The revision of a transaction, or `None` if its comparison failed.
pub(super) fn applied(answer: &TxnResponse) -> Result<Option<Revision>, Fault> {
    if !answer.succeeded {
        return Ok(None);
    }
    // The write has happened, but cannot be acknowledged without its revision.
    header_revision(answer.header.as_ref()).map(Some).map_err(|fault| Fault::Lost(fault.to_string()))
}

/// A comparison that holds if the key's last change has this revision; for zero, if there is no such key.
pub(super) fn compare(key: &Bytes, at: Revision) -> Compare {
    let (target, with) = if at.is_zero() {
        (CompareTarget::CreateRevision, CompareWith::CreateRevision(0))
    } else {
        (CompareTarget::ModRevision, CompareWith::ModRevision(number(at)))
    };
    Compare { result: 0, target: target.into(), key: key.clone(), with: Some(with) }
}

fn unavailable(error: ReadError) -> WriteError {
    match error {
        ReadError::Unavailable(error) => WriteError::Unavailable(error),
        other => WriteError::Unavailable(EngineError::new(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::messages::ResponseHeader;

    #[test]
    fn a_transaction_without_a_revision_is_not_acknowledged() {
        let answer = |succeeded, revision: Option<i64>| TxnResponse {
            succeeded,
            header: revision.map(|revision| ResponseHeader { revision, ..ResponseHeader::default() }),
            ..TxnResponse::default()
        };
        assert_eq!(applied(&answer(true, Some(7))), Ok(Some(Revision(7))));
        assert_eq!(applied(&answer(false, Some(7))), Ok(None));
        for revision in [None, Some(0), Some(-1)] {
            let fault = applied(&answer(true, revision)).unwrap_err();
            let error = fault.into_write_error(&Key::new("core/pods/a").unwrap(), 1);
            assert!(matches!(error, WriteError::Unknown(_)), "{revision:?}: {error}");
        }
    }
}
