//! The cache over a store that is damaged, or that goes back to an earlier state.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cache::{Cache, Collection, Collections, Config, Event, Filter, Observer, Spec, Start, WatchEnd};
use machinery::Revision;
use parking_lot::{Mutex, RwLock};
use store::error::EngineError;
use store::memory::MemoryStore;
use store::{
    Changes, DamagedEntry, Entry, Key, ListQuery, Prefix, ReadError, Snapshot, Stats, Store, StoreFuture, WatchError,
    WriteError,
};
use tokio::sync::watch;

const PODS: &str = "core/pods";

/// A store with one damaged key, whose content can be replaced by an older one as after a restore.
struct UnsoundStore {
    inner: RwLock<Arc<MemoryStore>>,
    damaged: Mutex<Option<Key>>,
    /// Counts replacements. Watches from before fail.
    replaced: watch::Sender<u32>,
}

impl UnsoundStore {
    fn new() -> Arc<Self> {
        let inner = RwLock::new(Arc::new(MemoryStore::default()));
        Arc::new(UnsoundStore { inner, damaged: Mutex::new(None), replaced: watch::Sender::new(0) })
    }

    fn inner(&self) -> Arc<MemoryStore> {
        self.inner.read().clone()
    }

    fn rewind(&self) {
        *self.inner.write() = Arc::new(MemoryStore::default());
        self.replaced.send_modify(|count| *count += 1);
    }

    async fn put(&self, name: &str) -> Revision {
        self.create(key(name), body(name)).await.unwrap()
    }
}

impl Store for UnsoundStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        let inner = self.inner();
        Box::pin(async move { inner.get(key).await })
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        let (inner, damaged) = (self.inner(), self.damaged.lock().clone());
        Box::pin(async move {
            let mut listed = inner.list(query.clone()).await?;
            let Some(at) = listed.entries.iter().position(|entry| Some(&entry.key) == damaged.as_ref()) else {
                return Ok(listed);
            };
            if !query.tolerate_damage {
                return Err(ReadError::Corrupt("one value".to_owned()));
            }
            let Entry { key, revision, .. } = listed.entries.remove(at);
            listed.damaged.push(DamagedEntry { key, revision, reason: "store.db: flipped".to_owned() });
            Ok(listed)
        })
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        let inner = self.inner();
        Box::pin(async move { inner.create(key, value).await })
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        let inner = self.inner();
        Box::pin(async move { inner.update(key, value, expected).await })
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        let inner = self.inner();
        Box::pin(async move { inner.delete(key, expected).await })
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        let (inner, mut replaced) = (self.inner(), self.replaced.subscribe());
        Box::pin(async move {
            let changes = inner.watch(prefix, after).await?;
            replaced.mark_unchanged();
            Ok(Changes::new(futures::stream::unfold(
                (changes, replaced, inner),
                |(mut changes, mut replaced, inner)| async {
                    let batch = tokio::select! {
                        biased;
                        _ = replaced.changed() => Some(Err(WatchError::Corrupt("the store went back".to_owned()))),
                        batch = changes.next() => batch,
                    };
                    batch.map(|batch| (batch, (changes, replaced, inner)))
                },
            )))
        })
    }

    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        let inner = self.inner();
        Box::pin(async move { inner.compact(at).await })
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        let inner = self.inner();
        Box::pin(async move { inner.current_revision().await })
    }

    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        let inner = self.inner();
        Box::pin(async move { inner.oldest_revision(prefix).await })
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        let inner = self.inner();
        Box::pin(async move { inner.backup(to).await })
    }

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        let inner = self.inner();
        Box::pin(async move { inner.stats().await })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        let inner = self.inner();
        Box::pin(async move { inner.close().await })
    }
}

fn key(name: &str) -> Key {
    Key::new(format!("{PODS}/{name}")).unwrap()
}

fn body(name: &str) -> Bytes {
    let name = name.rsplit('/').next().unwrap();
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}"}}}}"#).into()
}

async fn cache(store: &Arc<UnsoundStore>) -> Cache {
    let specs = [(PODS.to_owned(), Spec::default())];
    Cache::start(Arc::clone(store) as Arc<dyn Store>, specs, Config::default(), Vec::new()).await.unwrap()
}

#[tokio::test]
async fn a_damaged_object_is_neither_absent_nor_a_reason_not_to_start() {
    let store = UnsoundStore::new();
    for name in ["a/good", "a/bad", "b/other"] {
        store.put(name).await;
    }
    *store.damaged.lock() = Some(key("a/bad"));
    let cache = cache(&store).await;
    let pods = cache.collection(PODS);
    assert!(pods.get(&key("a/good")).is_some() && pods.get(&key("b/other")).is_some());
    assert!(pods.get(&key("a/bad")).is_none());
    let damaged = pods.damaged(&key("a/bad")).expect("it exists");
    assert_eq!((damaged.revision, damaged.reason.as_str()), (Revision(2), "store.db: flipped"));
    assert_eq!(cache.damaged(), std::slice::from_ref(&damaged));
    let snapshot = cache.snapshot(&pods);
    assert_eq!(snapshot.damaged_in(PODS, None, None), Some(&damaged));
    assert_eq!(snapshot.damaged_in(PODS, Some("a"), None), Some(&damaged));
    assert_eq!(snapshot.damaged_in(PODS, Some("b"), None), None, "another namespace is whole");
    assert_eq!(snapshot.damaged_in(PODS, Some("a"), Some("good")), None, "another name is whole");
    let exact = cache.snapshot_at(&pods, Revision(3)).await.unwrap();
    assert!(exact.damaged_in(PODS, None, None).is_some(), "also at an exact revision");

    let entry = store.get(&key("a/bad")).await.unwrap().unwrap();
    store.update(entry.key, body("a/bad"), entry.revision).await.unwrap();
    cache.fresh().await.unwrap();
    assert!(pods.damaged(&key("a/bad")).is_none() && pods.get(&key("a/bad")).is_some(), "written again");
}

#[tokio::test]
async fn a_malformed_object_is_reported_like_a_damaged_one() {
    let store = UnsoundStore::new();
    store.create(key("a/loaded"), Bytes::from_static(b"{")).await.unwrap();
    let cache = cache(&store).await;
    store.create(key("a/live"), Bytes::from_static(b"no object")).await.unwrap();
    cache.fresh().await.unwrap();
    let mut names: Vec<_> = cache.damaged().iter().map(|damaged| damaged.key.as_str().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["core/pods/a/live", "core/pods/a/loaded"]);
}

#[tokio::test]
async fn a_store_that_went_back_is_loaded_again_and_every_watch_of_before_expires() {
    let store = UnsoundStore::new();
    for number in 0..20 {
        store.put(&format!("a/{number}")).await;
    }
    let cache = cache(&store).await;
    let pods = cache.collection(PODS);
    let before = cache.revision();
    let open = |start| cache.watch(&pods, Filter::default(), start);
    let mut live = open(Start::Now);
    store.rewind();
    let ended = tokio::time::timeout(Duration::from_secs(30), live.next()).await.expect("told in time");
    assert!(matches!(ended, Err(WatchEnd::Expired { .. })), "{ended:?}");
    let mut reached = cache.revision();
    while reached == before {
        tokio::task::yield_now().await;
        reached = cache.revision();
    }
    assert!(pods.is_empty() && reached < before, "nothing of before is shown");
    let resumed = tokio::time::timeout(Duration::from_secs(30), open(Start::After(before)).next()).await;
    assert!(matches!(resumed.expect("told at once"), Err(WatchEnd::Expired { .. })));
    let written = store.put("a/new").await;
    cache.reach(written).await.expect("the cache follows the new log");
    tokio::time::timeout(Duration::from_secs(30), async {
        while pods.get(&key("a/new")).is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("visible");
    assert_eq!(pods.len(), 1);
}

/// Panics on the second load and counts changes.
#[derive(Default)]
struct PanicsOnReload {
    loads: AtomicUsize,
    changes: AtomicUsize,
}

impl Observer for PanicsOnReload {
    fn observes(&self, collection: &str) -> bool {
        collection == PODS
    }

    fn loaded(&self, _: &Collections, _: &Collection, _: Revision) {
        assert_ne!(self.loads.fetch_add(1, Ordering::Relaxed), 1, "the second load");
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        self.changes.fetch_add(changes.len(), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_panic_of_an_observer_during_a_reload_does_not_end_the_feed() {
    let store = UnsoundStore::new();
    let observer = Arc::new(PanicsOnReload::default());
    let specs = [(PODS.to_owned(), Spec::default())];
    let observers: Vec<Arc<dyn Observer>> = vec![observer.clone()];
    let cache = Cache::start(Arc::clone(&store) as Arc<dyn Store>, specs, Config::default(), observers).await.unwrap();
    let before = store.put("a/old").await;
    cache.reach(before).await.unwrap();
    store.rewind();
    let turns = async {
        while cache.revision() == before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), turns).await.expect("reloaded");
    assert_eq!(observer.loads.load(Ordering::Relaxed), 2);
    let written = store.put("a/new").await;
    cache.reach(written).await.expect("the cache follows the new log");
    assert_eq!(observer.changes.load(Ordering::Relaxed), 2);
}
