//! The counters of a reflector. Plain values: there is no registry.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ResourceVersion;

/// The counters of one reflector. Read them at any time.
#[derive(Default)]
pub struct ReflectorMetrics {
    /// Lists begun.
    pub lists: Counter,
    /// Streaming lists begun.
    pub streaming_lists: Counter,
    /// Whole sets sent to the target, the first included.
    pub replacements: Counter,
    /// Streaming lists abandoned for a list.
    pub fallbacks: Counter,
    /// Watches opened, streaming lists excluded.
    pub watches: Counter,
    /// Watches that ended and were opened again at the last version.
    pub restarts: Counter,
    /// Watches reopened because nothing arrived.
    pub idle_restarts: Counter,
    /// Events received.
    pub events: Counter,
    /// Bytes of objects received.
    pub bytes: Counter,
    /// Objects that could not be decoded.
    pub undecodable: Counter,
    /// ADDED events that repeated a state already known.
    pub repeated: Counter,
    /// Objects of another kind than the expected one.
    pub foreign: Counter,
    /// Times that the server's history went back.
    pub history_resets: Counter,
    /// Objects of a relist that were unchanged and kept.
    pub kept: Counter,
    last_version: Mutex<ResourceVersion>,
    last_arrival: Mutex<Option<Instant>>,
}

impl ReflectorMetrics {
    /// The version from which a watch would resume.
    pub fn last_version(&self) -> ResourceVersion {
        self.last_version.lock().clone()
    }

    /// Time since anything last arrived from the server; `None` if nothing ever did.
    pub fn silence(&self) -> Option<Duration> {
        self.last_arrival.lock().map(|at| at.elapsed())
    }

    pub(super) fn set_last_version(&self, version: &ResourceVersion) {
        *self.last_version.lock() = version.clone();
    }

    pub(super) fn record_arrival(&self, now: Instant) {
        *self.last_arrival.lock() = Some(now);
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn inc(&self) {
        self.add(1);
    }
}
