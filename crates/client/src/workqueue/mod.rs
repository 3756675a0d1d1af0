//! `WorkQueue`: keys that need work, each at most once at a time.
//!
//! - `state`: the sets of keys; no clock and no locks of its own
//! - `limiter`: the delays of failing keys
//! - `queues`: all queues of a program by name
//!
//! The timer is not a task: a worker that waits for a key also waits for the end of the next delay. So there is nothing to
//! stop, and nothing outlives the queue.

mod limiter;
mod queues;
mod state;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use clock::WorldClock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use limiter::{Capped, Counting, FastSlow, ItemExponential, MaxOf, RateLimiter, TokenBucket, default_limiter};
pub use queues::{Figures, KeyState, PublishedFigures, Queues};

use crate::metrics::{Counter, Durations};
use state::State;

/// A priority. Higher is served first, lower is never starved.
pub type Priority = i32;

/// The usual priority.
pub const NORMAL: Priority = 0;
/// For work that is not urgent: initial objects and resyncs.
pub const LOW: Priority = -100;

/// A key of a queue.
pub trait Item: Clone + Eq + Hash + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + Send + Sync + 'static> Item for T {}

/// Keys that need work. Clones are the same queue.
///
/// ```
/// use client::workqueue::WorkQueue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = WorkQueue::new();
/// queue.add("default/web");
/// queue.add("default/web"); // waits already
/// assert_eq!(queue.len(), 1);
/// let work = queue.get().await.unwrap();
/// queue.add("default/web"); // needs work again; no other worker gets it before this one is done
/// assert!(queue.is_empty());
/// work.succeed();
/// assert_eq!(queue.len(), 1);
/// # }
/// ```
pub struct WorkQueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Notified when a key is ready, an earlier delay was added, or the queue was shut down.
    changed: Notify,
    /// Notified when work is done.
    done: Notify,
    limiter: Box<dyn RateLimiter<T>>,
    /// Delays and waits are measured by it.
    clock: WorldClock,
    metrics: Arc<QueueMetrics>,
}

/// The counters of a queue.
#[derive(Debug, Default)]
pub struct QueueMetrics {
    /// Number of keys that were put in line.
    pub adds: Counter,
    /// Number of delayed adds.
    pub retries: Counter,
    /// Time that keys waited.
    pub queue_duration: Durations,
    /// Time that work took.
    pub work_duration: Durations,
}

/// The figures of a queue at one moment.
pub struct QueueReport<'a> {
    /// Number of keys in line.
    pub depth: usize,
    /// Number of keys whose delay has not passed.
    pub delayed: usize,
    /// Number of keys in work.
    pub processing: usize,
    /// The time that all unfinished work has taken so far.
    pub unfinished: Duration,
    /// The time that the oldest unfinished work has taken so far.
    pub longest_running: Duration,
    /// The counters.
    pub metrics: &'a QueueMetrics,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Item> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Item> WorkQueue<T> {
    /// A queue with the default limiter.
    pub fn new() -> Self {
        Self::with_limiter(default_limiter())
    }

    /// A queue with another limiter.
    pub fn with_limiter(limiter: impl RateLimiter<T>) -> Self {
        Self::with_limiter_and_clock(limiter, WorldClock::system())
    }

    /// A queue whose delays follow a clock that may be stopped or moved.
    pub fn with_limiter_and_clock(limiter: impl RateLimiter<T>, clock: WorldClock) -> Self {
        let shared = Shared {
            state: Mutex::new(State::new()),
            changed: Notify::new(),
            done: Notify::new(),
            limiter: Box::new(limiter),
            clock,
            metrics: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a key.
    pub fn add(&self, item: T) {
        self.add_with_priority(item, NORMAL);
    }

    /// Adds a key; of several priorities the highest counts.
    pub fn add_with_priority(&self, item: T, priority: Priority) {
        if self.shared.state.lock().add(item, priority, self.now()) {
            self.shared.metrics.adds.inc();
        }
        self.shared.changed.notify_one();
    }

    /// Adds a key after a delay; of several delays the earliest end counts. An add without a delay in the meantime is separate
    /// work (WQ-5).
    pub fn add_after(&self, item: T, delay: Duration) {
        self.add_after_with_priority(item, delay, NORMAL);
    }

    /// The same with a priority.
    pub fn add_after_with_priority(&self, item: T, delay: Duration, priority: Priority) {
        if delay.is_zero() {
            self.shared.metrics.retries.inc();
            return self.add_with_priority(item, priority);
        }
        let now = self.now();
        self.shared.metrics.retries.inc();
        self.shared.state.lock().add_at(item, now + delay.min(LONGEST_DELAY), priority);
        // Every waiting worker must see an earlier end; one of them will sleep until it.
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// Adds a key that failed, after the delay of the limiter.
    pub fn add_rate_limited(&self, item: T) {
        self.add_rate_limited_with_priority(item, NORMAL);
    }

    /// The same with a priority.
    pub fn add_rate_limited_with_priority(&self, item: T, priority: Priority) {
        let delay = self.shared.limiter.when(&item, self.now());
        self.add_after_with_priority(item, delay, priority);
    }

    /// Resets the failures of a key in the limiter.
    pub fn forget(&self, item: &T) {
        self.shared.limiter.forget(item);
    }

    /// Number of failures of a key.
    pub fn retries(&self, item: &T) -> u32 {
        self.shared.limiter.retries(item)
    }

    /// Waits for a key. `None` once the queue is shut down and empty. Dropping the future loses nothing.
    pub async fn get(&self) -> Option<Work<T>> {
        loop {
            let changed = self.shared.changed.notified();
            let next_due = {
                let mut state = self.shared.state.lock();
                let now = self.now();
                self.promote(&mut state, now);
                if let Some(taken) = state.take(now) {
                    self.shared.metrics.queue_duration.observe(taken.waited);
                    if state.has_ready() {
                        self.shared.changed.notify_one();
                    }
                    return Some(Work {
                        item: taken.item,
                        priority: taken.priority,
                        queue: self.clone(),
                        started: Instant::now(),
                    });
                }
                if state.is_shut_down() {
                    // Other workers may wait too.
                    self.shared.changed.notify_one();
                    return None;
                }
                state.next_due()
            };
            match next_due {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = self.shared.clock.sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    fn now(&self) -> Instant {
        self.shared.clock.instant()
    }

    fn promote(&self, state: &mut State<T>, now: Instant) {
        let promoted = state.promote_due(now);
        self.shared.metrics.adds.add(promoted as u64);
    }

    /// Refuses further keys. Those in line can still be taken, delayed ones are dropped.
    pub fn shut_down(&self) {
        self.shared.state.lock().shut_down();
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
        self.shared.done.notify_waiters();
    }

    /// True after `shut_down`.
    pub fn is_shut_down(&self) -> bool {
        self.shared.state.lock().is_shut_down()
    }

    /// Shuts down and waits until nothing waits and nothing is worked on, or until the deadline. Returns the keys
    /// that were left.
    pub async fn drain(&self, deadline: Option<Duration>) -> Vec<T> {
        self.shut_down();
        let empty = async {
            loop {
                let done = self.shared.done.notified();
                if self.shared.state.lock().is_empty() {
                    return;
                }
                done.await;
            }
        };
        match deadline {
            None => empty.await,
            Some(limit) => {
                let _ = tokio::time::timeout(limit, empty).await;
            }
        }
        self.shared.state.lock().remainder()
    }

    /// The number of keys in line.
    pub fn len(&self) -> usize {
        let mut state = self.shared.state.lock();
        self.promote(&mut state, self.now());
        state.depth()
    }

    /// True if no key is in line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current figures.
    pub fn report(&self) -> QueueReport<'_> {
        let now = self.now();
        let mut state = self.shared.state.lock();
        self.promote(&mut state, now);
        let (unfinished, longest_running) = state.running_times(now);
        QueueReport {
            depth: state.depth(),
            delayed: state.delayed(),
            processing: state.processing(),
            unfinished,
            longest_running,
            metrics: &self.shared.metrics,
        }
    }

    fn finish(&self, item: &T, started: Instant) {
        self.shared.metrics.work_duration.observe(started.elapsed());
        let requeued = self.shared.state.lock().done(item, self.now());
        if requeued {
            self.shared.changed.notify_one();
        }
        self.shared.done.notify_waiters();
    }
}

/// Longest delay; a longer one could overflow the clock.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// A key in work. No other worker gets it until this is dropped; if it was added meanwhile, it is in line again then.
pub struct Work<T: Item> {
    item: T,
    priority: Priority,
    queue: WorkQueue<T>,
    started: Instant,
}

impl<T: Item> Work<T> {
    /// The key.
    pub fn item(&self) -> &T {
        &self.item
    }

    /// The priority with which it waited.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Ends failed work: the key is added again after the delay of the limiter.
    pub fn retry(self) {
        self.queue.add_rate_limited_with_priority(self.item.clone(), self.priority);
    }

    /// Ends successful work: resets the failures of the key.
    pub fn succeed(self) {
        self.queue.forget(&self.item);
    }
}

impl<T: Item> Drop for Work<T> {
    fn drop(&mut self) {
        self.queue.finish(&self.item, self.started);
    }
}

#[cfg(test)]
mod tests;
