//! Reads: one key, a prefix in pages at one revision, and the ends of the log.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use machinery::Revision;

use super::EtcdStore;
use super::fault::Fault;
use super::keyspace::{header_revision, number};
use super::messages::{RangeRequest, RangeResponse};
use crate::contract::{ListQuery, Stats};
use crate::entry::{Entry, Snapshot};
use crate::error::{EngineError, ReadError};
use crate::key::{Key, Prefix};

/// Keys in the first page of a list; the size of later pages follows from the size of the values seen.
const PAGE_KEYS_FIRST: usize = 256;
const PAGE_KEYS_MAX: usize = 10_000;

/// Target size of a page: large enough to be worth a round trip, small enough not to delay other calls.
const PAGE_BYTES: usize = 4 << 20;

/// Restarts of a list whose revision was compacted between two pages, at most.
const LIST_RESTARTS: usize = 3;

/// Values measured for statistics; the total is scaled up from them.
const STATS_SAMPLE: usize = 512;

impl EtcdStore {
    pub(super) async fn read(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        let request = RangeRequest { key: self.keyspace.object(key), ..RangeRequest::default() };
        let answer = self.cluster.range(request).await.map_err(unavailable)?;
        Ok(answer.kvs.into_iter().next().and_then(|kv| self.keyspace.entry(kv)))
    }

    pub(super) async fn read_list(&self, query: ListQuery) -> Result<Snapshot, ReadError> {
        if query.at.is_some_and(Revision::is_zero) {
            // The state before the first write: empty, and readable as long as nothing is compacted.
            self.probe(Revision::ZERO).await?;
            return Ok(Snapshot { revision: Revision::ZERO, entries: Vec::new(), remaining: 0, damaged: Vec::new() });
        }
        let mut restarts = 0;
        loop {
            match self.read_pages(&query).await {
                Err(ReadError::Compacted { .. }) if query.at.is_none() && restarts < LIST_RESTARTS => restarts += 1,
                done => return done,
            }
        }
    }

    async fn read_pages(&self, query: &ListQuery) -> Result<Snapshot, ReadError> {
        let (mut start, end) = self.keyspace.objects(&query.prefix, query.start_after.as_deref());
        let mut at = query.at;
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut seen = 0;
        loop {
            let mut page = match seen {
                0 => PAGE_KEYS_FIRST,
                _ => (PAGE_BYTES / (bytes / seen).max(1)).clamp(1, PAGE_KEYS_MAX),
            };
            if query.limit > 0 {
                page = page.min(query.limit - entries.len());
            }
            let answer = self.read_page(start, end.clone(), page, at).await?;
            // The first page of a current list fixes the revision of the others.
            let now = header_revision(answer.header.as_ref()).map_err(unavailable)?;
            let pinned = *at.get_or_insert(now);
            let count = u64::try_from(answer.count).unwrap_or(0);
            let remaining = count.saturating_sub(answer.kvs.len() as u64);
            start = match answer.kvs.last() {
                Some(last) => [&last.key[..], b"\0"].concat().into(),
                None => Bytes::new(),
            };
            let last_page = !answer.more || answer.kvs.is_empty();
            for kv in answer.kvs {
                seen += 1;
                bytes += kv.key.len() + kv.value.len();
                // Skips foreign keys below the prefix.
                entries.extend(self.keyspace.entry(kv));
            }
            if last_page || (query.limit > 0 && entries.len() >= query.limit) {
                return Ok(Snapshot { revision: pinned, entries, remaining, damaged: Vec::new() });
            }
        }
    }

    async fn read_page(
        &self,
        key: Bytes,
        range_end: Bytes,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<RangeResponse, ReadError> {
        let revision = at.map_or(0, number);
        let request = RangeRequest { key, range_end, limit: limit as i64, revision, count_only: false };
        match self.cluster.range(request).await {
            Ok(answer) => Ok(answer),
            Err(fault) => Err(self.read_error(fault, at.unwrap_or_default()).await),
        }
    }

    /// The current revision of the log, confirmed by a majority of the members.
    pub(super) async fn read_revision(&self) -> Result<Revision, ReadError> {
        let revision = self.position(0).await.map_err(unavailable)?;
        // A fresh read must not be older than an acknowledged write.
        self.timeline.check().map_err(unavailable)?;
        Ok(revision)
    }

    /// Fails if the state at `at` is compacted or in the future. Returns the current revision.
    pub(super) async fn probe(&self, at: Revision) -> Result<Revision, ReadError> {
        // An empty etcd is at revision 1, so zero and 1 are the same state.
        match self.position(number(at).max(1)).await {
            Ok(current) => Ok(current),
            Err(fault) => Err(self.read_error(fault, at).await),
        }
    }

    /// The current revision, by the cheapest possible read: one key that hardly ever exists. Fails unless `at` is readable.
    pub(super) async fn position(&self, at: i64) -> Result<Revision, Fault> {
        let key = self.keyspace.progress_record();
        let at_least = self.timeline.highest();
        let answer =
            self.cluster.range(RangeRequest { key, revision: at, count_only: true, ..Default::default() }).await?;
        let current = header_revision(answer.header.as_ref())?;
        // Noted here, and an error only for those that need a fresh answer.
        let _ = self.timeline.observe_answer(answer.header.as_ref(), current, at_least);
        Ok(current)
    }

    /// The oldest revision that is kept. etcd reveals it only to a watch that starts below it. So the last known one is
    /// remembered, and is still right as long as it can be read.
    pub(super) async fn read_oldest(&self) -> Result<Revision, ReadError> {
        let known = Revision(self.floor.load(Ordering::Relaxed));
        match self.position(number(known).max(1)).await {
            Ok(_) => Ok(known),
            Err(Fault::Compacted) => {
                let floor = super::watch::compaction_floor(&self.cluster, &self.keyspace).await.map_err(unavailable)?;
                self.floor.fetch_max(floor.0, Ordering::Relaxed);
                Ok(floor)
            }
            Err(fault) => Err(unavailable(fault)),
        }
    }

    /// Converts a fault into an error of the contract.
    pub(super) async fn read_error(&self, fault: Fault, asked: Revision) -> ReadError {
        match fault {
            Fault::Compacted => match self.read_oldest().await {
                Ok(oldest) => ReadError::Compacted { asked, oldest },
                Err(error) => error,
            },
            Fault::Future => match self.position(0).await {
                Ok(current) => ReadError::Future { asked, current },
                Err(fault) => unavailable(fault),
            },
            fault => unavailable(fault),
        }
    }

    pub(super) async fn read_stats(&self) -> Result<Stats, ReadError> {
        let (key, range_end) = self.keyspace.objects(&Prefix::everything(), None);
        let sample = self.read_page(key, range_end, STATS_SAMPLE, None).await?;
        let objects = u64::try_from(sample.count).unwrap_or(0);
        let measured = sample.kvs.len() as u64;
        let bytes: u64 = sample.kvs.iter().map(|kv| kv.value.len() as u64).sum();
        let object_bytes = (bytes * objects).checked_div(measured).unwrap_or(0);
        let revision = header_revision(sample.header.as_ref()).map_err(unavailable)?;
        let oldest = self.read_oldest().await?;
        let status = self.cluster.status().await.map_err(unavailable)?;
        let in_use = u64::try_from(status.db_size_in_use).unwrap_or(0);
        Ok(Stats {
            objects,
            object_bytes,
            history: revision.0.saturating_sub(oldest.0.max(1)),
            history_bytes: in_use.saturating_sub(object_bytes),
            disk_bytes: u64::try_from(status.db_size).ok(),
            revision,
            last_sync: None,
        })
    }
}

pub(super) fn unavailable(fault: Fault) -> ReadError {
    match fault {
        Fault::Corrupt(reason) => ReadError::Corrupt(reason),
        fault => ReadError::Unavailable(EngineError::from(fault)),
    }
}
