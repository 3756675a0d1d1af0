//! The cache while it reloads, after the store has compacted the changes that the cache had not read yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cache::{Cache, Config, EventKind, Filter, Output, Spec, Start, WatchEnd, Watcher};
use machinery::Revision;
use parking_lot::RwLock;
use store::error::EngineError;
use store::memory::MemoryStore;
use store::{
    Changes, Entry, Key, ListQuery, Prefix, ReadError, Retention, Snapshot, Stats, Store, StoreFuture, WatchError,
    WriteError,
};
use tokio::sync::watch;

const PODS: &str = "core/pods";
const OBJECTS: usize = 2000;
const RELOADS: usize = 3;

/// State of the log that [`LossyStore`] shows to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    Flowing,
    /// The feed is to stall, and answers with `Stalled`.
    Stalling,
    /// Changes are withheld.
    Stalled,
    /// The watch fails with `Compacted`.
    Lost,
}

/// A store whose watch of everything, which is the cache's feed, can be stalled and then failed with `Compacted`.
struct LossyStore {
    inner: MemoryStore,
    log: watch::Sender<Log>,
}

impl LossyStore {
    fn new() -> Self {
        LossyStore { inner: MemoryStore::new(Retention::default()), log: watch::Sender::new(Log::Flowing) }
    }

    async fn feed(&self, after: Revision) -> Result<Changes, WatchError> {
        let changes = self.inner.watch(Prefix::everything(), after).await?;
        let state = (changes, self.log.clone(), self.log.subscribe());
        Ok(Changes::new(futures::stream::unfold(state, move |(mut changes, sender, mut log)| async move {
            loop {
                let now = *log.borrow_and_update();
                match now {
                    Log::Flowing => tokio::select! {
                        batch = changes.next() => return batch.map(|batch| (batch, (changes, sender, log))),
                        changed = log.changed() => changed.expect("the sender is here"),
                    },
                    Log::Stalling => drop(sender.send_replace(Log::Stalled)),
                    Log::Stalled => log.changed().await.expect("the sender is here"),
                    Log::Lost => {
                        sender.send_replace(Log::Flowing);
                        let lost = WatchError::Compacted { asked: after, oldest: after.next() };
                        return Some((Err(lost), (changes, sender, log)));
                    }
                }
            }
        })))
    }
}

impl Store for LossyStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        self.inner.get(key)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        self.inner.list(query)
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.inner.create(key, value)
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.inner.update(key, value, expected)
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.inner.delete(key, expected)
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        if prefix == Prefix::everything() { Box::pin(self.feed(after)) } else { self.inner.watch(prefix, after) }
    }

    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        self.inner.compact(at)
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        self.inner.current_revision()
    }

    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        self.inner.oldest_revision(prefix)
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        self.inner.backup(to)
    }

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        self.inner.stats()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}

fn key(name: &str) -> Key {
    Key::new(format!("{PODS}/default/{name}")).unwrap()
}

fn body(name: &str) -> Bytes {
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","labels":{{"app":"x"}}}}}}"#).into()
}

/// The names that exist at each revision, as the test wrote them.
#[derive(Default)]
struct Written {
    now: BTreeSet<String>,
    counts: BTreeMap<Revision, usize>,
}

struct World {
    store: Arc<LossyStore>,
    cache: Cache,
    written: RwLock<Written>,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(LossyStore::new());
        let mut written = Written::default();
        for n in 0..OBJECTS {
            let name = format!("p{n:05}");
            let revision = store.create(key(&name), body(&name)).await.unwrap();
            written.now.insert(name);
            written.counts.insert(revision, written.now.len());
        }
        let specs = [(PODS.to_owned(), Spec::default())];
        let cache =
            Cache::start(Arc::clone(&store) as Arc<dyn Store>, specs, Config::default(), Vec::new()).await.unwrap();
        World { store, cache, written: RwLock::new(written) }
    }

    async fn create(&self, name: &str) {
        let revision = self.store.create(key(name), body(name)).await.unwrap();
        let mut written = self.written.write();
        written.now.insert(name.to_owned());
        let count = written.now.len();
        written.counts.insert(revision, count);
    }

    async fn delete(&self, name: &str) {
        let entry = self.store.get(&key(name)).await.unwrap().unwrap();
        let revision = self.store.delete(entry.key, entry.revision).await.unwrap();
        let mut written = self.written.write();
        written.now.remove(name);
        let count = written.now.len();
        written.counts.insert(revision, count);
    }

    /// Makes changes that the cache never gets as changes: it has to reload. Ends with a delete, so that no object has the
    /// newest revision.
    async fn lose_changes(&self, round: usize) {
        self.store.log.send_replace(Log::Stalling);
        self.store.log.subscribe().wait_for(|log| *log == Log::Stalled).await.expect("the sender is here");
        self.create(&format!("new-{round}")).await;
        self.delete(&format!("p{round:05}")).await;
        let current = self.store.current_revision().await.unwrap();
        self.store.compact(current).await.unwrap();
        self.store.log.send_replace(Log::Lost);
        self.cache.fresh().await.expect("the cache reloads");
    }

    /// Lists and opens watches until `stop`. Every list is checked; the watches are returned.
    fn read(&self, stop: &AtomicBool) -> Vec<Follower> {
        let collection = self.cache.collection(PODS);
        let mut followers = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let snapshot = self.cache.snapshot(&collection);
            let names: BTreeSet<_> = snapshot.scan(PODS, None, None).map(|item| item.name().to_owned()).collect();
            let expected = self.written.read().counts[&snapshot.revision];
            assert_eq!(names.len(), expected, "objects in a list at revision {}", snapshot.revision);
            assert_eq!(snapshot.len(), expected);
            assert!(!collection.is_empty(), "the collection was empty");
            assert!(collection.get(&key("p01999")).is_some(), "an object that was never deleted was not found");
            let open = |start| self.cache.watch(&collection, Filter::default(), start);
            followers.push(Follower { names: BTreeSet::new(), watcher: open(Start::Initial) });
            followers.push(Follower { names, watcher: open(Start::After(snapshot.revision)) });
        }
        followers
    }
}

/// A client that keeps its own copy of the collection from a watch.
struct Follower {
    names: BTreeSet<String>,
    watcher: Watcher,
}

impl Follower {
    /// Follows the watch until `last` arrives (true) or the watch has expired (false).
    async fn follow(&mut self, last: &str) -> bool {
        while !self.names.contains(last) {
            let next = tokio::time::timeout(Duration::from_secs(30), self.watcher.next()).await;
            match next.expect("a watch hangs: it neither expired nor got the last object") {
                Ok(Output::Initial(items)) => {
                    assert!(!items.is_empty());
                    self.names.extend(items.iter().map(|item| item.name().to_owned()));
                }
                Ok(Output::InitialEnd(_)) => assert!(!self.names.is_empty(), "the initial state was empty"),
                Ok(Output::Live(deliveries)) => {
                    for delivery in deliveries {
                        match delivery.kind {
                            EventKind::Deleted => drop(self.names.remove(delivery.item().name())),
                            _ => drop(self.names.insert(delivery.item().name().to_owned())),
                        }
                    }
                }
                Err(WatchEnd::Expired { .. }) => return false,
                Err(end) => panic!("a watch ended with {end:?}, which does not make a client list again"),
            }
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_shows_no_reader_an_empty_collection_and_leaves_no_watch_behind() {
    let world = Arc::new(World::new().await);
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (world, stop) = (Arc::clone(&world), Arc::clone(&stop));
            tokio::task::spawn_blocking(move || world.read(&stop))
        })
        .collect();
    for round in 0..RELOADS {
        world.lose_changes(round).await;
    }
    // The reload has ended every watch of before: these are new.
    while world.cache.collection(PODS).watchers() < 4 && !readers.iter().any(|reader| reader.is_finished()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut followers = Vec::new();
    for reader in readers {
        followers.extend(reader.await.expect("every read was right"));
    }
    world.create("zz-last").await;
    let expected = world.written.read().now.clone();
    let mut complete = 0;
    for mut follower in followers {
        if follower.follow("zz-last").await {
            assert_eq!(follower.names, expected, "a watch that did not expire has missed a change");
            complete += 1;
        }
    }
    assert!(complete > 0, "no watch was opened after the last reload");
}

#[tokio::test]
async fn a_watch_opened_before_a_reload_expires_once_it_has_handed_out_what_it_had() {
    let world = World::new().await;
    let collection = world.cache.collection(PODS);
    let open = |start| world.cache.watch(&collection, Filter::default(), start);
    let (mut live, initial) = (open(Start::Now), open(Start::Initial));
    world.create("before").await;
    world.cache.fresh().await.unwrap();
    world.lose_changes(0).await;

    let Ok(Output::Live(deliveries)) = live.next().await else { panic!("one change arrived before the reload") };
    assert_eq!(deliveries[0].item().name(), "before");
    let asked = deliveries[0].item().revision();
    let oldest = world.cache.revision();
    assert_eq!(live.next().await.unwrap_err(), WatchEnd::Expired { asked, oldest });

    let mut initial = Follower { names: BTreeSet::new(), watcher: initial };
    assert!(!initial.follow("zz-last").await, "expired");
    assert_eq!(initial.names.len(), OBJECTS + 1);
    assert_eq!(collection.tally().expired.get(), 2);
    assert_eq!(collection.watchers(), 0);
}
