//! The schedule of resyncs (SI-9).
//!
//! The informer checks at a fixed period; a subscriber that wants a resync every 70 s, with checks every 30 s, gets one every
//! 90 s. Without a check period there are no resyncs.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::from_now;

/// Shortest period of a resync; shorter ones are raised to it.
const PERIOD_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct ResyncSchedule {
    check: Option<Duration>,
    running: bool,
    subscribers: Vec<Subscriber>,
}

#[derive(Debug)]
struct Subscriber {
    id: u64,
    period: Duration,
    next: Instant,
}

impl ResyncSchedule {
    pub(super) fn new(check: Option<Duration>) -> Self {
        Self { check: check.filter(|period| !period.is_zero()), running: false, subscribers: Vec::new() }
    }

    /// Fixes the check period and returns it.
    pub(super) fn start(&mut self) -> Option<Duration> {
        self.running = true;
        for subscriber in &mut self.subscribers {
            subscriber.next = from_now(subscriber.period);
        }
        self.check
    }

    pub(super) fn add(&mut self, id: u64, wanted: Option<Duration>) {
        let (Some(check), Some(wanted)) = (self.check, wanted.filter(|period| !period.is_zero())) else { return };
        let mut period = wanted.max(PERIOD_MIN);
        if period < check {
            if self.running {
                period = check;
            } else {
                self.check = Some(period);
            }
        }
        self.subscribers.push(Subscriber { id, period, next: from_now(period) });
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.subscribers.retain(|subscriber| subscriber.id != id);
    }

    /// Returns the subscribers that are due, and schedules each again one period from now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<u64> {
        let due = self.subscribers.iter_mut().filter(|subscriber| now >= subscriber.next);
        due.map(|subscriber| {
            subscriber.next = now.checked_add(subscriber.period).unwrap_or_else(|| from_now(subscriber.period));
            subscriber.id
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn si_09_without_a_check_period_there_are_no_resyncs() {
        for check in [None, Some(Duration::ZERO)] {
            let mut schedule = ResyncSchedule::new(check);
            schedule.add(1, Some(s(30)));
            assert_eq!(schedule.start(), None);
            assert!(schedule.due(Instant::now() + s(3600)).is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn si_09_before_the_start_the_check_period_follows_the_smallest_period() {
        let mut schedule = ResyncSchedule::new(Some(s(60)));
        schedule.add(1, Some(s(20)));
        schedule.add(2, Some(Duration::from_millis(10)));
        assert_eq!(schedule.start(), Some(s(1)), "and never below a second");
    }

    #[tokio::test(start_paused = true)]
    async fn si_09_after_the_start_a_small_period_is_raised() {
        let mut schedule = ResyncSchedule::new(Some(s(60)));
        schedule.start();
        schedule.add(1, Some(s(20)));
        assert!(schedule.due(Instant::now() + s(59)).is_empty());
        assert_eq!(schedule.due(Instant::now() + s(60)), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn si_09_a_period_is_rounded_up_to_whole_checks() {
        let mut schedule = ResyncSchedule::new(Some(s(30)));
        schedule.add(1, Some(s(70)));
        let start = Instant::now();
        schedule.start();
        let seen: Vec<u64> = (1..=6).map(|n| n * 30).filter(|t| !schedule.due(start + s(*t)).is_empty()).collect();
        assert_eq!(seen, [90, 180]);
    }
}
