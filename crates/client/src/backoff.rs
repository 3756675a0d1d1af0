//! Delays after failures: exponential steps with jitter, reset by a healthy stream.

use std::time::Duration;

use tokio::time::Instant;

/// The parameters of a [`Backoff`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffConfig {
    /// The first step before jitter.
    pub base: Duration,
    /// No step before jitter exceeds this.
    pub cap: Duration,
    /// Each step is this much longer than the one before.
    pub factor: f64,
    /// Jitter adds up to this share of the step.
    pub jitter: f64,
    /// A stream that lived this long was healthy: the next failure starts over.
    pub healthy_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(800),
            cap: Duration::from_secs(30),
            factor: 2.0,
            jitter: 1.0,
            healthy_after: Duration::from_secs(120),
        }
    }
}

/// Longest delay that a server can request: one wrong header must not stop a client for days.
const HINT_MAX: Duration = Duration::from_secs(600);

/// Growing delays. One per reflector, shared by every kind of retry, so that alternating failures still slow down.
///
/// Steps start over only after a healthy stream (one that lived `healthy_after`). A plain timer, as in client-go, falls back to
/// the first step every two minutes of a lasting outage.
///
/// ```
/// use std::time::Duration;
///
/// use client::backoff::{Backoff, BackoffConfig};
///
/// let mut backoff = Backoff::new(BackoffConfig::default());
/// let first = backoff.next(None);
/// assert!(first >= Duration::from_millis(800) && first <= Duration::from_millis(1600));
/// // The server requested more.
/// assert!(backoff.next(Some(Duration::from_secs(20))) >= Duration::from_secs(20));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    config: BackoffConfig,
    steps: u32,
}

impl Backoff {
    /// A backoff at its first step.
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, steps: 0 }
    }

    /// The next delay; at least `hint`, the delay that the server requested.
    pub fn next(&mut self, hint: Option<Duration>) -> Duration {
        let grown = self.config.base.as_secs_f64() * self.config.factor.powi(self.steps.min(64) as i32);
        let base = grown.min(self.config.cap.as_secs_f64());
        self.steps = self.steps.saturating_add(1);
        let jittered = base * (1.0 + rand::random::<f64>() * self.config.jitter);
        let own = Duration::try_from_secs_f64(jittered).unwrap_or(self.config.cap);
        own.max(hint.unwrap_or_default().min(HINT_MAX))
    }

    /// Records the end of a stream that was opened at `opened`.
    pub fn stream_ended(&mut self, opened: Instant) {
        if opened.elapsed() >= self.config.healthy_after {
            self.steps = 0;
        }
    }

    /// Number of delays since the last reset.
    pub fn steps(&self) -> u32 {
        self.steps
    }
}

/// The instant that is `duration` from now.
pub(crate) fn from_now(duration: Duration) -> Instant {
    after(Instant::now(), duration)
}

/// The instant `duration` after `now`; a duration that overflows means "never", here in 30 years.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    now.checked_add(duration).unwrap_or(now + Duration::from_secs(30 * 365 * 24 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_stay_in_their_bands() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let bands =
            [(0.8, 1.6), (1.6, 3.2), (3.2, 6.4), (6.4, 12.8), (12.8, 25.6), (25.6, 51.2), (30.0, 60.0), (30.0, 60.0)];
        for (low, high) in bands {
            let delay = backoff.next(None).as_secs_f64();
            assert!(delay >= low && delay <= high, "{delay} not in {low}..{high}");
        }
    }

    #[test]
    fn better_07_the_servers_wish_is_a_floor() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        assert!(backoff.next(Some(Duration::from_secs(70))) >= Duration::from_secs(70));
        assert!(backoff.next(Some(Duration::MAX)) <= HINT_MAX, "within reason");
    }

    #[tokio::test(start_paused = true)]
    async fn better_07_only_a_healthy_stream_starts_over() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        for _ in 0..4 {
            backoff.next(None);
        }
        let opened = Instant::now();
        tokio::time::advance(Duration::from_secs(60)).await;
        backoff.stream_ended(opened);
        assert_eq!(backoff.steps(), 4, "one minute proves nothing");
        tokio::time::advance(Duration::from_secs(61)).await;
        backoff.stream_ended(opened);
        assert_eq!(backoff.steps(), 0);
    }
}
