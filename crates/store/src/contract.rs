//! The contract of every engine: one order of writes, durable acknowledgements, optimistic concurrency, resumable watches,
//! reads at exact revisions.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use futures::Stream;
use futures::StreamExt;
use machinery::Revision;

use crate::entry::{Change, Entry, Snapshot};
use crate::error::{EngineError, ReadError, WatchError, WriteError};
use crate::key::{Key, Prefix};

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

    /// Finishes running calls, syncs, and closes files and connections. Later calls fail as unavailable.
    fn close(&self) -> StoreFuture<'_, ()>;
}

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
