//! Compaction of etcd, coordinated between all servers of a prefix.
//!
//! etcd keeps every revision until it is compacted, and compacts all keys at once. So [`Retention`] is kept in the coarser
//! form that one global revision allows: a change is removed only when it is older than `age_min` *and* not among the last
//! `changes_min` of the whole cluster. `history_bytes_max` is ignored: etcd does not report how much of its space is
//! history, and limits its space with a quota of its own.
//!
//! The servers coordinate through one record below the prefix, changed by compare-and-swap: which revision was current
//! when, and how far etcd has been compacted. The server that changes the record makes the compaction, so each is made by
//! one server, and a new server knows the past. The record is written only while other keys are:
//!
//! ```text
//! compacted 1804
//! at 1794732011000 1804      milliseconds since 1970, and the revision that was current
//! at 1794732041000 2270
//! ```
//!
//! The times are those of the servers' clocks: one that is an hour ahead removes history an hour early.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use machinery::clock::Clock;

use super::cluster::Cluster;
use super::fault::Fault;
use super::keyspace::{Keyspace, header_revision, number, revision};
use super::messages::{Operation, PutRequest, RangeRequest};
use super::write::{applied, compare, transaction};
use crate::retention::Retention;

/// Samples in the record at most; the spacing between samples grows to stay below it.
const SAMPLES_MAX: u32 = 32;

/// The compaction task of one server.
pub(super) struct Compactor {
    cluster: Arc<Cluster>,
    keyspace: Keyspace,
    retention: Retention,
    clock: Clock,
    floor: Arc<AtomicU64>,
}

impl Compactor {
    pub(super) fn new(
        cluster: Arc<Cluster>,
        keyspace: Keyspace,
        retention: Retention,
        clock: Clock,
        floor: Arc<AtomicU64>,
    ) -> Compactor {
        Compactor { cluster, keyspace, retention, clock, floor }
    }

    /// Takes a turn every interval until the store closes.
    pub(super) async fn run(self) {
        let mut closing = self.cluster.closing();
        loop {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(self.retention.interval) => {}
            }
            let now = u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0);
            match self.turn(now).await {
                Ok(Some(compacted)) => tracing::debug!(%compacted, "etcd is compacted"),
                Ok(None) => {}
                // The next turn, or another server, tries again.
                Err(fault) => tracing::warn!("etcd could not be compacted: {fault}"),
            }
        }
    }

    /// Takes a sample if one is due, and compacts if there is history to remove and no other server was faster.
    async fn turn(&self, now: u64) -> Result<Option<Revision>, Fault> {
        let key = self.keyspace.compaction_record();
        let answer = self.cluster.range(RangeRequest { key: key.clone(), ..RangeRequest::default() }).await?;
        let current = header_revision(answer.header.as_ref())?;
        let found = answer.kvs.into_iter().next();
        // Zero: there is no record yet.
        let at = found.as_ref().map_or(Revision::ZERO, |kv| revision(kv.mod_revision));
        let before = found.map(|kv| Record::parse(&kv.value)).unwrap_or_default();

        let record = before.clone().advanced(now, current, current > at, &self.retention);
        if record == before {
            return Ok(None);
        }
        let put = Operation::Put(PutRequest { key: key.clone(), value: Bytes::from(record.to_string()) });
        let answer = self.cluster.txn(transaction(key.clone(), compare(&key, at), put)).await?;
        if applied(&answer)?.is_none() || record.compacted == before.compacted {
            return Ok(None);
        }
        self.cluster.compact(number(record.compacted)).await?;
        self.floor.fetch_max(record.compacted.0, Ordering::Relaxed);
        Ok(Some(record.compacted))
    }
}

/// The record that the servers share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    compacted: Revision,
    /// Oldest first.
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// Milliseconds since 1970.
    at: u64,
    revision: Revision,
}

impl Record {
    /// Skips lines that it cannot read: at worst, history is kept for longer.
    fn parse(text: &[u8]) -> Record {
        let mut record = Record::default();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split(' ');
            let word = words.next();
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            match (word, number(), number()) {
                (Some("compacted"), Some(revision), _) => record.compacted = Revision(revision),
                (Some("at"), Some(at), Some(revision)) => {
                    record.samples.push(Sample { at, revision: Revision(revision) });
                }
                _ => {}
            }
        }
        record
    }

    /// The record to write at `now`.
    fn advanced(mut self, now: u64, current: Revision, moved: bool, retention: &Retention) -> Record {
        let spacing = millis(retention.interval.max(retention.age_min / SAMPLES_MAX));
        let due = self.samples.last().is_none_or(|last| now.saturating_sub(last.at) >= spacing);
        // A sample of an idle log has no information, and writing it would advance the log.
        if due && moved {
            self.samples.push(Sample { at: now, revision: current });
        }
        let old_enough = |sample: &Sample| now.saturating_sub(sample.at) >= millis(retention.age_min);
        if let Some(newest) = self.samples.iter().rposition(old_enough) {
            let by_count = current.0.saturating_sub(retention.changes_min);
            let target = self.samples[newest].revision.0.min(by_count);
            self.compacted = self.compacted.max(Revision(target));
            // Older samples could only give a lower target.
            self.samples.drain(..newest);
        }
        self
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "compacted {}", self.compacted)?;
        for Sample { at, revision } in &self.samples {
            writeln!(f, "at {at} {revision}")?;
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(age_s: u64, changes_min: u64) -> Retention {
        Retention {
            age_min: Duration::from_secs(age_s),
            changes_min,
            interval: Duration::from_secs(10),
            ..Retention::default()
        }
    }

    #[test]
    fn a_record_survives_its_text() {
        let record = Record {
            compacted: Revision(7),
            samples: vec![Sample { at: 1, revision: Revision(9) }, Sample { at: 2, revision: Revision(11) }],
        };
        assert_eq!(Record::parse(record.to_string().as_bytes()), record);
        assert_eq!(Record::parse(b"\xff nonsense\nat x y\nat 5\n"), Record::default());
    }

    #[test]
    fn what_is_young_stays() {
        let keep = retention(100, 0);
        let mut record = Record::default();
        for step in 0..10 {
            record = record.advanced(step * 10_000, Revision(step * 5), true, &keep);
            assert_eq!(record.compacted, Revision(0), "at {step}");
        }
        record = record.advanced(120_000, Revision(60), true, &keep);
        // The newest sample that is 100 s old was taken at 20 s.
        assert_eq!(record.compacted, Revision(10));
        assert_eq!(record.samples[0], Sample { at: 20_000, revision: Revision(10) });
    }

    #[test]
    fn the_last_changes_stay_however_old() {
        let keep = retention(100, 50);
        let record = Record::default().advanced(0, Revision(80), true, &keep);
        let record = record.advanced(1_000_000, Revision(90), true, &keep);
        assert_eq!(record.compacted, Revision(40));
    }

    #[test]
    fn an_idle_log_is_not_advanced() {
        let keep = retention(100, 10);
        let record = Record::default().advanced(0, Revision(80), true, &keep);
        let settled = record.advanced(1_000_000, Revision(81), false, &keep);
        assert_eq!(settled.compacted, Revision(71));
        let later = settled.clone().advanced(9_000_000, Revision(82), false, &keep);
        assert_eq!(later.samples, settled.samples);
    }

    #[test]
    fn the_record_stays_small() {
        let keep = Retention { interval: Duration::from_secs(1), ..retention(86_400, 0) };
        let mut record = Record::default();
        for second in 0..100_000 {
            record = record.advanced(second * 1000, Revision(second), true, &keep);
        }
        assert!(record.samples.len() <= SAMPLES_MAX as usize + 2, "{}", record.samples.len());
    }
}
