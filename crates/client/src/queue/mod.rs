//! The queues between a reflector and a store.
//!
//! - `delta`: the elements
//! - `in_order`: strictly in order of arrival; whole sets stay whole (the queue of client-go's informers today, and of ours)
//! - `delta_fifo`: grouped by key, in order of the first change of each key (client-go's DeltaFIFO), for users of the crate

mod delta;
mod delta_fifo;
mod in_order;

use std::sync::Arc;

pub use delta::{Certainty, Deletion, Delta, Replacement, Staged};
pub use delta_fifo::{DeltaFifo, PoppedDeltas};
pub use in_order::{Batch, InOrderQueue};

use crate::Key;

/// The objects that the consumer of a queue already has: needed to find those that a relist no longer contains.
pub trait KnownObjects<K: ?Sized>: Send + Sync + 'static {
    /// The object of that key.
    fn get(&self, key: &Key) -> Option<Arc<K>>;
    /// All keys.
    fn keys(&self) -> Vec<Key>;
}

/// A consumer without objects.
impl<K: ?Sized> KnownObjects<K> for () {
    fn get(&self, _: &Key) -> Option<Arc<K>> {
        None
    }
    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }
}

/// Progress of the first whole set through a queue.
#[derive(Debug, Default)]
struct Population {
    /// Something was pushed: a set or a single change.
    begun: bool,
    /// Elements of the first set that are not processed yet.
    left: usize,
}

impl Population {
    fn is_complete(&self) -> bool {
        self.begun && self.left == 0
    }

    /// Called for a single change. If it is the first push, there is no initial set to wait for.
    fn begin_with_change(&mut self) {
        self.begun = true;
    }

    /// Called for a whole set, with its number of elements. Only the first set counts.
    fn begin_with_set(&mut self, elements: usize) {
        if !self.begun {
            (self.begun, self.left) = (true, elements);
        }
    }

    fn processed(&mut self, elements: usize) {
        self.left = self.left.saturating_sub(elements);
    }
}
