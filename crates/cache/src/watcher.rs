//! One open watch: a cursor over the changes of a collection.
//!
//! While a watcher keeps up, matching changes arrive as references in its small mailbox. When it falls behind, the mailbox is
//! emptied and the watcher reads shared history from its cursor instead, in large steps, until it has caught up. If memory
//! does not reach back that far, it reads the store's history. No other watcher waits for it.
//!
//! ```text
//!            start with initial events            start after N, which is
//!                     │                     now │          in memory │        older │
//!                     ▼                         ▼                    ▼              ▼
//!                 Initial ──────────────────► Live ◄───────────── Behind ◄────── Archive ──► Expired (410)
//!                                               └──── mailbox full ────►│ └─ not in memory ►│
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use machinery::Revision;
use parking_lot::Mutex;
use smallvec::SmallVec;
use store::{Changes, Store, WatchError};

use crate::backlog::WatchScope;
use crate::collection::{Collection, Snapshot};
use crate::event::{Event, EventKind};
use crate::filter::Filter;
use crate::item::Item;

/// References in a mailbox at most; with more, its watcher is behind.
const MAILBOX_MAX: usize = 1024;
/// Events or objects visited in one step at most, so that one watcher never occupies a thread for long.
const STEP_MAX: usize = 512;

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The current objects, then later changes.
    Initial,
    /// Changes from now on.
    Now,
    /// Changes after this revision, past or future.
    After(Revision),
}

/// Usually one element, stored inline.
pub type OneOrMore<T> = SmallVec<[T; 1]>;

/// The next part of a watch.
#[derive(Debug)]
pub enum Output {
    /// Objects of the initial state, in key order.
    Initial(Vec<Arc<Item>>),
    /// The initial state is complete as of this revision.
    InitialEnd(Revision),
    /// Changes, in order of revision.
    Live(OneOrMore<Delivery>),
}

/// One change as this watch sees it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub kind: EventKind,
    /// The whole event and not only its object: with references to both, a thousand watchers would contend on two
    /// reference counts.
    event: Arc<Event>,
}

impl Delivery {
    fn new(event: Arc<Event>, kind: EventKind) -> Option<Self> {
        event.item(kind)?;
        Some(Delivery { kind, event })
    }

    /// The object to send: the new one, or for a deletion the old one at the revision of the change.
    #[must_use]
    pub fn item(&self) -> &Arc<Item> {
        self.event.item(self.kind).expect("the event has an object of this kind, checked in new")
    }
}

/// Why a watch has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// Changes after `asked` are compacted: `oldest` can still be watched from.
    Expired { asked: Revision, oldest: Revision },
    /// The collection was redefined, or the server stops; the client may resume from its last revision.
    Ended,
    /// The store's history could not be read.
    Failed(String),
}

/// The events that the collection has sent to one watcher.
#[derive(Debug)]
pub struct Mailbox {
    filter: Filter,
    slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    pending: OneOrMore<(Arc<Event>, EventKind)>,
    /// The watcher reads history; nothing is put here until it has caught up.
    behind: bool,
    end: Option<MailboxEnd>,
    waker: Option<Waker>,
}

/// The result of offering an event to a mailbox.
pub(crate) enum Offered {
    /// The event does not match the watcher's filter.
    NoMatch,
    /// The watcher gets the event, now or from history. The waker is the caller's to wake, if the watcher waits.
    Matched(Option<Waker>),
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

    /// Adds a reference to the event if it matches the filter.
    pub(crate) fn offer(&self, event: &Arc<Event>) -> Offered {
        // With a thousand watchers, the memory of each filter is out of the processor's caches. An open filter is not read:
        // the routing table has matched the namespace already.
        let kind = if self.filter.is_open() { event.kind_unfiltered() } else { event.kind_for(&self.filter) };
        let Some(kind) = kind else { return Offered::NoMatch };
        let mut slot = self.slot.lock();
        if slot.behind {
            return Offered::Matched(None);
        }
        if slot.pending.len() >= MAILBOX_MAX {
            slot.pending = OneOrMore::default();
            slot.behind = true;
        } else {
            slot.pending.push((Arc::clone(event), kind));
        }
        Offered::Matched(slot.waker.take())
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
    /// Every matching change up to here has been returned.
    cursor: Revision,
    phase: Phase,
    /// The task that took the last events is registered to be woken for the next.
    waker_registered: bool,
}

enum Phase {
    /// Returning the initial state; `from` is the next key.
    Initial { snapshot: Snapshot, from: Option<String> },
    /// Reading the mailbox.
    Live,
    /// Reading history in memory.
    Behind,
    /// Waiting for the store's history to open.
    Opening(Opening),
    /// Reading the store's history.
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
            Start::Initial => (now, Phase::Initial { snapshot: Snapshot::of(&state, now), from: None }),
            Start::Now => (now, Phase::Live),
            Start::After(revision) => (revision, Phase::Behind),
        };
        if state.retired {
            mailbox.end(MailboxEnd::Closed);
        } else {
            state.routes.insert(Arc::clone(&mailbox));
        }
        drop(state);
        Watcher { collection, store, mailbox, cursor, phase, waker_registered: false }
    }

    /// Opens a watch that begins with the objects of an earlier revision.
    pub(crate) fn open_at(
        collection: Arc<Collection>,
        store: Arc<dyn Store>,
        filter: Filter,
        snapshot: Snapshot,
    ) -> Self {
        let revision = snapshot.revision;
        let mut watcher = Self::open(collection, store, filter, Start::After(revision), revision);
        watcher.phase = Phase::Initial { snapshot, from: None };
        watcher
    }

    /// Expires the watch: it starts at a revision that the store has lost.
    pub(crate) fn expire(&self, oldest: Revision) {
        self.mailbox.end(MailboxEnd::Reloaded { oldest });
    }

    #[must_use]
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Every matching change up to here has been returned, or is older than the watch.
    #[must_use]
    pub fn cursor(&self) -> Revision {
        self.cursor
    }

    /// What the watch is about, for those who look at it from outside.
    #[must_use]
    pub fn scope(&self) -> WatchScope {
        WatchScope::new(Arc::clone(&self.collection), Arc::clone(&self.mailbox))
    }

    /// True once it has caught up: the next output is the next change.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// True if the task that got the last output is woken for the next one without polling again first.
    #[must_use]
    pub fn has_registered_waker(&self) -> bool {
        self.waker_registered && self.is_live()
    }

    /// The revision for a bookmark: if no events wait, every change up to `reached` has been returned. `reached` must have
    /// been read from the cache before the call.
    #[must_use]
    pub fn bookmark(&self, reached: Revision) -> Option<Revision> {
        let slot = self.mailbox.slot.lock();
        let idle = matches!(self.phase, Phase::Live) && !slot.behind && slot.pending.is_empty();
        idle.then(|| reached.max(self.cursor))
    }

    /// Polls for the next output.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output, WatchEnd>> {
        self.waker_registered = false;
        loop {
            let step = match &mut self.phase {
                Phase::Initial { snapshot, from } => {
                    match next_initial(snapshot, from, &self.collection, &self.mailbox.filter) {
                        Initial::Some(items) => {
                            self.collection.tally().initial.add(items.len());
                            Poll::Ready(Ok(Some(Output::Initial(items))))
                        }
                        Initial::NoMatch => {
                            // Yields after many objects without a match.
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
                Phase::Behind => Poll::Ready(self.read_history()),
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

    /// The next output.
    pub async fn next(&mut self) -> Result<Output, WatchEnd> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_mailbox(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        let mut slot = self.mailbox.slot.lock();
        if !slot.pending.is_empty() {
            // Taken instead of drained, so that an idle watch holds no buffer.
            let pending = std::mem::take(&mut slot.pending);
            slot.waker = Some(cx.waker().clone());
            drop(slot);
            self.waker_registered = true;
            let cursor = self.cursor;
            if let Some((last, _)) = pending.last() {
                self.cursor = cursor.max(last.revision());
            }
            let new = pending.into_iter().filter(|(event, _)| event.revision() > cursor);
            let deliveries: OneOrMore<_> = new.filter_map(|(event, kind)| Delivery::new(event, kind)).collect();
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

    fn read_history(&mut self) -> Result<Option<Output>, WatchEnd> {
        let state = self.collection.state.lock();
        if self.cursor < state.history.floor() {
            drop(state);
            let (store, prefix, after) = (Arc::clone(&self.store), self.collection.prefix(), self.cursor);
            self.phase = Phase::Opening(Box::pin(async move { store.watch(prefix, after).await }));
            return Ok(None);
        }
        let events: Vec<_> = state.history.after(self.cursor, STEP_MAX).cloned().collect();
        if events.is_empty() {
            // Under the collection's lock, so that no change is missed: from here on, the mailbox gets every one.
            self.mailbox.slot.lock().behind = false;
            self.phase = Phase::Live;
            return Ok(None);
        }
        drop(state);
        Ok(self.deliver(&events))
    }

    fn take_archived(&mut self, batch: store::Batch) -> Option<Output> {
        let spec = self.collection.spec();
        let parse = |key: &store::Key, revision, value: &[u8]| {
            Item::new(key.clone(), revision, value, &spec)
                .inspect_err(|error| tracing::error!(%key, %revision, %error, "a malformed object is not in a watch"))
                .ok()
                .map(Arc::new)
        };
        let events: Vec<_> = batch
            .changes
            .iter()
            .filter(|change| change.revision > self.cursor)
            .map(|change| {
                let current = change.value.as_ref().and_then(|value| parse(&change.key, change.revision, value));
                let previous =
                    change.previous.as_ref().and_then(|entry| parse(&entry.key, entry.revision, &entry.value));
                Arc::new(Event::new(change.revision, current, previous))
            })
            .collect();
        let output = self.deliver(&events);
        self.cursor = self.cursor.max(batch.revision);
        if self.cursor >= self.collection.state.lock().history.floor() {
            self.phase = Phase::Behind;
        }
        output
    }

    fn deliver(&mut self, events: &[Arc<Event>]) -> Option<Output> {
        if let Some(last) = events.last() {
            self.cursor = self.cursor.max(last.revision());
        }
        let filter = &self.mailbox.filter;
        let deliveries: OneOrMore<_> =
            events.iter().filter_map(|event| Delivery::new(Arc::clone(event), event.kind_for(filter)?)).collect();
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
            // History cannot be read, or the store went back: a client that lists again goes on from what is there.
            WatchError::Corrupt(_) | WatchError::Future { .. } => {
                tracing::error!(%error, collection = self.collection.name(), "a watch expires");
                self.expired(self.collection.state.lock().history.floor())
            }
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
        self.collection.remove_watcher(&self.mailbox);
    }
}

enum Initial {
    Some(Vec<Arc<Item>>),
    /// None of many visited objects matched.
    NoMatch,
    End,
}

fn next_initial(snapshot: &Snapshot, from: &mut Option<String>, collection: &Collection, filter: &Filter) -> Initial {
    let mut visited = 0;
    let mut matching = Vec::new();
    let mut newest = None;
    for item in snapshot.scan(collection.name(), filter.namespace(), from.as_deref()).take(STEP_MAX) {
        visited += 1;
        newest = Some(item.key());
        if filter.admits(item) {
            matching.push(Arc::clone(item));
        }
    }
    if let Some(key) = newest {
        // The smallest key after it.
        *from = Some(format!("{key}\0"));
    }
    match (matching.is_empty(), visited) {
        (false, _) => Initial::Some(matching),
        (true, 0) => Initial::End,
        (true, n) if n < STEP_MAX => Initial::End,
        (true, _) => Initial::NoMatch,
    }
}
