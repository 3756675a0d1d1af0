//! Counters of a collection, for metrics. The names of the metrics are chosen elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

/// Monotonic counters.
#[derive(Debug, Default)]
pub struct Tally {
    /// Changes received from the log.
    pub received: Counter,
    /// Changes sent to watchers, counted once for each watcher.
    pub dispatched: Counter,
    /// Objects sent as the initial state of a watch.
    pub initial: Counter,
    /// Watches that ended because their position was compacted.
    pub expired: Counter,
    /// Lists served from memory.
    pub lists: Counter,
    /// Objects visited by lists.
    pub looked_at: Counter,
    /// Objects returned by lists.
    pub returned: Counter,
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Current sizes of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub objects: usize,
    pub history: usize,
    pub history_bytes: usize,
    pub history_max: usize,
    pub watchers: usize,
}
