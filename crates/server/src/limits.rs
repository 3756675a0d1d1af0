//! All limits of the server, with names and defaults.
//!
//! The value of each is exported as `dogwatch_limit{name="…"}`; refusals because of one are counted in
//! `dogwatch_limit_refusals_total{name="…"}`.

use std::hash::{BuildHasher as _, RandomState};
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
    /// Open logs, commands, attachments and port forwards; more get 429.
    pub streams_max: usize,
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
    /// Bytes of all request bodies that are being read or handled; more get 429.
    pub body_bytes_total_max: usize,
    /// Time that a request body has before it must keep to `body_bytes_per_second_min`.
    pub body_grace: Duration,
    /// A request body that arrives more slowly gets 408.
    pub body_bytes_per_second_min: usize,
    /// Bytes of the body of a refused request that are read and dropped, so that the client can read the response.
    pub discard_bytes_max: usize,
    /// Time for reading these bytes.
    pub discard_timeout: Duration,
    /// Bytes of responses that were rendered for one request and are not sent yet; more wait for `unsent_wait`, then get 429.
    pub unsent_bytes_max: usize,
    /// Time that a request waits for `unsent_bytes_max`.
    pub unsent_wait: Duration,
    /// A connection whose client takes no byte of a response (other than a watch) for this long is closed.
    pub response_stall_timeout: Duration,
    /// Bytes of the selectors of all open watches; more get 429.
    pub watch_selector_bytes_max: usize,
    /// Largest response of a webhook; a larger one fails the request.
    pub webhook_response_bytes_max: usize,
    /// Bytes of all webhook responses that are being read; more fail the request.
    pub webhook_bytes_total_max: usize,
    /// Requests that wait for a webhook; more get 429. They hold no place among those in flight.
    pub webhooks_waiting_max: usize,
    /// Requests with a body, a stored object or a rendered response of this size run on the pool for heavy requests.
    pub heavy_bytes_min: usize,
    /// Requests with a longer query run on the pool for heavy requests.
    pub heavy_query_bytes_min: usize,
    /// Lists that compare more than this many terms of selectors with objects run on the pool for heavy requests.
    pub heavy_checks_min: usize,
    /// Bytes that the heavy requests may have which run at the same time; more wait. One user has at most half.
    pub heavy_bytes_max: usize,
    /// Heavy requests that wait; more get 429.
    pub heavy_waiting_max: usize,
    /// Lists of many objects that are handled or sent at the same time in one priority level; more wait.
    pub long_lists_max: usize,
    /// As `long_lists_max`, for one user.
    pub long_lists_per_user_max: usize,
    /// A list that is still being sent after this long no longer counts as one of many objects: its client reads slowly.
    pub long_list_time: Duration,
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
            streams_max: 1_000,
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
            body_bytes_total_max: 256 * 1024 * 1024,
            body_grace: Duration::from_secs(10),
            body_bytes_per_second_min: 16 * 1024,
            discard_bytes_max: 256 * 1024,
            discard_timeout: Duration::from_secs(1),
            unsent_bytes_max: 256 * 1024 * 1024,
            unsent_wait: Duration::from_secs(1),
            response_stall_timeout: Duration::from_secs(30),
            watch_selector_bytes_max: 128 * 1024 * 1024,
            webhook_response_bytes_max: 64 * 1024 * 1024,
            webhook_bytes_total_max: 128 * 1024 * 1024,
            webhooks_waiting_max: 500,
            heavy_bytes_min: 32 * 1024,
            heavy_query_bytes_min: 4 * 1024,
            heavy_checks_min: 50_000,
            heavy_bytes_max: 8 * 1024 * 1024,
            heavy_waiting_max: 256,
            long_lists_max: (2 * parallelism()).max(4),
            // Half of the cores, so that the others are free for the requests of other users.
            long_lists_per_user_max: (parallelism() / 2).max(1),
            long_list_time: Duration::from_secs(1),
        }
    }
}

/// Threads that can run at the same time.
fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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
            ("streams_max", self.streams_max as f64),
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
            ("body_bytes_total_max", self.body_bytes_total_max as f64),
            ("body_grace_seconds", self.body_grace.as_secs_f64()),
            ("body_bytes_per_second_min", self.body_bytes_per_second_min as f64),
            ("discard_bytes_max", self.discard_bytes_max as f64),
            ("discard_timeout_seconds", self.discard_timeout.as_secs_f64()),
            ("unsent_bytes_max", self.unsent_bytes_max as f64),
            ("unsent_wait_seconds", self.unsent_wait.as_secs_f64()),
            ("response_stall_timeout_seconds", self.response_stall_timeout.as_secs_f64()),
            ("watch_selector_bytes_max", self.watch_selector_bytes_max as f64),
            ("webhook_response_bytes_max", self.webhook_response_bytes_max as f64),
            ("webhook_bytes_total_max", self.webhook_bytes_total_max as f64),
            ("webhooks_waiting_max", self.webhooks_waiting_max as f64),
            ("heavy_bytes_min", self.heavy_bytes_min as f64),
            ("heavy_query_bytes_min", self.heavy_query_bytes_min as f64),
            ("heavy_checks_min", self.heavy_checks_min as f64),
            ("heavy_bytes_max", self.heavy_bytes_max as f64),
            ("heavy_waiting_max", self.heavy_waiting_max as f64),
            ("long_lists_max", self.long_lists_max as f64),
            ("long_lists_per_user_max", self.long_lists_per_user_max as f64),
            ("long_list_time_seconds", self.long_list_time.as_secs_f64()),
        ]
    }
}

/// A limited number of slots, for what may happen only so often at a time; or a limited number of bytes.
///
/// One user has at most half of the slots. The first quarter of them is not counted by user, so that a server with few
/// requests pays nothing for the count.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    name: &'static str,
    max: usize,
    taken: AtomicUsize,
    /// Slots by the hash of the user's name. Users with the same hash share; the hash is different in each process.
    users: [AtomicUsize; USERS],
    hasher: RandomState,
}

const USERS: usize = 256;

/// One or more slots; released when dropped.
#[derive(Debug)]
pub struct Slot {
    counts: Arc<Counts>,
    amount: usize,
    /// Slots that are also counted for a user.
    by_user: Option<(usize, usize)>,
}

impl Slots {
    #[must_use]
    pub fn new(name: &'static str, max: usize) -> Self {
        Slots(Arc::new(Counts {
            name,
            max,
            taken: AtomicUsize::new(0),
            users: std::array::from_fn(|_| AtomicUsize::new(0)),
            hasher: RandomState::new(),
        }))
    }

    /// Takes a slot; none when all are taken.
    #[must_use]
    pub fn take(&self) -> Option<Slot> {
        self.take_many(1)
    }

    /// Takes an amount; none when too much is taken.
    #[must_use]
    pub fn take_many(&self, amount: usize) -> Option<Slot> {
        let (slot, taken) = self.add(amount);
        // A slot above the limit is dropped here, which releases it.
        (taken <= self.0.max).then_some(slot)
    }

    /// Takes an amount for a user; none when too much is taken, or more than half of it by this user.
    #[must_use]
    pub fn take_for(&self, user: &str, amount: usize) -> Option<Slot> {
        let (mut slot, taken) = self.add(amount);
        (taken <= self.0.max && slot.count_for(user)).then_some(slot)
    }

    /// Takes an amount even above the limit.
    #[must_use]
    pub fn force(&self, amount: usize) -> Slot {
        self.add(amount).0
    }

    /// Takes an amount; returns also how much is taken then.
    fn add(&self, amount: usize) -> (Slot, usize) {
        let before = self.0.taken.fetch_add(amount, Ordering::AcqRel);
        (Slot { counts: Arc::clone(&self.0), amount, by_user: None }, before.saturating_add(amount))
    }

    #[must_use]
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Acquire)
    }

    /// The limit's name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }
}

impl Slot {
    /// Counts the amount for a user, unless less than a quarter is taken; false when it is above the user's share.
    fn count_for(&mut self, user: &str) -> bool {
        let counts = &*self.counts;
        let uncounted = counts.max / 4;
        if counts.taken.load(Ordering::Acquire) <= uncounted {
            return true;
        }
        let at = counts.hasher.hash_one(user) as usize % USERS;
        let before = counts.users[at].fetch_add(self.amount, Ordering::AcqRel);
        self.by_user = Some((at, self.amount));
        before + self.amount <= (counts.max / 2).saturating_sub(uncounted).max(1)
    }

    /// Changes the amount, even above the limit.
    pub fn set(&mut self, amount: usize) {
        if amount > self.amount {
            self.counts.taken.fetch_add(amount - self.amount, Ordering::AcqRel);
        } else {
            self.counts.taken.fetch_sub(self.amount - amount, Ordering::AcqRel);
        }
        self.amount = amount;
    }

    /// Adds to the amount; false when too much is taken.
    #[must_use]
    pub fn grow(&mut self, more: usize) -> bool {
        self.set(self.amount + more);
        self.counts.taken.load(Ordering::Acquire) <= self.counts.max
    }

    /// As [`Slot::grow`], within the share of a user.
    #[must_use]
    pub fn grow_for(&mut self, user: &str, more: usize) -> bool {
        if !self.grow(more) {
            return false;
        }
        match self.by_user {
            None => self.count_for(user),
            Some((at, counted)) => {
                let before = self.counts.users[at].fetch_add(more, Ordering::AcqRel);
                self.by_user = Some((at, counted + more));
                before + more <= (self.counts.max / 2).saturating_sub(self.counts.max / 4).max(1)
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((at, counted)) = self.by_user {
            self.counts.users[at].fetch_sub(counted, Ordering::AcqRel);
        }
        self.counts.taken.fetch_sub(self.amount, Ordering::AcqRel);
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
    fn one_user_has_at_most_half() {
        let slots = Slots::new("test", 100);
        let mine: Vec<Slot> = std::iter::from_fn(|| slots.take_for("alice", 1)).take(1000).collect();
        assert_eq!(mine.len(), 50);
        assert_eq!(slots.taken(), 50, "a refused slot is released");
        assert!(slots.take_for("alice", 1).is_none());
        // At least one of a few names does not have the hash of alice.
        let other = ["bob", "carol", "dave", "erin"].into_iter().find_map(|user| slots.take_for(user, 1));
        assert!(other.is_some());
        drop((mine, other));
        assert_eq!(slots.taken(), 0);
        assert!(slots.0.users.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn amounts_can_grow_within_the_limit() {
        let bytes = Slots::new("test", 100);
        let mut held = bytes.take_for("alice", 10).unwrap();
        assert!(held.grow_for("alice", 10));
        assert!(!held.grow_for("alice", 70), "above the share of a user");
        drop(held);
        let mut held = bytes.take_many(40).unwrap();
        assert!(held.grow(60));
        assert!(!held.grow(1));
        held.set(5);
        assert_eq!(bytes.taken(), 5);
        drop(held);
        assert_eq!(bytes.taken(), 0);
        assert!(bytes.take_many(101).is_none());
    }

    #[test]
    fn every_limit_has_a_name() {
        let names: Vec<_> = Limits::default().named().iter().map(|(name, _)| *name).collect();
        let debug = format!("{:?}", Limits::default());
        assert_eq!(names.len(), debug.matches(": ").count(), "a field of Limits is missing in named()");
    }
}
