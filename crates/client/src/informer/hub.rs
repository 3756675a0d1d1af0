//! The hub: changes the store and fills the mailboxes.
//!
//! Both happen under one lock. A subscriber that joins takes that lock too, so the state that it finds in the store and the
//! changes that follow fit together exactly: nothing is lost or repeated (SI-2). The lock is never held across an await;
//! mailboxes never block, so neither does the hub.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::mailbox::{Mailbox, Synced, decide};
use super::resync::ResyncSchedule;
use super::shared::{InformerError, SubscriptionOptions};
use crate::Stored;
use crate::metrics::Durations;
use crate::queue::{Batch, Delta};
use crate::store::{Applied, ErasedWriter, Scope};

pub(super) struct Hub {
    state: Mutex<State>,
    synced: watch::Sender<Synced>,
    /// Time to apply and distribute a batch.
    processing: Arc<Durations>,
}

struct State {
    writer: Box<dyn ErasedWriter>,
    subscribers: Vec<(u64, Arc<Mailbox>)>,
    next_id: u64,
    resync: ResyncSchedule,
    /// Sources whose first set is still missing.
    missing: BTreeSet<Scope>,
    stopped: bool,
}

impl State {
    /// For delivery without the lock: a handler may call any method of the informer.
    fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        self.subscribers.iter().map(|(_, mailbox)| mailbox.clone()).collect()
    }
}

impl Hub {
    pub(super) fn new(writer: Box<dyn ErasedWriter>, scopes: &[Scope], check: Option<Duration>) -> Self {
        let state = State {
            writer,
            subscribers: Vec::new(),
            next_id: 0,
            resync: ResyncSchedule::new(check),
            missing: scopes.iter().cloned().collect(),
            stopped: false,
        };
        Self { state: Mutex::new(state), synced: watch::Sender::new(Synced::NotYet), processing: Arc::default() }
    }

    pub(super) fn synced(&self) -> watch::Receiver<Synced> {
        self.synced.subscribe()
    }

    /// Applies a batch of a source's queue, and delivers its changes to all subscribers.
    pub(super) fn process(&self, scope: &Scope, batch: Batch<dyn Stored>) {
        let began = std::time::Instant::now();
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        let is_set = batch.deltas.iter().any(|delta| matches!(delta, Delta::ReplacedAll(_)));
        let initial = !state.missing.is_empty();
        let changes = state.writer.apply_erased(scope, batch.deltas);
        for change in &changes {
            let unchanged = matches!(change, Applied::Unchanged(_));
            for (_, mailbox) in &state.subscribers {
                if !unchanged || mailbox.repeat_unchanged {
                    mailbox.push(change, initial);
                }
            }
        }
        if initial && (is_set || !batch.initial) {
            state.missing.remove(scope);
            if state.missing.is_empty() {
                for (_, mailbox) in &state.subscribers {
                    mailbox.push_sync_mark();
                }
                decide(&self.synced, Synced::Yes);
            }
        }
        let mailboxes = state.mailboxes();
        drop(state);
        self.processing.observe(began.elapsed());
        mailboxes.iter().for_each(|mailbox| mailbox.deliver());
    }

    /// Adds a subscriber: its mailbox has all objects, then every change.
    pub(super) fn join(&self, options: &SubscriptionOptions) -> Result<(u64, Arc<Mailbox>), InformerError> {
        let mut state = self.state.lock();
        if state.stopped {
            return Err(InformerError::Stopped);
        }
        let mailbox = Arc::new(Mailbox::new(options.delivery, options.repeat_unchanged));
        // There may be more initial objects than its log holds: then it starts with a snapshot.
        for object in state.writer.objects() {
            mailbox.push(&Applied::Added(object), true);
        }
        if state.missing.is_empty() {
            mailbox.push_sync_mark();
        }
        let id = state.next_id;
        state.next_id += 1;
        state.resync.add(id, options.resync);
        state.subscribers.push((id, mailbox.clone()));
        Ok((id, mailbox))
    }

    /// Removes a subscriber. Its backlog is dropped.
    pub(super) fn leave(&self, id: u64) {
        let mut state = self.state.lock();
        state.resync.remove(id);
        if let Some(at) = state.subscribers.iter().position(|(known, _)| *known == id) {
            let (_, mailbox) = state.subscribers.swap_remove(at);
            mailbox.close();
        }
    }

    /// Calls `read` under the lock, so that no change is between a snapshot that it takes and the mailboxes.
    pub(super) fn locked<R>(&self, read: impl FnOnce() -> R) -> R {
        let _state = self.state.lock();
        read()
    }

    pub(super) fn start_resync(&self) -> Option<Duration> {
        self.state.lock().resync.start()
    }

    /// Delivers all objects again to the subscribers that are due.
    pub(super) fn resync(&self) {
        let mut state = self.state.lock();
        let due = state.resync.due(Instant::now());
        if due.is_empty() || !state.missing.is_empty() {
            return;
        }
        for object in state.writer.objects() {
            for (_, mailbox) in state.subscribers.iter().filter(|(id, _)| due.contains(id)) {
                mailbox.push(&Applied::Unchanged(object.clone()), false);
            }
        }
        let mailboxes = state.mailboxes();
        drop(state);
        mailboxes.iter().for_each(|mailbox| mailbox.deliver());
    }

    /// Closes all mailboxes. Later batches are ignored.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        for (_, mailbox) in state.subscribers.drain(..) {
            mailbox.close();
        }
        decide(&self.synced, Synced::Never);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    pub(super) fn processing(&self) -> Arc<Durations> {
        self.processing.clone()
    }

    pub(super) fn backlogs(&self) -> Vec<usize> {
        self.state.lock().subscribers.iter().map(|(_, mailbox)| mailbox.len()).collect()
    }
}
