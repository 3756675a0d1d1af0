//! Retention of history: by age or by number, whichever keeps more, for each collection, within a size limit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use store::embedded::{EmbeddedOptions, EmbeddedStore};
use store::memory::MemoryStore;
use store::{Key, Prefix, Retention, Revision, Store};

const MINUTE: u64 = 60;

/// A manual clock, in seconds.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Clock(Arc::new(AtomicU64::new(1_000_000)))
    }

    fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

fn open(dir: &Path, retention: Retention, clock: &Clock) -> EmbeddedStore {
    let now = clock.0.clone();
    let mut options = EmbeddedOptions::new(dir);
    options.retention = retention;
    options.clock = machinery::clock::Clock::from_fn(move || {
        let since_1970 = Duration::from_secs(now.load(Ordering::Relaxed));
        (SystemTime::UNIX_EPOCH + since_1970).try_into().expect("a time within range")
    });
    EmbeddedStore::open(options).expect("opens")
}

fn retention(changes_min: u64, history_bytes_max: u64) -> Retention {
    Retention {
        age_min: Duration::from_secs(5 * MINUTE),
        changes_min,
        history_bytes_max,
        interval: Duration::from_millis(5),
    }
}

/// Waits until a sweep has recorded the time after a revision.
async fn wait_for_mark(dir: &Path, revision: Revision) {
    let file = rusqlite::Connection::open(dir.join("store.db")).expect("users can open the file");
    for _ in 0..4000 {
        let newest: Option<i64> =
            file.query_row("SELECT max(revision) FROM marks", (), |row| row.get(0)).expect("readable");
        if newest.is_some_and(|newest| newest.cast_unsigned() >= revision.0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no time was recorded after {revision}");
}

/// Creates one key and updates it `times` times. Returns its revisions.
async fn churn(store: &dyn Store, name: &str, updates: usize) -> Vec<Revision> {
    let key = Key::new(name).expect("well formed");
    let value = || Bytes::from(vec![b'x'; 1000]);
    let mut last = match store.get(&key).await.expect("readable") {
        Some(entry) => entry.revision,
        None => store.create(key.clone(), value()).await.expect("free"),
    };
    let mut revisions = vec![last];
    for _ in 0..updates {
        last = store.update(key.clone(), value(), last).await.expect("current");
        revisions.push(last);
    }
    revisions
}

async fn oldest(store: &dyn Store, prefix: &str) -> Revision {
    store.oldest_revision(&Prefix::new(prefix)).await.expect("readable")
}

/// Waits until retention has reached a revision.
async fn until(store: &dyn Store, prefix: &str, reached: Revision, meanwhile: impl Fn()) {
    let wait = async {
        while oldest(store, prefix).await < reached {
            meanwhile();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("retention reaches it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_changes_go_once_there_are_enough_newer_ones() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = Clock::new();
    let store = open(dir.path(), retention(10, u64::MAX), &clock);
    let pods = churn(&store, "core/pods/a/1", 50).await;
    let nodes = churn(&store, "core/nodes/n1", 5).await;
    assert_eq!(oldest(&store, "core/pods/").await, Revision::ZERO, "young history stays, however much there is");

    let kept = pods[pods.len() - 1 - 10];
    // The age of the last writes is known once a sweep has recorded the time after them; then they have to reach it.
    until(&store, "core/pods/", kept, || clock.advance(MINUTE)).await;
    assert_eq!(oldest(&store, "core/pods/").await, kept, "exactly ten changes stay");
    assert_eq!(oldest(&store, "core/nodes/").await, Revision::ZERO, "a quiet collection keeps its few");
    assert_eq!(oldest(&store, "core/").await, kept, "a watch of both starts where both can");

    let mut changes = store.watch(Prefix::new("core/nodes/"), Revision::ZERO).await.expect("retained");
    let batch = changes.next().await.expect("open").expect("sound");
    assert_eq!(batch.changes.iter().map(|change| change.revision).collect::<Vec<_>>(), nodes);
    let mut changes = store.watch(Prefix::new("core/pods/"), kept).await.expect("retained");
    let batch = changes.next().await.expect("open").expect("sound");
    assert_eq!(batch.changes.iter().map(|change| change.revision).collect::<Vec<_>>(), pods[pods.len() - 10..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn age_is_known_across_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = Clock::new();
    let store = open(dir.path(), retention(3, u64::MAX), &clock);
    let old = churn(&store, "core/pods/a/1", 20).await;
    // Writes without a recorded time after them count as written later, when the clock moves.
    wait_for_mark(dir.path(), old[old.len() - 1]).await;
    clock.advance(MINUTE);
    let young = churn(&store, "core/pods/a/1", 20).await;
    store.close().await;
    drop(store);

    clock.advance(4 * MINUTE + 30);
    let store = open(dir.path(), retention(3, u64::MAX), &clock);
    let (last_old, first_young) = (old[old.len() - 1], young[1]);
    // The first write after a mark is at most five seconds old at the next mark, so there is one mark after it.
    until(&store, "core/pods/", last_old, || ()).await;
    let reached = oldest(&store, "core/pods/").await;
    assert!(reached <= first_young, "what is younger than five minutes stays: {reached} of {young:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn size_overrules_age_and_number_oldest_first() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path(), retention(1_000_000, 20_000), &Clock::new());
    let pods = churn(&store, "core/pods/a/1", 40).await;
    let nodes = churn(&store, "core/nodes/n1", 10).await;
    // Fifty replaced values of a thousand bytes; twenty fit: the ten of the nodes and the last ten of the pods.
    until(&store, "core/pods/", pods[pods.len() - 1 - 10], || ()).await;
    assert_eq!(oldest(&store, "core/pods/").await, pods[pods.len() - 1 - 10]);
    assert_eq!(oldest(&store, "core/nodes/").await, Revision::ZERO);
    let stats = store.stats().await.expect("readable");
    assert_eq!((stats.history, stats.history_bytes), (20, 20_000));
    drop(nodes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_use_is_bounded_by_what_is_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path(), retention(10, 100_000), &Clock::new());
    let mut sizes = Vec::new();
    for _ in 0..6 {
        churn(&store, "core/pods/a/1", 400).await;
        sizes.push(store.stats().await.expect("readable").disk_bytes.expect("known"));
    }
    store.close().await;
    let file = std::fs::metadata(dir.path().join("store.db")).expect("there").len();
    assert!(file < 2_000_000, "2 400 values of 1 000 bytes went through a file of {file} bytes: {sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_by_age_or_number_and_within_its_size() {
    let store = MemoryStore::new(retention(10, 30_000));
    let pods = churn(&store, "core/pods/a/1", 25).await;
    let nodes = churn(&store, "core/nodes/n1", 5).await;
    assert_eq!(oldest(&store, "core/pods/").await, Revision::ZERO);
    tokio::time::advance(Duration::from_secs(6 * MINUTE)).await;
    let last = churn(&store, "core/leases/l1", 1).await;
    assert_eq!(oldest(&store, "core/pods/").await, pods[pods.len() - 1 - 10], "ten changes stay");
    assert_eq!(oldest(&store, "core/nodes/").await, Revision::ZERO, "a quiet collection keeps its few");
    assert!(oldest(&store, "core/leases/").await < last[0]);

    churn(&store, "core/pods/a/1", 40).await;
    let stats = store.stats().await.expect("readable");
    assert!(stats.history_bytes <= 30_000, "{stats:?}");
    assert!(oldest(&store, "core/nodes/").await >= nodes[nodes.len() - 1], "the oldest of all went first");
}

#[tokio::test(start_paused = true)]
async fn wld_6_memory_holds_history_until_it_is_released() {
    let store = MemoryStore::new(retention(10, u64::MAX));
    let pods = churn(&store, "core/pods/a/1", 50).await;
    store.hold(Some(pods[20]));
    tokio::time::advance(Duration::from_secs(6 * MINUTE)).await;
    churn(&store, "core/leases/l1", 1).await;
    assert_eq!(oldest(&store, "core/pods/").await, pods[20], "changes after the held revision stay");
    store.hold(None);
    tokio::time::advance(Duration::from_secs(6 * MINUTE)).await;
    churn(&store, "core/leases/l1", 1).await;
    assert_eq!(oldest(&store, "core/pods/").await, pods[40], "and go when it is released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wld_6_the_embedded_engine_holds_history_until_it_is_released() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = Clock::new();
    let store = open(dir.path(), retention(10, u64::MAX), &clock);
    let pods = churn(&store, "core/pods/a/1", 50).await;
    store.hold(Some(pods[20]));
    until(&store, "core/pods/", pods[20], || clock.advance(MINUTE)).await;
    store.hold(None);
    until(&store, "core/pods/", pods[40], || clock.advance(MINUTE)).await;
    assert_eq!(oldest(&store, "core/pods/").await, pods[40]);
}
