//! How a measurement is taken: latencies by percentile, processor time of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Latencies of one kind of call, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Latency {
    #[must_use]
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |share: f64| {
            let position = ((samples.len() as f64 * share).ceil() as usize).clamp(1, samples.len().max(1)) - 1;
            samples.get(position).map_or(0.0, |sample| sample.as_secs_f64() * 1e6)
        };
        Latency { p50_us: at(0.50), p99_us: at(0.99), max_us: at(1.0) }
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
    fn work_takes_processor_time() {
        let before = processor_time();
        let mut sum = 0_u64;
        while processor_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(processor_time() > before);
    }
}
