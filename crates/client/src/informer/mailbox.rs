//! The events that wait for one subscriber.
//!
//! client-go keeps every notification of a slow handler, without limit. Here a subscriber chooses:
//!
//! - [`Delivery::Latest`]: one entry for each key. However slow the subscriber is, it finds at most one change for each
//!   object that exists or was deleted, from the state it saw last to the current one.
//! - [`Delivery::Every`]: every change, in a log of bounded length. If the log overflows, the subscriber receives
//!   [`Event::Lagged`] with a snapshot to start over from.
//!
//! A pending entry of `Latest`, by example (the subscriber saw `a@1`):
//!
//! ```text
//! updated to 2, updated to 5            -> Updated 1 → 5
//! updated to 2, deleted                 -> Deleted
//! deleted, added as another incarnation -> Deleted, then Added
//! and for an object it never saw:
//! added, updated, deleted               -> nothing
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Event;
use super::inline_handler::InlineHandler;
use crate::object::Undecodable;
use crate::queue::Certainty;
use crate::store::Applied;
use crate::{Key, ResourceVersion, Stored};

/// The form in which changes wait for a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// One entry for each key: the change from the state seen last to the current one.
    #[default]
    Latest,
    /// Every change, at most this many; then [`Event::Lagged`].
    Every {
        /// The length of the log.
        capacity: usize,
    },
}

/// Delivery of the initial objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    NotYet,
    Yes,
    /// The informer or the subscription ended before.
    Never,
}

/// Waits until the state is decided; true if synced.
pub(super) async fn decided(mut synced: watch::Receiver<Synced>) -> bool {
    synced.wait_for(|state| *state != Synced::NotYet).await.is_ok_and(|state| *state == Synced::Yes)
}

/// Sets the state unless it is decided already.
pub(super) fn decide(synced: &watch::Sender<Synced>, outcome: Synced) {
    synced.send_if_modified(|state| {
        let open = *state == Synced::NotYet;
        if open {
            *state = outcome;
        }
        open
    });
}

pub(super) struct Mailbox {
    state: Mutex<State>,
    /// Called with new events without a wake-up. Weak: it owns the subscriber, which owns this mailbox.
    inline_handler: OnceLock<Weak<InlineHandler>>,
    /// Yes once all initial objects were taken and the subscriber requested the next event (SI-10).
    synced: watch::Sender<Synced>,
    /// Deliver objects that a relist found unchanged (SI-8).
    pub(super) repeat_unchanged: bool,
}

struct State {
    backlog: Backlog,
    closed: bool,
    /// Set while the subscriber waits.
    subscriber: Option<Waker>,
}

impl State {
    fn is_empty(&self) -> bool {
        match &self.backlog {
            Backlog::Latest(latest) => latest.order.is_empty() && latest.second_event.is_none(),
            Backlog::Every(log) => log.entries.is_empty() && log.missed == 0,
        }
    }

    fn len(&self) -> usize {
        match &self.backlog {
            Backlog::Latest(latest) => latest.pending.len(),
            Backlog::Every(log) => log.entries.len(),
        }
    }

    fn register(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.subscriber = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Largest backlog that is handled inline; more would delay the source.
const INLINE_EVENTS_MAX: usize = 16;

enum Backlog {
    Latest(Latest),
    Every(Log),
}

/// The result of taking from a mailbox.
pub(super) enum TakeResult {
    Event(Event<dyn Stored>),
    /// The log overflowed: a snapshot is needed, taken under the hub's lock.
    NeedsSnapshot,
    Nothing,
    Closed,
}

impl Mailbox {
    pub(super) fn new(delivery: Delivery, repeat_unchanged: bool) -> Self {
        let backlog = match delivery {
            Delivery::Latest => Backlog::Latest(Latest::new()),
            Delivery::Every { capacity } => Backlog::Every(Log::new(capacity.max(1))),
        };
        Self {
            state: Mutex::new(State { backlog, closed: false, subscriber: None }),
            inline_handler: OnceLock::new(),
            synced: watch::Sender::new(Synced::NotYet),
            repeat_unchanged,
        }
    }

    /// Registers the handler that `deliver` may call inline.
    pub(super) fn set_inline_handler(&self, handler: &Arc<InlineHandler>) {
        let _ = self.inline_handler.set(Arc::downgrade(handler));
    }

    /// Adds a change. The subscriber is notified by `deliver`.
    pub(super) fn push(&self, change: &Applied<dyn Stored>, initial: bool) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        match &mut state.backlog {
            Backlog::Latest(latest) => latest.push(change, initial),
            Backlog::Every(log) => log.push(change, initial),
        }
    }

    /// Notifies the subscriber of what was pushed: calls a handler that keeps up inline, wakes any other subscriber. The
    /// caller must hold no lock: a handler may call any method of the informer.
    pub(super) fn deliver(&self) {
        let mut state = self.state.lock();
        if state.is_empty() && !state.closed {
            return;
        }
        let is_short = state.len() <= INLINE_EVENTS_MAX;
        let Some(subscriber) = state.subscriber.take() else { return };
        drop(state);
        let handler = self.inline_handler.get().and_then(Weak::upgrade);
        let called = is_short && handler.is_some_and(|handler| handler.call());
        if !called {
            subscriber.wake();
        }
    }

    /// Marks the end of the initial objects; a subscriber that takes past this mark has synced.
    pub(super) fn push_sync_mark(&self) {
        match &mut self.state.lock().backlog {
            Backlog::Latest(latest) => {
                latest.append(Slot::SyncMark);
            }
            Backlog::Every(log) => log.push_sync_mark(),
        }
    }

    pub(super) fn take(&self) -> TakeResult {
        let mut state = self.state.lock();
        if state.closed {
            return TakeResult::Closed;
        }
        let mut passed_mark = false;
        let taken = match &mut state.backlog {
            Backlog::Latest(latest) => latest.take(&mut passed_mark).map_or(TakeResult::Nothing, TakeResult::Event),
            Backlog::Every(log) if log.missed > 0 => TakeResult::NeedsSnapshot,
            Backlog::Every(log) => log.take(&mut passed_mark).map_or(TakeResult::Nothing, TakeResult::Event),
        };
        drop(state);
        if passed_mark {
            decide(&self.synced, Synced::Yes);
        }
        taken
    }

    /// Starts over after an overflow, and returns the number of missed changes. The caller holds the hub's lock while it takes
    /// a snapshot, so that the snapshot is exactly the result of those changes.
    pub(super) fn start_over(&self) -> Option<u64> {
        match &mut self.state.lock().backlog {
            Backlog::Latest(_) => None,
            Backlog::Every(log) => log.start_over(),
        }
    }

    /// Waits until there is something to take.
    pub(super) async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.closed || !state.is_empty() { Poll::Ready(()) } else { state.register(cx) }
        })
        .await;
    }

    /// Waits until the mailbox is closed.
    pub(super) async fn wait_closed(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.closed { Poll::Ready(()) } else { state.register(cx) }
        })
        .await;
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        match &mut state.backlog {
            Backlog::Latest(latest) => *latest = Latest::new(),
            Backlog::Every(log) => log.entries.clear(),
        }
        let subscriber = state.subscriber.take();
        drop(state);
        decide(&self.synced, Synced::Never);
        if let Some(subscriber) = subscriber {
            subscriber.wake();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().len()
    }

    pub(super) fn synced(&self) -> watch::Receiver<Synced> {
        self.synced.subscribe()
    }
}

// ---- Latest ----

/// Largest capacity, in entries, that an empty mailbox keeps allocated.
const CAPACITY_KEPT: usize = 1024;

struct Latest {
    /// Arrival order. A tree and not a list, so that an entry that cancels out leaves nothing behind.
    order: BTreeMap<u64, Slot>,
    pending: HashMap<Key, Pending>,
    next_turn: u64,
    /// The addition of an entry that is both a deletion and an addition.
    second_event: Option<Event<dyn Stored>>,
}

enum Slot {
    Key(Key),
    SyncMark,
    Reset(ResourceVersion),
}

struct Pending {
    turn: u64,
    /// The state that the subscriber saw last; `None` if it does not know the object.
    seen: Option<Arc<dyn Stored>>,
    /// The incarnation that it saw, if that was deleted and another one was created.
    replaced: Option<(Arc<dyn Stored>, Certainty)>,
    current: Current,
    initial: bool,
}

/// The current state of a key.
enum Current {
    Present(Arc<dyn Stored>),
    Absent(Arc<dyn Stored>, Certainty),
    Undecodable(Box<Undecodable>),
}

impl Latest {
    fn new() -> Self {
        Self { order: BTreeMap::new(), pending: HashMap::new(), next_turn: 0, second_event: None }
    }

    fn append(&mut self, slot: Slot) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.order.insert(turn, slot);
        turn
    }

    fn push(&mut self, change: &Applied<dyn Stored>, initial: bool) {
        let (key, seen, current) = match change {
            Applied::Added(new) => (new.key(), None, Current::Present(new.clone())),
            Applied::Updated { old, new } => (new.key(), Some(old.clone()), Current::Present(new.clone())),
            Applied::Unchanged(object) => {
                let key = object.key();
                if self.pending.contains_key(&key) {
                    return; // a newer change waits already
                }
                (key, Some(object.clone()), Current::Present(object.clone()))
            }
            Applied::Deleted { object, certainty } => {
                (object.key(), Some(object.clone()), Current::Absent(object.clone(), *certainty))
            }
            Applied::Undecodable { item, previous } => {
                (item.raw.key.clone(), previous.clone(), Current::Undecodable(item.clone()))
            }
            Applied::HistoryReset(version) => {
                self.append(Slot::Reset(version.clone()));
                return;
            }
        };
        if let Some(pending) = self.pending.get_mut(&key) {
            if pending.merge(current) == Merged::CancelledOut {
                let turn = pending.turn;
                self.pending.remove(&key);
                self.order.remove(&turn);
            }
            return;
        }
        let turn = self.append(Slot::Key(key.clone()));
        self.pending.insert(key, Pending { turn, seen, replaced: None, current, initial });
    }

    fn take(&mut self, passed_mark: &mut bool) -> Option<Event<dyn Stored>> {
        if let Some(event) = self.second_event.take() {
            return Some(event);
        }
        while let Some((_, slot)) = self.order.pop_first() {
            match slot {
                Slot::SyncMark => *passed_mark = true,
                Slot::Reset(version) => return Some(Event::HistoryReset { version }),
                Slot::Key(key) => {
                    if let Some(pending) = self.pending.remove(&key) {
                        let (first, second) = pending.into_events();
                        self.second_event = second;
                        return Some(first);
                    }
                }
            }
        }
        // The first set, or a relist, allocated an entry for every object. That is rare, so the memory is returned.
        if self.pending.capacity() > CAPACITY_KEPT {
            self.pending = HashMap::new();
        }
        None
    }
}

#[derive(PartialEq)]
enum Merged {
    StillPending,
    CancelledOut,
}

impl Pending {
    /// Merges a later change into this entry.
    fn merge(&mut self, current: Current) -> Merged {
        match (&self.current, current) {
            // Deleted and created again: the incarnation that was seen is still gone.
            (Current::Absent(object, certainty), Current::Present(new)) => {
                self.replaced = Some((object.clone(), *certainty));
                self.current = Current::Present(new);
            }
            (_, Current::Absent(object, certainty)) => {
                if self.seen.is_none() {
                    return Merged::CancelledOut;
                }
                let (object, certainty) = self.replaced.take().unwrap_or((object, certainty));
                self.current = Current::Absent(object, certainty);
            }
            (_, current) => self.current = current,
        }
        Merged::StillPending
    }

    fn into_events(self) -> (Event<dyn Stored>, Option<Event<dyn Stored>>) {
        match (self.seen, self.replaced, self.current) {
            (previous, _, Current::Undecodable(item)) => (Event::Undecodable { item, previous }, None),
            (_, _, Current::Absent(object, certainty)) => (Event::Deleted { object, certainty }, None),
            (_, Some((object, certainty)), Current::Present(new)) => {
                (Event::Deleted { object, certainty }, Some(Event::Added { object: new, initial: false }))
            }
            (Some(old), None, Current::Present(new)) => (Event::Updated { old, new }, None),
            (None, None, Current::Present(object)) => (Event::Added { object, initial: self.initial }, None),
        }
    }
}

// ---- Every ----

struct Log {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// Number of changes dropped since the log overflowed.
    missed: u64,
    /// True if the sync mark was dropped too.
    lost_mark: bool,
}

enum Entry {
    Event(Event<dyn Stored>),
    SyncMark,
}

impl Log {
    fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, missed: 0, lost_mark: false }
    }

    fn push(&mut self, change: &Applied<dyn Stored>, initial: bool) {
        if self.missed == 0 && self.entries.len() >= self.capacity {
            for entry in self.entries.drain(..) {
                match entry {
                    Entry::Event(_) => self.missed += 1,
                    Entry::SyncMark => self.lost_mark = true,
                }
            }
        }
        if self.missed > 0 {
            self.missed += 1;
            return;
        }
        self.entries.push_back(Entry::Event(match change {
            Applied::Added(object) => Event::Added { object: object.clone(), initial },
            Applied::Updated { old, new } => Event::Updated { old: old.clone(), new: new.clone() },
            Applied::Unchanged(object) => Event::Updated { old: object.clone(), new: object.clone() },
            Applied::Deleted { object, certainty } => Event::Deleted { object: object.clone(), certainty: *certainty },
            Applied::Undecodable { item, previous } => {
                Event::Undecodable { item: item.clone(), previous: previous.clone() }
            }
            Applied::HistoryReset(version) => Event::HistoryReset { version: version.clone() },
        }));
    }

    fn push_sync_mark(&mut self) {
        if self.missed > 0 {
            self.lost_mark = true;
        } else {
            self.entries.push_back(Entry::SyncMark);
        }
    }

    fn start_over(&mut self) -> Option<u64> {
        let missed = std::mem::take(&mut self.missed);
        if missed == 0 {
            return None;
        }
        if std::mem::take(&mut self.lost_mark) {
            self.entries.push_back(Entry::SyncMark);
        }
        Some(missed)
    }

    fn take(&mut self, passed_mark: &mut bool) -> Option<Event<dyn Stored>> {
        while let Some(entry) = self.entries.pop_front() {
            match entry {
                Entry::SyncMark => *passed_mark = true,
                Entry::Event(event) => return Some(event),
            }
        }
        None
    }
}
