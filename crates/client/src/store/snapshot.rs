//! `Snapshot`: the set, its indices and its version at one instant.

use std::sync::Arc;

use imbl::OrdMap;

use super::index::{ErasedIndex, IndexError, TypedIndex};
use crate::{Key, ResourceVersion};

/// One instant of a store. Cheap to hold: it shares all that did not change since with newer snapshots.
pub struct Snapshot<K: ?Sized> {
    pub(crate) items: OrdMap<Key, Arc<K>>,
    pub(super) indices: Vec<(Arc<str>, Arc<dyn ErasedIndex<K>>)>,
    pub(super) version: ResourceVersion,
}

impl<K> Snapshot<K> {
    pub(super) fn empty() -> Self {
        Self { items: OrdMap::new(), indices: Vec::new(), version: ResourceVersion::unset() }
    }

    /// The object of a key.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.items.get(key)
    }

    /// All objects, in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.items.values()
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.items.keys()
    }

    /// The objects of one namespace. A range of the set: keys of a namespace are neighbours (ST-7).
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        self.range_of(namespace).map(|(_, object)| object)
    }

    pub(super) fn range_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<K>)> {
        range_of(&self.items, namespace)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The point in history that this snapshot shows.
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// The objects filed under a value of a named index.
    pub fn by_index<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        name: &str,
        value: &V,
    ) -> Result<Vec<Arc<K>>, IndexError>
    where
        K: Send + Sync + 'static,
    {
        let index = self.typed::<V>(name)?;
        Ok(index.keys(value).filter_map(|key| self.items.get(key).cloned()).collect())
    }

    /// The keys filed under a value of a named index, sorted.
    pub fn index_keys<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        name: &str,
        value: &V,
    ) -> Result<Vec<Key>, IndexError>
    where
        K: Send + Sync + 'static,
    {
        Ok(self.typed::<V>(name)?.keys(value).cloned().collect())
    }

    /// All values of a named index; none if there is no such index.
    pub fn index_values<V: Ord + Clone + Send + Sync + 'static>(&self, name: &str) -> Vec<V>
    where
        K: Send + Sync + 'static,
    {
        self.typed::<V>(name).map(|index| index.values().cloned().collect()).unwrap_or_default()
    }

    /// The objects that share a value of a named index with `object`, each once. For users of the crate: client-go's `Index`.
    pub fn index_neighbours<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        name: &str,
        object: &K,
    ) -> Result<Vec<Arc<K>>, IndexError>
    where
        K: Send + Sync + 'static,
    {
        let index = self.typed::<V>(name)?;
        let mut keys = std::collections::BTreeSet::new();
        for value in index.values_of(object) {
            keys.extend(index.keys(&value));
        }
        Ok(keys.into_iter().filter_map(|key| self.items.get(key).cloned()).collect())
    }

    pub(super) fn typed<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        name: &str,
    ) -> Result<&TypedIndex<K, V>, IndexError>
    where
        K: Send + Sync + 'static,
    {
        let (_, index) = self
            .indices
            .iter()
            .find(|(known, _)| **known == *name)
            .ok_or_else(|| IndexError::Unknown(name.to_owned()))?;
        index.as_any().downcast_ref().ok_or_else(|| IndexError::OtherType(name.to_owned()))
    }
}

/// The keys of a namespace and their objects.
pub(super) fn range_of<'a, K>(
    items: &'a OrdMap<Key, Arc<K>>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a Key, &'a Arc<K>)> {
    let first = Key::new(Some(namespace), "");
    items.range(first..).take_while(move |(key, _)| key.namespace() == Some(namespace))
}
