//! The cache over a memory store: reads and watches while the log moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cache::history::HistoryLimits;
use cache::{
    Cache, Collection, Collections, Config, Event, EventKind, ExactError, FieldSpec, Filter, Observer, Output, Spec,
    Start, WatchEnd, Watcher,
};
use machinery::{Revision, fields, labels};
use store::memory::MemoryStore;
use store::{Key, Retention, Store};

const PODS: &str = "core/pods";

fn pods() -> (String, Spec) {
    let node = FieldSpec {
        label: "spec.nodeName".into(),
        paths: vec![vec!["spec".into(), "nodeName".into()]],
        absent: String::new(),
    };
    (PODS.into(), Spec::new(vec![node]))
}

struct World {
    store: Arc<MemoryStore>,
    cache: Cache,
}

impl World {
    async fn new() -> Self {
        Self::with(Arc::new(MemoryStore::new(Retention::default())), Config::default()).await
    }

    async fn with(store: Arc<MemoryStore>, config: Config) -> Self {
        let cache = Cache::start(Arc::clone(&store) as Arc<dyn Store>, [pods()], config, Vec::new()).await.unwrap();
        World { store, cache }
    }

    fn key(name: &str) -> Key {
        Key::new(format!("{PODS}/{name}")).unwrap()
    }

    async fn create(&self, name: &str, app: &str, node: &str) -> Revision {
        self.store.create(Self::key(name), body(name, app, node)).await.unwrap()
    }

    async fn update(&self, name: &str, app: &str, node: &str) -> Revision {
        let current = self.store.get(&Self::key(name)).await.unwrap().unwrap();
        self.store.update(current.key, body(name, app, node), current.revision).await.unwrap()
    }

    async fn delete(&self, name: &str) -> Revision {
        let current = self.store.get(&Self::key(name)).await.unwrap().unwrap();
        self.store.delete(current.key, current.revision).await.unwrap()
    }

    fn watch(&self, namespace: Option<&str>, label: &str, field: &str, start: Start) -> Watcher {
        let collection = self.cache.collection(PODS);
        let labels = labels::Selector::parse(label).unwrap();
        let fields = fields::Selector::parse(field).unwrap();
        let filter = Filter::new(namespace, Some(labels), Some(&fields), &collection.spec());
        self.cache.watch(&collection, filter, start)
    }
}

fn body(name: &str, app: &str, node: &str) -> bytes::Bytes {
    let name = name.rsplit('/').next().unwrap();
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","labels":{{"app":"{app}"}}}},"spec":{{"nodeName":"{node}"}}}}"#
    )
    .into()
}

/// The next `n` outputs of a watcher, as `KIND name@revision` (initial objects as `= name`).
async fn outputs(watcher: &mut Watcher, n: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < n {
        let next = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await.expect("an output in time");
        match next.unwrap() {
            Output::Initial(items) => lines.extend(items.iter().map(|item| format!("= {}", item.name()))),
            Output::InitialEnd(revision) => lines.push(format!("end@{revision}")),
            Output::Live(deliveries) => lines.extend(deliveries.iter().map(|d| {
                let kind = match d.kind {
                    EventKind::Added => '+',
                    EventKind::Modified => '~',
                    EventKind::Deleted => '-',
                };
                format!("{kind} {}@{}", d.item().name(), d.item().revision())
            })),
        }
    }
    lines
}

#[tokio::test]
async fn initial_state_comes_in_key_order_then_what_follows() {
    let world = World::new().await;
    world.create("a/b", "x", "").await;
    world.create("a/a", "x", "").await;
    let last = world.create("a-b/z", "x", "").await;
    world.cache.fresh().await.unwrap();
    let mut watcher = world.watch(None, "", "", Start::Initial);
    let next = world.create("a/c", "x", "").await;
    assert_eq!(
        outputs(&mut watcher, 5).await,
        ["= z", "= a", "= b", &format!("end@{last}"), &format!("+ c@{next}")],
        "namespace a-b sorts before a"
    );
}

#[tokio::test]
async fn leaving_a_selection_is_a_deletion_with_the_old_content() {
    let world = World::new().await;
    let mut by_label = world.watch(None, "app=x", "", Start::Now);
    let mut by_field = world.watch(Some("a"), "", "spec.nodeName=n1", Start::Now);
    let mut by_name = world.watch(None, "", "metadata.name=p", Start::Now);
    let mut negative = world.watch(None, "app!=x", "", Start::Now);
    world.create("a/p", "x", "").await;
    world.update("a/p", "x", "n1").await;
    world.update("a/p", "y", "n1").await;
    world.update("a/p", "x", "n2").await;
    world.delete("a/p").await;
    assert_eq!(outputs(&mut by_label, 5).await, ["+ p@1", "~ p@2", "- p@3", "+ p@4", "- p@5"]);
    assert_eq!(outputs(&mut by_field, 3).await, ["+ p@2", "~ p@3", "- p@4"]);
    assert_eq!(outputs(&mut by_name, 5).await, ["+ p@1", "~ p@2", "~ p@3", "~ p@4", "- p@5"]);
    assert_eq!(outputs(&mut negative, 2).await, ["+ p@3", "- p@4"]);

    let mut again = world.watch(None, "app=x", "", Start::After(Revision(2)));
    let Output::Live(deliveries) = again.next().await.unwrap() else { panic!("history is live events") };
    let gone = std::str::from_utf8(deliveries.iter().next().unwrap().item().encoded().whole()).unwrap();
    assert!(gone.contains(r#""app":"x""#) && gone.contains(r#""resourceVersion":"3""#), "{gone}");
}

#[tokio::test]
async fn only_matching_watchers_get_a_change_and_dropped_ones_leave_nothing_behind() {
    let world = World::new().await;
    let collection = world.cache.collection(PODS);
    let others: Vec<_> = (0..100).map(|n| world.watch(None, "", &format!("spec.nodeName=n{n}"), Start::Now)).collect();
    assert_eq!(collection.watchers(), 100);
    let mut mine = world.watch(None, "", "spec.nodeName=n7", Start::Now);
    world.create("a/p", "x", "n7").await;
    assert_eq!(outputs(&mut mine, 1).await, ["+ p@1"]);
    drop(others);
    drop(mine);
    assert_eq!(collection.watchers(), 0);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_is_caught_up_from_history() {
    let world = World::new().await;
    let mut slow = world.watch(None, "", "", Start::Now);
    world.create("a/p", "x", "").await;
    for n in 0..3000 {
        world.update("a/p", &format!("v{n}"), "").await;
    }
    world.cache.fresh().await.unwrap();
    let lines = outputs(&mut slow, 3001).await;
    let want: Vec<_> = (1..=3001).map(|n| format!("{} p@{n}", if n == 1 { '+' } else { '~' })).collect();
    assert_eq!(lines, want);
    world.delete("a/p").await;
    assert_eq!(outputs(&mut slow, 1).await, ["- p@3002"], "and is live again");
}

#[tokio::test]
async fn what_memory_forgot_comes_from_the_store() {
    let config = Config { history: HistoryLimits { changes_max: 5, ..HistoryLimits::default() }, ..Config::default() };
    let world = World::with(Arc::new(MemoryStore::new(Retention::default())), config).await;
    world.create("a/p", "x", "").await;
    for n in 0..50 {
        world.update("a/p", &format!("v{n}"), "").await;
    }
    world.cache.fresh().await.unwrap();
    let mut watcher = world.watch(None, "app!=v7", "", Start::After(Revision(1)));
    let mut want: Vec<_> = (2..=51).map(|n| format!("~ p@{n}")).collect();
    want[7] = "- p@9".into();
    want[8] = "+ p@10".into();
    assert_eq!(outputs(&mut watcher, 50).await, want);
    world.delete("a/p").await;
    assert_eq!(outputs(&mut watcher, 1).await, ["- p@52"]);

    let collection = world.cache.collection(PODS);
    let old = world.cache.snapshot_at(&collection, Revision(9)).await.unwrap();
    let pod = old.scan(PODS, None, None).next().unwrap();
    assert_eq!((pod.revision(), pod.label("app")), (Revision(9), Some("v7")));
}

#[tokio::test]
async fn a_restarted_cache_resumes_from_history_in_the_store() {
    let world = World::new().await;
    for name in ["a/p", "a/q", "a/r"] {
        world.create(name, "x", "").await;
    }
    world.delete("a/q").await;
    let restarted = World::with(Arc::clone(&world.store), Config::default()).await;
    let mut watcher = restarted.watch(None, "", "", Start::After(Revision(1)));
    assert_eq!(outputs(&mut watcher, 3).await, ["+ q@2", "+ r@3", "- q@4"]);
    restarted.create("a/s", "x", "").await;
    assert_eq!(outputs(&mut watcher, 1).await, ["+ s@5"]);
}

#[tokio::test]
async fn history_that_is_gone_is_expired_with_the_oldest_that_works() {
    let world = World::new().await;
    for name in ["a/p", "a/q", "a/r"] {
        world.create(name, "x", "").await;
    }
    world.store.compact(Revision(2)).await.unwrap();
    let restarted = World::with(Arc::clone(&world.store), Config::default()).await;
    let mut watcher = restarted.watch(None, "", "", Start::After(Revision(1)));
    let end = watcher.next().await.unwrap_err();
    assert_eq!(end, WatchEnd::Expired { asked: Revision(1), oldest: Revision(2) });
    let mut watcher = restarted.watch(None, "", "", Start::After(Revision(2)));
    assert_eq!(outputs(&mut watcher, 1).await, ["+ r@3"]);
    let collection = restarted.cache.collection(PODS);
    let exact = restarted.cache.snapshot_at(&collection, Revision(1)).await;
    assert!(matches!(exact, Err(ExactError::Compacted { .. })));
}

#[tokio::test]
async fn exact_snapshots_undo_what_came_later() {
    let world = World::new().await;
    world.create("a/p", "x", "").await;
    world.create("a/q", "x", "").await;
    world.update("a/p", "y", "").await;
    world.delete("a/q").await;
    world.cache.fresh().await.unwrap();
    let collection = world.cache.collection(PODS);
    let mut shown = Vec::new();
    for revision in 1..=4 {
        let snapshot = world.cache.snapshot_at(&collection, Revision(revision)).await.unwrap();
        let names: Vec<_> =
            snapshot.scan(PODS, None, None).map(|i| format!("{}:{}", i.name(), i.label("app").unwrap())).collect();
        shown.push(names.join(" "));
    }
    assert_eq!(shown, ["p:x", "p:x q:x", "p:y q:x", "p:y"]);
}

#[tokio::test]
async fn a_revision_of_the_future_is_silent_until_it_comes_and_a_read_of_it_gives_up() {
    let config = Config { wait_max: Duration::from_millis(50), ..Config::default() };
    let world = World::with(Arc::new(MemoryStore::new(Retention::default())), config).await;
    let mut watcher = world.watch(None, "", "", Start::After(Revision(2)));
    world.create("a/p", "x", "").await;
    world.create("a/q", "x", "").await;
    world.create("a/r", "x", "").await;
    assert_eq!(outputs(&mut watcher, 1).await, ["+ r@3"]);
    let late = world.cache.reach(Revision(99)).await.unwrap_err();
    assert_eq!((late.asked, late.current), (Revision(99), Revision(3)));
}

#[tokio::test]
async fn bookmarks_say_only_what_has_been_handed_out() {
    let world = World::new().await;
    let mut watcher = world.watch(None, "app=x", "", Start::Now);
    world.create("a/p", "y", "").await;
    world.cache.fresh().await.unwrap();
    let pending = is_pending(&mut watcher);
    assert!(pending, "nothing matched");
    assert_eq!(watcher.bookmark(world.cache.revision()), Some(Revision(1)));
    world.create("a/q", "x", "").await;
    world.cache.fresh().await.unwrap();
    assert_eq!(watcher.bookmark(world.cache.revision()), None, "an event is waiting");
    assert_eq!(outputs(&mut watcher, 1).await, ["+ q@2"]);
    assert_eq!(watcher.bookmark(world.cache.revision()), Some(Revision(2)));
}

fn is_pending(watcher: &mut Watcher) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    watcher.poll_next(&mut cx).is_pending()
}

#[tokio::test]
async fn changing_what_is_selectable_ends_watches_and_reads_objects_again() {
    let world = World::new().await;
    world.create("a/p", "x", "n1").await;
    world.cache.fresh().await.unwrap();
    let mut watcher = world.watch(None, "", "", Start::Now);
    let label = FieldSpec {
        label: "metadata.name.again".into(),
        paths: vec![vec!["nothing".into()], vec!["metadata".into(), "name".into()]],
        absent: String::new(),
    };
    world.cache.specify(PODS, Spec::new(vec![label]));
    assert_eq!(watcher.next().await.unwrap_err(), WatchEnd::Ended);
    let item = world.cache.collection(PODS).get(&World::key("a/p")).unwrap();
    assert_eq!(&*item.fields()[0], "p");
}

/// Counts the pods that the log has shown, and what readers could have known by then.
#[derive(Default)]
struct PodCount {
    pods: AtomicUsize,
    loads: AtomicUsize,
    announced: AtomicU64,
}

impl Observer for PodCount {
    fn observes(&self, collection: &str) -> bool {
        collection == PODS
    }

    fn loaded(&self, _: &Collections, collection: &Collection, _: Revision) {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.pods.store(collection.objects().len(), Ordering::Relaxed);
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        for change in changes {
            assert_eq!(change.key().collection(), PODS);
            match (change.previous(), change.current()) {
                (None, Some(_)) => self.pods.fetch_add(1, Ordering::Relaxed),
                (Some(_), None) => self.pods.fetch_sub(1, Ordering::Relaxed),
                _ => 0,
            };
            self.announced.store(change.revision().0, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn an_observer_has_seen_what_a_reader_may_see() {
    let store = Arc::new(MemoryStore::new(Retention::default()));
    store.create(World::key("default/old"), body("old", "a", "n")).await.unwrap();
    let (first, second) = (Arc::new(PodCount::default()), Arc::new(PodCount::default()));
    let observers: Vec<Arc<dyn Observer>> = vec![first.clone(), second.clone()];
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let cache = Cache::start(shared, [pods()], Config::default(), observers).await.unwrap();
    let world = World { store, cache };
    for (i, observer) in [&first, &second].into_iter().enumerate() {
        assert_eq!(observer.loads.load(Ordering::Relaxed), 1);
        assert_eq!(observer.pods.load(Ordering::Relaxed), 1, "observer {i} is called before the cache is handed out");
    }
    for turn in 0..20 {
        let revision = world.create(&format!("default/p{turn}"), "a", "n").await;
        world.cache.reach(revision).await.unwrap();
        assert_eq!(first.announced.load(Ordering::Relaxed), revision.0);
        assert_eq!(second.pods.load(Ordering::Relaxed), turn + 2);
    }
    let other = Key::new("core/nodes/n").unwrap();
    let revision = world.store.create(other, body("n", "a", "")).await.unwrap();
    world.cache.reach(revision).await.unwrap();
    let revision = world.delete("default/old").await;
    world.cache.reach(revision).await.unwrap();
    assert_eq!(first.pods.load(Ordering::Relaxed), 20);
}

/// Panics on the first change, or on the first load instead.
#[derive(Default)]
struct PanicsOnce {
    on_load: bool,
    changes: AtomicUsize,
}

impl Observer for PanicsOnce {
    fn observes(&self, collection: &str) -> bool {
        collection == PODS
    }

    fn loaded(&self, _: &Collections, _: &Collection, _: Revision) {
        assert!(!self.on_load, "the first load");
    }

    fn changed(&self, _: &Collections, _: &[Arc<Event>]) {
        assert_ne!(self.changes.fetch_add(1, Ordering::Relaxed), 0, "the first change");
    }
}

#[tokio::test]
async fn a_panic_of_an_observer_does_not_end_the_feed() {
    let store = Arc::new(MemoryStore::new(Retention::default()));
    let (failing, sound) = (Arc::new(PanicsOnce::default()), Arc::new(PodCount::default()));
    let observers: Vec<Arc<dyn Observer>> = vec![failing.clone(), sound.clone()];
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let cache = Cache::start(shared, [pods()], Config::default(), observers).await.unwrap();
    let world = World { store, cache };
    let mut watcher = world.watch(None, "", "", Start::After(world.cache.revision()));
    for turn in 1..=2 {
        let revision = world.create(&format!("default/p{turn}"), "a", "n").await;
        world.cache.reach(revision).await.unwrap();
        assert_eq!(failing.changes.load(Ordering::Relaxed), turn);
        assert_eq!(sound.pods.load(Ordering::Relaxed), turn);
        assert_eq!(outputs(&mut watcher, 1).await, [format!("+ p{turn}@{revision}")]);
    }
}

#[tokio::test]
async fn a_cache_whose_observer_panics_at_the_first_load_does_not_start() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
    let observer: Arc<dyn Observer> = Arc::new(PanicsOnce { on_load: true, ..PanicsOnce::default() });
    let started = Cache::start(store, [pods()], Config::default(), vec![observer]).await;
    assert_eq!(
        started.err().map(|error| error.0).as_deref(),
        Some("an observer of the cache panicked while objects were loaded")
    );
}
