//! Latencies by percentile, and the processor time of this process.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Latencies of one kind of call, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Latency {
    #[must_use]
    pub fn of(samples: Vec<Duration>) -> Self {
        let latencies = Latencies::new();
        samples.into_iter().for_each(|sample| latencies.record(sample));
        latencies.summary().unwrap_or_default()
    }
}

/// Latencies of many tasks, with an error of at most one in a thousand.
pub struct Latencies {
    microseconds: Mutex<Histogram<u64>>,
}

impl Latencies {
    const LONGEST_US: u64 = 3_600_000_000;

    #[must_use]
    #[allow(clippy::missing_panics_doc, reason = "the bounds are constants that hdrhistogram accepts")]
    pub fn new() -> Self {
        let empty = Histogram::new_with_bounds(1, Self::LONGEST_US, 3).expect("bounds that make sense");
        Latencies { microseconds: Mutex::new(empty) }
    }

    pub fn record(&self, latency: Duration) {
        let microseconds = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.lock().saturating_record(microseconds.clamp(1, Self::LONGEST_US));
    }

    pub(crate) fn count(&self) -> u64 {
        self.microseconds.lock().len()
    }

    /// `None` without a sample.
    #[must_use]
    pub fn summary(&self) -> Option<Latency> {
        let held = self.microseconds.lock();
        let at = |quantile| held.value_at_quantile(quantile) as f64;
        (!held.is_empty()).then(|| Latency { p50_us: at(0.50), p99_us: at(0.99), max_us: held.max() as f64 })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Processor time this process has used, user and system.
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        let latency = Latency::of(samples);
        assert_eq!((latency.p50_us.round(), latency.p99_us.round(), latency.max_us.round()), (50.0, 99.0, 100.0));
        assert_eq!(Latency::of(Vec::new()).max_us, 0.0);
    }

    #[test]
    fn very_long_latencies_are_counted() {
        let latencies = Latencies::new();
        assert!(latencies.summary().is_none());
        latencies.record(Duration::MAX);
        latencies.record(Duration::ZERO);
        assert_eq!(latencies.count(), 2);
        let summary = latencies.summary().expect("there are two");
        assert!(summary.max_us >= 3.5e9 && summary.p50_us <= 1.0, "{summary:?}");
    }

    #[test]
    fn work_takes_processor_time() {
        let before = processor_time();
        let mut sum = 0_u64;
        while processor_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(processor_time() > before);
    }
}
