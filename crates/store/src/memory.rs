//! The engine for tests without a disk: every guarantee of the contract except durability.
//!
//! One lock guards the whole state; no call holds it for longer than one list. Values are shared by reference, so that a
//! change in the log costs its key and a few words. A [fork](MemoryStore::fork_at) shares everything with its origin until one of
//! them writes.

mod state;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use machinery::Revision;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::contract::{Batch, Changes, ListQuery, Stats, Store, StoreFuture, VALUE_BYTES_MAX, Write};
use crate::entry::{Entry, Snapshot};
use crate::error::{EngineError, ReadError, WatchError, WriteError};
use crate::feed::{self, Announced, Log};
use crate::key::{Key, Prefix};
use crate::restore::Restored;
use crate::retention::Retention;

use state::State;

/// Changes removed under one hold of the lock at most.
const COMPACTION_STEP: usize = 1024;

/// A store that lives as long as its process.
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: RwLock<State>,
    announced: watch::Sender<Announced>,
}

impl MemoryStore {
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        Self::from_state(State::new(retention))
    }

    /// A store that begins with the entries of another one, at its revision and without its history.
    #[must_use]
    pub fn of(snapshot: Snapshot, retention: Retention) -> Self {
        Self::from_state(State::of(snapshot, retention))
    }

    /// A store of its own that begins as this one was at a retained revision, or is now, with the history before it. Takes time for
    /// the changes after that revision only.
    pub fn fork_at(&self, at: Option<Revision>) -> Result<Self, ReadError> {
        self.check_open()?;
        let state = self.shared.state.read().fork(at)?;
        Ok(Self::from_state(state))
    }

    fn from_state(state: State) -> Self {
        let announced = watch::Sender::new(Announced { revision: state.revision(), closed: false });
        MemoryStore { shared: Arc::new(Shared { state: RwLock::new(state), announced }) }
    }

    fn check_open(&self) -> Result<(), EngineError> {
        if self.shared.announced.borrow().closed { Err(EngineError::new("the store is closed")) } else { Ok(()) }
    }

    fn write(&self, key: Key, value: Option<Bytes>, expected: Option<Revision>) -> Result<Revision, WriteError> {
        self.check_open()?;
        check_size(value.as_ref())?;
        let mut state = self.shared.state.write();
        let revision = state.write(key, value, expected)?;
        self.announce(revision);
        Ok(revision)
    }

    fn write_batch(&self, writes: Vec<Write>) -> Result<Revision, WriteError> {
        self.check_open()?;
        writes.iter().try_for_each(|write| check_size(write.value.as_ref()))?;
        let mut state = self.shared.state.write();
        let revision = state.write_all(writes)?;
        self.announce(revision);
        Ok(revision)
    }

    /// Called under the lock, so that announcements keep the order of the writes.
    fn announce(&self, revision: Revision) {
        self.shared.announced.send_modify(|announced| announced.revision = revision);
    }
}

fn check_size(value: Option<&Bytes>) -> Result<(), WriteError> {
    match value.map(Bytes::len).filter(|bytes| *bytes > VALUE_BYTES_MAX) {
        Some(bytes) => Err(WriteError::TooLarge { bytes, max: VALUE_BYTES_MAX }),
        None => Ok(()),
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new(Retention::default())
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(async move {
            self.check_open()?;
            Ok(self.shared.state.read().get(key))
        })
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        Box::pin(async move {
            self.check_open()?;
            self.shared.state.read().list(&query)
        })
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(async move { self.write(key, Some(value), None) })
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(async move { self.write(key, Some(value), Some(expected)) })
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(async move { self.write(key, None, Some(expected)) })
    }

    fn write_all(&self, writes: Vec<Write>) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(async move { self.write_batch(writes) })
    }

    fn restore(&self, wanted: Vec<Entry>) -> StoreFuture<'_, Result<Restored, WriteError>> {
        Box::pin(async move {
            self.check_open()?;
            let mut state = self.shared.state.write();
            let restored = state.restore(&wanted)?;
            self.announce(restored.revision);
            Ok(restored)
        })
    }

    fn fork(&self, at: Option<Revision>) -> StoreFuture<'_, Result<Arc<dyn Store>, ReadError>> {
        Box::pin(async move { Ok(Arc::new(self.fork_at(at)?) as Arc<dyn Store>) })
    }

    fn hold(&self, after: Option<Revision>) {
        self.shared.state.write().hold(after);
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        Box::pin(async move {
            self.check_open()?;
            let state = self.shared.state.read();
            if after > state.revision() {
                return Err(WatchError::Future { asked: after, current: state.revision() });
            }
            let oldest = state.floor(&prefix);
            if after < oldest {
                return Err(WatchError::Compacted { asked: after, oldest });
            }
            Ok(feed::changes(self.shared.clone(), self.shared.announced.subscribe(), prefix, after))
        })
    }

    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            self.check_open()?;
            self.shared.state.write().raise_floor(at)?;
            while self.shared.state.write().remove_below_floor(COMPACTION_STEP) {
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        Box::pin(async move {
            self.check_open()?;
            Ok(self.shared.state.read().revision())
        })
    }

    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        Box::pin(async move {
            self.check_open()?;
            Ok(self.shared.state.read().floor(prefix))
        })
    }

    fn backup<'a>(&'a self, _to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        Box::pin(
            async move { Err(EngineError::new("a store in memory has no backup: nothing of it outlives the process")) },
        )
    }

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        Box::pin(async move {
            self.check_open()?;
            Ok(self.shared.state.read().stats())
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.shared.announced.send_modify(|announced| announced.closed = true) })
    }
}

impl Log for Shared {
    async fn read(&self, prefix: &Prefix, after: Revision) -> Result<Batch, WatchError> {
        self.state.read().changes(prefix, after)
    }
}
