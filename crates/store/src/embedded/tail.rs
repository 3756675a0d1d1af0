//! The newest changes in memory, so that live watches never read the disk.

use std::collections::VecDeque;

use bytes::Bytes;
use machinery::Revision;

use crate::contract::Batch;
use crate::entry::{Change, Entry};
use crate::feed::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX};
use crate::key::Prefix;

/// The newest changes without a gap: every revision after `start` has its change here.
#[derive(Debug)]
pub(super) struct Tail {
    start: Revision,
    changes: VecDeque<Change>,
    bytes: usize,
    changes_max: usize,
    bytes_max: usize,
    /// The newest revision when [`Tail::age`] was last called.
    aged: Revision,
}

impl Tail {
    pub(super) fn new(start: Revision, changes_max: usize, bytes_max: usize) -> Self {
        Tail { start, changes: VecDeque::new(), bytes: 0, changes_max, bytes_max, aged: start }
    }

    /// Adds the change of the next revision and drops old ones beyond the bounds.
    pub(super) fn push(&mut self, change: Change) {
        debug_assert_eq!(change.revision.0, self.start.0 + self.changes.len() as u64 + 1, "the tail has no gaps");
        self.bytes += weight(&change);
        self.changes.push_back(change);
        while self.changes.len() > self.changes_max || self.bytes > self.bytes_max {
            if !self.drop_oldest() {
                break;
            }
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.changes.pop_front() else { return false };
        self.bytes -= weight(&oldest);
        self.start = oldest.revision;
        true
    }

    /// Drops what was there at the call before. Called at intervals, so that old changes take no memory: live watches need only
    /// those of the last moments.
    pub(super) fn age(&mut self) {
        while self.start < self.aged && self.drop_oldest() {}
        self.aged = self.changes.back().map_or(self.start, |newest| newest.revision);
        if self.changes.is_empty() {
            self.changes.shrink_to_fit();
        }
    }

    /// The value written at `revision`. Saves the writer a read for an object that changes often.
    pub(super) fn entry(&self, revision: Revision) -> Option<Entry> {
        let position = revision.0.checked_sub(self.start.0 + 1)?;
        let change = self.changes.get(usize::try_from(position).ok()?)?;
        Some(Entry { key: change.key.clone(), revision, value: change.value.clone()? })
    }

    /// A batch of the changes after `after`; `None` if the tail does not reach back that far.
    pub(super) fn read(&self, prefix: &Prefix, after: Revision) -> Option<Batch> {
        let position = usize::try_from(after.0.checked_sub(self.start.0)?).ok()?;
        let mut batch = Batch { changes: Vec::new(), revision: after };
        let mut bytes = 0;
        for change in self.changes.iter().skip(position) {
            batch.revision = change.revision;
            if prefix.contains(&change.key) {
                bytes += change.value.as_ref().map_or(0, Bytes::len);
                batch.changes.push(change.clone());
                if batch.changes.len() == BATCH_CHANGES_MAX || bytes >= BATCH_BYTES_MAX {
                    break;
                }
            }
        }
        Some(batch)
    }
}

fn weight(change: &Change) -> usize {
    change.value.as_ref().map_or(0, Bytes::len) + change.previous.as_ref().map_or(0, |previous| previous.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn change(revision: u64) -> Change {
        let key = Key::new(format!("core/pods/a/{revision}")).expect("well formed");
        Change { key, revision: Revision(revision), value: Some(Bytes::from_static(b"0123456789")), previous: None }
    }

    #[test]
    fn a_tail_keeps_the_newest_within_its_bounds() {
        let mut tail = Tail::new(Revision(5), 3, 1000);
        for revision in 6..=10 {
            tail.push(change(revision));
        }
        let all = Prefix::everything();
        assert!(tail.read(&all, Revision(6)).is_none(), "revision 7 is gone");
        let batch = tail.read(&all, Revision(7)).expect("retained");
        assert_eq!(batch.changes.iter().map(|change| change.revision.0).collect::<Vec<_>>(), [8, 9, 10]);
        assert_eq!(tail.read(&all, Revision(10)).expect("the end").changes, vec![]);
        assert!(tail.entry(Revision(7)).is_none() && tail.entry(Revision(11)).is_none());
        assert_eq!(tail.entry(Revision(9)).expect("retained").revision, Revision(9));

        let mut small = Tail::new(Revision(0), 100, 25);
        (1..=5).for_each(|revision| small.push(change(revision)));
        assert_eq!(small.read(&all, Revision(3)).expect("retained").changes.len(), 2);
        assert!(small.read(&all, Revision(2)).is_none(), "twenty-five bytes hold two values of ten");
    }

    #[test]
    fn changes_leave_after_two_intervals() {
        let mut tail = Tail::new(Revision(5), 100, 1000);
        tail.age();
        (6..=8).for_each(|revision| tail.push(change(revision)));
        tail.age();
        let all = Prefix::everything();
        assert_eq!(tail.read(&all, Revision(5)).expect("retained").changes.len(), 3);
        tail.push(change(9));
        tail.age();
        assert!(tail.read(&all, Revision(7)).is_none());
        assert_eq!(tail.read(&all, Revision(8)).expect("retained").changes.len(), 1);
        tail.age();
        assert_eq!((tail.changes.len(), tail.bytes, tail.start), (0, 0, Revision(9)));
        tail.push(change(10));
        assert_eq!(tail.read(&all, Revision(9)).expect("retained").changes.len(), 1);
    }
}
