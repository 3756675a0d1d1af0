//! `StoreWriter`: applies changes to the set, and returns the effect of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use imbl::OrdMap;

use super::index::{ErasedIndex, IndexError, TypedIndex};
use super::snapshot::range_of;
use super::{Snapshot, Store};
use crate::object::{Undecodable, same_incarnation, same_state, typed};
use crate::queue::{Certainty, Deletion, Delta, Replacement, Staged};
use crate::reflector::{Target, TargetError};
use crate::{Key, Object, ResourceVersion, Stored};

/// The part of the set that one source is responsible for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everything.
    All,
    /// One namespace.
    Namespace(Arc<str>),
}

impl Scope {
    /// One namespace.
    pub fn namespace(name: &str) -> Self {
        Self::Namespace(name.into())
    }
}

/// The effect of a change on the set.
pub enum Applied<K: ?Sized> {
    /// The key was not in the set.
    Added(Arc<K>),
    /// The key was in the set.
    Updated {
        /// The previous state.
        old: Arc<K>,
        /// The new state.
        new: Arc<K>,
    },
    /// A relist or resync showed the state that is stored already.
    Unchanged(Arc<K>),
    /// The key left the set.
    Deleted {
        /// Its last state: the one delivered, or else the one stored.
        object: Arc<K>,
        /// Observed on the watch, or inferred from a relist.
        certainty: Certainty,
    },
    /// The object is there but cannot be read; a stored older state was removed.
    Undecodable {
        /// The object as the server sent it.
        item: Box<Undecodable>,
        /// The state that was stored.
        previous: Option<Arc<K>>,
    },
    /// The server's history went back; what follows is the set as it is now.
    HistoryReset(ResourceVersion),
}

/// The one handle that changes a store.
pub struct StoreWriter<K> {
    store: Store<K>,
}

pub(super) struct WriterState<K> {
    items: OrdMap<Key, Arc<K>>,
    indices: Vec<(Arc<str>, Box<dyn ErasedIndex<K>>)>,
    /// The version of each source.
    versions: BTreeMap<Scope, ResourceVersion>,
}

impl<K: Object> StoreWriter<K> {
    pub(super) fn new(store: Store<K>) -> Self {
        Self { store }
    }

    /// The readers' side.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Applies changes of one source in order. Readers see all of them at once. Returns the effect of each, in order.
    pub fn apply(&self, scope: &Scope, deltas: Vec<Delta<K>>) -> Vec<Applied<K>> {
        let deltas = deltas.into_iter().map(Delta::erased).collect();
        self.apply_erased(scope, deltas).into_iter().map(Applied::typed).collect()
    }
}

/// The same for an owner that does not know the type.
pub(crate) trait ErasedWriter: Send + Sync {
    fn apply_erased(&self, scope: &Scope, deltas: Vec<Delta<dyn Stored>>) -> Vec<Applied<dyn Stored>>;
    fn objects(&self) -> Vec<Arc<dyn Stored>>;
}

impl<K: Object> ErasedWriter for StoreWriter<K> {
    fn apply_erased(&self, scope: &Scope, deltas: Vec<Delta<dyn Stored>>) -> Vec<Applied<dyn Stored>> {
        let mut applied = Vec::with_capacity(deltas.len());
        let mut state = self.store.shared.state.lock();
        for delta in deltas {
            state.apply(scope, delta, &mut applied);
        }
        self.store.publish(&state);
        applied
    }

    fn objects(&self) -> Vec<Arc<dyn Stored>> {
        self.store.snapshot().iter().map(|object| object.clone() as Arc<dyn Stored>).collect()
    }
}

impl Applied<dyn Stored> {
    fn typed<K: Object>(self) -> Applied<K> {
        match self {
            Self::Added(object) => Applied::Added(typed(object)),
            Self::Updated { old, new } => Applied::Updated { old: typed(old), new: typed(new) },
            Self::Unchanged(object) => Applied::Unchanged(typed(object)),
            Self::Deleted { object, certainty } => Applied::Deleted { object: typed(object), certainty },
            Self::Undecodable { item, previous } => Applied::Undecodable { item, previous: previous.map(typed) },
            Self::HistoryReset(version) => Applied::HistoryReset(version),
        }
    }
}

impl<K: Object> WriterState<K> {
    pub(super) fn new(scopes: impl IntoIterator<Item = Scope>) -> Self {
        let versions = scopes.into_iter().map(|scope| (scope, ResourceVersion::unset())).collect();
        Self { items: OrdMap::new(), indices: Vec::new(), versions }
    }

    pub(super) fn snapshot(&self) -> Snapshot<K> {
        let indices = self.indices.iter().map(|(name, index)| (name.clone(), index.share())).collect();
        Snapshot { items: self.items.clone(), indices, version: self.version() }
    }

    /// The oldest of the sources' versions; unset until each has one.
    pub(super) fn version(&self) -> ResourceVersion {
        let mut oldest: Option<&ResourceVersion> = None;
        for version in self.versions.values() {
            if version.is_unset() {
                return ResourceVersion::unset();
            }
            if oldest.is_none_or(|oldest| version.is_before(oldest)) {
                oldest = Some(version);
            }
        }
        oldest.cloned().unwrap_or_default()
    }

    pub(super) fn add_index<V>(
        &mut self,
        name: &str,
        values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static,
    ) -> Result<(), IndexError>
    where
        V: Ord + Clone + Send + Sync + 'static,
    {
        if self.indices.iter().any(|(known, _)| **known == *name) {
            return Err(IndexError::Exists(name.to_owned()));
        }
        let mut index = TypedIndex::new(Arc::new(values));
        for (key, object) in &self.items {
            index.refile(key, None, Some(&**object));
        }
        self.indices.push((name.into(), Box::new(index)));
        Ok(())
    }

    fn apply(&mut self, scope: &Scope, delta: Delta<dyn Stored>, applied: &mut Vec<Applied<dyn Stored>>) {
        match delta {
            Delta::Added(object) | Delta::Updated(object) => {
                let version = object.version();
                self.put_change(object, applied);
                self.advance(scope, version);
            }
            Delta::Replaced(object) => {
                let version = object.version();
                self.put(object, true, applied);
                self.advance(scope, version);
            }
            Delta::Ahead(object) => self.put(object, true, applied),
            Delta::Sync(object) => applied.push(Applied::Unchanged(object)),
            Delta::Deleted(Deletion { key, object, certainty }) => {
                let stored = self.remove(&key);
                if let Some(object) = &object {
                    self.advance(scope, object.version());
                }
                if let Some(object) = object.or(stored.map(|stored| stored as Arc<dyn Stored>)) {
                    applied.push(Applied::Deleted { object, certainty });
                }
            }
            Delta::Undecodable(item) => {
                let version = item.raw.version.clone();
                self.mark_undecodable(item, applied);
                self.advance(scope, version);
            }
            Delta::ReplacedAll(set) => self.replace(scope, set, applied),
            Delta::SyncAll => match scope {
                Scope::All => {
                    applied.extend(self.items.values().map(|o| Applied::Unchanged(o.clone() as Arc<dyn Stored>)))
                }
                Scope::Namespace(namespace) => {
                    applied.extend(
                        range_of(&self.items, namespace).map(|(_, o)| Applied::Unchanged(o.clone() as Arc<dyn Stored>)),
                    );
                }
            },
            Delta::Bookmark(version) => self.advance(scope, version),
        }
    }

    fn replace(&mut self, scope: &Scope, set: Replacement<dyn Stored>, applied: &mut Vec<Applied<dyn Stored>>) {
        if set.history_reset {
            applied.push(Applied::HistoryReset(set.version.clone()));
        }
        let missing: Vec<Key> = match scope {
            Scope::All => self.items.keys().filter(|key| !set.items.contains_key(*key)).cloned().collect(),
            Scope::Namespace(namespace) => range_of(&self.items, namespace)
                .map(|(key, _)| key)
                .filter(|key| !set.items.contains_key(*key))
                .cloned()
                .collect(),
        };
        for key in missing {
            if let Some(object) = self.remove(&key) {
                applied.push(Applied::Deleted { object, certainty: Certainty::Inferred });
            }
        }
        for staged in set.items.into_values() {
            match staged {
                Staged::Object(object) => self.put(object, !set.history_reset, applied),
                Staged::Undecodable(item) => self.mark_undecodable(item, applied),
                Staged::Ahead => {}
            }
        }
        self.versions.insert(scope.clone(), set.version);
    }

    /// Stores an object. After the history went back one version may be two different states, so equal versions prove nothing.
    fn put(&mut self, new: Arc<dyn Stored>, versions_prove: bool, applied: &mut Vec<Applied<dyn Stored>>) {
        let (key, new) = (new.key(), typed::<K>(new));
        match self.items.get(&key).cloned() {
            None => {
                self.insert(key, None, new.clone());
                applied.push(Applied::Added(new));
            }
            Some(old) if Arc::ptr_eq(&old, &new) || (versions_prove && same_state(&*old, &*new)) => {
                applied.push(Applied::Unchanged(old))
            }
            Some(old) => {
                self.insert(key, Some(&old), new.clone());
                push_replaced(old, new, applied);
            }
        }
    }

    /// Stores an object that probably changed: found and replaced in one walk through the set. The nodes on the path are
    /// copied, which would be too much for each of the many objects that a relist shows as they were.
    fn put_change(&mut self, new: Arc<dyn Stored>, applied: &mut Vec<Applied<dyn Stored>>) {
        let (key, new) = (new.key(), typed::<K>(new));
        let Some(stored) = self.items.get_mut(&key) else {
            self.insert(key, None, new.clone());
            return applied.push(Applied::Added(new));
        };
        if Arc::ptr_eq(stored, &new) || same_state(&**stored, &*new) {
            return applied.push(Applied::Unchanged(stored.clone()));
        }
        let old = std::mem::replace(stored, new.clone());
        self.refile(&key, Some(&*old), Some(&*new));
        push_replaced(old, new, applied);
    }

    fn mark_undecodable(&mut self, item: Box<Undecodable>, applied: &mut Vec<Applied<dyn Stored>>) {
        let previous = self.remove(&item.raw.key).map(|previous| previous as Arc<dyn Stored>);
        applied.push(Applied::Undecodable { item, previous });
    }

    fn insert(&mut self, key: Key, old: Option<&Arc<K>>, new: Arc<K>) {
        self.refile(&key, old.map(|old| &**old), Some(&*new));
        self.items.insert(key, new);
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.items.remove(key)?;
        self.refile(key, Some(&*old), None);
        Some(old)
    }

    fn refile(&mut self, key: &Key, old: Option<&K>, new: Option<&K>) {
        for (_, index) in &mut self.indices {
            index.refile(key, old, new);
        }
    }

    /// Moves a source forward. A version that cannot be compared changes nothing.
    fn advance(&mut self, scope: &Scope, version: ResourceVersion) {
        let current = self.versions.entry(scope.clone()).or_default();
        if version.is_comparable() && !version.is_before(current) {
            *current = version;
        }
    }
}

/// An object of another incarnation is an inferred deletion and an addition (DQ-5).
fn push_replaced(old: Arc<dyn Stored>, new: Arc<dyn Stored>, applied: &mut Vec<Applied<dyn Stored>>) {
    if same_incarnation(&*old, &*new) {
        return applied.push(Applied::Updated { old, new });
    }
    applied.push(Applied::Deleted { object: old, certainty: Certainty::Inferred });
    applied.push(Applied::Added(new));
}

/// A reflector can write directly into a store that has no subscribers.
impl<K: Object> Target<K> for StoreWriter<K> {
    fn apply(&self, delta: Delta<K>) -> BoxFuture<'_, Result<(), TargetError>> {
        StoreWriter::apply(self, &Scope::All, vec![delta]);
        futures::future::ready(Ok(())).boxed()
    }

    fn known(&self, key: &Key) -> Option<Arc<K>> {
        self.store.get(key)
    }
}
