//! A change to an object, shared by all watchers that receive it.

use std::sync::{Arc, OnceLock};

use machinery::Revision;
use store::Key;

use crate::filter::Filter;
use crate::item::Item;

/// How a watcher sees a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    /// The kind for a watcher to which the object was and is visible, or not.
    fn from_visibility(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(EventKind::Added),
            (true, true) => Some(EventKind::Modified),
            (true, false) => Some(EventKind::Deleted),
        }
    }
}

/// One change: the object before and after it.
#[derive(Debug)]
pub struct Event {
    revision: Revision,
    current: Option<Arc<Item>>,
    previous: Option<Arc<Item>>,
    /// The old content at the new revision, created for the first watcher that gets a deletion.
    deleted: OnceLock<Arc<Item>>,
}

impl Event {
    pub(crate) fn new(revision: Revision, current: Option<Arc<Item>>, previous: Option<Arc<Item>>) -> Self {
        Event { revision, current, previous, deleted: OnceLock::new() }
    }

    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The key of the object that changed.
    #[must_use]
    pub fn key(&self) -> &Key {
        let item = self.current.as_ref().or(self.previous.as_ref());
        item.expect("an event has a state before or after it").key()
    }

    /// The object after the change; none if it was deleted.
    #[must_use]
    pub fn current(&self) -> Option<&Arc<Item>> {
        self.current.as_ref()
    }

    /// The object before the change; none if it was created.
    #[must_use]
    pub fn previous(&self) -> Option<&Arc<Item>> {
        self.previous.as_ref()
    }

    /// The kind of this change for a watcher with a filter: an object that stops matching is deleted, one that starts
    /// matching is added.
    pub(crate) fn kind_for(&self, filter: &Filter) -> Option<EventKind> {
        let was = self.previous.as_ref().is_some_and(|item| filter.admits(item));
        let is = self.current.as_ref().is_some_and(|item| filter.admits(item));
        EventKind::from_visibility(was, is)
    }

    /// The kind of this change for a watcher without a filter.
    pub(crate) fn kind_unfiltered(&self) -> Option<EventKind> {
        EventKind::from_visibility(self.previous.is_some(), self.current.is_some())
    }

    /// The object to send with an event of this kind.
    pub(crate) fn item(&self, kind: EventKind) -> Option<&Arc<Item>> {
        match kind {
            EventKind::Added | EventKind::Modified => self.current.as_ref(),
            EventKind::Deleted => {
                let previous = self.previous.as_ref()?;
                Some(self.deleted.get_or_init(|| Arc::new(previous.at_revision(self.revision))))
            }
        }
    }
}
