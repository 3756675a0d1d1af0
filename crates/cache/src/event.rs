//! A change to an object, shared by everyone who is told of it.

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
    /// To someone who saw the object before, or not, and sees it now, or not.
    fn of(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(EventKind::Added),
            (true, true) => Some(EventKind::Modified),
            (true, false) => Some(EventKind::Deleted),
        }
    }
}

/// One change: what the object was and what it is.
#[derive(Debug)]
pub struct Event {
    revision: Revision,
    current: Option<Arc<Item>>,
    previous: Option<Arc<Item>>,
    /// The old content at the new revision, made for the first watcher that the object left.
    departed: OnceLock<Arc<Item>>,
}

impl Event {
    pub(crate) fn new(revision: Revision, current: Option<Arc<Item>>, previous: Option<Arc<Item>>) -> Self {
        Event { revision, current, previous, departed: OnceLock::new() }
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

    /// What this change is to someone who sees only what the filter admits: an object that stops matching is deleted
    /// for them, one that starts matching is added.
    pub(crate) fn seen_through(&self, filter: &Filter) -> Option<EventKind> {
        let was = self.previous.as_ref().is_some_and(|item| filter.admits(item));
        let is = self.current.as_ref().is_some_and(|item| filter.admits(item));
        EventKind::of(was, is)
    }

    /// What this change is to someone who sees the object whatever becomes of it.
    pub(crate) fn to_anyone(&self) -> Option<EventKind> {
        EventKind::of(self.previous.is_some(), self.current.is_some())
    }

    /// The object to show with an event of this kind.
    pub(crate) fn item(&self, kind: EventKind) -> Option<&Arc<Item>> {
        match kind {
            EventKind::Added | EventKind::Modified => self.current.as_ref(),
            EventKind::Deleted => {
                let previous = self.previous.as_ref()?;
                Some(self.departed.get_or_init(|| Arc::new(previous.at_revision(self.revision))))
            }
        }
    }
}
