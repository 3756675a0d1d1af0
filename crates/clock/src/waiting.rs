//! Who waits for which moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

/// The waits that have not ended, in the order in which they become due.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_moment: BTreeMap<Place, Arc<str>>,
    next_number: u64,
}

/// The place of one wait.
pub(crate) type Place = (Instant, u64);

impl Waiting {
    pub(crate) fn add(&mut self, moment: Instant, who: Arc<str>) -> Place {
        let place = (moment, self.next_number);
        self.next_number += 1;
        self.by_moment.insert(place, who);
        place
    }

    pub(crate) fn remove(&mut self, place: Place) {
        self.by_moment.remove(&place);
    }

    pub(crate) fn first(&self) -> Option<(Instant, &Arc<str>)> {
        self.by_moment.first_key_value().map(|((moment, _), who)| (*moment, who))
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.first().is_some_and(|(first, _)| first <= now)
    }
}
