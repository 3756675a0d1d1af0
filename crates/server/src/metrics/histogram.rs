//! A histogram that many threads may add to without a lock: one atomic add for its bucket, one for its sum.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values in buckets. Values are whole units (nanoseconds, bytes); `scale` turns them into what is shown.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in units, ascending; the bucket above all of them has no bound.
    bounds: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    scale: f64,
}

impl Histogram {
    #[must_use]
    pub fn new(bounds: &'static [u64], scale: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0), scale }
    }

    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Sum, count, and for each bucket its upper bound and own count, as the encoder wants them.
    #[must_use]
    pub fn read(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let bounds = self.bounds.iter().map(|bound| *bound as f64 * self.scale).chain([f64::MAX]);
        let sum = self.sum.load(Ordering::Relaxed) as f64 * self.scale;
        (sum, counts.iter().sum(), bounds.zip(counts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_that_bounds_them() {
        let histogram = Histogram::new(&[10, 20], 0.1);
        for value in [0, 10, 11, 20, 21, 1000] {
            histogram.observe(value);
        }
        let (sum, count, buckets) = histogram.read();
        assert_eq!(count, 6);
        assert!((sum - 106.2).abs() < 1e-9);
        assert_eq!(buckets.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 2, 2]);
        assert!((buckets[0].0 - 1.0).abs() < 1e-9);
    }
}
