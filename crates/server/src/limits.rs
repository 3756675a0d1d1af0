//! All limits of the server, with names and defaults.
//!
//! The value of each is exported as `dogwatch_limit{name="…"}`; refusals because of one are counted in
//! `dogwatch_limit_refusals_total{name="…"}`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Names end in their unit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request body; larger ones get 413.
    pub body_bytes_max: usize,
    /// Largest request line with headers; larger ones get 431 and close the connection.
    pub header_bytes_max: usize,
    /// Open connections; further ones wait in the listener's backlog.
    pub connections_max: usize,
    /// Concurrent reads; more get 429. A watch counts only until it is open.
    pub inflight_reads_max: usize,
    /// Concurrent writes; more get 429.
    pub inflight_writes_max: usize,
    /// Open watches; more get 429.
    pub watches_max: usize,
    /// From accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request to the end of its headers.
    pub header_read_timeout: Duration,
    /// A connection without a request in progress is closed after this long.
    pub idle_timeout: Duration,
    /// Time limit of a request other than a watch; `timeout=` can only lower it.
    pub request_timeout: Duration,
    /// Time limit of a write after its body has been read.
    pub write_timeout: Duration,
    /// Time that open requests have to finish once the server stops.
    pub drain_timeout: Duration,
    /// Concurrent HTTP/2 streams of one connection.
    pub streams_per_connection_max: u32,
    /// Largest piece of a watch body that is passed to the connection at once.
    pub watch_batch_bytes_max: usize,
    /// Bytes of cached OpenAPI documents; the least recently used is evicted.
    pub openapi_bytes_max: usize,
    /// Time after which an unused OpenAPI document is evicted.
    pub openapi_idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes_max: 3 * 1024 * 1024,
            header_bytes_max: 64 * 1024,
            connections_max: 32_768,
            inflight_reads_max: 400,
            inflight_writes_max: 200,
            watches_max: 100_000,
            handshake_timeout: Duration::from_secs(10),
            header_read_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(90),
            request_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(34),
            drain_timeout: Duration::from_secs(30),
            streams_per_connection_max: 250,
            watch_batch_bytes_max: 128 * 1024,
            openapi_bytes_max: 8 * 1024 * 1024,
            openapi_idle_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Name and value of each limit, for the metric.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("body_bytes_max", self.body_bytes_max as f64),
            ("header_bytes_max", self.header_bytes_max as f64),
            ("connections_max", self.connections_max as f64),
            ("inflight_reads_max", self.inflight_reads_max as f64),
            ("inflight_writes_max", self.inflight_writes_max as f64),
            ("watches_max", self.watches_max as f64),
            ("handshake_timeout_seconds", self.handshake_timeout.as_secs_f64()),
            ("header_read_timeout_seconds", self.header_read_timeout.as_secs_f64()),
            ("idle_timeout_seconds", self.idle_timeout.as_secs_f64()),
            ("request_timeout_seconds", self.request_timeout.as_secs_f64()),
            ("write_timeout_seconds", self.write_timeout.as_secs_f64()),
            ("drain_timeout_seconds", self.drain_timeout.as_secs_f64()),
            ("streams_per_connection_max", f64::from(self.streams_per_connection_max)),
            ("watch_batch_bytes_max", self.watch_batch_bytes_max as f64),
            ("openapi_bytes_max", self.openapi_bytes_max as f64),
            ("openapi_idle_timeout_seconds", self.openapi_idle_timeout.as_secs_f64()),
        ]
    }
}

/// A limited number of slots, for what may happen only so often at a time.
#[derive(Clone, Debug)]
pub struct Slots {
    name: &'static str,
    max: usize,
    taken: Arc<AtomicUsize>,
}

/// One slot; released when dropped.
#[derive(Debug)]
pub struct Slot {
    taken: Arc<AtomicUsize>,
}

impl Slots {
    #[must_use]
    pub fn new(name: &'static str, max: usize) -> Self {
        Slots { name, max, taken: Arc::default() }
    }

    /// Takes a slot; none when all are taken.
    #[must_use]
    pub fn take(&self) -> Option<Slot> {
        let before = self.taken.fetch_add(1, Ordering::AcqRel);
        let slot = Slot { taken: Arc::clone(&self.taken) };
        // A slot above the limit is dropped here, which releases it.
        (before < self.max).then_some(slot)
    }

    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// The limit's name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_slots_are_released() {
        let slots = Slots::new("test", 2);
        let first = slots.take();
        let second = slots.take();
        assert!(first.is_some() && second.is_some());
        assert!(slots.take().is_none());
        assert_eq!(slots.taken(), 2);
        drop(first);
        assert!(slots.take().is_some());
        drop(second);
        assert_eq!(slots.taken(), 0);
    }

    #[test]
    fn every_limit_has_a_name() {
        let names: Vec<_> = Limits::default().named().iter().map(|(name, _)| *name).collect();
        let debug = format!("{:?}", Limits::default());
        assert_eq!(names.len(), debug.matches(": ").count(), "a field of Limits is missing in named()");
    }
}
