//! A watch as a client sees it: what it is handed, and whether it must ask again to hear of what comes next.

use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use machinery::json::json;
use machinery::media::MediaType;
use machinery::options::{CreateOptions, ListOptions};
use machinery::query::Query;
use registry::Frames;
use registry::{Body, Context, Registry, Settings, Target, WatchView, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

struct World {
    registry: Arc<Registry>,
    made: usize,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Retention::default()));
        World { registry: Registry::start(store, Settings::default()).await.unwrap(), made: 0 }
    }

    fn target(&self) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", "configmaps").unwrap());
        Target { kind, namespace: Some("default".to_owned()), name: None, subresource: None }
    }

    async fn write(&mut self) {
        self.made += 1;
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("m{}", self.made)}});
        let body = Body { bytes: Bytes::from(map.to_string()), media: MediaType::Json };
        self.registry
            .create(
                WriteRequest { target: &self.target(), options: &CreateOptions::default(), ctx: &Context::default() },
                &body,
            )
            .await
            .unwrap();
    }

    async fn watch(&self, terms: &str) -> WatchView {
        let query = Query::parse(&format!("watch=true&{terms}"));
        self.registry.watch(&self.target(), &ListOptions::from_query(&query).unwrap()).await.unwrap()
    }
}

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// The events that are there, if any. All who ask are the same task.
fn poll(watch: &mut WatchView) -> Poll<Option<Frames>> {
    static TASK: OnceLock<Waker> = OnceLock::new();
    let task = TASK.get_or_init(|| Waker::from(Arc::new(Task)));
    watch.poll_frames(&mut TaskContext::from_waker(task), 1 << 16)
}

fn events(watch: &mut WatchView) -> (String, bool) {
    let Poll::Ready(Some(frames)) = poll(watch) else { panic!("there is something to tell") };
    (String::from_utf8(frames.segments.concat()).unwrap(), frames.settled)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_told_everything_need_not_ask_again() {
    let mut world = World::new().await;
    let mut watch = world.watch("").await;
    world.write().await;
    assert!(!events(&mut watch).1, "nobody would wake it when its time is over");
    assert!(poll(&mut watch).is_pending());
    for _ in 0..3 {
        world.write().await;
        let (told, settled) = events(&mut watch);
        assert!(told.contains("ADDED") && settled, "{told}");
    }
    assert!(poll(&mut watch).is_pending(), "to ask does no harm");
    world.write().await;
    assert!(events(&mut watch).1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_silent_gets_its_bookmarks() {
    let mut world = World::new().await;
    let mut watch = world.watch("allowWatchBookmarks=true").await;
    while poll(&mut watch).is_ready() {}
    for _ in 0..3 {
        world.write().await;
        assert!(events(&mut watch).1);
        // The alarm rings, and an event is there at the same time.
        tokio::time::advance(Duration::from_secs(60)).await;
        world.write().await;
        let (told, settled) = events(&mut watch);
        assert!(told.contains("ADDED") && !settled, "it must ask again: {told}");
        let (told, _) = events(&mut watch);
        assert!(told.contains("BOOKMARK") && told.contains("resourceVersion"), "{told}");
        assert!(poll(&mut watch).is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_silent_ends_in_time() {
    let mut world = World::new().await;
    let mut watch = world.watch("timeoutSeconds=10").await;
    assert!(poll(&mut watch).is_pending());
    for _ in 0..9 {
        world.write().await;
        assert!(events(&mut watch).1);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    world.write().await;
    assert!(matches!(poll(&mut watch), Poll::Ready(None)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_woken_for_its_end() {
    let world = World::new().await;
    let mut watch = world.watch("timeoutSeconds=10&allowWatchBookmarks=true").await;
    let began = tokio::time::Instant::now();
    let mut told = String::new();
    while let Some(frames) = watch.frames(1 << 16).await {
        told.push_str(&String::from_utf8(frames.segments.concat()).unwrap());
    }
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(told.is_empty() || told.contains("BOOKMARK"), "{told}");
}
