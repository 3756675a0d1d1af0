//! `Writes`: read-your-writes for a controller.
//!
//! A run that creates a pod and is triggered again before the watch has shown that pod would decide on old facts. So
//! each write is recorded with the version it returned; a run for that object begins only when every store has reached
//! it. Nothing fails and nothing is polled: the key is put off until the store says that it has caught up.
//!
//! Deletions are not covered: the version in the answer to a delete is not that of the removal.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::store::Store;
use crate::{Key, Object, ResourceVersion};

/// What a controller wrote, for each object it reconciles.
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
    /// Nothing was written.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes to this resource are seen in this store.
    pub fn follow<K: Object>(&self, resource: &str, store: Store<K>) {
        self.stores.lock().insert(resource.to_owned(), Arc::new(store));
    }

    /// A run for the object `key` (of this incarnation) wrote to a resource and got this version back. A version that
    /// cannot be compared is ignored.
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

    /// The object is gone.
    pub fn forget(&self, key: &Key) {
        self.records.lock().remove(key);
    }

    /// If some store has not seen the writes for `key`: a future that ends when all have. Otherwise the record is
    /// forgotten.
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
