//! The collections of a cache by name, and the revision all of them have reached.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use machinery::Revision;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::collection::Collection;
use crate::history::HistoryLimits;
use crate::spec::Spec;

/// Every collection there is.
pub struct Collections {
    by_name: RwLock<HashMap<Box<str>, Arc<Collection>>>,
    history: HistoryLimits,
    /// Every change up to here is visible. Written by the feed alone.
    pub(crate) reached: watch::Sender<Revision>,
    /// Revisions up to here were reached before the store went back to an earlier state. Zero if it never did.
    pub(crate) lost: AtomicU64,
}

impl Collections {
    pub(crate) fn new(specs: impl IntoIterator<Item = (String, Spec)>, history: HistoryLimits) -> Self {
        let by_name = specs
            .into_iter()
            .map(|(name, spec)| {
                let collection = Collection::new(&name, spec, Revision::ZERO, history);
                (name.into_boxed_str(), Arc::new(collection))
            })
            .collect();
        Collections {
            by_name: RwLock::new(by_name),
            history,
            reached: watch::Sender::new(Revision::ZERO),
            lost: AtomicU64::new(0),
        }
    }

    /// These collections, all of which have reached a revision.
    pub(crate) fn of(all: Vec<Collection>, reached: Revision, history: HistoryLimits) -> Self {
        let by_name = all.into_iter().map(|collection| (collection.name().into(), Arc::new(collection))).collect();
        let reached = watch::Sender::new(reached);
        Collections { by_name: RwLock::new(by_name), history, reached, lost: AtomicU64::new(0) }
    }

    /// The collection of that name; an unknown one begins empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Arc<Collection> {
        if let Some(collection) = self.by_name.read().get(name) {
            return Arc::clone(collection);
        }
        let mut by_name = self.by_name.write();
        // Read under the lock, so that a reload finds every collection that has an earlier floor.
        let floor = *self.reached.borrow();
        let empty = || Arc::new(Collection::new(name, Spec::default(), floor, self.history));
        Arc::clone(by_name.entry(name.into()).or_insert_with(empty))
    }

    #[must_use]
    pub fn all(&self) -> Vec<Arc<Collection>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Drops a collection that is no longer served, with its history and counters, if it has no objects.
    pub fn remove_unserved(&self, name: &str) {
        let mut by_name = self.by_name.write();
        if by_name.get(name).is_some_and(|collection| collection.retire()) {
            by_name.remove(name);
        }
    }

    /// Sets the selectable fields of a collection. Watches of it end if they change.
    pub fn specify(&self, name: &str, spec: Spec) {
        self.get(name).respecify(spec);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::memory::MemoryStore;
    use store::{Change, Entry, Key};

    use super::*;
    use crate::filter::Filter;
    use crate::pending_writes::PendingWrites;
    use crate::watcher::{Start, WatchEnd, Watcher};

    const THINGS: &str = "example.com/things";

    #[tokio::test]
    async fn a_collection_that_is_no_longer_served_is_dropped_once_it_is_empty() {
        let collections = Collections::new([], HistoryLimits::default());
        let things = collections.get(THINGS);
        let key = Key::new("example.com/things/default/a").unwrap();
        let value = Bytes::from_static(br#"{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a"}}"#);
        let change = Change { key: key.clone(), revision: Revision(1), value: Some(value.clone()), previous: None };
        things.apply(&change, &PendingWrites::default(), &mut Vec::new());
        collections.remove_unserved(THINGS);
        assert!(Arc::ptr_eq(&things, &collections.get(THINGS)), "it has an object");

        let open = || {
            let store = Arc::new(MemoryStore::default());
            Watcher::open(Arc::clone(&things), store, Filter::default(), Start::Now, Revision(1))
        };
        let mut before = open();
        let previous = Some(Entry { key: key.clone(), revision: Revision(1), value });
        let change = Change { key, revision: Revision(2), value: None, previous };
        things.apply(&change, &PendingWrites::default(), &mut Vec::new());
        collections.remove_unserved(THINGS);
        assert!(collections.all().is_empty(), "no history and no counters are left");
        before.next().await.expect("the delete");
        assert_eq!(before.next().await.unwrap_err(), WatchEnd::Ended);
        assert_eq!(open().next().await.unwrap_err(), WatchEnd::Ended, "a watch on what is gone");
        collections.reached.send_replace(Revision(2));
        let again = collections.get(THINGS);
        assert!(!Arc::ptr_eq(&things, &again) && again.is_empty(), "the same name may be served again");
        assert_eq!(again.state.lock().history.floor(), Revision(2), "older changes are read from the store");
    }
}
