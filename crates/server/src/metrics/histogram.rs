//! A histogram without a lock: a value costs one atomic add for its bucket and one for the sum.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Shards of a histogram that all threads add to at the same time.
const SHARDS: usize = 8;
/// Cells of a shard are padded to a multiple of 128 bytes, so that shards share no cache line.
const LINE: usize = 128 / size_of::<AtomicU64>();

/// Counts of values in buckets. Values are whole units (nanoseconds, bytes); `scale` converts them to the exported unit.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in units, ascending; one more bucket has no bound.
    bounds: &'static [u64],
    shards: Box<[Shard]>,
    scale: f64,
}

/// The values of some of the threads: a count for each bucket, then the sum.
#[derive(Debug)]
struct Shard(Box<[AtomicU64]>);

/// Assigns shards to threads in turn.
fn shard_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    SHARD.with(|shard| *shard)
}

impl Histogram {
    #[must_use]
    pub fn new(bounds: &'static [u64], scale: f64) -> Self {
        Self::with_shards(1, bounds, scale)
    }

    /// For values so frequent that threads would contend for the same cells.
    #[must_use]
    pub fn sharded(bounds: &'static [u64], scale: f64) -> Self {
        Self::with_shards(SHARDS, bounds, scale)
    }

    fn with_shards(shards: usize, bounds: &'static [u64], scale: f64) -> Self {
        let cells = (bounds.len() + 2).next_multiple_of(LINE);
        let shard = |_| Shard((0..cells).map(|_| AtomicU64::new(0)).collect());
        Histogram { bounds, shards: (0..shards).map(shard).collect(), scale }
    }

    pub fn observe(&self, value: u64) {
        let shard = if self.shards.len() == 1 { 0 } else { shard_of_this_thread() % self.shards.len() };
        let Shard(cells) = &self.shards[shard];
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        cells[bucket].fetch_add(1, Ordering::Relaxed);
        cells[self.bounds.len() + 1].fetch_add(value, Ordering::Relaxed);
    }

    /// The sum of one cell over all shards.
    fn total(&self, cell: usize) -> u64 {
        self.shards.iter().map(|Shard(cells)| cells[cell].load(Ordering::Relaxed)).sum()
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        (0..=self.bounds.len()).map(|bucket| self.total(bucket)).sum()
    }

    /// Sum, count, and for each bucket its upper bound and own count, in the order of the encoder's arguments.
    #[must_use]
    pub fn read(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = (0..=self.bounds.len()).map(|bucket| self.total(bucket)).collect();
        let bounds = self.bounds.iter().map(|bound| *bound as f64 * self.scale).chain([f64::MAX]);
        let sum = self.total(self.bounds.len() + 1) as f64 * self.scale;
        (sum, counts.iter().sum(), bounds.zip(counts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_threads_are_added_up() {
        let histogram = Histogram::sharded(&[10, 20], 1.0);
        std::thread::scope(|scope| {
            for thread in 0..20 {
                let histogram = &histogram;
                scope.spawn(move || (0..100).for_each(|_| histogram.observe(thread)));
            }
        });
        let (sum, count, buckets) = histogram.read();
        assert_eq!((count, histogram.count()), (2000, 2000));
        assert!((sum - 19_000.0).abs() < 1e-9);
        assert_eq!(buckets.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1100, 900, 0]);
    }

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
