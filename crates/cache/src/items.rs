//! Objects in key order, with their number in each namespace.
//!
//! Cheap to clone: a copy shares everything that did not change since. The numbers are stored because a page of a list has
//! the number of objects after it, and counting them would make a page cost more in a larger collection.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use store::Key;

use crate::item::Item;

#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    by_key: OrdMap<Key, Arc<Item>>,
    /// Never zero. Cluster-scoped objects are counted under the empty namespace.
    counts: OrdMap<Arc<str>, usize>,
}

impl Items {
    /// Returns the previous item of the key.
    pub(crate) fn insert(&mut self, item: Arc<Item>) -> Option<Arc<Item>> {
        let namespace = Arc::clone(&item);
        let previous = self.by_key.insert(item.key().clone(), item);
        if previous.is_none() {
            let namespace = namespace.namespace();
            match self.counts.get_mut(namespace) {
                Some(count) => *count += 1,
                None => {
                    self.counts.insert(namespace.into(), 1);
                }
            }
        }
        previous
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Item>> {
        let removed = self.by_key.remove(key)?;
        let namespace = removed.namespace();
        match self.counts.get_mut(namespace) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.counts.remove(namespace);
            }
        }
        Some(removed)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Item>> {
        self.by_key.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Number of objects in a namespace.
    pub(crate) fn len_in(&self, namespace: &str) -> usize {
        self.counts.get(namespace).copied().unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.by_key.values()
    }

    /// The items from the key `start` on, which need not exist, and before `end`. Finds the start by search.
    pub(crate) fn between<'a>(&'a self, start: &str, end: &str) -> impl Iterator<Item = &'a Arc<Item>> + use<'a> {
        let bounds = (Bound::Included(start.min(end)), Bound::Excluded(end));
        self.by_key.range::<_, str>(bounds).map(|(_, item)| item)
    }
}

impl FromIterator<Arc<Item>> for Items {
    fn from_iter<I: IntoIterator<Item = Arc<Item>>>(all: I) -> Self {
        let mut items = Items::default();
        for item in all {
            items.insert(item);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use machinery::Revision;

    fn item(key: &str, revision: u64) -> Arc<Item> {
        let stored = br#"{"kind":"K","apiVersion":"v1","metadata":{"name":"n"}}"#;
        Arc::new(Item::new(Key::new(key).unwrap(), Revision(revision), stored, &Spec::default()).unwrap())
    }

    #[test]
    fn the_numbers_are_those_of_a_count() {
        let mut items = Items::default();
        let mut before = Vec::new();
        for step in 0..200_u64 {
            let key = format!("core/things/ns{}/n{}", step % 3, step * 7 % 11);
            before.push((items.clone(), items.len_in("ns0")));
            if step % 5 == 4 {
                items.remove(&Key::new(key).unwrap());
            } else {
                items.insert(item(&key, step + 1));
            }
            for namespace in ["ns0", "ns1", "ns2", "ns3"] {
                let walked = items.iter().filter(|item| item.namespace() == namespace).count();
                assert_eq!(items.len_in(namespace), walked, "{namespace} after step {step}");
            }
        }
        for (old, count) in before {
            assert_eq!(old.len_in("ns0"), count, "a copy keeps its counts");
        }
        let keys: Vec<_> = items.iter().map(|item| item.key().clone()).collect();
        keys.iter().for_each(|key| drop(items.remove(key)));
        assert!(items.is_empty() && items.counts.is_empty());
    }

    #[test]
    fn bounds_need_not_exist() {
        let items: Items = ["b", "d", "f"].map(|name| item(&format!("core/nodes/{name}"), 1)).into_iter().collect();
        for (start, end, found) in [
            ("core/nodes/", "core/nodes0", "bdf"),
            ("core/nodes/b", "core/nodes/f", "bd"),
            ("core/nodes/c", "core/nodes/e", "d"),
            ("core/nodes/d\0", "core/nodes0", "f"),
            ("core/nodes/g", "core/nodes0", ""),
            ("core/nodes0", "core/nodes0", ""),
            ("core/pods/x", "core/nodes0", ""),
            ("core/a", "core/b", ""),
        ] {
            let names: String = items.between(start, end).map(|item| item.name()).collect();
            assert_eq!(names, found, "{start} to {end}");
        }
        assert_eq!(Items::default().between("a", "b").count(), 0);
    }

    #[test]
    fn cluster_scoped_objects_are_counted_too() {
        let items: Items = [item("core/nodes/a", 1), item("core/nodes/b", 2)].into_iter().collect();
        assert_eq!((items.len(), items.len_in("")), (2, 2));
    }
}
