//! Every bound of the server, by name: what it limits, its default, and where it shows.
//!
//! The value of each is exported as `dogwatch_limit{name="…"}`; what was refused because of one is counted in
//! `dogwatch_limit_refusals_total{name="…"}`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// All limits, as one value a caller fills in. Names end in their unit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Request bodies above this are refused with 413.
    pub body_bytes_max: usize,
    /// A request line with its headers above this closes the connection with 431.
    pub header_bytes_max: usize,
    /// Further connections wait in the listener's backlog until one of these ends.
    pub connections_max: usize,
    /// Reads answered at a time; more get 429. Watches count only until they are open.
    pub inflight_reads_max: usize,
    /// Writes answered at a time; more get 429.
    pub inflight_writes_max: usize,
    /// Open watches; more get 429.
    pub watches_max: usize,
    /// From accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request to the end of its headers.
    pub header_read_timeout: Duration,
    /// A connection without a request in progress is closed after this long.
    pub idle_timeout: Duration,
    /// The longest a request that is no watch may take; `timeout=` can only lower it.
    pub request_timeout: Duration,
    /// The longest a write may take once its body is here.
    pub write_timeout: Duration,
    /// How long open requests may take to finish once the server stops.
    pub drain_timeout: Duration,
    /// HTTP/2 streams of one connection at a time.
    pub streams_per_connection_max: u32,
    /// The largest piece of a watch body handed to the connection at once.
    pub watch_batch_bytes_max: usize,
    /// OpenAPI documents that are kept for the next who asks; one more, and the one that was asked for longest ago goes.
    pub openapi_bytes_max: usize,
    /// A document that nobody asked for in this time is dropped.
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
    /// Name and value of each, for the metric.
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

/// A number of places that are taken and given back.
#[derive(Clone, Debug)]
pub struct Places {
    name: &'static str,
    max: usize,
    taken: Arc<AtomicUsize>,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub struct Place {
    taken: Arc<AtomicUsize>,
}

impl Places {
    #[must_use]
    pub fn new(name: &'static str, max: usize) -> Self {
        Places { name, max, taken: Arc::default() }
    }

    /// A place, or none when all are taken.
    #[must_use]
    pub fn take(&self) -> Option<Place> {
        let before = self.taken.fetch_add(1, Ordering::AcqRel);
        let place = Place { taken: Arc::clone(&self.taken) };
        // A refused place is dropped here, which gives it back.
        (before < self.max).then_some(place)
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

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let places = Places::new("test", 2);
        let first = places.take();
        let second = places.take();
        assert!(first.is_some() && second.is_some());
        assert!(places.take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert!(places.take().is_some());
        drop(second);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn every_limit_has_a_name() {
        let names: Vec<_> = Limits::default().named().iter().map(|(name, _)| *name).collect();
        let debug = format!("{:?}", Limits::default());
        assert_eq!(names.len(), debug.matches(": ").count(), "a field of Limits is missing in named()");
    }
}
