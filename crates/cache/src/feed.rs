//! The feed: follows the store's log and applies each change, in order. The only writer of the cache.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use machinery::Revision;
use store::{Batch, DamagedEntry, Entry, ListQuery, Prefix, WatchError};

use crate::cache::{CacheError, Shared};
use crate::collection::Collection;
use crate::event::Event;

/// Objects read from the store at once.
const PAGE: usize = 5000;
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Loads all objects, page by page at one revision.
pub(crate) async fn load(shared: &Shared) -> Result<Revision, CacheError> {
    let mut revision = None;
    let mut start_after = None;
    loop {
        let query = ListQuery { start_after, limit: PAGE, at: revision, tolerate_damage: true, ..ListQuery::default() };
        let page = shared.store.list(query).await.map_err(|error| CacheError(error.to_string()))?;
        revision = Some(page.revision);
        for chunk in page.entries.chunk_by(|a, b| a.key.collection() == b.key.collection()) {
            shared.collections.get(chunk[0].key.collection()).load(chunk, &[]);
        }
        for damaged in &page.damaged {
            shared.collections.get(damaged.key.collection()).load(&[], std::slice::from_ref(damaged));
        }
        match page.entries.last() {
            Some(last) if page.remaining > 0 => start_after = Some(last.key.as_str().to_owned()),
            _ => break,
        }
    }
    let revision = revision.unwrap_or_default();
    for collection in shared.collections.all() {
        collection.begin_history(revision, shared.config.history);
    }
    // Nothing is served yet: better not to start than to start with an index that lacks objects.
    if !report_load(shared, revision) {
        return Err(CacheError("an observer of the cache panicked while objects were loaded".to_owned()));
    }
    Ok(revision)
}

/// Follows the log after `revision` until the store closes.
pub(crate) async fn follow(shared: Arc<Shared>, mut revision: Revision) {
    let mut pause = RETRY_MIN;
    loop {
        let error = match shared.store.watch(Prefix::everything(), revision).await {
            Err(error) => error,
            Ok(mut changes) => loop {
                match changes.next().await {
                    Some(Ok(batch)) => {
                        pause = RETRY_MIN;
                        revision = batch.revision.max(revision);
                        apply(&shared, &batch);
                    }
                    Some(Err(error)) => break error,
                    None => return,
                }
            },
        };
        tracing::warn!(%error, %revision, "the cache lost the store's log");
        // Besides compaction: the log on disk is damaged, or the store went back to an earlier state.
        if let WatchError::Compacted { .. } | WatchError::Corrupt(_) | WatchError::Future { .. } = error {
            match reload(&shared).await {
                Ok(reloaded) => {
                    revision = reloaded;
                    if let WatchError::Compacted { .. } = error {
                        continue;
                    }
                }
                Err(error) => tracing::warn!(%error, "the cache could not be reloaded"),
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Drops old changes from memory, for as long as the cache lives.
pub(crate) async fn expire_history(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval((shared.config.history.age_max / 5).max(Duration::from_millis(1)));
    loop {
        let now = interval.tick().await;
        for collection in shared.collections.all() {
            collection.expire_history(now);
        }
    }
}

fn apply(shared: &Shared, batch: &Batch) {
    let mut wakers: Vec<Waker> = Vec::new();
    let mut observed: Vec<(&str, Arc<Event>)> = Vec::new();
    for change in &batch.changes {
        let name = change.key.collection();
        let event = shared.collections.get(name).apply(change, &shared.pending_writes, &mut wakers);
        if let Some(event) = event.filter(|_| shared.observers.iter().any(|observer| observer.observes(name))) {
            observed.push((name, event));
        }
    }
    if !observed.is_empty() {
        report_changes(shared, &observed);
    }
    // Announced only when everything up to it is visible. Watchers are woken afterwards, so that their bookmarks are as new as
    // possible.
    shared.collections.reached.send_if_modified(|reached| {
        let newer = batch.revision > *reached;
        *reached = batch.revision.max(*reached);
        newer
    });
    wakers.into_iter().for_each(Waker::wake);
}

/// Replaces all objects with the current ones, after the log was compacted beyond the cache's position.
async fn reload(shared: &Shared) -> Result<Revision, CacheError> {
    let everything = ListQuery { tolerate_damage: true, ..ListQuery::default() };
    let listed = shared.store.list(everything).await.map_err(|error| CacheError(error.to_string()))?;
    let mut found: HashMap<&str, &[Entry]> = HashMap::new();
    for chunk in listed.entries.chunk_by(|a, b| a.key.collection() == b.key.collection()) {
        found.insert(chunk[0].key.collection(), chunk);
    }
    let mut unreadable: HashMap<&str, Vec<DamagedEntry>> = HashMap::new();
    for damaged in &listed.damaged {
        unreadable.entry(damaged.key.collection()).or_default().push(damaged.clone());
    }
    for name in found.keys().chain(unreadable.keys()) {
        // Begins those that are new.
        let _ = shared.collections.get(name);
    }
    let before = *shared.collections.reached.borrow();
    if listed.revision < before {
        tracing::error!(%before, now = %listed.revision, "the store went back; every watch expires");
        shared.collections.lost.fetch_max(before.0, Ordering::AcqRel);
    }
    let reload = |collection: &Collection| {
        let entries = found.get(collection.name()).copied().unwrap_or_default();
        let damaged = unreadable.get(collection.name()).map_or(&[][..], Vec::as_slice);
        collection.reload(entries, damaged, listed.revision, shared.config.history);
    };
    let reloaded = shared.collections.all();
    reloaded.iter().for_each(|collection| reload(collection));
    report_load(shared, listed.revision);
    shared.collections.reached.send_replace(listed.revision);
    // A collection that a reader named in the meantime has a history from the old revision on.
    for collection in shared.collections.all() {
        if !reloaded.iter().any(|done| Arc::ptr_eq(done, &collection)) {
            reload(&collection);
        }
    }
    Ok(listed.revision)
}

/// Calls each observer for every collection that it observes; false if one of them panicked.
pub(crate) fn report_load(shared: &Shared, revision: Revision) -> bool {
    let mut sound = true;
    for collection in shared.collections.all() {
        for observer in shared.observers.iter().filter(|observer| observer.observes(collection.name())) {
            sound &= guard(collection.name(), revision, || observer.loaded(&shared.collections, &collection, revision));
        }
    }
    sound
}

/// Calls each observer that observes one of these changes, by the collection they are in.
fn report_changes(shared: &Shared, changes: &[(&str, Arc<Event>)]) {
    for observer in &shared.observers {
        let own = changes.iter().filter(|(name, _)| observer.observes(name)).map(|(_, event)| Arc::clone(event));
        let own: Vec<Arc<Event>> = own.collect();
        if let Some(last) = own.last() {
            guard(last.key().collection(), last.revision(), || observer.changed(&shared.collections, &own));
        }
    }
}

/// Calls an observer; false if it panicked. What it derives may be stale then, but the feed goes on: without it every read
/// and watch would stand still until a restart.
fn guard(collection: &str, revision: Revision, call: impl FnOnce()) -> bool {
    let called = catch_unwind(AssertUnwindSafe(call));
    if let Err(panic) = &called {
        let text = panic.downcast_ref::<&str>().copied();
        let reason = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("of unknown type");
        tracing::error!(collection, %revision, reason, "an observer of the cache panicked; what it derives may be stale");
    }
    called.is_ok()
}
