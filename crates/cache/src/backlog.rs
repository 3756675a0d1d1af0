//! What an open watch has not been sent yet, for those who look at it from outside.

use std::sync::Arc;

use machinery::Revision;

use crate::collection::Collection;
use crate::watcher::Mailbox;

/// The changes of a watch that it has not been sent, as far as they are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub changes: usize,
    /// Bytes of the objects of these changes.
    pub bytes: usize,
    /// The first of them.
    pub oldest: Option<Revision>,
}

/// The collection and the filter of a watch.
#[derive(Clone)]
pub struct WatchScope {
    collection: Arc<Collection>,
    mailbox: Arc<Mailbox>,
}

impl WatchScope {
    pub(crate) fn new(collection: Arc<Collection>, mailbox: Arc<Mailbox>) -> Self {
        WatchScope { collection, mailbox }
    }

    /// What the watch has not been sent if it has everything up to `sent`.
    #[must_use]
    pub fn backlog(&self, sent: Revision) -> Backlog {
        let events: Vec<_> = {
            let state = self.collection.state.lock();
            let from = sent.max(state.history.floor());
            state.history.after(from, usize::MAX).cloned().collect()
        };
        let mut backlog = Backlog::default();
        for event in events {
            let Some(kind) = event.kind_for(self.mailbox.filter()) else { continue };
            backlog.changes += 1;
            backlog.bytes += event.item(kind).map_or(0, |item| item.len());
            backlog.oldest.get_or_insert(event.revision());
        }
        backlog
    }
}
