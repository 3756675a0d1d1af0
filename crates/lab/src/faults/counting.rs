//! Which of the requests or events that match are hit.

use std::collections::HashSet;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::spec::When;

/// Objects that one fault remembers; those after them have no conflict.
const OBJECTS_MAX: usize = 100_000;

/// What has been counted for one fault.
#[derive(Debug)]
pub(crate) struct Count {
    matched: u64,
    hits: u64,
    /// The fault's own source of draws: the seed and the order of the requests decide, and nothing else.
    draws: StdRng,
    /// Objects that had their conflict already.
    objects: HashSet<String>,
}

impl Count {
    pub(crate) fn new(when: &When) -> Self {
        Count { matched: 0, hits: 0, draws: StdRng::seed_from_u64(when.seed.cast_unsigned()), objects: HashSet::new() }
    }

    /// Whether an object may still have its conflict.
    pub(crate) fn is_new(&self, object: &str) -> bool {
        self.objects.len() < OBJECTS_MAX && !self.objects.contains(object)
    }

    pub(crate) fn note(&mut self, object: String) {
        self.objects.insert(object);
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    pub(crate) fn is_exhausted(&self, when: &When) -> bool {
        when.times.is_some_and(|times| self.hits >= times)
    }

    /// Counts one that matches, and returns whether it is hit.
    pub(crate) fn hit(&mut self, when: &When) -> bool {
        if self.is_exhausted(when) {
            return false;
        }
        self.matched += 1;
        let Some(number) = self.matched.checked_sub(when.skip).filter(|number| *number > 0) else { return false };
        if when.every.is_some_and(|every| number % every != 0) {
            return false;
        }
        if when.probability.is_some_and(|probability| !self.draws.random_bool(probability.clamp(0.0, 1.0))) {
            return false;
        }
        self.hits += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(when: &When, of: usize) -> Vec<usize> {
        let mut count = Count::new(when);
        (1..=of).filter(|_| count.hit(when)).collect()
    }

    #[test]
    fn some_pass_first_and_then_so_many_are_hit() {
        assert_eq!(hits(&When::default(), 3), [1, 2, 3]);
        assert_eq!(hits(&When { skip: 2, times: Some(1), ..When::default() }, 6), [3]);
        assert_eq!(hits(&When { every: Some(3), ..When::default() }, 7), [3, 6]);
        assert_eq!(hits(&When { skip: 1, every: Some(2), times: Some(2), ..When::default() }, 9), [3, 5]);
    }

    #[test]
    fn draws_depend_on_the_seed_alone() {
        let with = |seed| When { probability: Some(0.3), seed, ..When::default() };
        assert_eq!(hits(&with(7), 200), hits(&with(7), 200));
        assert_ne!(hits(&with(7), 200), hits(&with(8), 200));
        assert!(hits(&When { probability: Some(0.0), ..When::default() }, 50).is_empty());
        assert_eq!(hits(&When { probability: Some(1.0), ..When::default() }, 50).len(), 50);
    }
}
