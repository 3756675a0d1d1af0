//! The store and the cache that follows it: reads that are fresh enough, and the visibility of own writes.

use std::sync::Arc;

use bytes::Bytes;
use cache::{Cache, Item};
use machinery::encoded;
use machinery::json::Value;
use machinery::{Revision, Status};
use store::{Entry, Key, Store};

use crate::failure;
use crate::read::view;

/// A store with its cache. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Storage {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
}

impl Storage {
    pub(crate) fn new(store: Arc<dyn Store>, cache: Arc<Cache>) -> Self {
        Storage { store, cache }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Waits until every write acknowledged before this call, by any server, is in the cache.
    pub(crate) async fn fresh(&self) -> Result<Revision, Status> {
        self.cache.fresh().await.map_err(failure::fresh)
    }

    /// Waits until the cache has reached a revision that a client has seen.
    pub(crate) async fn reach(&self, revision: Revision) -> Result<Revision, Status> {
        self.cache.reach(revision).await.map_err(failure::too_far_ahead)
    }

    /// The object as of now: every write acknowledged before this call is in it.
    pub(crate) async fn current(&self, key: &Key) -> Result<Option<Arc<Item>>, Status> {
        self.fresh().await?;
        self.visible(key)
    }

    /// The object as the cache has it; an error if it exists and cannot be read.
    pub(crate) fn visible(&self, key: &Key) -> Result<Option<Arc<Item>>, Status> {
        let collection = self.cache.collection(key.collection());
        match collection.get(key) {
            Some(item) => Ok(Some(item)),
            None => collection.damaged(key).map_or(Ok(None), |object| Err(failure::damaged(&object))),
        }
    }

    /// As [`Storage::current`], by name. A name that cannot be a key names nothing.
    pub(crate) async fn current_named(
        &self,
        collection: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Item>>, Status> {
        self.fresh().await?;
        match self.cache.collection(collection).key(namespace, name) {
            Some(key) => self.visible(&key),
            None => Ok(None),
        }
    }

    /// An object as the cache has it. A write waits for everything acknowledged before it, so this is no older than that.
    pub(crate) fn cached(&self, collection: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Item>> {
        let collection = self.cache.collection(collection);
        collection.get(&collection.key(namespace, name)?)
    }

    /// The objects of a small collection in a namespace (or in all) as values. An empty collection costs a lock.
    pub(crate) fn values(&self, collection: &str, namespace: Option<&str>) -> Vec<Value> {
        let collection = self.cache.collection(collection);
        if collection.is_empty() {
            return Vec::new();
        }
        let snapshot = self.cache.snapshot(&collection);
        snapshot.scan(collection.name(), namespace, None).filter_map(|item| view::parse(item).ok()).collect()
    }

    /// Fails if an object of a collection in a namespace (or in any) exists and cannot be read: what it forbids or holds is
    /// not known.
    pub(crate) fn refuse_damaged(&self, collection: &str, namespace: Option<&str>) -> Result<(), Status> {
        let damaged = self.cache.collection(collection).damaged_in(namespace);
        damaged.map_or(Ok(()), |object| Err(failure::damaged(&object)))
    }

    /// As [`Storage::cached`]; fails if the object exists and cannot be read.
    pub(crate) fn cached_readable(
        &self,
        collection: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Item>>, Status> {
        let collection = self.cache.collection(collection);
        let Some(key) = collection.key(namespace, name) else { return Ok(None) };
        match collection.get(&key) {
            Some(item) => Ok(Some(item)),
            None => collection.damaged(&key).map_or(Ok(None), |object| Err(failure::damaged(&object))),
        }
    }

    /// The item that the cache holds (or will hold) for an entry.
    pub(crate) fn item(&self, entry: &Entry) -> Result<Arc<Item>, Status> {
        let spec = self.cache.collection(entry.key.collection()).spec();
        let item = Item::new(entry.key.clone(), entry.revision, &entry.value, &spec).map_err(Status::internal)?;
        Ok(Arc::new(item))
    }

    /// Returns the item of an acknowledged write: the cache's own once it is visible there.
    pub(crate) async fn committed(&self, entry: Entry) -> Result<Arc<Item>, Status> {
        self.wait_until_visible(entry.revision).await;
        let cached = self.cache.collection(entry.key.collection()).get(&entry.key);
        match cached.filter(|item| item.revision() == entry.revision) {
            Some(item) => Ok(item),
            None => self.item(&entry),
        }
    }

    /// Waits until an own write is visible here, so that a client that was answered finds it in every read that follows,
    /// also in those that need not be fresh. The write is made whether or not the cache keeps up.
    pub(crate) async fn wait_until_visible(&self, revision: Revision) {
        if let Err(late) = self.cache.reach(revision).await {
            tracing::warn!(%late, "the cache does not keep up with the store");
        }
    }
}

/// Encodes an object for the store.
pub(crate) fn encode(object: &Value) -> Result<Bytes, Status> {
    let members = object.as_object().ok_or_else(|| Status::internal("expected a JSON object"))?;
    Ok(encoded::to_stored(members).into())
}
