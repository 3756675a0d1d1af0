//! The queues between a reflector and a store.
//!
//! - `delta`: what travels in them
//! - `delta_fifo`: grouped by key, in order of the first change of each key (client-go's DeltaFIFO)
//! - `in_order`: strictly in order of arrival; whole sets stay whole (what client-go's informers run today, and ours)

mod delta;
mod delta_fifo;
mod in_order;

use std::sync::Arc;

pub use delta::{Certainty, Deletion, Delta, Replacement, Staged};
pub use delta_fifo::{DeltaFifo, PoppedDeltas};
pub use in_order::{Batch, InOrderQueue};

use crate::Key;

/// What the consumer of a queue already has: needed to tell which objects a relist no longer contains.
pub trait KnownObjects<K>: Send + Sync + 'static {
    /// The object of that key.
    fn get(&self, key: &Key) -> Option<Arc<K>>;
    /// All keys.
    fn keys(&self) -> Vec<Key>;
}

/// Nothing is known.
impl<K> KnownObjects<K> for () {
    fn get(&self, _: &Key) -> Option<Arc<K>> {
        None
    }
    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }
}

/// Whether the first whole set has gone through a queue.
#[derive(Debug, Default)]
struct Population {
    /// Something was put in, in whatever form.
    begun: bool,
    /// Elements of the first set that were not processed yet.
    left: usize,
}

impl Population {
    fn is_complete(&self) -> bool {
        self.begun && self.left == 0
    }

    /// A single change came first: there is no initial set to wait for.
    fn begin_with_change(&mut self) {
        self.begun = true;
    }

    /// The first whole set has so many elements; later ones do not count.
    fn begin_with_set(&mut self, elements: usize) {
        if !self.begun {
            (self.begun, self.left) = (true, elements);
        }
    }

    fn processed(&mut self, elements: usize) {
        self.left = self.left.saturating_sub(elements);
    }
}
