//! The cache as a whole: its collections, how far it has come, and how fresh a read must be.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use machinery::json::Value;
use parking_lot::RwLock;
use store::Store;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::collection::{Collection, ExactError, Snapshot};
use crate::feed;
use crate::filter::Filter;
use crate::history::HistoryLimits;
use crate::item::Item;
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
}

/// What the feed and the readers have in common.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) collections: RwLock<HashMap<Box<str>, Arc<Collection>>>,
    /// Every change up to here is visible. Written by the feed alone.
    pub(crate) reached: watch::Sender<Revision>,
    /// Who must know of a change in a collection before anybody else sees its revision.
    pub(crate) observer: OnceLock<Observer>,
    pub(crate) pending_writes: Arc<PendingWrites>,
}

pub(crate) struct Observer {
    pub(crate) collection: Box<str>,
    pub(crate) tell: Box<dyn Fn() + Send + Sync>,
}

impl Cache {
    /// Loads what is there and follows what comes. The collections named here get their selectable fields; others are
    /// kept too, without any.
    pub async fn start(
        store: Arc<dyn Store>,
        specs: impl IntoIterator<Item = (String, Spec)>,
        config: Config,
    ) -> Result<Self, CacheError> {
        let collections = specs
            .into_iter()
            .map(|(name, spec)| {
                let collection = Collection::new(&name, spec, Revision::ZERO, config.history);
                (name.into_boxed_str(), Arc::new(collection))
            })
            .collect();
        let shared = Arc::new(Shared {
            store,
            config,
            collections: RwLock::new(collections),
            reached: watch::Sender::new(Revision::ZERO),
            observer: OnceLock::new(),
            pending_writes: Arc::default(),
        });
        let revision = feed::load(&shared).await?;
        shared.reached.send_replace(revision);
        let feed = tokio::spawn(feed::follow(Arc::clone(&shared), revision));
        Ok(Cache { shared, feed })
    }

    /// The collection of that name; an unknown one begins empty.
    #[must_use]
    pub fn collection(&self, name: &str) -> Arc<Collection> {
        self.shared.collection(name)
    }

    #[must_use]
    pub fn collections(&self) -> Vec<Arc<Collection>> {
        self.shared.all_collections()
    }

    /// Says what can be selected on in a collection. Watches of it end if that changes.
    pub fn specify(&self, name: &str, spec: Spec) {
        self.shared.collection(name).respecify(spec);
    }

    /// Calls `tell` after each change to a collection, on the feed and before the revision of the change is announced: what
    /// follows from the collection is then true whenever the change itself is visible. There is one observer.
    pub fn observe(&self, collection: &str, tell: impl Fn() + Send + Sync + 'static) {
        let observer = Observer { collection: collection.into(), tell: Box::new(tell) };
        if self.shared.observer.set(observer).is_err() {
            tracing::error!(collection, "the cache has an observer already");
        }
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
        *self.shared.reached.borrow()
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
        let mut changes = self.shared.reached.subscribe();
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
        let store = Arc::clone(&self.shared.store);
        Watcher::open(Arc::clone(collection), store, filter, start, self.revision())
    }

    /// Ends every watch, when the server stops.
    pub fn end_watches(&self) {
        self.collections().iter().for_each(|collection| collection.end_watches());
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

impl Shared {
    pub(crate) fn all_collections(&self) -> Vec<Arc<Collection>> {
        self.collections.read().values().cloned().collect()
    }

    pub(crate) fn collection(&self, name: &str) -> Arc<Collection> {
        if let Some(collection) = self.collections.read().get(name) {
            return Arc::clone(collection);
        }
        let mut collections = self.collections.write();
        // Read under the lock, so that a reload finds every collection that has an earlier floor.
        let floor = *self.reached.borrow();
        let fresh = || Arc::new(Collection::new(name, Spec::default(), floor, self.config.history));
        Arc::clone(collections.entry(name.into()).or_insert_with(fresh))
    }
}
