//! A watch as a client sees it: its events, and whether it must poll again to be woken.

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

/// The events that are ready, if any. Every caller is the same task.
fn poll(watch: &mut WatchView) -> Poll<Option<Frames>> {
    static TASK: OnceLock<Waker> = OnceLock::new();
    let task = TASK.get_or_init(|| Waker::from(Arc::new(Task)));
    watch.poll_frames(&mut TaskContext::from_waker(task), 1 << 16)
}

fn events(watch: &mut WatchView) -> (String, bool) {
    let Poll::Ready(Some(frames)) = poll(watch) else { panic!("an event is ready") };
    (String::from_utf8(frames.segments.concat()).unwrap(), frames.settled)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_every_event_need_not_poll_again() {
    let mut world = World::new().await;
    let mut watch = world.watch("").await;
    world.write().await;
    assert!(!events(&mut watch).1, "it would not be woken at its deadline");
    assert!(poll(&mut watch).is_pending());
    for _ in 0..3 {
        world.write().await;
        let (sent, settled) = events(&mut watch);
        assert!(sent.contains("ADDED") && settled, "{sent}");
    }
    assert!(poll(&mut watch).is_pending(), "polling again is harmless");
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
        // The deadline passes, and an event is ready at the same time.
        tokio::time::advance(Duration::from_secs(60)).await;
        world.write().await;
        let (sent, settled) = events(&mut watch);
        assert!(sent.contains("ADDED") && !settled, "it must poll again: {sent}");
        let (sent, _) = events(&mut watch);
        assert!(sent.contains("BOOKMARK") && sent.contains("resourceVersion"), "{sent}");
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
    let mut sent = String::new();
    while let Some(frames) = watch.frames(1 << 16).await {
        sent.push_str(&String::from_utf8(frames.segments.concat()).unwrap());
    }
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(sent.is_empty() || sent.contains("BOOKMARK"), "{sent}");
}
