//! A store that dies after a number of writes, as a process does that is killed between two of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use store::error::EngineError;
use store::{
    Changes, Entry, Key, ListQuery, Prefix, ReadError, Revision, Snapshot, Stats, Store, StoreFuture, WatchError,
    WriteError,
};

/// One process's view of a store that outlives it.
///
/// Writes that the store refuses count as well: they are places where a process can be killed, too.
pub struct KillableStore {
    store: Arc<dyn Store>,
    /// Number of writes that are still made.
    left: AtomicUsize,
    made: AtomicUsize,
}

impl KillableStore {
    /// A view that dies after this many writes.
    pub fn new(store: Arc<dyn Store>, writes: usize) -> Arc<Self> {
        Arc::new(KillableStore { store, left: AtomicUsize::new(writes), made: AtomicUsize::new(0) })
    }

    /// Number of writes that were made.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// True once a write was attempted after the last one that is made.
    pub fn is_dead(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Dies after this many further writes.
    pub fn die_after(&self, writes: usize) {
        self.left.store(writes, Ordering::Relaxed);
        self.made.store(0, Ordering::Relaxed);
    }

    fn write<'a>(
        &'a self,
        write: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, Result<Revision, WriteError>>,
    ) -> StoreFuture<'a, Result<Revision, WriteError>> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            return Box::pin(async { Err(WriteError::Poisoned("the process was killed".to_owned())) });
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        write(&*self.store)
    }
}

impl Store for KillableStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        self.store.get(key)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        self.store.list(query)
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.write(|store| store.create(key, value))
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.write(|store| store.update(key, value, expected))
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.write(|store| store.delete(key, expected))
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        self.store.watch(prefix, after)
    }

    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        self.store.compact(at)
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        self.store.current_revision()
    }

    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        self.store.oldest_revision(prefix)
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        self.store.backup(to)
    }

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        self.store.stats()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.store.close()
    }
}
