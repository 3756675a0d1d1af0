//! The objects of one resource: the snapshot that readers clone, and the one place where a change becomes visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use arc_swap::ArcSwap;
use machinery::Revision;
use machinery::encoded::Malformed;
use parking_lot::Mutex;
use store::{Change, DamagedEntry, Entry, Key, ListQuery, Prefix, ReadError, Store};
use thiserror::Error;
use tokio::time::Instant;

use crate::event::Event;
use crate::history::{History, HistoryLimits};
use crate::item::Item;
use crate::items::Items;
use crate::pending_writes::PendingWrites;
use crate::routing::Routes;
use crate::spec::Spec;
use crate::tally::{Figures, Tally};
use crate::watcher::{Mailbox, MailboxEnd, Offered};

/// One resource's objects, history and watchers.
pub struct Collection {
    name: Box<str>,
    spec: ArcSwap<Spec>,
    tally: Tally,
    /// Held for as long as it takes to insert into a tree and push references; never while encoding or writing.
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) items: Items,
    pub(crate) history: History,
    pub(crate) routes: Routes,
    /// Objects that exist but cannot be read, so that no read takes them for absent.
    pub(crate) damaged: Damaged,
    /// The last revision that changed this collection.
    pub(crate) changed: Revision,
    /// The collection is no longer one of the cache: it gets no more changes.
    pub(crate) retired: bool,
}

/// Unreadable objects by key; nearly always empty.
pub(crate) type Damaged = Arc<BTreeMap<Key, DamagedEntry>>;

/// The collection at one revision. Holding it costs only the objects that changed since.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub revision: Revision,
    items: Items,
    damaged: Damaged,
}

/// Why a collection cannot be read at an exact revision.
#[derive(Debug, Error)]
pub enum ExactError {
    #[error("revision {asked} is compacted; the oldest is {oldest}")]
    Compacted { asked: Revision, oldest: Revision },
    #[error("revision {asked} has not happened yet; the current one is {current}")]
    Future { asked: Revision, current: Revision },
    #[error("{0}")]
    Unavailable(String),
}

impl Collection {
    pub(crate) fn new(name: &str, spec: Spec, floor: Revision, limits: HistoryLimits) -> Self {
        Self::of_spec(name, Arc::new(spec), floor, limits)
    }

    fn of_spec(name: &str, spec: Arc<Spec>, floor: Revision, limits: HistoryLimits) -> Self {
        let state = State {
            items: Items::default(),
            history: History::new(floor, limits),
            routes: Routes::default(),
            damaged: Damaged::default(),
            changed: Revision::ZERO,
            retired: false,
        };
        let tally = Tally::default();
        Collection { name: name.into(), spec: ArcSwap::new(spec), tally, state: Mutex::new(state) }
    }

    /// `core/pods`
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn spec(&self) -> Arc<Spec> {
        self.spec.load_full()
    }

    /// The prefix of this collection's keys in the store.
    #[must_use]
    pub fn prefix(&self) -> Prefix {
        Prefix::new(format!("{}/", self.name))
    }

    /// The key of an object of this collection; `None` if the name or namespace cannot be a key segment.
    #[must_use]
    pub fn key(&self, namespace: Option<&str>, name: &str) -> Option<Key> {
        if name.contains('/') || namespace.is_some_and(|namespace| namespace.contains('/')) {
            return None;
        }
        // Joined and not formatted: every get makes a key, and formatting is a tenth of its instructions.
        let key = match namespace {
            Some(namespace) => [&*self.name, namespace, name].join("/"),
            None => [&*self.name, name].join("/"),
        };
        Key::new(key).ok()
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Item>> {
        self.state.lock().items.get(key).cloned()
    }

    /// The damage of an object that exists but cannot be read.
    #[must_use]
    pub fn damaged(&self, key: &Key) -> Option<DamagedEntry> {
        self.state.lock().damaged.get(key).cloned()
    }

    /// An object of a namespace, or of all, that exists but cannot be read.
    #[must_use]
    pub fn damaged_in(&self, namespace: Option<&str>) -> Option<DamagedEntry> {
        let state = self.state.lock();
        first_damaged(&state.damaged, &self.name, namespace, None).cloned()
    }

    /// All objects that cannot be read.
    #[must_use]
    pub fn all_damaged(&self) -> Vec<DamagedEntry> {
        self.state.lock().damaged.values().cloned().collect()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[must_use]
    pub fn watchers(&self) -> usize {
        self.state.lock().routes.len()
    }

    /// The objects as they are now, for an observer.
    #[must_use]
    pub fn objects(&self) -> Snapshot {
        self.snapshot(Revision::ZERO)
    }

    /// The current objects. `reached` is the revision that the whole cache has reached, read before the call, so that it
    /// is never newer than the objects.
    pub(crate) fn snapshot(&self, reached: Revision) -> Snapshot {
        let state = self.state.lock();
        Snapshot { revision: reached.max(state.changed), items: state.items.clone(), damaged: state.damaged.clone() }
    }

    /// The collection at exactly `revision`, if history in memory reaches back that far: the current objects with later
    /// changes undone.
    pub(crate) fn at(&self, revision: Revision) -> Option<Snapshot> {
        let (mut items, undo, damaged) = {
            let state = self.state.lock();
            if revision < state.history.floor() {
                return None;
            }
            let undo: Vec<_> = state.history.back_to(revision).cloned().collect();
            (state.items.clone(), undo, state.damaged.clone())
        };
        for event in undo {
            match (event.previous(), event.current()) {
                (Some(previous), _) => {
                    items.insert(Arc::clone(previous));
                }
                (None, Some(created)) => {
                    items.remove(created.key());
                }
                (None, None) => {}
            }
        }
        Some(Snapshot { revision, items, damaged })
    }

    /// The collection at exactly `revision`, from the store's history.
    pub(crate) async fn at_from_store(&self, store: &dyn Store, revision: Revision) -> Result<Snapshot, ExactError> {
        let query = ListQuery { at: Some(revision), tolerate_damage: true, ..ListQuery::prefix(self.prefix()) };
        let listed = store.list(query).await.map_err(|error| match error {
            ReadError::Compacted { asked, oldest } => ExactError::Compacted { asked, oldest },
            ReadError::Future { asked, current } => ExactError::Future { asked, current },
            error => ExactError::Unavailable(error.to_string()),
        })?;
        Ok(self.parsed(&listed))
    }

    /// Objects of this collection as a store has listed them.
    pub(crate) fn parsed(&self, listed: &store::Snapshot) -> Snapshot {
        let (items, damaged) = parse_entries(&listed.entries, &listed.damaged, &self.spec());
        Snapshot { revision: listed.revision, items, damaged }
    }

    /// A collection with the objects of a snapshot, the same selectable fields, and no watches.
    pub(crate) fn fork(&self, snapshot: Snapshot, limits: HistoryLimits) -> Self {
        let Snapshot { revision, items, damaged } = snapshot;
        let fork = Collection::of_spec(&self.name, self.spec(), revision, limits);
        {
            let mut state = fork.state.lock();
            (state.items, state.damaged, state.changed) = (items, damaged, revision);
        }
        fork
    }

    /// Adds objects at the start of the cache, when there are no watches yet.
    pub(crate) fn load(&self, entries: &[Entry], damaged: &[DamagedEntry]) {
        let (items, damaged) = parse_entries(entries, damaged, &self.spec());
        let mut state = self.state.lock();
        for item in items.iter() {
            state.changed = state.changed.max(item.revision());
            state.items.insert(Arc::clone(item));
        }
        if !damaged.is_empty() {
            Arc::make_mut(&mut state.damaged).extend(damaged.iter().map(|(key, entry)| (key.clone(), entry.clone())));
        }
    }

    /// Starts history after `revision`, up to which everything is loaded.
    pub(crate) fn begin_history(&self, revision: Revision, limits: HistoryLimits) {
        self.state.lock().history = History::new(revision, limits);
    }

    /// Makes one change visible: to reads, to history, and to the watchers it concerns. The wakers are the caller's to
    /// wake once everything that arrived together is in. Returns what changed, if something did.
    pub(crate) fn apply(
        &self,
        change: &Change,
        pending_writes: &PendingWrites,
        wakers: &mut Vec<Waker>,
    ) -> Option<Arc<Event>> {
        let current = change.value.as_ref().map(|value| {
            let (key, spec) = (change.key.clone(), self.spec());
            let item = match pending_writes.take(value, &spec) {
                Some(peeked) => Item::peeked(key, change.revision, value, peeked, &spec),
                None => Item::new(key, change.revision, value, &spec),
            };
            item.map(Arc::new).map_err(|error| malformed(&change.key, change.revision, &error))
        });
        let mut state = self.state.lock();
        if change.revision <= state.changed {
            return None;
        }
        state.changed = change.revision;
        if !state.damaged.is_empty() {
            Arc::make_mut(&mut state.damaged).remove(&change.key);
        }
        let current = current.and_then(|parsed| {
            parsed.map_err(|damage| drop(Arc::make_mut(&mut state.damaged).insert(change.key.clone(), damage))).ok()
        });
        let previous = match &current {
            Some(item) => state.items.insert(Arc::clone(item)),
            None => state.items.remove(&change.key),
        };
        if current.is_none() && previous.is_none() {
            return None;
        }
        let event = Arc::new(Event::new(change.revision, current, previous));
        state.history.push(Arc::clone(&event));
        let mut offered = 0;
        state.routes.candidates(&event, |mailbox| {
            if let Offered::Matched(waker) = mailbox.offer(&event) {
                offered += 1;
                wakers.extend(waker);
            }
        });
        drop(state);
        self.tally.received.add(1);
        self.tally.dispatched.add(offered);
        Some(event)
    }

    /// Replaces the objects with those that the store has at `revision`, after changes were lost. Every watch expires: what
    /// happened in between is unknown, so its client must list again.
    ///
    /// The objects are parsed first and replace the old ones under one lock, together with the list of watches: a reader
    /// sees the old collection or the new one, and each watch either expires or was opened on the new one.
    pub(crate) fn reload(
        &self,
        entries: &[Entry],
        unreadable: &[DamagedEntry],
        revision: Revision,
        limits: HistoryLimits,
    ) {
        let mut spec = self.spec();
        let (mut items, mut damaged) = parse_entries(entries, unreadable, &spec);
        let watchers = {
            let mut state = self.state.lock();
            // The fields were redefined while the objects were parsed. That happens under this lock only, and rarely.
            if !Arc::ptr_eq(&spec, &self.spec.load()) {
                spec = self.spec();
                (items, damaged) = parse_entries(entries, unreadable, &spec);
            }
            state.items = items;
            state.damaged = damaged;
            state.history = History::new(revision, limits);
            // Not the newest revision among the objects: the last change may have been a delete.
            state.changed = revision;
            state.routes.drain()
        };
        watchers.iter().for_each(|mailbox| mailbox.end(MailboxEnd::Reloaded { oldest: revision }));
    }

    /// Drops changes from memory that are older than [`HistoryLimits::age_max`].
    pub(crate) fn expire_history(&self, now: Instant) {
        self.state.lock().history.expire(now);
    }

    /// Ends the collection if it has no objects: its watches end, and later ones end at once. Returns false if it has some.
    pub(crate) fn retire(&self) -> bool {
        let watchers = {
            let mut state = self.state.lock();
            if !state.items.is_empty() || !state.damaged.is_empty() {
                return false;
            }
            state.retired = true;
            state.routes.drain()
        };
        watchers.iter().for_each(|mailbox| mailbox.end(MailboxEnd::Closed));
        true
    }

    /// Ends every watch of this collection: it was redefined, it is no longer served, or the server stops.
    pub fn end_watches(&self) {
        let watchers = self.state.lock().routes.drain();
        watchers.iter().for_each(|mailbox| mailbox.end(MailboxEnd::Closed));
    }

    /// Replaces the selectable fields. Parses the objects again, and ends the watches, whose filters refer to old slots.
    pub(crate) fn respecify(&self, spec: Spec) {
        if **self.spec.load() == spec {
            return;
        }
        let watchers = {
            let mut state = self.state.lock();
            let items: Items = state.items.iter().filter_map(|old| old.respecified(&spec).map(Arc::new)).collect();
            let (changed, limits) = (state.changed, state.history.limits());
            state.items = items;
            state.history = History::new(changed, limits);
            self.spec.store(Arc::new(spec));
            state.routes.drain()
        };
        watchers.iter().for_each(|mailbox| mailbox.end(MailboxEnd::Closed));
    }

    pub(crate) fn remove_watcher(&self, mailbox: &Arc<Mailbox>) {
        self.state.lock().routes.remove(mailbox);
    }

    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures {
            objects: state.items.len(),
            history: state.history.len(),
            history_bytes: state.history.bytes(),
            history_max: state.history.limits().changes_max,
            watchers: state.routes.len(),
        }
    }
}

/// Parses objects from the store. Those that cannot be read are returned apart, so that the others stay available.
fn parse_entries(entries: &[Entry], damaged: &[DamagedEntry], spec: &Spec) -> (Items, Damaged) {
    let mut unreadable: BTreeMap<Key, DamagedEntry> = BTreeMap::new();
    for entry in damaged {
        let DamagedEntry { key, revision, reason } = entry;
        tracing::error!(%key, %revision, reason, "an object cannot be read: requests for it fail");
        unreadable.insert(key.clone(), entry.clone());
    }
    let mut items = Items::default();
    for entry in entries {
        match Item::new(entry.key.clone(), entry.revision, &entry.value, spec) {
            Ok(item) => drop(items.insert(Arc::new(item))),
            Err(error) => {
                unreadable.insert(entry.key.clone(), malformed(&entry.key, entry.revision, &error));
            }
        }
    }
    (items, Arc::new(unreadable))
}

fn malformed(key: &Key, revision: Revision, error: &Malformed) -> DamagedEntry {
    tracing::error!(%key, %revision, %error, "an object is malformed: requests for it fail");
    DamagedEntry { key: key.clone(), revision, reason: format!("it is malformed: {error}") }
}

fn first_damaged<'a>(
    damaged: &'a Damaged,
    collection: &str,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Option<&'a DamagedEntry> {
    if damaged.is_empty() {
        return None;
    }
    let prefix = namespace.map_or_else(|| format!("{collection}/"), |name| format!("{collection}/{name}/"));
    let is_named = |key: &str| name.is_none_or(|name| key.rsplit('/').next() == Some(name));
    damaged.values().find(|entry| entry.key.as_str().starts_with(&prefix) && is_named(entry.key.as_str()))
}

impl Snapshot {
    /// The current objects of a collection whose state is locked.
    pub(crate) fn of(state: &State, revision: Revision) -> Self {
        Snapshot { revision, items: state.items.clone(), damaged: state.damaged.clone() }
    }

    /// An object of a namespace or of all, with any name or this one, that exists but cannot be read: a list would leave it
    /// out.
    #[must_use]
    pub fn damaged_in(&self, collection: &str, namespace: Option<&str>, name: Option<&str>) -> Option<&DamagedEntry> {
        first_damaged(&self.damaged, collection, namespace, name)
    }

    /// The objects of a namespace, or of all, in key order, from the key `from` on, which need not exist.
    pub fn scan<'a>(
        &'a self,
        collection: &str,
        namespace: Option<&str>,
        from: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Item>> + use<'a> {
        // Joined and not formatted: every write of a pod scans a few small collections.
        let prefix = match namespace {
            Some(namespace) => [collection, "/", namespace, "/"].concat(),
            None => [collection, "/"].concat(),
        };
        let start = from.filter(|from| *from >= prefix.as_str()).unwrap_or(&prefix);
        // `0` is the character after `/`, so this is the first key without the prefix.
        let end = [&prefix[..prefix.len() - 1], "0"].concat();
        self.items.between(start, &end)
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Arc<Item>> {
        self.items.get(key)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Number of objects in a namespace, or in all, in time independent of that number.
    #[must_use]
    pub fn len_in(&self, namespace: Option<&str>) -> usize {
        namespace.map_or_else(|| self.items.len(), |namespace| self.items.len_in(namespace))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}
