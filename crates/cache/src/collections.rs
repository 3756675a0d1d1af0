//! The collections of a cache by name, and the revision all of them have reached.

use std::collections::HashMap;
use std::sync::Arc;

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
        Collections { by_name: RwLock::new(by_name), history, reached: watch::Sender::new(Revision::ZERO) }
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

    /// Sets the selectable fields of a collection. Watches of it end if they change.
    pub fn specify(&self, name: &str, spec: Spec) {
        self.get(name).respecify(spec);
    }
}
