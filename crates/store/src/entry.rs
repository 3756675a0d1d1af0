//! Entries of the log, and the changes that made them.

use bytes::Bytes;
use machinery::Revision;

use crate::key::Key;

/// An object as of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// The revision of the write that made this value.
    pub revision: Revision,
    pub value: Bytes,
}

/// One write, as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    /// The revision of this write. No other write has it.
    pub revision: Revision,
    /// The new value; `None` is a delete.
    pub value: Option<Bytes>,
    /// The entry before this write; `None` is a create. A delete always has one.
    pub previous: Option<Entry>,
}

impl Change {
    #[must_use]
    pub fn is_delete(&self) -> bool {
        self.value.is_none()
    }
}

/// Entries below a prefix at one revision, in byte order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of this state. Every entry's revision is at most this.
    pub revision: Revision,
    pub entries: Vec<Entry>,
    /// Number of entries with the prefix after the last one here.
    pub remaining: u64,
}
