//! `Writes`: read-your-writes for a controller.
//!
//! A run that creates a pod and is triggered again before the watch has shown that pod would decide on old facts. So each
//! write is recorded with the version it returned; a run for that object begins only when every store has reached it. Nothing
//! fails and nothing is polled: the key is deferred until the store has caught up.
//!
//! Deletions are not covered: the version in the response to a delete is not that of the removal.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::store::Store;
use crate::{Key, Object, ResourceVersion};

/// The writes of a controller, for each object that it reconciles.
///
/// ```
/// use client::controller::Writes;
/// use client::store::Store;
/// use client::Key;
/// use k8s_openapi::api::core::v1::Pod;
///
/// let (pods, _writer) = Store::<Pod>::new();
/// let writes = Writes::new();
/// writes.follow("pods", pods);
/// let owner = Key::new(Some("default"), "web");
/// assert!(writes.behind(&owner).is_none());
/// writes.record(&owner, "uid-of-web", "pods", "20".into());
/// assert!(writes.behind(&owner).is_some(), "the store has not reached version 20");
/// ```
#[derive(Default)]
pub struct Writes {
    stores: Mutex<HashMap<String, Arc<dyn Follower>>>,
    records: Mutex<HashMap<Key, Record>>,
}

struct Record {
    uid: String,
    versions: HashMap<String, ResourceVersion>,
}

trait Follower: Send + Sync {
    fn version(&self) -> ResourceVersion;
    fn wait_until(&self, version: ResourceVersion) -> BoxFuture<'static, ()>;
}

impl<K: Object> Follower for Store<K> {
    fn version(&self) -> ResourceVersion {
        Store::version(self)
    }
    fn wait_until(&self, version: ResourceVersion) -> BoxFuture<'static, ()> {
        let store = self.clone();
        async move { Store::wait_until(&store, &version).await }.boxed()
    }
}

impl Writes {
    /// Creates an empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the store in which writes to a resource appear.
    pub fn follow<K: Object>(&self, resource: &str, store: Store<K>) {
        self.stores.lock().insert(resource.to_owned(), Arc::new(store));
    }

    /// Records a write to a resource by a run for the object `key` (of this incarnation), and the version it returned. A version
    /// that cannot be compared is ignored.
    pub fn record(&self, key: &Key, uid: &str, resource: &str, version: ResourceVersion) {
        if !version.is_comparable() {
            return;
        }
        let mut records = self.records.lock();
        let record = records.entry(key.clone()).or_insert_with(|| Record::new(uid));
        if record.uid != uid {
            *record = Record::new(uid);
        }
        let highest = record.versions.entry(resource.to_owned()).or_default();
        if !highest.is_comparable() || highest.is_before(&version) {
            *highest = version;
        }
    }

    /// Drops the record of a deleted object.
    pub fn forget(&self, key: &Key) {
        self.records.lock().remove(key);
    }

    /// If some store has not reached the writes for `key`: a future that completes when all have. Otherwise the record is
    /// dropped.
    pub fn behind(&self, key: &Key) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut records = self.records.lock();
        let record = records.get(key)?;
        let stores = self.stores.lock();
        let waits: Vec<BoxFuture<'static, ()>> = record
            .versions
            .iter()
            .filter_map(|(resource, version)| Some((stores.get(resource)?, version)))
            .filter(|(store, version)| !store.version().reaches(version))
            .map(|(store, version)| store.wait_until(version.clone()))
            .collect();
        if waits.is_empty() {
            records.remove(key);
            return None;
        }
        Some(futures::future::join_all(waits).map(|_| ()))
    }
}

impl Record {
    fn new(uid: &str) -> Self {
        Self { uid: uid.to_owned(), versions: HashMap::new() }
    }
}
