//! The agenda: one ordered list of the due times of all nodes.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// The position of an entry, for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(Instant, u64);

/// Entries by time, and by order of entry where times are equal.
pub(super) struct Agenda<T> {
    entries: BTreeMap<Place, T>,
    /// Those that are not routine.
    work: BTreeSet<Place>,
    count: u64,
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), work: BTreeSet::new(), count: 0 }
    }

    pub(super) fn add(&mut self, at: Instant, what: T) -> Place {
        let place = self.add_routine(at, what);
        self.work.insert(place);
        place
    }

    /// Adds work that repeats whether or not anything changes. A settlement does not wait for it.
    pub(super) fn add_routine(&mut self, at: Instant, what: T) -> Place {
        self.count += 1;
        let place = Place(at, self.count);
        self.entries.insert(place, what);
        place
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.entries.remove(&place);
        self.work.remove(&place);
    }

    /// The entries that are not routine, in their order.
    pub(super) fn work(&self) -> impl ExactSizeIterator<Item = (Instant, Option<&T>)> {
        self.work.iter().map(|place| (place.0, self.entries.get(place)))
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(place, _)| place.0)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<T> {
        let first = self.entries.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        self.work.remove(first.key());
        Some(first.remove())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn in_order_of_time_and_nothing_before_it() {
        let (mut agenda, now) = (Agenda::new(), Instant::now());
        let later = now + Duration::from_secs(1);
        let cancelled = agenda.add(now, "cancelled");
        agenda.add(later, "later");
        agenda.add(now, "first");
        agenda.add(now, "second");
        agenda.remove(cancelled);
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take_due(now)).collect();
        assert_eq!(taken, ["first", "second"]);
        assert_eq!(agenda.next_due(), Some(later));
        agenda.add_routine(now, "routine");
        let work: Vec<_> = agenda.work().collect();
        assert_eq!(work, [(later, Some(&"later"))]);
    }
}
