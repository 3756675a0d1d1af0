//! The way back to a state of the past: the writes that make the entries of now equal to it.

use std::cmp::Ordering;

use machinery::Revision;

use crate::contract::Write;
use crate::entry::Entry;

/// What [`crate::Store::restore`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The revision after it.
    pub revision: Revision,
    pub deleted: usize,
    pub modified: usize,
    pub added: usize,
}

impl Restored {
    /// Counts writes that are about to be made.
    pub(crate) fn count(&mut self, writes: &[Write]) {
        for write in writes {
            match (&write.value, write.expected) {
                (None, _) => self.deleted += 1,
                (Some(_), Some(_)) => self.modified += 1,
                (Some(_), None) => self.added += 1,
            }
        }
    }

    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.deleted + self.modified + self.added == 0
    }
}

/// The writes that lead from the entries of now to those that are wanted, both in the order of their keys: deletions, then changes,
/// then entries that are missing.
pub(crate) fn differences(current: &[Entry], wanted: &[Entry]) -> Vec<Write> {
    let (mut deletes, mut updates, mut creates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut current, mut wanted) = (current.iter().peekable(), wanted.iter().peekable());
    loop {
        let order = match (current.peek(), wanted.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(here), Some(there)) => here.key.cmp(&there.key),
        };
        let here = if order.is_le() { current.next() } else { None };
        let there = if order.is_ge() { wanted.next() } else { None };
        match (here, there) {
            (Some(here), None) => {
                deletes.push(Write { key: here.key.clone(), value: None, expected: Some(here.revision) });
            }
            // Compared although revisions tell: an entry that was written again may be what it was.
            (Some(here), Some(there)) if here.revision != there.revision && here.value != there.value => {
                let value = Some(there.value.clone());
                updates.push(Write { key: here.key.clone(), value, expected: Some(here.revision) });
            }
            (None, Some(there)) => {
                creates.push(Write { key: there.key.clone(), value: Some(there.value.clone()), expected: None });
            }
            _ => {}
        }
    }
    deletes.into_iter().chain(updates).chain(creates).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::key::Key;

    fn entry(name: &str, revision: u64, value: &'static str) -> Entry {
        let key = Key::new(format!("core/pods/default/{name}")).unwrap();
        Entry { key, revision: Revision(revision), value: Bytes::from_static(value.as_bytes()) }
    }

    #[test]
    fn wld_7_deletions_come_first_then_changes_then_what_is_missing() {
        let current = [entry("a", 1, "1"), entry("b", 9, "2"), entry("c", 5, "new"), entry("e", 7, "same")];
        let wanted = [entry("a", 1, "1"), entry("b", 2, "1"), entry("d", 3, "old"), entry("e", 4, "same")];
        let writes = differences(&current, &wanted);
        let shown: Vec<_> = writes
            .iter()
            .map(|write| (write.key.as_str().rsplit('/').next().unwrap(), write.value.is_some(), write.expected))
            .collect();
        assert_eq!(shown, [("c", false, Some(Revision(5))), ("b", true, Some(Revision(9))), ("d", true, None)]);
        let mut restored = Restored::default();
        restored.count(&writes);
        assert_eq!((restored.deleted, restored.modified, restored.added), (1, 1, 1));
        assert_eq!(differences(&wanted, &wanted), []);
    }
}
