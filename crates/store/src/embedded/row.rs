//! A change as a row of the file, with its checksum.
//!
//! SQLite detects damage to the structure of its pages, not to their content. Every row therefore has a CRC-32 of all its
//! columns, verified whenever the row is read: a flipped bit becomes an error that names the key, never a wrong object.
//! The [`Tally`] does the same for the key index as a whole. Each row also names the one before it in its collection, so
//! that a scan by revision detects missing rows.

use bytes::Bytes;
use machinery::Revision;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};

use super::fault::Fault;
use crate::entry::Entry;
use crate::key::Key;

/// Value of `size` for a delete.
pub(super) const DELETED: i64 = -1;

/// One write as it is on disk.
#[derive(Debug)]
pub(super) struct StoredChange {
    pub(super) key: Key,
    pub(super) revision: Revision,
    /// The revision of the value this one replaced; zero for a create.
    pub(super) previous: Revision,
    /// `None` is a delete.
    pub(super) value: Option<Bytes>,
}

impl StoredChange {
    pub(super) fn into_entry(self) -> Option<Entry> {
        Some(Entry { value: self.value?, key: self.key, revision: self.revision })
    }

    /// Reads and checks a row of [`StoredRow`]'s columns.
    pub(super) fn read(row: &Row<'_>) -> Result<Self, Fault> {
        StoredRow::read(row)?.to_change()
    }
}

/// A checked row that borrows from SQLite, so that skipping it does not copy its value.
#[derive(Debug)]
pub(super) struct StoredRow<'r> {
    pub(super) key: &'r str,
    pub(super) revision: Revision,
    previous: Revision,
    /// The change before this one in the same collection; zero for the first.
    pub(super) prior: Revision,
    value: Option<&'r [u8]>,
}

impl<'r> StoredRow<'r> {
    /// Reads the columns `revision, key, previous, prior, size, sum, value` and checks them.
    pub(super) fn read(row: &'r Row<'_>) -> Result<Self, Fault> {
        let revision = revision(row, 0)?;
        Self::checked(row, revision).map_err(|fault| {
            if fault.is_corruption() {
                Fault::Corrupt(format!("the change of revision {revision} does not match its checksum ({fault})"))
            } else {
                fault
            }
        })
    }

    fn checked(row: &'r Row<'_>, revision: Revision) -> Result<Self, Fault> {
        let key = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let previous = self::revision(row, 2)?;
        let prior = self::revision(row, 3)?;
        let size: i64 = row.get(4)?;
        let sum: u32 = row.get(5)?;
        let value = row.get_ref(6)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
        if size != size_of(value) || sum != row_sum(revision, key, previous, prior, value) {
            return Err(Fault::Corrupt(format!("key {key:?}")));
        }
        Ok(StoredRow { key, revision, previous, prior, value })
    }

    pub(super) fn to_change(&self) -> Result<StoredChange, Fault> {
        let key = Key::new(self.key).map_err(|error| Fault::Corrupt(error.to_string()))?;
        let value = self.value.map(Bytes::copy_from_slice);
        Ok(StoredChange { key, revision: self.revision, previous: self.previous, value })
    }
}

/// Reads one change by its revision.
pub(super) struct ByRevision<'c>(CachedStatement<'c>);

impl<'c> ByRevision<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> Result<Self, Fault> {
        const SQL: &str = "SELECT revision, key, previous, prior, size, sum, value FROM changes WHERE revision = ?1";
        Ok(ByRevision(connection.prepare_cached(SQL)?))
    }

    pub(super) fn read(&mut self, revision: Revision) -> Result<StoredChange, Fault> {
        let found = self.0.query_row((revision.0 as i64,), |row| Ok(StoredChange::read(row))).optional()?;
        found.unwrap_or_else(|| Err(Fault::Corrupt(format!("the change of revision {revision} is missing"))))
    }

    /// The entry that an index or a later change refers to. Fails if the row has another key.
    pub(super) fn entry(&mut self, key: &str, revision: Revision) -> Result<Entry, Fault> {
        let change = self.read(revision)?;
        if change.key.as_str() != key {
            return Err(Fault::Corrupt(format!(
                "revision {revision} is listed under {key:?} but is of {}",
                change.key
            )));
        }
        let key = change.key.clone();
        change.into_entry().ok_or_else(|| Fault::Corrupt(format!("{key} has no value at revision {revision}")))
    }
}

pub(super) fn revision(row: &Row<'_>, column: usize) -> Result<Revision, Fault> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map(Revision).map_err(|_| Fault::Corrupt(format!("{number} is not a revision")))
}

pub(super) fn size_of(value: Option<&[u8]>) -> i64 {
    value.map_or(DELETED, |value| value.len() as i64)
}

pub(super) fn row_sum(revision: Revision, key: &str, previous: Revision, prior: Revision, value: Option<&[u8]>) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&revision.0.to_le_bytes());
    sum.update(&previous.0.to_le_bytes());
    sum.update(&prior.0.to_le_bytes());
    sum.update(&size_of(value).to_le_bytes());
    sum.update(key.as_bytes());
    sum.update(value.unwrap_or_default());
    sum.finalize()
}

/// A running count and digest of the (key, revision, size) in the key index. Independent of their order, so that a row
/// costs one addition when it is inserted and one subtraction when it is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) rows: i64,
    pub(super) digest: i64,
}

impl Tally {
    pub(super) fn add(&mut self, key: &str, revision: Revision, size: i64) {
        self.rows += 1;
        self.digest = self.digest.wrapping_add(Self::part(key, revision, size));
    }

    pub(super) fn remove(&mut self, key: &str, revision: Revision, size: i64) {
        self.rows -= 1;
        self.digest = self.digest.wrapping_sub(Self::part(key, revision, size));
    }

    fn part(key: &str, revision: Revision, size: i64) -> i64 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(key.as_bytes());
        sum.update(&revision.0.to_le_bytes());
        sum.update(&size.to_le_bytes());
        i64::from(sum.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_depends_on_every_column() {
        let sum = row_sum(Revision(7), "core/pods/a", Revision(3), Revision(6), Some(b"value"));
        for other in [
            row_sum(Revision(8), "core/pods/a", Revision(3), Revision(6), Some(b"value")),
            row_sum(Revision(7), "core/pods/b", Revision(3), Revision(6), Some(b"value")),
            row_sum(Revision(7), "core/pods/a", Revision(4), Revision(6), Some(b"value")),
            row_sum(Revision(7), "core/pods/a", Revision(3), Revision(5), Some(b"value")),
            row_sum(Revision(7), "core/pods/a", Revision(3), Revision(6), Some(b"valuf")),
        ] {
            assert_ne!(sum, other);
        }
        assert_ne!(
            row_sum(Revision(7), "core/pods/a", Revision(3), Revision(6), Some(b"")),
            row_sum(Revision(7), "core/pods/a", Revision(3), Revision(6), None)
        );
    }

    #[test]
    fn a_tally_forgets_what_is_removed() {
        let mut tally = Tally::default();
        tally.add("core/pods/a", Revision(1), 5);
        let before = tally;
        tally.add("core/pods/b", Revision(2), DELETED);
        assert_ne!(tally, before);
        tally.remove("core/pods/b", Revision(2), DELETED);
        assert_eq!(tally, before);
    }
}
