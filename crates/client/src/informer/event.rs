//! `Event`: a change as a subscriber of an informer receives it.

use std::sync::Arc;

use crate::object::{Undecodable, typed};
use crate::queue::Certainty;
use crate::store::Snapshot;
use crate::{Key, Object, ResourceVersion, Stored};

/// A change as a subscriber receives it. The store already has this state, or a newer one (SI-6).
pub enum Event<K: ?Sized> {
    /// The object is new to this subscriber.
    Added {
        /// The object.
        object: Arc<K>,
        /// True if it existed when the subscriber joined, or is part of the informer's first set.
        initial: bool,
    },
    /// The object changed; if both are the same state, this is a resync.
    Updated {
        /// The state this subscriber saw last.
        old: Arc<K>,
        /// The current state.
        new: Arc<K>,
    },
    /// The object is gone.
    Deleted {
        /// Its last state; after an inferred deletion possibly not the very last.
        object: Arc<K>,
        /// Seen on the watch, or found missing by a relist.
        certainty: Certainty,
    },
    /// The object exists, but in a form that cannot be decoded.
    Undecodable {
        /// The object as the server sent it.
        item: Box<Undecodable>,
        /// The state this subscriber saw last. The store no longer has it.
        previous: Option<Arc<K>>,
    },
    /// The server's history went back to this version (a restored backup). The changes that follow lead from the old state to
    /// the new one; versions from before are no longer valid.
    HistoryReset {
        /// The current version.
        version: ResourceVersion,
    },
    /// The subscriber was too slow for its log. The snapshot is the current state; changes continue from there.
    Lagged {
        /// Number of changes that were not delivered.
        missed: u64,
        /// The set to start over from.
        snapshot: Arc<Snapshot<K>>,
    },
}

impl<K: ?Sized> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: object.clone(), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted { object, certainty } => Self::Deleted { object: object.clone(), certainty: *certainty },
            Self::Undecodable { item, previous } => {
                Self::Undecodable { item: item.clone(), previous: previous.clone() }
            }
            Self::HistoryReset { version } => Self::HistoryReset { version: version.clone() },
            Self::Lagged { missed, snapshot } => Self::Lagged { missed: *missed, snapshot: snapshot.clone() },
        }
    }
}

impl Event<dyn Stored> {
    /// The same with the type that the informer stores.
    pub(super) fn typed<K: Object>(self) -> Event<K> {
        match self {
            Self::Added { object, initial } => Event::Added { object: typed(object), initial },
            Self::Updated { old, new } => Event::Updated { old: typed(old), new: typed(new) },
            Self::Deleted { object, certainty } => Event::Deleted { object: typed(object), certainty },
            Self::Undecodable { item, previous } => Event::Undecodable { item, previous: previous.map(typed) },
            Self::HistoryReset { version } => Event::HistoryReset { version },
            Self::Lagged { .. } => unreachable!("subscriptions make this event themselves, from a typed snapshot"),
        }
    }
}

impl<K: Object> Event<K> {
    /// The object of the event: the new state, or the last one of a deleted object.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added { object, .. } | Self::Deleted { object, .. } => Some(object),
            Self::Updated { new, .. } => Some(new),
            Self::Undecodable { .. } | Self::HistoryReset { .. } | Self::Lagged { .. } => None,
        }
    }

    /// The key of the event's object. Deletions have one like all others (SI-16).
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Undecodable { item, .. } => Some(item.raw.key.clone()),
            other => other.object().map(|object| object.object_key()),
        }
    }

    /// True for an update that changed nothing.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new } if crate::object::same_state(&**old, &**new))
    }

    /// The event for a subscriber that sees only objects that pass `filter`: an object that begins to pass is an addition,
    /// one that ceases to pass is a deletion (SI-15).
    pub fn filtered(self, filter: impl Fn(&K) -> bool) -> Option<Self> {
        match self {
            Self::Updated { old, new } => match (filter(&old), filter(&new)) {
                (true, true) => Some(Self::Updated { old, new }),
                (false, true) => Some(Self::Added { object: new, initial: false }),
                (true, false) => Some(Self::Deleted { object: old, certainty: Certainty::Observed }),
                (false, false) => None,
            },
            Self::Added { object, initial } => filter(&object).then_some(Self::Added { object, initial }),
            Self::Deleted { object, certainty } => filter(&object).then_some(Self::Deleted { object, certainty }),
            Self::Undecodable { item, previous } => {
                let previous = previous.filter(|object| filter(object));
                Some(Self::Undecodable { item, previous })
            }
            other @ (Self::HistoryReset { .. } | Self::Lagged { .. }) => Some(other),
        }
    }
}

impl<K: Stored + ?Sized> std::fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |o: &Arc<K>| format!("{}@{}", o.key(), o.version());
        match self {
            Self::Added { object, initial: true } => write!(f, "initial {}", name(object)),
            Self::Added { object, initial: false } => write!(f, "added {}", name(object)),
            Self::Updated { old, new } => write!(f, "updated {} {}", name(old), name(new)),
            Self::Deleted { object, certainty: Certainty::Observed } => write!(f, "deleted {}", name(object)),
            Self::Deleted { object, certainty: Certainty::Inferred } => write!(f, "vanished {}", name(object)),
            Self::Undecodable { item, .. } => write!(f, "undecodable {}", item.raw.key),
            Self::HistoryReset { version } => write!(f, "reset {version}"),
            Self::Lagged { missed, snapshot } => write!(f, "lagged {missed}, {} objects", snapshot.items.len()),
        }
    }
}
