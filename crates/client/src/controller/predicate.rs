//! Conditions on the events of a source. Predicates filter triggers; the store holds all objects regardless (CT-4).

use std::ops::Not;
use std::sync::Arc;

use crate::Object;
use crate::informer::Event;

type Accepts<K> = dyn Fn(&Event<K>) -> bool + Send + Sync;

/// A condition on events.
pub struct Predicate<K>(Arc<Accepts<K>>);

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Object> Predicate<K> {
    /// Any function of an event.
    pub fn new(accepts: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accepts))
    }

    /// All events.
    pub fn any() -> Self {
        Self::new(|_| true)
    }

    /// Updates for which this holds, and everything that is not an update.
    pub fn on_update(accepts: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new } => accepts(old, new),
            _ => true,
        })
    }

    /// Updates that changed anything: no resyncs.
    pub fn version_changed() -> Self {
        Self::on_update(|old, new| old.meta().resource_version != new.meta().resource_version)
    }

    /// Updates that changed the spec: no status updates, no resyncs.
    pub fn generation_changed() -> Self {
        Self::on_update(|old, new| old.meta().generation != new.meta().generation)
    }

    /// Updates that changed labels.
    pub fn labels_changed() -> Self {
        Self::on_update(|old, new| old.meta().labels != new.meta().labels)
    }

    /// Updates that changed annotations.
    pub fn annotations_changed() -> Self {
        Self::on_update(|old, new| old.meta().annotations != new.meta().annotations)
    }

    /// Both hold.
    pub fn and(self, other: Self) -> Self {
        Self::new(move |event| self.accepts(event) && other.accepts(event))
    }

    /// One of them holds.
    pub fn or(self, other: Self) -> Self {
        Self::new(move |event| self.accepts(event) || other.accepts(event))
    }

    /// True if the event counts.
    pub fn accepts(&self, event: &Event<K>) -> bool {
        (self.0)(event)
    }
}

impl<K: Object> Not for Predicate<K> {
    type Output = Self;

    fn not(self) -> Self {
        Self::new(move |event| !self.accepts(event))
    }
}
