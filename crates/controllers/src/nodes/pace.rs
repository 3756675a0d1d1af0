//! How fast the stages of one object may follow each other.

use std::time::Duration;

use tokio::time::Instant;

/// Steps of one object that may follow each other at once, in a second.
const STEPS_A_SECOND_MAX: u32 = 50;
const SECOND: Duration = Duration::from_secs(1);

/// Slows down an object whose steps follow each other without an end, such as stages without a delay that always match.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    since: Option<Instant>,
    steps: u32,
}

impl Pace {
    /// The wait before the next step, which should follow after this time.
    pub(super) fn wait(&mut self, now: Instant, after: Duration) -> Duration {
        if self.since.is_none_or(|since| now.duration_since(since) >= SECOND) {
            *self = Pace { since: Some(now), steps: 0 };
        }
        self.steps += 1;
        if self.steps > STEPS_A_SECOND_MAX { after.max(SECOND) } else { after }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;

    #[test]
    fn kw_7_steps_without_an_end_are_slowed_down() {
        let start = Instant::now();
        let mut pace = Pace::default();
        let waits: Vec<Duration> = (0..60).map(|_| pace.wait(start, Duration::ZERO)).collect();
        assert_eq!(waits.iter().filter(|wait| **wait == SECOND).count(), 10);
        assert_eq!(pace.wait(start + SECOND, Duration::ZERO), Duration::ZERO, "a second later it may go on");
        assert_eq!(pace.wait(start + SECOND, SECOND * 9), SECOND * 9);
    }
}
