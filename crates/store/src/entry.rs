//! What the log holds: entries, and the changes that made them.

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
    /// The revision this write got. Exactly one write has it.
    pub revision: Revision,
    /// The new value; `None` is a delete.
    pub value: Option<Bytes>,
    /// What was there just before; `None` is a create. A delete always has it.
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
    /// The revision this is the state of. Every entry's revision is at most this.
    pub revision: Revision,
    pub entries: Vec<Entry>,
    /// How many entries with the prefix follow the last one here.
    pub remaining: u64,
}
