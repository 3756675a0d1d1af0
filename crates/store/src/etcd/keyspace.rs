//! Layout of the keys in etcd: objects below the prefix, and two records of the engine that no key can collide with.
//!
//! ```text
//! /registry/\0compaction             the last compaction, and which revision was current when
//! /registry/\0progress               written only to advance the log; see `watch`
//! /registry/core/pods/default/web-0  an object
//! ```
//!
//! A [`Key`] never has a NUL, so the records sort before every object and a list of everything starts after them. They are
//! below the prefix so that an etcd user with access to the prefix alone can run a server, and so that the watch on the
//! prefix sees them.

use bytes::Bytes;
use machinery::Revision;

use super::fault::Fault;
use super::messages::{KeyValue, ResponseHeader};
use crate::entry::Entry;
use crate::key::{Key, Prefix};

#[derive(Clone, Debug)]
pub(super) struct Keyspace {
    prefix: String,
}

impl Keyspace {
    pub(super) fn new(prefix: String) -> Self {
        Keyspace { prefix }
    }

    /// The key in etcd of an object.
    pub(super) fn object(&self, key: &Key) -> Bytes {
        [&self.prefix, key.as_str()].concat().into()
    }

    pub(super) fn compaction_record(&self) -> Bytes {
        [&self.prefix, "\0compaction"].concat().into()
    }

    pub(super) fn progress_record(&self) -> Bytes {
        [&self.prefix, "\0progress"].concat().into()
    }

    /// The range of the objects below a prefix, after `start_after` if it is given: first key, and exclusive end.
    pub(super) fn objects(&self, prefix: &Prefix, start_after: Option<&str>) -> (Bytes, Bytes) {
        // Only the engine's records have a NUL after the prefix.
        let first = if prefix.as_str().is_empty() { "\u{1}" } else { prefix.as_str() };
        let start = match start_after {
            Some(after) if after >= first => [&self.prefix, after, "\0"].concat(),
            _ => [&self.prefix, first].concat(),
        };
        (start.into(), end_of(&[&self.prefix, prefix.as_str()].concat()))
    }

    /// The range of all objects and records.
    pub(super) fn everything(&self) -> (Bytes, Bytes) {
        (self.prefix.clone().into(), end_of(&self.prefix))
    }

    /// The object key of a key in etcd; `None` for the engine's records and for foreign keys below the prefix.
    pub(super) fn key(&self, bytes: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(bytes.strip_prefix(self.prefix.as_bytes())?).ok()?;
        Key::new(text).ok()
    }

    pub(super) fn entry(&self, kv: KeyValue) -> Option<Entry> {
        Some(Entry { key: self.key(&kv.key)?, revision: revision(kv.mod_revision), value: kv.value.into() })
    }
}

/// The revision in the header of an answer. etcd sets one in every answer and never zero; without the check, a missing
/// header would pass for revision zero.
pub(super) fn header_revision(header: Option<&ResponseHeader>) -> Result<Revision, Fault> {
    match header {
        Some(header) if header.revision > 0 => Ok(revision(header.revision)),
        _ => Err(Fault::Corrupt("an answer of etcd has no revision".to_owned())),
    }
}

/// Converts etcd's signed revision, which is never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

/// Converts to etcd's signed revision. One beyond its range stays a future revision.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The smallest key greater than every key with this prefix. A prefix is UTF-8, so its last byte is below 0xff.
fn end_of(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_outside_every_list_and_inside_the_watch() {
        let space = Keyspace::new("/registry/".to_owned());
        let (start, end) = space.objects(&Prefix::everything(), None);
        let (all_start, all_end) = space.everything();
        for record in [space.compaction_record(), space.progress_record()] {
            assert!(record < start);
            assert!(all_start <= record && record < all_end);
            assert!(space.key(&record).is_none());
        }
        let key = Key::new("core/pods/default/a").unwrap();
        assert!(start <= space.object(&key) && space.object(&key) < end);
        assert_eq!(space.key(&space.object(&key)), Some(key));
    }

    #[test]
    fn a_list_starts_after_a_key_that_need_not_exist() {
        let space = Keyspace::new("/r/".to_owned());
        let pods = Prefix::new("core/pods/");
        assert_eq!(space.objects(&pods, Some("core/pods/a")).0, "/r/core/pods/a\0");
        assert_eq!(space.objects(&pods, Some("apps/x")).0, "/r/core/pods/");
        assert_eq!(space.objects(&pods, None).1, "/r/core/pods0");
        assert_eq!(space.objects(&Prefix::everything(), None).1, "/r0");
    }
}
