//! The store: the watched set as one consistent, lock-free readable value, with typed secondary indices.
//!
//! - `snapshot`: one instant of the set, its indices and its version
//! - `index`: typed secondary indices
//! - `writer`: the one place that changes the set, and the meaning of each change
//! - `lister`: reads with the terms of the API (namespace, selector, NotFound)
//! - `presets`: the indices that controllers of pods rely on

mod index;
mod lister;
mod presets;
mod snapshot;
mod writer;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

pub use index::{Index, IndexError};
pub use lister::{Labels, Lister};
pub use presets::{PodController, pods_by_controller, pods_by_node};
pub use snapshot::Snapshot;
pub(crate) use writer::ErasedWriter;
pub use writer::{Applied, Scope, StoreWriter};

use crate::queue::KnownObjects;
use crate::{Key, Object, ResourceVersion, Stored};
use writer::WriterState;

/// A readable set of objects. Clones share the set.
///
/// Every read takes the current [`Snapshot`]; reads that must agree with each other use one snapshot. No read waits
/// for a writer and no writer waits for a read.
///
/// ```
/// use client::store::Store;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # fn main() -> Result<(), client::store::IndexError> {
/// let (pods, _writer) = Store::<Pod>::new();
/// let by_node = pods.add_index("node", |pod: &Pod| -> Vec<String> {
///     pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
/// })?;
/// let snapshot = pods.snapshot();
/// let on_node = by_node.get_in(&snapshot, &"node-1".to_owned());
/// println!("{} of {} pods, at version {}", on_node.len(), snapshot.len(), snapshot.version());
/// # Ok(())
/// # }
/// ```
pub struct Store<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    current: ArcSwap<Snapshot<K>>,
    version: watch::Sender<ResourceVersion>,
    /// The writer's own copy. Locked while the set changes and while an index is added.
    state: Mutex<WriterState<K>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Object> Store<K> {
    /// An empty store of one source, and the only handle that changes it.
    pub fn new() -> (Self, StoreWriter<K>) {
        Self::of_scopes([Scope::All])
    }

    /// An empty store of several disjoint sources, each with its own place in history.
    pub fn of_scopes(scopes: impl IntoIterator<Item = Scope>) -> (Self, StoreWriter<K>) {
        let shared = Arc::new(Shared {
            current: ArcSwap::from_pointee(Snapshot::empty()),
            version: watch::Sender::new(ResourceVersion::unset()),
            state: Mutex::new(WriterState::new(scopes)),
        });
        (Self { shared: shared.clone() }, StoreWriter::new(Self { shared }))
    }

    /// The set at this instant.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.shared.current.load_full()
    }

    /// The object of a key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.current.load().get(key).cloned()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.shared.current.load().len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The point in history that the set shows; of several sources the oldest.
    pub fn version(&self) -> ResourceVersion {
        self.shared.version.borrow().clone()
    }

    /// Waits until the set shows at least `version`: a process reads its own write by waiting for the version that
    /// the write returned. Returns at once for a version that cannot be compared.
    pub async fn wait_until(&self, version: &ResourceVersion) {
        if !version.is_comparable() {
            return;
        }
        let mut changes = self.shared.version.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = changes.wait_for(|current| current.reaches(version)).await;
    }

    /// Adds an index. `values` gives the values under which an object is filed: none, one or many. Objects already
    /// stored are filed at once.
    pub fn add_index<V>(
        &self,
        name: &str,
        values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static,
    ) -> Result<Index<K, V>, IndexError>
    where
        V: Ord + Clone + Send + Sync + 'static,
    {
        self.shared.state.lock().add_index(name, values)?;
        self.publish_state();
        Ok(Index::new(name, self.clone()))
    }

    fn publish_state(&self) {
        let state = self.shared.state.lock();
        self.publish(&state);
    }

    fn publish(&self, state: &WriterState<K>) {
        self.shared.current.store(Arc::new(state.snapshot()));
        let version = state.version();
        self.shared.version.send_if_modified(|current| {
            let changed = *current != version;
            if changed {
                *current = version;
            }
            changed
        });
    }
}

/// A store for a queue that does not know the type.
pub(crate) struct ErasedStore<K>(pub(crate) Store<K>);

impl<K: Object> KnownObjects<dyn Stored> for ErasedStore<K> {
    fn get(&self, key: &Key) -> Option<Arc<dyn Stored>> {
        Some(self.0.get(key)?)
    }
    fn keys(&self) -> Vec<Key> {
        self.0.snapshot().keys().cloned().collect()
    }
}

impl<K: Object> KnownObjects<K> for Store<K> {
    fn get(&self, key: &Key) -> Option<Arc<K>> {
        Store::get(self, key)
    }
    fn keys(&self) -> Vec<Key> {
        self.snapshot().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
