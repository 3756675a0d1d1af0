//! The rows of the reflector, one test each, on virtual time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use testkit::log_capture::{Level, LogCapture};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::list_watch::WatchItem;
use crate::queue::{Replacement, Staged};
use crate::scripted::*;
use crate::store::{Scope, Store, StoreWriter};
use crate::wire::{Params, VersionMatch};
use crate::{Key, ResourceVersion};

/// A store that also records the changes as text.
struct RecordingTarget {
    writer: StoreWriter<ConfigMap>,
    lines: Mutex<Vec<String>>,
    resets: Mutex<u32>,
    changed: Notify,
    refuse: Mutex<bool>,
    refuse_resync: bool,
    skip_resync: Mutex<bool>,
    /// Source of the reflector's version at each change, and the versions read.
    metrics: OnceLock<Arc<ReflectorMetrics>>,
    versions: Mutex<Vec<String>>,
}

impl RecordingTarget {
    fn new() -> Arc<Self> {
        Self::build(false)
    }

    fn build(refuse_resync: bool) -> Arc<Self> {
        let (_, writer) = Store::new();
        Arc::new(Self {
            writer,
            lines: Mutex::default(),
            resets: Mutex::default(),
            changed: Notify::new(),
            refuse: Mutex::new(false),
            refuse_resync,
            skip_resync: Mutex::new(false),
            metrics: OnceLock::new(),
            versions: Mutex::default(),
        })
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    async fn has(&self, line: &str) {
        loop {
            let changed = self.changed.notified();
            if self.lines.lock().iter().any(|l| l == line) {
                return;
            }
            changed.await;
        }
    }

    fn names(&self) -> Vec<String> {
        self.writer.store().snapshot().keys().map(ToString::to_string).collect()
    }
}

impl Target<ConfigMap> for RecordingTarget {
    fn apply(&self, delta: Delta<ConfigMap>) -> BoxFuture<'_, Result<(), TargetError>> {
        let line = match &delta {
            Delta::ReplacedAll(Replacement { items, version, history_reset }) => {
                *self.resets.lock() += u32::from(*history_reset);
                let names: Vec<String> = items
                    .iter()
                    .map(|(key, staged)| match staged {
                        Staged::Object(object) => format!("{key}@{}", crate::object::version_of(&**object)),
                        Staged::Undecodable(_) => format!("{key}!"),
                        Staged::Ahead => format!("{key}^"),
                    })
                    .collect();
                format!("all {} @{version}", names.join(" "))
            }
            other => format!("{other:?}"),
        };
        if let Some(metrics) = self.metrics.get() {
            self.versions.lock().push(metrics.last_version().to_string());
        }
        let sync = matches!(delta, Delta::SyncAll);
        self.writer.apply(&Scope::All, vec![delta]);
        self.lines.lock().push(line);
        self.changed.notify_waiters();
        let refused = *self.refuse.lock() || (sync && self.refuse_resync);
        let result = if refused { Err(TargetError("refused".into())) } else { Ok(()) };
        futures::future::ready(result).boxed()
    }

    fn known(&self, key: &Key) -> Option<Arc<ConfigMap>> {
        self.writer.store().get(key)
    }

    fn should_resync(&self) -> bool {
        !*self.skip_resync.lock()
    }
}

struct Running {
    metrics: Arc<ReflectorMetrics>,
    problems: Arc<Mutex<Vec<Problem>>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start(source: &ScriptedSource, target: &Arc<RecordingTarget>, config: ReflectorConfig) -> Running {
    start_with(source, target, config, None)
}

fn start_with(
    source: &ScriptedSource,
    target: &Arc<RecordingTarget>,
    config: ReflectorConfig,
    transform: Option<Transform<ConfigMap>>,
) -> Running {
    let problems: Arc<Mutex<Vec<Problem>>> = Arc::default();
    let seen = problems.clone();
    let reflector = Reflector::<ConfigMap>::new(Arc::new(source.clone()), target.clone(), config)
        .transform(transform)
        .on_problem(Some(Arc::new(move |problem: &Problem| seen.lock().push(problem.clone()))));
    let metrics = reflector.metrics();
    let _ = target.metrics.set(metrics.clone());
    let stop = CancellationToken::new();
    let task = tokio::spawn(reflector.run(stop.clone()));
    Running { metrics, problems, stop, task }
}

fn config() -> ReflectorConfig {
    ReflectorConfig::default()
}

fn version(params: &Params) -> &str {
    params.version.as_ref().map_or("(none)", ResourceVersion::as_str)
}

/// `list 0`, `stream ""`, `watch 5`: the requests in order.
fn requests(source: &ScriptedSource) -> Vec<String> {
    let name = |p: &Params| match (p.watch, p.send_initial_events, p.allow_bookmarks) {
        (_, true, _) => "stream",
        (_, false, true) => "watch",
        _ => "list",
    };
    source.requests().iter().map(|p| format!("{} {}", name(p), version(p)).trim_end().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn rf_01_each_event_reaches_the_target_and_moves_the_version() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![end("10"), added("a@11"), modified("a@12"), deleted("a@13"), bookmark("20"), Step::Hang]));
    let running = start(&source, &target, config());
    target.has("Bookmark(20)").await;
    assert_eq!(target.lines(), ["all  @10", "Added(a@11)", "Updated(a@12)", "Deleted(a@13)", "Bookmark(20)"]);
    tokio::task::yield_now().await;
    assert_eq!(running.metrics.last_version().as_str(), "20");
    assert_eq!(*target.versions.lock(), ["", "10", "11", "12", "13"], "each moved it, after the target had the change");
}

#[tokio::test(start_paused = true)]
async fn rf_02_the_version_advances_even_if_the_target_refuses() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    *target.refuse.lock() = true;
    source.on_watch(Ok(vec![end("10"), added("a@11"), Step::Wait(Duration::from_secs(2))]));
    let log = LogCapture::start();
    start(&source, &target, config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source), ["stream", "watch 11"]);
    let levels: Vec<Level> = log.take("client").iter().map(|line| line.level).collect();
    assert_eq!(levels, [Level::WARN; 2], "the set and the addition");
}

#[tokio::test(start_paused = true)]
async fn rf_03_leading_added_events_of_a_watch_without_version_do_not_move_it() {
    let source = ScriptedSource::listing();
    let target = RecordingTarget::new();
    source.on_list(Ok((vec![], "", None)));
    source.on_watch(Ok(vec![added("b@30"), added("a@10"), Step::Wait(Duration::from_secs(2))]));
    source.on_watch(Ok(vec![added("c@30"), modified("c@31"), added("d@32"), Step::Wait(Duration::from_secs(2))]));
    start(&source, &target, config());
    source.wait_for_requests(4).await;
    assert_eq!(requests(&source), ["list 0", "watch", "watch", "watch 32"]);
}

#[tokio::test(start_paused = true)]
async fn rf_04_objects_of_another_kind_are_skipped() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    let table = raw(json!({"kind": "Table", "metadata": {"name": "t", "resourceVersion": "99"}}));
    source.on_watch(Ok(vec![
        end("10"),
        Step::Item(WatchItem::Added(table)),
        added("a@11"),
        Step::Wait(Duration::from_secs(2)),
        Step::Item(WatchItem::Modified(raw(
            json!({"kind": "Table", "metadata": {"name": "t", "resourceVersion": "99"}}),
        ))),
    ]));
    let running = start(&source, &target, config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source)[1], "watch 11", "a skipped object does not move the version");
    assert_eq!(target.names(), ["a"]);
    assert_eq!(running.metrics.foreign.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn rf_04_the_kind_and_version_that_a_source_expects_are_checked() {
    let typed = |name: &str, version: u32, api_version: &str, kind: &str| {
        let metadata = json!({"name": name, "resourceVersion": version.to_string()});
        Step::Item(WatchItem::Added(raw(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}))))
    };
    let source = ScriptedSource::new().expecting("v1", "ConfigMap");
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![
        typed("other", 8, "v1", "Secret"),
        end("10"),
        typed("a", 11, "v1", "ConfigMap"),
        typed("other", 12, "v1", "Secret"),
        typed("other", 13, "v2", "ConfigMap"),
        Step::Wait(Duration::from_secs(2)),
    ]));
    let bare = raw(json!({"metadata": {"name": "bare", "resourceVersion": "14"}}));
    source.on_watch(Ok(vec![Step::Item(WatchItem::Added(bare)), Step::Wait(Duration::from_secs(2))]));
    let running = start(&source, &target, config());
    source.wait_for_requests(3).await;
    assert_eq!(requests(&source), ["stream", "watch 11", "watch 14"], "items of lists have no kind and are taken");
    assert_eq!(target.names(), ["a", "bare"]);
    assert_eq!(running.metrics.foreign.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn rf_05_an_unknown_event_type_moves_the_version_and_stores_nothing() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    let odd = Step::Item(WatchItem::Unknown { kind: "SURPRISE".into(), version: "15".into() });
    source.on_watch(Ok(vec![end("10"), odd, Step::Wait(Duration::from_secs(2))]));
    start(&source, &target, config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source)[1], "watch 15");
    assert_eq!(target.lines(), ["all  @10"]);
}

#[tokio::test(start_paused = true)]
async fn rf_08_the_problem_handler_sees_lists_opens_and_streams() {
    let source = ScriptedSource::listing();
    let target = RecordingTarget::new();
    source.on_list(Err(failure(403, "Forbidden")));
    source.on_list(Ok((vec![], "5", None)));
    source.on_watch(Err(failure(500, "InternalError")));
    source.on_list(Ok((vec![], "6", None)));
    source.on_watch(Ok(vec![in_stream(gone())]));
    let running = start(&source, &target, config());
    source.wait_for_requests(6).await;
    let seen: Vec<Phase> = running.problems.lock().iter().map(|p| p.phase).collect();
    assert_eq!(seen, [Phase::List, Phase::Open, Phase::Stream], "client-go hides the last one");
}

#[test]
fn rf_09_the_default_handler_logs_expired_versions_and_lost_connections_at_debug_level_and_the_rest_as_errors() {
    let transport = |kind| crate::Error::Transport { kind, message: "x".into() };
    let undecodable = crate::Error::Decode { what: "a watch event", message: "x".into() };
    let log = LogCapture::start();
    for (error, level) in [
        (gone(), Level::DEBUG),
        (failure(410, "Gone"), Level::DEBUG),
        (transport(crate::TransportKind::Eof), Level::DEBUG),
        (refused(), Level::ERROR),
        (transport(crate::TransportKind::Timeout), Level::ERROR),
        (transport(crate::TransportKind::Tls), Level::ERROR),
        (failure(403, "Forbidden"), Level::ERROR),
        (failure(500, "InternalError"), Level::ERROR),
        (undecodable, Level::ERROR),
    ] {
        for phase in [Phase::List, Phase::Open, Phase::Stream] {
            log_problem(&Problem { phase, error: error.clone() });
            let lines = log.take("client");
            let levels: Vec<Level> = lines.iter().map(|line| line.level).collect();
            assert_eq!(levels, [level], "{phase:?} {error}");
            assert!(lines[0].text.contains(&error.to_string()), "{lines:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rf_09_a_watch_that_ends_is_not_logged_and_a_failing_list_is_by_default() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    source.on_watch(Ok(vec![Step::Wait(Duration::from_secs(2))]));
    source.on_watch(Ok(vec![Step::Wait(Duration::from_secs(2)), in_stream(gone())]));
    source.on_list(Err(failure(403, "Forbidden")));
    let log = LogCapture::start();
    let reflector = Reflector::<ConfigMap>::new(Arc::new(source.clone()), RecordingTarget::new(), config());
    tokio::spawn(reflector.run(CancellationToken::new()));
    source.wait_for_requests(3).await;
    assert!(log.take("client").is_empty(), "the first watch came to a clean end");
    source.wait_for_requests(5).await;
    let levels: Vec<Level> = log.take("client").iter().map(|line| line.level).collect();
    assert_eq!(levels, [Level::DEBUG, Level::ERROR], "the expired watch, then the forbidden list");
}

#[tokio::test(start_paused = true)]
async fn rf_10_resync_runs_while_watching() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![end("10"), Step::Wait(Duration::from_secs(70)), bookmark("11"), Step::Hang]));
    start(&source, &target, ReflectorConfig { resync: Some(Duration::from_secs(30)), ..config() });
    target.has("Bookmark(11)").await;
    assert_eq!(target.lines(), ["all  @10", "SyncAll", "SyncAll", "Bookmark(11)"]);
}

#[tokio::test(start_paused = true)]
async fn rf_10_the_timer_runs_only_while_watching_and_the_target_decides() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    let (before, after) = (Step::Wait(Duration::from_secs(50)), Step::Wait(Duration::from_secs(40)));
    source.on_watch(Ok(vec![before, end("10"), after, bookmark("11"), Step::Hang]));
    start(&source, &target, ReflectorConfig { resync: Some(Duration::from_secs(30)), ..config() });
    target.has("Bookmark(11)").await;
    assert_eq!(target.lines(), ["all  @10", "SyncAll", "Bookmark(11)"], "80 s, of which 40 s were a watch");

    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    *target.skip_resync.lock() = true;
    source.on_watch(Ok(vec![end("10"), Step::Wait(Duration::from_secs(100)), bookmark("11"), Step::Hang]));
    start(&source, &target, ReflectorConfig { resync: Some(Duration::from_secs(30)), ..config() });
    target.has("Bookmark(11)").await;
    assert_eq!(target.lines(), ["all  @10", "Bookmark(11)"]);
}

#[tokio::test(start_paused = true)]
async fn rf_10_a_failing_resync_ends_the_watch() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::build(true);
    source.on_watch(Ok(vec![end("10"), Step::Hang]));
    start(&source, &target, ReflectorConfig { resync: Some(Duration::from_secs(30)), ..config() });
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source), ["stream", "stream 10"]);
}

#[tokio::test(start_paused = true)]
async fn rf_11_readers_see_the_old_set_or_the_new_one() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@1"), end("10"), in_stream(gone())]));
    source.on_watch(Ok(vec![added("b@11"), Step::Wait(Duration::from_secs(5)), added("c@12"), end("13"), Step::Hang]));
    start(&source, &target, config());
    source.wait_for_requests(2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(target.names(), ["a"], "half of the new set is not visible");
    target.has("all b@11 c@12 @13").await;
    assert_eq!(target.names(), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn rf_12_a_transform_sees_each_wire_object_once() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@1"), added("drop@2"), end("10"), modified("a@11"), bookmark("12"), Step::Hang]));
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    let transform: Transform<ConfigMap> = Arc::new(move |map: ConfigMap| {
        let name = map.metadata.name.clone().unwrap_or_default();
        seen.lock().push(name.clone());
        if name == "drop" { Err("unwanted".into()) } else { Ok(ConfigMap { data: None, ..map }) }
    });
    start_with(&source, &target, config(), Some(transform));
    target.has("Bookmark(12)").await;
    assert_eq!(*calls.lock(), ["a", "drop", "a"]);
    assert!(target.known(&Key::parse("a").unwrap()).unwrap().data.is_none());
    assert_eq!(target.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn dq_04_a_transform_error_drops_the_object_and_moves_the_version() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![end("10"), added("a@11"), Step::Wait(Duration::from_secs(2))]));
    let log = LogCapture::start();
    start_with(&source, &target, config(), Some(Arc::new(|_| Err("no".into()))));
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source)[1], "watch 11");
    let lines = log.take("client");
    assert!(matches!(&lines[..], [line] if line.level == Level::WARN && line.text.contains("no")), "{lines:?}");
    assert!(target.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn rf_14_a_relist_keeps_unchanged_objects_instead_of_doubling_them() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@1"), added("b@2"), end("10"), in_stream(gone())]));
    source.on_watch(Ok(vec![added("a@1"), added("b@12"), end("13"), Step::Hang]));
    let running = start(&source, &target, config());
    target.has("all a@1 b@2 @10").await;
    let before = target.known(&Key::parse("a").unwrap()).unwrap();
    target.has("all a@1 b@12 @13").await;
    let after = target.known(&Key::parse("a").unwrap()).unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(running.metrics.kept.get(), 1);
}

fn in_place() -> ReflectorConfig {
    ReflectorConfig { relist_in_place: true, ..config() }
}

#[tokio::test(start_paused = true)]
async fn rf_14_in_place_a_relist_shows_what_changed_at_once_and_removes_what_is_gone_at_its_end() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@1"), added("b@2"), added("c@3"), end("10"), in_stream(gone())]));
    let pause = || Step::Wait(Duration::from_secs(5));
    source.on_watch(Ok(vec![added("b@12"), added("c@3"), pause(), added("d@13"), end("14"), Step::Hang]));
    let running = start(&source, &target, in_place());
    target.has("Ahead(b@12)").await;
    let half = target.writer.store().snapshot();
    let versions: Vec<_> = half.iter().map(|object| object.state_version().to_string()).collect();
    assert_eq!(versions, ["1", "12", "3"], "the new state of b is there, and a still is");
    assert_eq!(half.version().as_str(), "10", "the set has not come further");
    target.has("all b^ c@3 d^ @14").await;
    assert_eq!(target.names(), ["b", "c", "d"]);
    assert_eq!(target.writer.store().version().as_str(), "14");
    assert_eq!(running.metrics.kept.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn rf_14_in_place_after_a_cut_relist_no_set_is_older_than_its_changes() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@1"), end("10"), in_stream(gone())]));
    source.on_watch(Ok(vec![added("a@12"), Step::Wait(Duration::from_secs(5))]));
    source.on_watch(Err(failure(422, "Invalid")));
    source.on_list(Ok((items(&["a@12"]), "13", None)));
    source.on_watch(Ok(vec![Step::Hang]));
    start(&source, &target, in_place());
    source.wait_for_requests(5).await;
    assert_eq!(requests(&source), ["stream", "stream 10", "stream 12", "list 12", "watch 13"]);
}

#[tokio::test(start_paused = true)]
async fn rf_18_in_place_relists_take_nothing_from_a_history_that_went_back() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@8"), end("10"), in_stream(gone())]));
    source.on_watch(Ok(vec![added("a@5"), Step::Wait(Duration::from_secs(5)), end("7"), Step::Hang]));
    source.on_watch(Ok(vec![added("a@5"), end("7"), Step::Hang]));
    start(&source, &target, in_place());
    target.has("all a@5 @7").await;
    assert!(!target.lines().iter().any(|line| line.starts_with("Ahead")), "{:?}", target.lines());
    assert_eq!(*target.resets.lock(), 1);
}

#[tokio::test(start_paused = true)]
async fn rf_15_bookmarks_are_optional() {
    let source = ScriptedSource::listing();
    let target = RecordingTarget::new();
    source.on_list(Ok((items(&["a@1"]), "5", None)));
    source.on_watch(Ok(vec![modified("a@6"), Step::Wait(Duration::from_secs(100)), modified("a@7"), Step::Hang]));
    start(&source, &target, config());
    target.has("Updated(a@7)").await;
    assert_eq!(requests(&source), ["list 0", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn rf_16_stop_interrupts_every_state() {
    type Script = fn(&ScriptedSource);
    let scripts: [(&str, Script); 5] = [
        ("request in flight", |_| ()),
        ("initial stream", |s| s.on_watch(Ok(vec![added("a@1"), Step::Hang]))),
        ("watch", |s| s.on_watch(Ok(vec![end("5"), Step::Hang]))),
        ("pause", |s| s.on_watch(Err(busy(3600)))),
        ("list", |s| s.on_watch(Err(failure(422, "Invalid")))),
    ];
    for (name, script) in scripts {
        let source = ScriptedSource::new();
        script(&source);
        let running = start(&source, &RecordingTarget::new(), config());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let asked = Instant::now();
        running.stop.cancel();
        running.task.await.unwrap();
        assert!(asked.elapsed() < Duration::from_millis(100), "{name} took {:?}", asked.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn rf_16_stop_interrupts_a_target_that_makes_it_wait() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![end("5"), added("a@6"), added("b@7"), Step::Hang]));
    let (store, _writer) = Store::<ConfigMap>::new();
    let queue = Arc::new(crate::queue::InOrderQueue::with_capacity(Arc::new(store), 1));
    let reflector = Reflector::new(Arc::new(source), queue.clone(), config());
    let stop = CancellationToken::new();
    let task = tokio::spawn(reflector.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.len(), 1, "the reflector waits for room");
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rf_17_an_undecodable_object_is_reported_replaces_the_stale_one_and_stalls_nothing() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    let bad = raw(
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "uid": "a", "resourceVersion": "12"}, "data": 7}),
    );
    source.on_watch(Ok(vec![
        added("a@1"),
        end("10"),
        Step::Item(WatchItem::Modified(bad)),
        Step::Wait(Duration::from_secs(2)),
    ]));
    let running = start(&source, &target, config());
    source.wait_for_requests(2).await;
    assert_eq!(target.lines()[1], "Undecodable(a@-)");
    assert!(target.names().is_empty(), "the stale state is gone");
    assert_eq!(requests(&source)[1], "watch 12");
    assert_eq!(running.metrics.undecodable.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn rf_18_a_bookmark_from_the_past_leads_to_the_most_recent_state_and_a_reset() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@90"), added("b@95"), end("100"), bookmark("40"), Step::Hang]));
    source.on_watch(Ok(vec![added("a@30"), end("41"), Step::Hang]));
    let running = start(&source, &target, config());
    target.has("all a@30 @41").await;
    assert_eq!(requests(&source), ["stream", "stream"], "asked for the most recent state, not for the lost version");
    assert_eq!((*target.resets.lock(), running.metrics.history_resets.get()), (1, 1));
    assert_eq!(target.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn rf_18_after_a_list_from_the_past_the_most_recent_is_requested() {
    let source = ScriptedSource::listing();
    let target = RecordingTarget::new();
    source.on_list(Ok((items(&["a@90"]), "100", None)));
    source.on_watch(Ok(vec![in_stream(gone())]));
    source.on_list(Ok((items(&["a@30"]), "40", None)));
    source.on_list(Ok((items(&["a@30"]), "41", None)));
    start(&source, &target, config());
    target.has("all a@30 @41").await;
    assert_eq!(requests(&source)[..4], ["list 0", "watch 100", "list 100", "list"]);
    assert_eq!(*target.resets.lock(), 1);
}

#[tokio::test(start_paused = true)]
async fn rf_19_a_missing_end_bookmark_leads_to_a_list() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@1"), Step::Hang]));
    source.on_list(Ok((items(&["a@1"]), "5", None)));
    let began = Instant::now();
    start(&source, &target, config());
    target.has("all a@1 @5").await;
    assert_eq!(requests(&source)[..2], ["stream", "list 0"]);
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn rf_19_progress_buys_time_and_chatter_does_not() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    let mut steps = Vec::new();
    for n in 0..3 {
        steps.extend([Step::Wait(Duration::from_secs(50)), added(&format!("o{n}@{}", n + 1))]);
    }
    steps.extend([end("9"), Step::Hang]);
    source.on_watch(Ok(steps));
    start(&source, &target, config());
    target.has("all o0@1 o1@2 o2@3 @9").await;

    let source = ScriptedSource::new();
    let mut steps = vec![added("a@1")];
    for n in 0..1000 {
        steps.extend([Step::Wait(Duration::from_secs(1)), modified(&format!("a@{}", n + 2))]);
    }
    source.on_watch(Ok(steps));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source)[1], "list 0");
}

#[tokio::test(start_paused = true)]
async fn rf_20_a_lagging_server_cache_is_listed_after_three_refusals() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    for _ in 0..3 {
        source.on_watch(Err(busy(1)));
    }
    source.on_list(Ok((items(&["a@1"]), "5", None)));
    start(&source, &target, config());
    target.has("all a@1 @5").await;
    assert_eq!(requests(&source)[..4], ["stream", "stream", "stream", "list 0"]);
}

// ---- section 2: the parameters of each request ----

#[tokio::test(start_paused = true)]
async fn lw_04_a_source_that_cannot_stream_is_listed() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(2).await;
    assert!(source.requests().iter().all(|p| !p.send_initial_events));
}

#[tokio::test(start_paused = true)]
async fn first_sync_streams_the_most_recent_state() {
    let source = ScriptedSource::new();
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(1).await;
    let first = source.requests().remove(0);
    assert_eq!(version(&first), "", "never \"0\": a stale server would take us back in time");
    assert_eq!(first.version_match, Some(VersionMatch::NotOlderThan));
    assert!(first.send_initial_events && first.allow_bookmarks);
    assert!((300..600).contains(&first.timeout_seconds.unwrap()));
    assert_eq!(first.limit, None);
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_only_where_pages_help() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    source.on_watch(Ok(vec![in_stream(gone())]));
    source.on_list(Err(gone()));
    source.on_list(Ok((vec![], "9", None)));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(5).await;
    let asked = source.requests();
    let seen: Vec<(&str, Option<u32>)> =
        asked.iter().filter(|p| !p.allow_bookmarks).map(|p| (version(p), p.limit)).collect();
    assert_eq!(seen, [("0", Some(500)), ("5", None), ("", Some(500))]);
    assert!(asked.iter().all(|p| p.version_match.is_none()));
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_version_zero_list_stick() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((items(&["a@1"]), "5", Some("more"))));
    source.on_list(Ok((items(&["b@2"]), "5", None)));
    source.on_watch(Ok(vec![in_stream(gone())]));
    source.on_list(Ok((vec![], "9", None)));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(4).await;
    let relist = source.requests().remove(3);
    assert_eq!((version(&relist), relist.limit), ("5", Some(500)));
}

#[tokio::test(start_paused = true)]
async fn a_forced_page_size_is_always_used() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    source.on_watch(Ok(vec![in_stream(gone())]));
    start(&source, &RecordingTarget::new(), ReflectorConfig { page_limit: Some(7), ..config() });
    source.wait_for_requests(3).await;
    assert!(source.requests().iter().filter(|p| !p.allow_bookmarks).all(|p| p.limit == Some(7)));
}

// ---- section 3.2: transitions ----

#[tokio::test(start_paused = true)]
async fn a_refused_streaming_list_backs_off_and_stays() {
    let source = ScriptedSource::new();
    for _ in 0..4 {
        source.on_watch(Err(refused()));
    }
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(5).await;
    assert_eq!(requests(&source), ["stream"; 5]);
    let at = source.request_times();
    for (pair, low) in at.windows(2).zip([0.8, 1.6, 3.2, 6.4]) {
        let gap = (pair[1] - pair[0]).as_secs_f64();
        assert!(gap >= low && gap <= 2.0 * low + 0.1, "{gap} not in {low}..{}", 2.0 * low);
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_or_too_large_version_is_retried_at_once_without_it() {
    for error in [gone(), too_large()] {
        for in_the_stream in [false, true] {
            let source = ScriptedSource::new();
            source.on_watch(Ok(vec![end("10"), in_stream(gone())]));
            if in_the_stream {
                source.on_watch(Ok(vec![added("x@1"), in_stream(error.clone())]));
            } else {
                source.on_watch(Err(error.clone()));
            }
            start(&source, &RecordingTarget::new(), config());
            source.wait_for_requests(3).await;
            assert_eq!(requests(&source), ["stream", "stream 10", "stream"]);
            let at = source.request_times();
            assert!(at[1] - at[0] >= Duration::from_millis(800), "the watch error backs off");
            assert!(at[2] - at[1] < Duration::from_millis(10), "the flagged version does not");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_calls_the_most_recent_state_expired_is_listed() {
    let source = ScriptedSource::new();
    source.on_watch(Err(gone()));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source), ["stream", "list 0"]);
}

#[tokio::test(start_paused = true)]
async fn failing_lists_back_off_further_and_further() {
    let source = ScriptedSource::listing();
    for _ in 0..10 {
        source.on_list(Err(failure(500, "InternalError")));
    }
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(11).await;
    let at = source.request_times();
    let gaps: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    for (gap, low) in gaps.iter().zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0, 30.0]) {
        assert!(*gap >= low, "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_keeps_its_version() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    for _ in 0..3 {
        source.on_watch(Err(refused()));
    }
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(5).await;
    assert_eq!(requests(&source), ["list 0", "watch 5", "watch 5", "watch 5", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_while_a_watch_is_opened_keeps_its_version_too() {
    let broken = |kind| crate::Error::Transport { kind, message: "broken".into() };
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    source.on_watch(Err(broken(crate::TransportKind::Eof)));
    source.on_watch(Err(broken(crate::TransportKind::Timeout)));
    source.on_watch(Err(broken(crate::TransportKind::Tls)));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(5).await;
    assert_eq!(requests(&source), ["list 0", "watch 5", "watch 5", "watch 5", "list 5"], "certificates are no hiccup");
}

#[tokio::test(start_paused = true)]
async fn a_watch_refused_with_410_as_http_status_leads_to_a_relist() {
    let source = ScriptedSource::listing();
    source.on_list(Ok((vec![], "5", None)));
    source.on_watch(Err(gone()));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(3).await;
    assert_eq!(requests(&source), ["list 0", "watch 5", "list 5"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_opened_at_the_last_version_at_once() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![
        end("10"),
        Step::Wait(Duration::from_secs(100)),
        modified("a@11"),
        Step::Wait(Duration::from_secs(100)),
    ]));
    source.on_watch(Ok(vec![Step::Wait(Duration::from_secs(5)), Step::Fail(refused())]));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(3).await;
    assert_eq!(requests(&source), ["stream", "watch 11", "watch 11"]);
    let at = source.request_times();
    assert_eq!((at[1] - at[0]).as_secs(), 200);
    assert_eq!((at[2] - at[1]).as_secs(), 5, "a broken connection is an end like any other");
    assert!(!source.requests()[1].send_initial_events, "a reconnect must not ask for the initial state");
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_in_the_stream_reopens_after_the_requested_delay() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![end("10"), in_stream(busy(7))]));
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(2).await;
    let at = source.request_times();
    assert_eq!(requests(&source), ["stream", "watch 10"]);
    assert!(at[1] - at[0] >= Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn internal_errors_within_their_window_do_not_relist() {
    let source = ScriptedSource::new();
    let burst = || vec![Step::Wait(Duration::from_secs(4)), in_stream(failure(500, "InternalError"))];
    let mut first = vec![end("10")];
    first.extend(burst());
    source.on_watch(Ok(first));
    for _ in 0..3 {
        source.on_watch(Ok(burst()));
    }
    let window = ReflectorConfig { internal_error_window: Duration::from_secs(10), ..config() };
    start(&source, &RecordingTarget::new(), window);
    source.wait_for_requests(5).await;
    assert_eq!(requests(&source), ["stream", "watch 10", "watch 10", "watch 10", "stream 10"]);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_line_ends_the_round() {
    let source = ScriptedSource::new();
    let bad = crate::Error::Decode { what: "a watch event", message: "x".into() };
    source.on_watch(Ok(vec![end("10"), Step::Fail(bad)]));
    let running = start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source), ["stream", "stream 10"]);
    assert_eq!(running.problems.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn better_09_a_silent_watch_is_opened_anew_at_the_last_version() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![end("10"), Step::Wait(Duration::from_secs(170)), bookmark("12"), Step::Hang]));
    let running = start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(2).await;
    assert_eq!(requests(&source), ["stream", "watch 12"]);
    let at = source.request_times();
    assert_eq!((at[1] - at[0]).as_secs(), 350);
    assert_eq!(running.metrics.idle_restarts.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_state_is_ignored_and_counted() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    source.on_watch(Ok(vec![added("a@8"), end("10"), added("a@8"), added("a@5"), added("b@11"), Step::Hang]));
    let running = start(&source, &target, config());
    target.has("Added(b@11)").await;
    assert_eq!(target.lines(), ["all a@8 @10", "Added(b@11)"]);
    assert_eq!(running.metrics.repeated.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_initial_stream_that_keeps_breaking_backs_off() {
    let source = ScriptedSource::new();
    for _ in 0..5 {
        source.on_watch(Ok(vec![added("a@1"), Step::Wait(Duration::from_millis(1))]));
    }
    start(&source, &RecordingTarget::new(), config());
    source.wait_for_requests(5).await;
    let at = source.request_times();
    assert!(at[2] - at[0] < Duration::from_millis(100), "the first retries are immediate");
    assert!(at[4] - at[2] > Duration::from_millis(800), "then they are not");
}

#[tokio::test(start_paused = true)]
async fn limits_can_be_switched_off() {
    let source = ScriptedSource::new();
    let target = RecordingTarget::new();
    let day = Duration::from_secs(24 * 3600);
    source.on_watch(Ok(vec![
        Step::Wait(day),
        added("a@1"),
        Step::Wait(day),
        end("5"),
        Step::Wait(day),
        added("b@6"),
        Step::Hang,
    ]));
    let never = ReflectorConfig {
        initial_events_limit: Duration::MAX,
        initial_events_warning: Duration::MAX,
        idle_limit: Duration::MAX,
        resync: Some(Duration::MAX),
        ..config()
    };
    start(&source, &target, never);
    target.has("Added(b@6)").await;
    assert_eq!(requests(&source), ["stream"]);
}
