//! `Delta`: one change of the watched set, on its way from the reflector to the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::object::Undecodable;
use crate::{Key, Object, ResourceVersion, Stored};

/// One change. The reflector sends whole sets and single events; [`DeltaFifo`](super::DeltaFifo) turns a whole set into one
/// delta for each object, [`InOrderQueue`](super::InOrderQueue) keeps it whole.
pub enum Delta<K: ?Sized> {
    /// An ADDED event.
    Added(Arc<K>),
    /// A MODIFIED event.
    Updated(Arc<K>),
    /// The object is gone.
    Deleted(Deletion<K>),
    /// A relist found the object.
    Replaced(Arc<K>),
    /// A resync shows the object again.
    Sync(Arc<K>),
    /// A relist that is still under way found the object in a newer state. The version of the set does not move;
    /// [`Delta::ReplacedAll`] moves it, with [`Staged::Ahead`] in the place of this object.
    Ahead(Arc<K>),
    /// A relist: this is the whole set.
    ReplacedAll(Replacement<K>),
    /// A resync of the whole set.
    SyncAll,
    /// The set is current up to this version.
    Bookmark(ResourceVersion),
    /// The object exists in a form that cannot be read.
    Undecodable(Box<Undecodable>),
}

/// The source of the knowledge that an object is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The watch delivered it; the object is its last state.
    Observed,
    /// A relist no longer had the object; the state is the last one seen and may be stale. client-go's
    /// `DeletedFinalStateUnknown`.
    Inferred,
}

/// An object that is gone: client-go's tombstone, typed.
pub struct Deletion<K: ?Sized> {
    /// The key of the object.
    pub key: Key,
    /// The last known state, if any.
    pub object: Option<Arc<K>>,
    /// Observed on the watch, or inferred from a relist.
    pub certainty: Certainty,
}

/// A whole set.
pub struct Replacement<K: ?Sized> {
    /// The objects, in key order.
    pub items: BTreeMap<Key, Staged<K>>,
    /// The point in history that the set shows.
    pub version: ResourceVersion,
    /// The server's history went back: this version is older than one seen before (RF-18).
    pub history_reset: bool,
}

/// One object of a [`Replacement`].
pub enum Staged<K: ?Sized> {
    /// A readable object.
    Object(Arc<K>),
    /// An object that cannot be decoded.
    Undecodable(Box<Undecodable>),
    /// An object whose state was sent before the set was whole, as [`Delta::Ahead`].
    Ahead,
}

impl<K: ?Sized> Delta<K> {
    /// The object that changed; `None` for changes of the whole set.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object)
            | Self::Ahead(object) => Some(object),
            Self::Deleted(deletion) => deletion.object.as_ref(),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) | Self::Undecodable(_) => None,
        }
    }
}

impl<K: Stored + ?Sized> Delta<K> {
    /// The key of that object (tombstones included, DQ-3).
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Deleted(deletion) => Some(deletion.key.clone()),
            Self::Undecodable(undecodable) => Some(undecodable.raw.key.clone()),
            other => other.object().map(|object| object.key()),
        }
    }
}

impl<K: Object> Delta<K> {
    /// The same without the type.
    pub(crate) fn erased(self) -> Delta<dyn Stored> {
        match self {
            Self::Added(object) => Delta::Added(object),
            Self::Updated(object) => Delta::Updated(object),
            Self::Deleted(Deletion { key, object, certainty }) => {
                Delta::Deleted(Deletion { key, object: object.map(|object| object as Arc<dyn Stored>), certainty })
            }
            Self::Replaced(object) => Delta::Replaced(object),
            Self::Sync(object) => Delta::Sync(object),
            Self::Ahead(object) => Delta::Ahead(object),
            Self::ReplacedAll(Replacement { items, version, history_reset }) => {
                let items = items.into_iter().map(|(key, staged)| (key, staged.erased())).collect();
                Delta::ReplacedAll(Replacement { items, version, history_reset })
            }
            Self::SyncAll => Delta::SyncAll,
            Self::Bookmark(version) => Delta::Bookmark(version),
            Self::Undecodable(undecodable) => Delta::Undecodable(undecodable),
        }
    }
}

impl<K: Object> Staged<K> {
    fn erased(self) -> Staged<dyn Stored> {
        match self {
            Self::Object(object) => Staged::Object(object),
            Self::Undecodable(undecodable) => Staged::Undecodable(undecodable),
            Self::Ahead => Staged::Ahead,
        }
    }
}

impl<K: ?Sized> Clone for Delta<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Updated(object) => Self::Updated(object.clone()),
            Self::Deleted(deletion) => Self::Deleted(deletion.clone()),
            Self::Replaced(object) => Self::Replaced(object.clone()),
            Self::Sync(object) => Self::Sync(object.clone()),
            Self::Ahead(object) => Self::Ahead(object.clone()),
            Self::ReplacedAll(set) => Self::ReplacedAll(set.clone()),
            Self::SyncAll => Self::SyncAll,
            Self::Bookmark(version) => Self::Bookmark(version.clone()),
            Self::Undecodable(undecodable) => Self::Undecodable(undecodable.clone()),
        }
    }
}

impl<K: ?Sized> Clone for Deletion<K> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), object: self.object.clone(), certainty: self.certainty }
    }
}

impl<K: ?Sized> Clone for Replacement<K> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), version: self.version.clone(), history_reset: self.history_reset }
    }
}

impl<K: ?Sized> Clone for Staged<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(object.clone()),
            Self::Undecodable(undecodable) => Self::Undecodable(undecodable.clone()),
            Self::Ahead => Self::Ahead,
        }
    }
}

impl<K: Stored + ?Sized> fmt::Debug for Delta<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Added(_) => "Added",
            Self::Updated(_) => "Updated",
            Self::Deleted(deletion) if deletion.certainty == Certainty::Inferred => "Deleted?",
            Self::Deleted(_) => "Deleted",
            Self::Replaced(_) => "Replaced",
            Self::Sync(_) => "Sync",
            Self::Ahead(_) => "Ahead",
            Self::ReplacedAll(set) => return write!(f, "ReplacedAll({} @{})", set.items.len(), set.version),
            Self::SyncAll => return f.write_str("SyncAll"),
            Self::Bookmark(version) => return write!(f, "Bookmark({version})"),
            Self::Undecodable(_) => "Undecodable",
        };
        let version = self.object().map_or("-".into(), |object| object.version());
        write!(f, "{name}({}@{version})", self.key().map(|k| k.to_string()).unwrap_or_default())
    }
}
