//! Regular ticks of a world's clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::WorldClock;

/// Ticks at once, and then each time that the period has passed since the last tick.
#[derive(Debug)]
pub struct Interval {
    clock: WorldClock,
    period: Duration,
    next: Instant,
}

impl Interval {
    pub(crate) fn new(clock: WorldClock, period: Duration) -> Self {
        let next = clock.instant();
        Interval { clock, period, next }
    }

    /// Waits for the next tick. A call that is given up loses nothing.
    pub async fn tick(&mut self) {
        self.clock.sleep_until(self.next).await;
        // Counted from now: ticks that were missed are not made up for.
        self.next = self.clock.instant() + self.period;
    }
}
