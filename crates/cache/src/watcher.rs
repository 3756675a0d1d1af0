//! One open watch: where it stands, and what it gets next.
//!
//! A watcher is a cursor. While it keeps up, changes that concern it arrive as references in its small mailbox. When it
//! does not, the mailbox is emptied and the watcher walks shared history from its cursor instead, in large steps, until
//! it has caught up; if memory no longer reaches back that far, it walks the store's history. Nobody waits for it.
//!
//! ```text
//!            start with initial events            start after N: how far back is N?
//!                     │                     now │          in memory │        older │
//!                     ▼                         ▼                    ▼              ▼
//!                 Initial ──────────────────► Live ◄───────────── Behind ◄────── Archive ──► Expired (410)
//!                                               └──── mailbox full ────►│ └─ history left ─►│
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use machinery::Revision;
use parking_lot::Mutex;
use smallvec::SmallVec;
use store::{Changes, Store, WatchError};

use crate::collection::{Collection, Snapshot};
use crate::event::{Event, EventKind};
use crate::filter::Filter;
use crate::item::Item;

/// References a mailbox holds before its owner counts as behind.
const MAILBOX_MAX: usize = 1024;
/// Events or objects looked at in one step, so that one watcher never holds a thread for long.
const STEP_MAX: usize = 512;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what is there now, then what follows.
    Initial,
    /// With what follows now.
    Now,
    /// With what follows this revision, past or future.
    After(Revision),
}

/// A list that is mostly of one, which then needs no memory of its own.
pub type Few<T> = SmallVec<[T; 1]>;

/// What a watch hands out.
#[derive(Debug)]
pub enum Output {
    /// Objects of the initial state, in key order.
    Initial(Vec<Arc<Item>>),
    /// The initial state is complete as of this revision.
    InitialEnd(Revision),
    /// Changes, in order of revision.
    Live(Few<Delivery>),
}

/// One change as this watch sees it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub kind: EventKind,
    /// Held as a whole and not its object alone: a thousand watchers that count references to both wait for each other.
    event: Arc<Event>,
}

impl Delivery {
    fn new(event: Arc<Event>, kind: EventKind) -> Option<Self> {
        event.item(kind)?;
        Some(Delivery { kind, event })
    }

    /// The object to show: the new one, or for a deletion the last one at the revision of the change.
    #[must_use]
    pub fn item(&self) -> &Arc<Item> {
        self.event.item(self.kind).expect("a delivery is made of an event that has its object")
    }
}

/// Why a watch is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// History has left it behind: `oldest` can still be watched from.
    Expired { asked: Revision, oldest: Revision },
    /// The collection was redefined, or the server stops; the client may resume from its last revision.
    Ended,
    /// The store's history could not be read.
    Failed(String),
}

/// Where the collection leaves what concerns a watcher.
#[derive(Debug)]
pub struct Mailbox {
    filter: Filter,
    slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    pending: Few<(Arc<Event>, EventKind)>,
    /// The owner walks history itself; nothing is left here until it has caught up.
    behind: bool,
    end: Option<MailboxEnd>,
    waker: Option<Waker>,
}

/// Why the collection ended a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MailboxEnd {
    /// The collection was redefined, or the server stops.
    Closed,
    /// The collection was reloaded and changes before `oldest` are lost.
    Reloaded { oldest: Revision },
}

impl Mailbox {
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Leaves a reference if the event concerns the owner, and gives back whom to wake, if anybody sleeps.
    pub(crate) fn offer(&self, event: &Arc<Event>) -> Option<Option<Waker>> {
        // What a filter has in memory of its own is out of the caches when a thousand watchers are told: it is left alone
        // where the routes, which know of namespaces, have said everything.
        let kind = if self.filter.is_open() { event.to_anyone()? } else { event.seen_through(&self.filter)? };
        let mut slot = self.slot.lock();
        if slot.behind {
            return Some(None);
        }
        if slot.pending.len() >= MAILBOX_MAX {
            slot.pending = Few::default();
            slot.behind = true;
        } else {
            slot.pending.push((Arc::clone(event), kind));
        }
        Some(slot.waker.take())
    }

    pub(crate) fn end(&self, end: MailboxEnd) {
        let waker = {
            let mut slot = self.slot.lock();
            slot.end = Some(end);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// One open watch. Dropping it ends it.
pub struct Watcher {
    collection: Arc<Collection>,
    store: Arc<dyn Store>,
    mailbox: Arc<Mailbox>,
    /// Everything up to here that concerns this watch has been handed out.
    cursor: Revision,
    phase: Phase,
    /// Whoever took what was in the mailbox is woken for what comes next.
    listens: bool,
}

enum Phase {
    /// Handing out the initial state; `from` is the key to go on from.
    Initial { snapshot: Snapshot, from: Option<String> },
    /// Reading the mailbox.
    Live,
    /// Walking history in memory.
    Behind,
    /// Waiting for the store's history to open.
    Opening(Opening),
    /// Walking the store's history.
    Archive(Changes),
}

type Opening = Pin<Box<dyn Future<Output = Result<Changes, WatchError>> + Send>>;

impl Watcher {
    pub(crate) fn open(
        collection: Arc<Collection>,
        store: Arc<dyn Store>,
        filter: Filter,
        start: Start,
        reached: Revision,
    ) -> Self {
        let slot = Slot { behind: matches!(start, Start::After(_)), ..Slot::default() };
        let mailbox = Arc::new(Mailbox { filter, slot: Mutex::new(slot) });
        let mut state = collection.state.lock();
        let now = reached.max(state.changed);
        let (cursor, phase) = match start {
            Start::Initial => (now, Phase::Initial { snapshot: Snapshot::new(now, state.items.clone()), from: None }),
            Start::Now => (now, Phase::Live),
            Start::After(revision) => (revision, Phase::Behind),
        };
        state.routes.insert(Arc::clone(&mailbox));
        drop(state);
        Watcher { collection, store, mailbox, cursor, phase, listens: false }
    }

    #[must_use]
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Whether it has caught up: what comes next is what happens next.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Whether the task that was handed something last is woken for what comes next, without asking for it before.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listens && self.is_live()
    }

    /// If nothing is waiting for this watch, everything up to `reached` has been handed out: a bookmark may say so.
    /// `reached` must have been read from the cache before the call.
    #[must_use]
    pub fn bookmark(&self, reached: Revision) -> Option<Revision> {
        let slot = self.mailbox.slot.lock();
        let idle = matches!(self.phase, Phase::Live) && !slot.behind && slot.pending.is_empty();
        idle.then(|| reached.max(self.cursor))
    }

    /// What comes next; pending until there is something.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, WatchEnd>> {
        self.listens = false;
        loop {
            let step = match &mut self.phase {
                Phase::Initial { snapshot, from } => {
                    match next_initial(snapshot, from, &self.collection, &self.mailbox.filter) {
                        Initial::Some(items) => {
                            self.collection.tally().initial.add(items.len());
                            Poll::Ready(Ok(Some(Output::Initial(items))))
                        }
                        Initial::Nothing => {
                            // A long stretch without a match: let others run.
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        Initial::End => {
                            let revision = snapshot.revision;
                            self.phase = Phase::Live;
                            Poll::Ready(Ok(Some(Output::InitialEnd(revision))))
                        }
                    }
                }
                Phase::Live => self.poll_mailbox(cx).map(Ok),
                Phase::Behind => Poll::Ready(self.walk_history()),
                Phase::Opening(opening) => opening.as_mut().poll(cx).map(|opened| match opened {
                    Ok(changes) => {
                        self.phase = Phase::Archive(changes);
                        Ok(None)
                    }
                    Err(error) => Err(self.failed(error)),
                }),
                Phase::Archive(changes) => match changes.poll_next(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Some(Ok(batch))) => Poll::Ready(Ok(self.take_archived(batch))),
                    Poll::Ready(Some(Err(error))) => Poll::Ready(Err(self.failed(error))),
                    Poll::Ready(None) => Poll::Ready(Err(WatchEnd::Ended)),
                },
            };
            match step {
                Poll::Ready(Ok(Some(output))) => return Poll::Ready(Ok(output)),
                Poll::Ready(Ok(None)) => {
                    let end = self.mailbox.slot.lock().end;
                    if let Some(end) = end {
                        return Poll::Ready(Err(self.ended(end)));
                    }
                }
                Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// What comes next, for callers that await.
    pub async fn next(&mut self) -> Result<Output, WatchEnd> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_mailbox(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        let mut slot = self.mailbox.slot.lock();
        if !slot.pending.is_empty() {
            // An idle watch holds no buffer: take it away instead of draining it.
            let pending = std::mem::take(&mut slot.pending);
            slot.waker = Some(cx.waker().clone());
            drop(slot);
            self.listens = true;
            let cursor = self.cursor;
            if let Some((last, _)) = pending.last() {
                self.cursor = cursor.max(last.revision());
            }
            let new = pending.into_iter().filter(|(event, _)| event.revision() > cursor);
            let deliveries: Few<_> = new.filter_map(|(event, kind)| Delivery::new(event, kind)).collect();
            return Poll::Ready((!deliveries.is_empty()).then_some(Output::Live(deliveries)));
        }
        if slot.behind {
            self.phase = Phase::Behind;
            return Poll::Ready(None);
        }
        if slot.end.is_some() {
            return Poll::Ready(None);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn walk_history(&mut self) -> Result<Option<Output>, WatchEnd> {
        let state = self.collection.state.lock();
        if self.cursor < state.history.floor() {
            drop(state);
            let (store, prefix, after) = (Arc::clone(&self.store), self.collection.prefix(), self.cursor);
            self.phase = Phase::Opening(Box::pin(async move { store.watch(prefix, after).await }));
            return Ok(None);
        }
        let events: Vec<_> = state.history.after(self.cursor, STEP_MAX).cloned().collect();
        if events.is_empty() {
            // Under the collection's lock nothing can happen in between: from here on the mailbox has everything.
            self.mailbox.slot.lock().behind = false;
            self.phase = Phase::Live;
            return Ok(None);
        }
        drop(state);
        Ok(self.hand_out(&events))
    }

    fn take_archived(&mut self, batch: store::Batch) -> Option<Output> {
        let spec = self.collection.spec();
        let read = |key: &store::Key, revision, value: &[u8]| {
            Item::new(key.clone(), revision, value, &spec)
                .inspect_err(|error| tracing::error!(%key, %revision, %error, "left out of a watch"))
                .ok()
                .map(Arc::new)
        };
        let events: Vec<_> = batch
            .changes
            .iter()
            .filter(|change| change.revision > self.cursor)
            .map(|change| {
                let current = change.value.as_ref().and_then(|value| read(&change.key, change.revision, value));
                let previous =
                    change.previous.as_ref().and_then(|entry| read(&entry.key, entry.revision, &entry.value));
                Arc::new(Event::new(change.revision, current, previous))
            })
            .collect();
        let output = self.hand_out(&events);
        self.cursor = self.cursor.max(batch.revision);
        if self.cursor >= self.collection.state.lock().history.floor() {
            self.phase = Phase::Behind;
        }
        output
    }

    fn hand_out(&mut self, events: &[Arc<Event>]) -> Option<Output> {
        if let Some(last) = events.last() {
            self.cursor = self.cursor.max(last.revision());
        }
        let filter = &self.mailbox.filter;
        let deliveries: Few<_> =
            events.iter().filter_map(|event| Delivery::new(Arc::clone(event), event.seen_through(filter)?)).collect();
        (!deliveries.is_empty()).then_some(Output::Live(deliveries))
    }

    fn ended(&self, end: MailboxEnd) -> WatchEnd {
        match end {
            MailboxEnd::Closed => WatchEnd::Ended,
            MailboxEnd::Reloaded { oldest } => self.expired(oldest),
        }
    }

    fn failed(&self, error: WatchError) -> WatchEnd {
        match error {
            WatchError::Compacted { oldest, .. } => self.expired(oldest),
            error => WatchEnd::Failed(error.to_string()),
        }
    }

    fn expired(&self, oldest: Revision) -> WatchEnd {
        self.collection.tally().expired.add(1);
        WatchEnd::Expired { asked: self.cursor, oldest }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.collection.leave(&self.mailbox);
    }
}

enum Initial {
    Some(Vec<Arc<Item>>),
    /// Many objects were looked at and none matched.
    Nothing,
    End,
}

fn next_initial(snapshot: &Snapshot, from: &mut Option<String>, collection: &Collection, filter: &Filter) -> Initial {
    let mut looked_at = 0;
    let mut matching = Vec::new();
    let mut newest = None;
    for item in snapshot.scan(collection.name(), filter.namespace(), from.as_deref()).take(STEP_MAX) {
        looked_at += 1;
        newest = Some(item.key());
        if filter.admits(item) {
            matching.push(Arc::clone(item));
        }
    }
    if let Some(key) = newest {
        // The smallest key behind it.
        *from = Some(format!("{key}\0"));
    }
    match (matching.is_empty(), looked_at) {
        (false, _) => Initial::Some(matching),
        (true, 0) => Initial::End,
        (true, n) if n < STEP_MAX => Initial::End,
        (true, _) => Initial::Nothing,
    }
}
