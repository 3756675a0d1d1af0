//! What waits for one subscriber.
//!
//! client-go keeps every notification of a slow handler, without limit. Here a subscriber chooses:
//!
//! - [`Delivery::Latest`]: one entry a key. However long the subscriber sleeps, it finds at most one change for each
//!   object that exists or was deleted, leading from what it saw last to what is now.
//! - [`Delivery::Every`]: every change, in a log of bounded length. If it overflows, the subscriber is told so and
//!   gets a snapshot to start over from.
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
use super::carrier::Carrier;
use crate::object::Undecodable;
use crate::queue::Certainty;
use crate::store::{Applied, Snapshot};
use crate::{Key, Object, ResourceVersion};

/// How changes are kept for a subscriber that does not take them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// One entry a key: the change from what was seen last to what is now.
    #[default]
    Latest,
    /// Every change, at most this many; then [`Event::Lagged`].
    Every {
        /// The length of the log.
        capacity: usize,
    },
}

/// Whether somebody has seen the initial objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    NotYet,
    Yes,
    /// It ended before.
    Never,
}

/// Waits until it is decided; true if synced.
pub(super) async fn decided(mut synced: watch::Receiver<Synced>) -> bool {
    synced.wait_for(|state| *state != Synced::NotYet).await.is_ok_and(|state| *state == Synced::Yes)
}

/// Sets the state unless it is decided.
pub(super) fn decide(synced: &watch::Sender<Synced>, as_: Synced) {
    synced.send_if_modified(|state| {
        let open = *state == Synced::NotYet;
        if open {
            *state = as_;
        }
        open
    });
}

pub(super) struct Mailbox<K> {
    waiting: Mutex<Waiting<K>>,
    /// Who can be handed new mail at once. Weak: it holds the subscriber, who holds this.
    carrier: OnceLock<Weak<Carrier>>,
    /// All initial objects were taken, and the subscriber came back for more (SI-10).
    synced: watch::Sender<Synced>,
    /// Tell of objects that a relist showed unchanged (SI-8).
    pub(super) repeat_unchanged: bool,
}

struct Waiting<K> {
    kept: Kept<K>,
    closed: bool,
    /// The subscriber, if it waits.
    subscriber: Option<Waker>,
}

impl<K> Waiting<K> {
    fn is_empty(&self) -> bool {
        match &self.kept {
            Kept::Latest(latest) => latest.order.is_empty() && latest.second.is_none(),
            Kept::Every(log) => log.entries.is_empty() && log.missed == 0,
        }
    }

    fn len(&self) -> usize {
        match &self.kept {
            Kept::Latest(latest) => latest.pending.len(),
            Kept::Every(log) => log.entries.len(),
        }
    }

    fn wait(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.subscriber = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// More mail than this is a task's work: it would hold up the source.
const AT_ONCE_MAX: usize = 16;

enum Kept<K> {
    Latest(Latest<K>),
    Every(Log<K>),
}

/// What the subscriber gets next.
pub(super) enum Taken<K> {
    Event(Event<K>),
    /// The log overflowed: a snapshot is needed, taken under the hub's lock.
    NeedsSnapshot,
    Nothing,
    Closed,
}

impl<K: Object> Mailbox<K> {
    pub(super) fn new(delivery: Delivery, repeat_unchanged: bool) -> Self {
        let kept = match delivery {
            Delivery::Latest => Kept::Latest(Latest::new()),
            Delivery::Every { capacity } => Kept::Every(Log::new(capacity.max(1))),
        };
        Self {
            waiting: Mutex::new(Waiting { kept, closed: false, subscriber: None }),
            carrier: OnceLock::new(),
            synced: watch::Sender::new(Synced::NotYet),
            repeat_unchanged,
        }
    }

    /// New mail is handed over at once by this, if it can be.
    pub(super) fn carried_by(&self, carrier: &Arc<Carrier>) {
        let _ = self.carrier.set(Arc::downgrade(carrier));
    }

    /// Puts a change in. Nobody is told until `deliver`.
    pub(super) fn push(&self, change: &Applied<K>, initial: bool) {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return;
        }
        match &mut waiting.kept {
            Kept::Latest(latest) => latest.push(change, initial),
            Kept::Every(log) => log.push(change, initial),
        }
    }

    /// Has the subscriber take what came: a handler that keeps up is called here and now, everybody else is woken. No lock
    /// may be held: a handler may ask the informer anything.
    pub(super) fn deliver(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() && !waiting.closed {
            return;
        }
        let little = waiting.len() <= AT_ONCE_MAX;
        let Some(subscriber) = waiting.subscriber.take() else { return };
        drop(waiting);
        let called = little && self.carrier.get().and_then(Weak::upgrade).is_some_and(|carrier| carrier.call());
        if !called {
            subscriber.wake();
        }
    }

    /// All initial objects are in; whoever takes past this point has synced.
    pub(super) fn push_sync_mark(&self) {
        match &mut self.waiting.lock().kept {
            Kept::Latest(latest) => {
                latest.append(Slot::SyncMark);
            }
            Kept::Every(log) => log.push_sync_mark(),
        }
    }

    pub(super) fn take(&self) -> Taken<K> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Taken::Closed;
        }
        let mut passed_mark = false;
        let taken = match &mut waiting.kept {
            Kept::Latest(latest) => latest.take(&mut passed_mark).map_or(Taken::Nothing, Taken::Event),
            Kept::Every(log) if log.missed > 0 => Taken::NeedsSnapshot,
            Kept::Every(log) => log.take(&mut passed_mark).map_or(Taken::Nothing, Taken::Event),
        };
        drop(waiting);
        if passed_mark {
            decide(&self.synced, Synced::Yes);
        }
        taken
    }

    /// Starts over from a snapshot. The caller holds the hub's lock, so that the snapshot is exactly what the missed
    /// changes led to.
    pub(super) fn start_over(&self, snapshot: Arc<Snapshot<K>>) -> Option<Event<K>> {
        match &mut self.waiting.lock().kept {
            Kept::Latest(_) => None,
            Kept::Every(log) => log.start_over(snapshot),
        }
    }

    /// Waits until there is something to take.
    pub(super) async fn wait(&self) {
        poll_fn(|cx| {
            let mut waiting = self.waiting.lock();
            if waiting.closed || !waiting.is_empty() { Poll::Ready(()) } else { waiting.wait(cx) }
        })
        .await;
    }

    /// Waits until there will never be anything to take.
    pub(super) async fn wait_closed(&self) {
        poll_fn(|cx| {
            let mut waiting = self.waiting.lock();
            if waiting.closed { Poll::Ready(()) } else { waiting.wait(cx) }
        })
        .await;
    }

    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        match &mut waiting.kept {
            Kept::Latest(latest) => *latest = Latest::new(),
            Kept::Every(log) => log.entries.clear(),
        }
        let subscriber = waiting.subscriber.take();
        drop(waiting);
        decide(&self.synced, Synced::Never);
        if let Some(subscriber) = subscriber {
            subscriber.wake();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    pub(super) fn synced(&self) -> watch::Receiver<Synced> {
        self.synced.subscribe()
    }
}

// ---- Latest ----

/// Entries that an empty mailbox keeps room for.
const ROOM_KEPT: usize = 1024;

struct Latest<K> {
    /// Arrival order. A tree and not a list, so that an entry that cancels out leaves nothing behind.
    order: BTreeMap<u64, Slot>,
    pending: HashMap<Key, Pending<K>>,
    next_turn: u64,
    /// The second half of an entry that tells two things.
    second: Option<Event<K>>,
}

enum Slot {
    Key(Key),
    SyncMark,
    Reset(ResourceVersion),
}

struct Pending<K> {
    turn: u64,
    /// What the subscriber saw last; none if it does not know the object.
    seen: Option<Arc<K>>,
    /// The incarnation it saw was deleted, and another one came.
    replaced: Option<(Arc<K>, Certainty)>,
    now: Now<K>,
    initial: bool,
}

enum Now<K> {
    Present(Arc<K>),
    Absent(Arc<K>, Certainty),
    Undecodable(Box<Undecodable>),
}

impl<K: Object> Latest<K> {
    fn new() -> Self {
        Self { order: BTreeMap::new(), pending: HashMap::new(), next_turn: 0, second: None }
    }

    fn append(&mut self, slot: Slot) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.order.insert(turn, slot);
        turn
    }

    fn push(&mut self, change: &Applied<K>, initial: bool) {
        let (key, seen, now) = match change {
            Applied::Added(new) => (new.object_key(), None, Now::Present(new.clone())),
            Applied::Updated { old, new } => (new.object_key(), Some(old.clone()), Now::Present(new.clone())),
            Applied::Unchanged(object) => {
                let key = object.object_key();
                if self.pending.contains_key(&key) {
                    return; // something newer waits already
                }
                (key, Some(object.clone()), Now::Present(object.clone()))
            }
            Applied::Deleted { object, certainty } => {
                (object.object_key(), Some(object.clone()), Now::Absent(object.clone(), *certainty))
            }
            Applied::Undecodable { item, previous } => {
                (item.raw.key.clone(), previous.clone(), Now::Undecodable(item.clone()))
            }
            Applied::HistoryReset(version) => {
                self.append(Slot::Reset(version.clone()));
                return;
            }
        };
        if let Some(pending) = self.pending.get_mut(&key) {
            if pending.merge(now) == Merged::CancelledOut {
                let turn = pending.turn;
                self.pending.remove(&key);
                self.order.remove(&turn);
            }
            return;
        }
        let turn = self.append(Slot::Key(key.clone()));
        self.pending.insert(key, Pending { turn, seen, replaced: None, now, initial });
    }

    fn take(&mut self, passed_mark: &mut bool) -> Option<Event<K>> {
        if let Some(event) = self.second.take() {
            return Some(event);
        }
        while let Some((_, slot)) = self.order.pop_first() {
            match slot {
                Slot::SyncMark => *passed_mark = true,
                Slot::Reset(version) => return Some(Event::HistoryReset { version }),
                Slot::Key(key) => {
                    if let Some(pending) = self.pending.remove(&key) {
                        let (first, second) = pending.into_events();
                        self.second = second;
                        return Some(first);
                    }
                }
            }
        }
        // The first set, or a relist, made room for every object; nothing like it comes again soon.
        if self.pending.capacity() > ROOM_KEPT {
            self.pending = HashMap::new();
        }
        None
    }
}

#[derive(PartialEq)]
enum Merged {
    Kept,
    CancelledOut,
}

impl<K> Pending<K> {
    /// Folds a later change in.
    fn merge(&mut self, now: Now<K>) -> Merged {
        match (&self.now, now) {
            // Deleted and back again: the incarnation that was seen is gone all the same.
            (Now::Absent(object, certainty), Now::Present(new)) => {
                self.replaced = Some((object.clone(), *certainty));
                self.now = Now::Present(new);
            }
            (_, Now::Absent(object, certainty)) => {
                if self.seen.is_none() {
                    return Merged::CancelledOut;
                }
                let (object, certainty) = self.replaced.take().unwrap_or((object, certainty));
                self.now = Now::Absent(object, certainty);
            }
            (_, now) => self.now = now,
        }
        Merged::Kept
    }

    fn into_events(self) -> (Event<K>, Option<Event<K>>) {
        match (self.seen, self.replaced, self.now) {
            (previous, _, Now::Undecodable(item)) => (Event::Undecodable { item, previous }, None),
            (_, _, Now::Absent(object, certainty)) => (Event::Deleted { object, certainty }, None),
            (_, Some((object, certainty)), Now::Present(new)) => {
                (Event::Deleted { object, certainty }, Some(Event::Added { object: new, initial: false }))
            }
            (Some(old), None, Now::Present(new)) => (Event::Updated { old, new }, None),
            (None, None, Now::Present(object)) => (Event::Added { object, initial: self.initial }, None),
        }
    }
}

// ---- Every ----

struct Log<K> {
    entries: VecDeque<Entry<K>>,
    capacity: usize,
    /// Changes dropped since the log overflowed.
    missed: u64,
    /// The sync mark was among what was dropped.
    lost_mark: bool,
}

enum Entry<K> {
    Event(Event<K>),
    SyncMark,
}

impl<K: Object> Log<K> {
    fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, missed: 0, lost_mark: false }
    }

    fn push(&mut self, change: &Applied<K>, initial: bool) {
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

    fn start_over(&mut self, snapshot: Arc<Snapshot<K>>) -> Option<Event<K>> {
        let missed = std::mem::take(&mut self.missed);
        if missed == 0 {
            return None;
        }
        if std::mem::take(&mut self.lost_mark) {
            self.entries.push_back(Entry::SyncMark);
        }
        Some(Event::Lagged { missed, snapshot })
    }

    fn take(&mut self, passed_mark: &mut bool) -> Option<Event<K>> {
        while let Some(entry) = self.entries.pop_front() {
            match entry {
                Entry::SyncMark => *passed_mark = true,
                Entry::Event(event) => return Some(event),
            }
        }
        None
    }
}
