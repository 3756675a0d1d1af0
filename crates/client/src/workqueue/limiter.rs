//! Delays of failing keys. The figures are client-go's.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Item;

/// Decides the delay of a key after a failure.
pub trait RateLimiter<T>: Send + Sync + 'static {
    /// Counts a failure at `now` of the queue's clock and returns the delay.
    fn when(&self, item: &T, now: Instant) -> Duration;
    /// Resets the count of a key.
    fn forget(&self, item: &T);
    /// Number of counted failures of a key.
    fn retries(&self, item: &T) -> u32;
}

/// Each key: 5 ms, doubled with every failure, at most 1000 s. All keys together: 10 a second, bursts of 100.
pub fn default_limiter<T: Item>() -> MaxOf<T> {
    let item = ItemExponential::new(Duration::from_millis(5), Duration::from_secs(1000));
    MaxOf::new(vec![Box::new(item), Box::new(TokenBucket::new(10.0, 100))])
}

/// The rule by which failures of a key are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counting {
    /// A failure counts only after the delay of the previous one has passed: a key that an outside event brings back early
    /// is not counted twice (WQ-11).
    #[default]
    Served,
    /// Every failure counts, as in client-go.
    Every,
}

/// A delay for each key, doubled with every failure.
pub struct ItemExponential<T> {
    base: Duration,
    cap: Duration,
    counting: Counting,
    failures: Mutex<HashMap<T, Failures>>,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    /// End of the last delay.
    served_at: Instant,
}

impl<T: Item> ItemExponential<T> {
    /// Delays of `base`, 2 × `base`, … up to `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, counting: Counting::default(), failures: Mutex::default() }
    }

    /// Sets the rule by which failures are counted.
    pub fn counting(mut self, counting: Counting) -> Self {
        self.counting = counting;
        self
    }

    fn delay(&self, earlier: u32) -> Duration {
        let factor = 2f64.powi(earlier.min(1000) as i32);
        let seconds = self.base.as_secs_f64() * factor;
        if seconds >= self.cap.as_secs_f64() { self.cap } else { Duration::from_secs_f64(seconds) }
    }
}

impl<T: Item> RateLimiter<T> for ItemExponential<T> {
    fn when(&self, item: &T, now: Instant) -> Duration {
        let mut failures = self.failures.lock();
        let entry = failures.entry(item.clone()).or_insert(Failures { count: 0, served_at: now });
        let early = entry.count > 0 && now < entry.served_at;
        if !early || self.counting == Counting::Every {
            entry.count = entry.count.saturating_add(1);
        }
        let delay = self.delay(entry.count - 1);
        entry.served_at = now + delay;
        delay
    }

    fn forget(&self, item: &T) {
        self.failures.lock().remove(item);
    }

    fn retries(&self, item: &T) -> u32 {
        self.failures.lock().get(item).map_or(0, |failures| failures.count)
    }
}

/// One budget for all keys: a rate, with bursts. A token is taken even when another limiter returns a longer delay (WQ-7).
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// The tokens at the last failure; none before the first.
    state: Mutex<Option<(f64, Instant)>>,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second, burst, state: Mutex::default() }
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&self, _: &T, now: Instant) -> Duration {
        let mut state = self.state.lock();
        let (tokens, at) = state.unwrap_or((self.burst, now));
        let tokens = (tokens + now.saturating_duration_since(at).as_secs_f64() * self.per_second).min(self.burst) - 1.0;
        *state = Some((tokens, now));
        if tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-tokens / self.per_second) }
    }
    fn forget(&self, _: &T) {}
    fn retries(&self, _: &T) -> u32 {
        0
    }
}

/// The longest delay of several limiters.
pub struct MaxOf<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOf<T> {
    /// Combines these limiters.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T: Item> RateLimiter<T> for MaxOf<T> {
    fn when(&self, item: &T, now: Instant) -> Duration {
        // All are called: each counts the failure.
        self.limiters.iter().map(|limiter| limiter.when(item, now)).max().unwrap_or_default()
    }
    fn forget(&self, item: &T) {
        self.limiters.iter().for_each(|limiter| limiter.forget(item));
    }
    fn retries(&self, item: &T) -> u32 {
        self.limiters.iter().map(|limiter| limiter.retries(item)).max().unwrap_or_default()
    }
}

/// A short delay for the first failures of a key, a long one for the rest.
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    fast_failures: u32,
    failures: Mutex<HashMap<T, u32>>,
}

impl<T: Item> FastSlow<T> {
    /// `fast` for `fast_failures` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, fast_failures: u32) -> Self {
        Self { fast, slow, fast_failures, failures: Mutex::default() }
    }
}

impl<T: Item> RateLimiter<T> for FastSlow<T> {
    fn when(&self, item: &T, _: Instant) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(item.clone()).or_default();
        *count = count.saturating_add(1);
        if *count <= self.fast_failures { self.fast } else { self.slow }
    }
    fn forget(&self, item: &T) {
        self.failures.lock().remove(item);
    }
    fn retries(&self, item: &T) -> u32 {
        self.failures.lock().get(item).copied().unwrap_or(0)
    }
}

/// A limiter with a maximum delay.
pub struct Capped<L> {
    /// The inner limiter.
    pub limiter: L,
    /// The longest delay.
    pub cap: Duration,
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for Capped<L> {
    fn when(&self, item: &T, now: Instant) -> Duration {
        self.limiter.when(item, now).min(self.cap)
    }
    fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }
    fn retries(&self, item: &T) -> u32 {
        self.limiter.retries(item)
    }
}
