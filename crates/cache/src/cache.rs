//! The cache as a whole: its collections, how far it has come, and how fresh a read must be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use machinery::json::Value;
use store::{DamagedEntry, Store};
use thiserror::Error;
use tokio::task::JoinHandle;

use crate::collection::{Collection, ExactError, Snapshot};
use crate::collections::Collections;
use crate::feed;
use crate::filter::Filter;
use crate::history::HistoryLimits;
use crate::item::Item;
use crate::observer::Observer;
use crate::pending_writes::{PendingWrite, PendingWrites};
use crate::spec::Spec;
use crate::watcher::{Start, Watcher};

/// Options of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Longest wait of a read for a revision that has not arrived.
    pub wait_max: Duration,
    pub history: HistoryLimits,
}

impl Default for Config {
    fn default() -> Self {
        Config { wait_max: Duration::from_secs(3), history: HistoryLimits::default() }
    }
}

/// The store could not be read.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct CacheError(pub String);

/// A revision did not arrive in time.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("revision {asked} has not arrived; the current one is {current}")]
pub struct TooFarAhead {
    pub asked: Revision,
    pub current: Revision,
}

/// Why a fresh read failed.
#[derive(Clone, Debug, Error)]
pub enum FreshError {
    #[error(transparent)]
    Behind(#[from] TooFarAhead),
    #[error("{0}")]
    Unavailable(String),
}

/// Everything the store holds, in memory, following its log.
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    feed: JoinHandle<()>,
    expiry: JoinHandle<()>,
}

/// What the feed and the readers have in common.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) collections: Collections,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) pending_writes: Arc<PendingWrites>,
}

impl Cache {
    /// Loads what is there and follows what comes. The collections named here get their selectable fields; others are
    /// kept too, without any. Observers are called for everything that is loaded before this returns.
    pub async fn start(
        store: Arc<dyn Store>,
        specs: impl IntoIterator<Item = (String, Spec)>,
        config: Config,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Result<Self, CacheError> {
        let collections = Collections::new(specs, config.history);
        let shared = Arc::new(Shared { store, config, collections, observers, pending_writes: Arc::default() });
        let revision = feed::load(&shared).await?;
        shared.collections.reached.send_replace(revision);
        Ok(Cache::following(shared, revision))
    }

    /// Follows the store after a revision up to which everything is there.
    pub(crate) fn following(shared: Arc<Shared>, revision: Revision) -> Self {
        let feed = tokio::spawn(feed::follow(Arc::clone(&shared), revision));
        let expiry = tokio::spawn(feed::expire_history(Arc::clone(&shared)));
        Cache { shared, feed, expiry }
    }

    /// The collection of that name; an unknown one begins empty.
    #[must_use]
    pub fn collection(&self, name: &str) -> Arc<Collection> {
        self.shared.collections.get(name)
    }

    #[must_use]
    pub fn collections(&self) -> Vec<Arc<Collection>> {
        self.shared.collections.all()
    }

    /// Says what can be selected on in a collection. Watches of it end if that changes.
    pub fn specify(&self, name: &str, spec: Spec) {
        self.shared.collections.specify(name, spec);
    }

    /// Registers an object that is about to be written, so that its bytes need not be parsed when the log delivers them.
    /// Hold the result until the write is over. `before` is the previous object with its item.
    #[must_use]
    pub fn register_write(
        &self,
        collection: &str,
        stored: &Bytes,
        object: &Value,
        before: Option<(&Value, &Item)>,
    ) -> PendingWrite {
        self.shared.pending_writes.register(stored, object, before, self.collection(collection).spec())
    }

    /// The revision up to which everything is visible.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.shared.collections.reached.borrow()
    }

    /// Waits until every write acknowledged before this call, by any server, is visible.
    pub async fn fresh(&self) -> Result<Revision, FreshError> {
        let current =
            self.shared.store.current_revision().await.map_err(|error| FreshError::Unavailable(error.to_string()))?;
        Ok(self.reach(current).await?)
    }

    /// Waits until `revision` is visible, for at most [`Config::wait_max`].
    pub async fn reach(&self, revision: Revision) -> Result<Revision, TooFarAhead> {
        let reached = self.revision();
        if reached >= revision {
            return Ok(reached);
        }
        let mut changes = self.shared.collections.reached.subscribe();
        let arrived = changes.wait_for(|reached| *reached >= revision);
        match tokio::time::timeout(self.shared.config.wait_max, arrived).await {
            Ok(Ok(reached)) => Ok(*reached),
            _ => Err(TooFarAhead { asked: revision, current: self.revision() }),
        }
    }

    /// The current objects of a collection.
    #[must_use]
    pub fn snapshot(&self, collection: &Collection) -> Snapshot {
        collection.snapshot(self.revision())
    }

    /// A collection at exactly `revision`, from memory or the store's history. Waits for a revision that is about to arrive.
    pub async fn snapshot_at(&self, collection: &Collection, revision: Revision) -> Result<Snapshot, ExactError> {
        if let Err(TooFarAhead { asked, current }) = self.reach(revision).await {
            return Err(ExactError::Future { asked, current });
        }
        match collection.at(revision) {
            Some(snapshot) => Ok(snapshot),
            None => collection.at_from_store(&*self.shared.store, revision).await,
        }
    }

    /// Opens a watch. A caller that needs a fresh start calls [`Cache::fresh`] first.
    #[must_use]
    pub fn watch(&self, collection: &Arc<Collection>, filter: Filter, start: Start) -> Watcher {
        let (store, reached) = (Arc::clone(&self.shared.store), self.revision());
        let watcher = Watcher::open(Arc::clone(collection), store, filter, start, reached);
        if let Start::After(revision) = start
            && revision > reached
            && revision.0 <= self.shared.collections.lost.load(Ordering::Acquire)
        {
            watcher.expire(reached);
        }
        watcher
    }

    /// Opens a watch that begins with the objects of an earlier revision, see [`Cache::snapshot_at`].
    #[must_use]
    pub fn watch_at(&self, collection: &Arc<Collection>, filter: Filter, snapshot: Snapshot) -> Watcher {
        Watcher::open_at(Arc::clone(collection), Arc::clone(&self.shared.store), filter, snapshot)
    }

    /// Objects that exist but cannot be read, each with the reason.
    #[must_use]
    pub fn damaged(&self) -> Vec<DamagedEntry> {
        self.collections().iter().flat_map(|collection| collection.all_damaged()).collect()
    }

    /// Ends every watch, when the server stops.
    pub fn end_watches(&self) {
        self.collections().iter().for_each(|collection| collection.end_watches());
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.feed.abort();
        self.expiry.abort();
    }
}
