//! Typed secondary indices: from a value that objects have to the objects that have it.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use thiserror::Error;

use super::{Snapshot, Store};
use crate::{Key, Object};

/// An index that cannot be added or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IndexError {
    /// No index has this name.
    #[error("there is no index {0:?}")]
    Unknown(String),
    /// An index of this name exists.
    #[error("the index {0:?} exists already")]
    Exists(String),
    /// The index has values of another type.
    #[error("the index {0:?} has values of another type")]
    OtherType(String),
}

/// A handle on one index of a store.
pub struct Index<K, V> {
    name: Arc<str>,
    store: Store<K>,
    values: PhantomData<fn(V)>,
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), store: self.store.clone(), values: PhantomData }
    }
}

impl<K: Object, V: Ord + Clone + Send + Sync + 'static> Index<K, V> {
    pub(super) fn new(name: &str, store: Store<K>) -> Self {
        Self { name: name.into(), store, values: PhantomData }
    }

    /// The objects filed under a value.
    pub fn get(&self, value: &V) -> Vec<Arc<K>> {
        self.get_in(&self.store.snapshot(), value)
    }

    /// The same, at the instant of a snapshot of the same store.
    pub fn get_in(&self, snapshot: &Snapshot<K>, value: &V) -> Vec<Arc<K>> {
        snapshot.by_index(&self.name, value).unwrap_or_default()
    }

    /// The keys filed under a value, sorted.
    pub fn keys(&self, value: &V) -> Vec<Key> {
        self.store.snapshot().index_keys(&self.name, value).unwrap_or_default()
    }

    /// All values that some object has.
    pub fn values(&self) -> Vec<V> {
        self.store.snapshot().index_values(&self.name)
    }
}

pub(super) trait ErasedIndex<K: ?Sized>: Send + Sync {
    /// Files `new` instead of `old`.
    fn refile(&mut self, key: &Key, old: Option<&K>, new: Option<&K>);
    /// A copy for readers; shares everything with the original.
    fn share(&self) -> Arc<dyn ErasedIndex<K>>;
    fn as_any(&self) -> &dyn Any;
}

type ValuesOf<K, V> = Arc<dyn Fn(&K) -> Vec<V> + Send + Sync>;

pub(super) struct TypedIndex<K, V> {
    values_of: ValuesOf<K, V>,
    filed: OrdMap<V, OrdSet<Key>>,
}

impl<K, V: Ord + Clone> TypedIndex<K, V> {
    pub(super) fn new(values_of: ValuesOf<K, V>) -> Self {
        Self { values_of, filed: OrdMap::new() }
    }

    pub(super) fn keys<'a>(&'a self, value: &V) -> impl Iterator<Item = &'a Key> + use<'a, K, V> {
        self.filed.get(value).into_iter().flatten()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.filed.keys()
    }

    pub(super) fn values_of(&self, object: &K) -> Vec<V> {
        (self.values_of)(object)
    }
}

impl<K, V> ErasedIndex<K> for TypedIndex<K, V>
where
    K: Send + Sync + 'static,
    V: Ord + Clone + Send + Sync + 'static,
{
    fn refile(&mut self, key: &Key, old: Option<&K>, new: Option<&K>) {
        let old = old.map(|object| (self.values_of)(object)).unwrap_or_default();
        let new = new.map(|object| (self.values_of)(object)).unwrap_or_default();
        for value in old.iter().filter(|value| !new.contains(value)) {
            if let Some(keys) = self.filed.get_mut(value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.filed.remove(value);
                }
            }
        }
        for value in new.into_iter().filter(|value| !old.contains(value)) {
            self.filed.entry(value).or_default().insert(key.clone());
        }
    }

    fn share(&self) -> Arc<dyn ErasedIndex<K>> {
        Arc::new(Self { values_of: self.values_of.clone(), filed: self.filed.clone() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
