//! The agenda: one ordered list of the due times of all nodes.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// The position of an entry, for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(Instant, u64);

/// Entries by time, and by order of entry where times are equal.
pub(super) struct Agenda<T> {
    entries: BTreeMap<Place, T>,
    count: u64,
}

impl<T> Agenda<T> {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), count: 0 }
    }

    pub(super) fn add(&mut self, at: Instant, what: T) -> Place {
        self.count += 1;
        let place = Place(at, self.count);
        self.entries.insert(place, what);
        place
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.entries.remove(&place);
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(place, _)| place.0)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<T> {
        let first = self.entries.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

#[cfg(test)]
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
    }
}
