//! A histogram that many threads may add to without a lock: one atomic add for its bucket, one for its sum.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Into how many parts a histogram is spread that all threads add to at once.
const SPREAD: usize = 8;
/// Counts of one part end where the next cache line begins.
const LINE: usize = 128 / size_of::<AtomicU64>();

/// Counts of values in buckets. Values are whole units (nanoseconds, bytes); `scale` turns them into what is shown.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in units, ascending; the bucket above all of them has no bound.
    bounds: &'static [u64],
    parts: Box<[Part]>,
    scale: f64,
}

/// What some of the threads have added: a count for each bucket, and then the sum.
#[derive(Debug)]
struct Part(Box<[AtomicU64]>);

/// Threads take parts in turns.
fn part_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    PART.with(|part| *part)
}

impl Histogram {
    #[must_use]
    pub fn new(bounds: &'static [u64], scale: f64) -> Self {
        Self::of_parts(1, bounds, scale)
    }

    /// For what happens so often that threads would wait for each other's additions.
    #[must_use]
    pub fn spread(bounds: &'static [u64], scale: f64) -> Self {
        Self::of_parts(SPREAD, bounds, scale)
    }

    fn of_parts(parts: usize, bounds: &'static [u64], scale: f64) -> Self {
        let cells = (bounds.len() + 2).next_multiple_of(LINE);
        let part = |_| Part((0..cells).map(|_| AtomicU64::new(0)).collect());
        Histogram { bounds, parts: (0..parts).map(part).collect(), scale }
    }

    pub fn observe(&self, value: u64) {
        let part = if self.parts.len() == 1 { 0 } else { part_of_this_thread() % self.parts.len() };
        let Part(cells) = &self.parts[part];
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        cells[bucket].fetch_add(1, Ordering::Relaxed);
        cells[self.bounds.len() + 1].fetch_add(value, Ordering::Relaxed);
    }

    /// The sum over all parts of one of their cells.
    fn total(&self, cell: usize) -> u64 {
        self.parts.iter().map(|Part(cells)| cells[cell].load(Ordering::Relaxed)).sum()
    }

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        (0..=self.bounds.len()).map(|bucket| self.total(bucket)).sum()
    }

    /// Sum, count, and for each bucket its upper bound and own count, as the encoder wants them.
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
    fn what_several_threads_add_is_found_together() {
        let histogram = Histogram::spread(&[10, 20], 1.0);
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
