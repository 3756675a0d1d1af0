//! Who waits for which moment.

use std::collections::BTreeSet;

use tokio::time::Instant;

/// The waits that have not ended, in the order in which they become due.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_moment: BTreeSet<Place>,
    next_number: u64,
}

/// The place of one wait.
pub(crate) type Place = (Instant, u64);

impl Waiting {
    pub(crate) fn add(&mut self, moment: Instant) -> Place {
        let place = (moment, self.next_number);
        self.next_number += 1;
        self.by_moment.insert(place);
        place
    }

    pub(crate) fn remove(&mut self, place: Place) {
        self.by_moment.remove(&place);
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.by_moment.first().map(|(moment, _)| *moment)
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.first().is_some_and(|first| first <= now)
    }
}
