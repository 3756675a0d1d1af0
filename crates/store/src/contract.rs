//! The contract of every engine: one order of writes, durable acknowledgements, optimistic concurrency, resumable watches,
//! reads at exact revisions.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
#[cfg(feature = "memory")]
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use futures::Stream;
use futures::StreamExt;
use machinery::Revision;

use crate::entry::{Change, Entry, Snapshot};
use crate::error::{EngineError, ReadError, WatchError, WriteError};
use crate::key::{Key, Prefix};
use crate::restore::{Restored, differences};

/// The future of a call: boxed so that the trait is object-safe. One allocation is cheap next to an fsync.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Default limit on the size of a value.
pub const VALUE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A versioned log of objects.
///
/// Dropping a returned future before it is ready may or may not cancel a write; it never leaves half of one.
pub trait Store: Send + Sync + 'static {
    /// Returns the current entry. Includes every write acknowledged before the call.
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>>;

    /// Lists the entries below a prefix, now or at an exact retained revision.
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>>;

    /// Writes the key if it is absent.
    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>>;

    /// Writes the key if its entry is still at `expected`.
    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>>;

    /// Removes the key if its entry is still at `expected`. The delete has a revision of its own.
    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>>;

    /// Makes several writes to different keys, in order and each with a revision of its own. Returns the revision of the last.
    ///
    /// The memory engine makes all of them at once or none. The others stop at the first that is refused, and keep those before it.
    fn write_all(&self, writes: Vec<Write>) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(async move {
            let mut last = Revision::ZERO;
            for chunk in writes.chunks(WRITES_TOGETHER_MAX) {
                let revisions = chunk.iter().cloned().map(|Write { key, value, expected }| match (value, expected) {
                    (Some(value), None) => self.create(key, value),
                    (Some(value), Some(expected)) => self.update(key, value, expected),
                    (None, expected) => self.delete(key, expected.unwrap_or_default()),
                });
                last = futures::future::try_join_all(revisions).await?.into_iter().fold(last, Revision::max);
            }
            Ok(last)
        })
    }

    /// Makes the entries equal to these, which are in the order of their keys, by writes with new revisions: deletions first, then
    /// changes, then what is missing.
    ///
    /// In memory no other write comes between. The other engines write over what they found when they looked, and look again after
    /// a conflict; an entry that another client creates meanwhile stays.
    fn restore(&self, wanted: Vec<Entry>) -> StoreFuture<'_, Result<Restored, WriteError>> {
        Box::pin(async move {
            let mut restored = Restored::default();
            for _ in 0..RESTORE_ATTEMPTS_MAX {
                let current = self.list(ListQuery::default()).await;
                let current = current.map_err(|error| EngineError::new(error.to_string()))?;
                let writes = differences(&current.entries, &wanted);
                restored.revision = current.revision;
                if writes.is_empty() {
                    return Ok(restored);
                }
                let mut counted = restored;
                counted.count(&writes);
                match self.write_all(writes).await {
                    Ok(revision) => return Ok(Restored { revision, ..counted }),
                    Err(WriteError::Conflict { .. } | WriteError::Exists(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(EngineError::new("others write to the same entries again and again; stop them first").into())
        })
    }

    /// Returns a store in memory that begins as this one was at a retained revision, or is now, and goes on by itself from there.
    /// Revisions go on from that one.
    #[cfg(feature = "memory")]
    fn fork(&self, at: Option<Revision>) -> StoreFuture<'_, Result<Arc<dyn Store>, ReadError>> {
        Box::pin(async move {
            let snapshot = self.list(ListQuery { at, ..ListQuery::default() }).await?;
            let fork = crate::memory::MemoryStore::of(snapshot, crate::retention::Retention::default());
            Ok(Arc::new(fork) as Arc<dyn Store>)
        })
    }

    /// Keeps the changes after a revision beyond their age and number from now on; none ends that. The limit on the size of history
    /// still applies. An engine that shares its history with others ignores it.
    fn hold(&self, _after: Option<Revision>) {}

    /// Streams every change after `after` below `prefix`, once and in order, then live ones as they happen.
    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>>;

    /// Removes history up to and including `at`, for every collection: afterwards only states from `at` on can be read and
    /// only changes after it watched. Current entries stay.
    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>>;

    /// Returns the revision of the last acknowledged write of any process that shares the store.
    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>>;

    /// Returns the oldest revision of this prefix that can be read exactly and watched from.
    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>>;

    /// Writes a consistent copy of the whole store to a new file while writes continue.
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>>;

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>>;

    /// Returns the conditions under which this engine does not work, each by name with its current state. Cheap enough for
    /// every readiness probe. An engine without such conditions returns none.
    fn health(&self) -> StoreFuture<'_, Vec<HealthCheck>> {
        Box::pin(async { Vec::new() })
    }

    /// Finishes running calls, syncs, and closes files and connections. Later calls fail as unavailable.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// One of several writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Key,
    /// `None` deletes.
    pub value: Option<Bytes>,
    /// The revision that the entry must have; `None` expects the key to be absent.
    pub expected: Option<Revision>,
}

/// Writes of [`Store::write_all`] that an engine without transactions of several writes has in flight together.
const WRITES_TOGETHER_MAX: usize = 128;

/// Times that [`Store::restore`] begins again because of other writers.
const RESTORE_ATTEMPTS_MAX: usize = 100;

/// Parameters of a list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub prefix: Prefix,
    /// Only keys greater than this one, which need not exist.
    pub start_after: Option<String>,
    /// At most this many entries; zero is no limit.
    pub limit: usize,
    /// The state at exactly this revision; `None` is now.
    pub at: Option<Revision>,
    /// Returns damaged entries in [`Snapshot::damaged`]. Otherwise one of them fails the list.
    pub tolerate_damage: bool,
}

/// A named condition of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    pub name: &'static str,
    /// `None` if the check passes.
    pub problem: Option<HealthProblem>,
}

impl HealthCheck {
    #[must_use]
    pub fn passed(name: &'static str) -> Self {
        HealthCheck { name, problem: None }
    }

    #[must_use]
    pub fn failed(name: &'static str, reason: impl Into<String>, needs_restart: bool) -> Self {
        HealthCheck { name, problem: Some(HealthProblem { reason: reason.into(), needs_restart }) }
    }
}

/// Why a check fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProblem {
    pub reason: String,
    /// The condition lasts until the store is opened again.
    pub needs_restart: bool,
}

impl ListQuery {
    #[must_use]
    pub fn prefix(prefix: Prefix) -> Self {
        ListQuery { prefix, ..ListQuery::default() }
    }
}

/// Changes that arrive together.
///
/// After a batch, every matching change up to and including `revision` has been delivered. A batch without changes reports
/// progress: the log may have moved elsewhere. An idle watch gets one at least every [`PROGRESS_INTERVAL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub changes: Vec<Change>,
    pub revision: Revision,
}

/// Longest time between two batches of a watch.
pub const PROGRESS_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// A running watch. Ends only with an error or when the store closes; dropping it ends the watch.
pub struct Changes(Pin<Box<dyn Stream<Item = Result<Batch, WatchError>> + Send>>);

impl Changes {
    pub fn new(stream: impl Stream<Item = Result<Batch, WatchError>> + Send + 'static) -> Self {
        Changes(Box::pin(stream))
    }

    /// The next batch; `None` once the store is closed.
    pub async fn next(&mut self) -> Option<Result<Batch, WatchError>> {
        self.0.next().await
    }

    /// As [`Changes::next`], for callers that poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Batch, WatchError>>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// Figures for metrics and status output.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub objects: u64,
    /// Bytes of the current values.
    pub object_bytes: u64,
    /// Changes kept beyond the current values.
    pub history: u64,
    pub history_bytes: u64,
    /// Size on disk, where the engine knows it.
    pub disk_bytes: Option<u64>,
    pub revision: Revision,
    pub last_sync: Option<SystemTime>,
}
