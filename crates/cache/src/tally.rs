//! What a collection counts of itself, for metrics. The one who shows them chooses the names.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that only rise.
#[derive(Debug, Default)]
pub struct Tally {
    /// Changes taken from the log.
    pub received: Counter,
    /// Changes handed to watchers, counted once for each.
    pub dispatched: Counter,
    /// Objects sent as the initial state of a watch.
    pub initial: Counter,
    /// Watches that history had left behind.
    pub expired: Counter,
    /// Lists answered from memory.
    pub lists: Counter,
    /// Objects looked at for them, and objects in their answers.
    pub looked_at: Counter,
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

/// A collection at this moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub objects: usize,
    pub history: usize,
    pub history_bytes: usize,
    pub history_max: usize,
    pub watchers: usize,
}
