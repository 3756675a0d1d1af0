//! The rules of the controller, one test each.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::informer::{Event, InformerConfig};
use crate::queue::Certainty;
use crate::scripted::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn running_informer(source: &ScriptedSource) -> SharedInformer<ConfigMap> {
    let informer = SharedInformer::new(source.clone(), InformerConfig::default());
    tokio::spawn(informer.start(CancellationToken::new()).unwrap());
    informer
}

/// A controller whose runs are reported on a channel and answered by `answer`.
fn start(
    controller: Controller,
    answer: impl Fn(&Run) -> Result<Action, RunError> + Send + Sync + 'static,
) -> (mpsc::Receiver<Run>, CancellationToken, tokio::task::JoinHandle<Result<(), ControllerError>>) {
    let (sender, receiver) = mpsc::channel(1000);
    let stop = CancellationToken::new();
    let answer = Arc::new(answer);
    let reconcile = move |run: Run| {
        let (sender, answer) = (sender.clone(), answer.clone());
        async move {
            let result = answer(&run);
            let _ = sender.send(run).await;
            result
        }
    };
    let task = tokio::spawn(controller.run(reconcile, stop.clone()));
    (receiver, stop, task)
}

fn one_object() -> ScriptedSource {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("n/a@1"), end("5"), Step::Hang]));
    source
}

#[tokio::test(start_paused = true)]
async fn ct_01_no_run_before_the_caches_are_ready_and_failure_if_they_never_are() {
    let silent = ScriptedSource::new();
    let controller = Controller::new("c").on(&running_informer(&silent), Predicate::any());
    controller.queue().add(key("n/early"));
    let began = Instant::now();
    let (mut runs, _stop, task) = start(controller, |_| Ok(Action::done()));
    let error = task.await.unwrap().unwrap_err();
    assert!(matches!(error, ControllerError::NotSynced { .. }), "{error}");
    assert_eq!(began.elapsed().as_secs(), 120);
    assert!(runs.recv().await.is_none(), "nothing ran");
    assert_eq!(ControllerConfig::default().workers, 1);
}

fn owned(name: &str, owners: serde_json::Value) -> Arc<ConfigMap> {
    let value =
        json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": "1", "ownerReferences": owners}});
    Arc::new(ConfigMap::from_raw(&raw(value)).unwrap())
}

fn keys_of(keys: &Keys<ConfigMap>, event: &Event<ConfigMap>) -> Vec<String> {
    keys.of(event).iter().map(ToString::to_string).collect()
}

#[test]
fn ct_02_owners_by_group_and_kind_old_and_new() {
    let owner = |name: &str, api: &str, kind: &str, controller: bool| json!({"apiVersion": api, "kind": kind, "name": name, "uid": name, "controller": controller});
    let old =
        owned("x", json!([owner("d1", "apps/v1", "Deployment", true), owner("r", "apps/v1", "ReplicaSet", false)]));
    let new = owned(
        "x",
        json!([owner("d2", "apps/v1beta9", "Deployment", false), owner("d3", "other/v1", "Deployment", true)]),
    );
    let update = Event::Updated { old: old.clone(), new: new.clone() };
    let all = Keys::Owners(OwnerMatch::of::<Deployment>(&()));
    assert_eq!(keys_of(&all, &update), ["n/d1", "n/d2"], "whatever the version, of this group only");
    let controllers = Keys::Owners(OwnerMatch::of::<Deployment>(&()).controller_only());
    assert_eq!(keys_of(&controllers, &update), ["n/d1"]);
    let cluster = Keys::Owners(OwnerMatch::of::<ReplicaSet>(&()).cluster_scoped());
    assert_eq!(keys_of(&cluster, &Event::Added { object: old, initial: false }), ["r"]);
}

#[test]
fn ct_03_a_map_is_applied_to_old_and_new_and_each_key_is_added_once() {
    let map: Keys<ConfigMap> = Keys::Mapped(Arc::new(|map: &ConfigMap| {
        let name = map.metadata.resource_version.clone().unwrap_or_default();
        vec![key("n/both"), Key::new(Some("n"), &name)]
    }));
    let at = |text: &str| Arc::new(ConfigMap::from_raw(&object(text)).unwrap());
    let update = Event::Updated { old: at("a@1"), new: at("a@2") };
    assert_eq!(keys_of(&map, &update), ["n/1", "n/2", "n/both"]);
}

#[test]
fn ct_04_predicates() {
    let with = |version: &str, generation: i64, label: &str, annotation: &str| {
        let value = json!({"metadata": {"name": "a", "resourceVersion": version, "generation": generation,
            "labels": {"l": label}, "annotations": {"a": annotation}}});
        Arc::new(ConfigMap::from_raw(&raw(value)).unwrap())
    };
    let update = |a: &Arc<ConfigMap>, b: &Arc<ConfigMap>| Event::Updated { old: a.clone(), new: b.clone() };
    let base = with("1", 1, "x", "y");
    let cases = [
        (Predicate::version_changed(), with("2", 1, "x", "y")),
        (Predicate::generation_changed(), with("1", 2, "x", "y")),
        (Predicate::labels_changed(), with("1", 1, "z", "y")),
        (Predicate::annotations_changed(), with("1", 1, "x", "z")),
    ];
    for (at, (predicate, changed)) in cases.iter().enumerate() {
        assert!(predicate.accepts(&update(&base, changed)), "{at}");
        assert!(!predicate.accepts(&update(&base, &base)), "{at}");
        assert!(predicate.accepts(&Event::Deleted { object: base.clone(), certainty: Certainty::Inferred }), "{at}");
        assert!(!(!predicate.clone()).accepts(&update(&base, changed)), "{at}");
    }
    let [(version, newer), (generation, _), ..] = cases;
    let both = update(&base, &newer);
    assert!(!version.clone().and(generation.clone()).accepts(&both));
    assert!(version.or(generation).accepts(&both));
}

#[tokio::test(start_paused = true)]
async fn ct_05_errors_back_off_terminal_errors_do_not_retry() {
    let controller = Controller::new("c").on(&running_informer(&one_object()), Predicate::any());
    let (queue, metrics) = (controller.queue(), controller.metrics());
    let (mut runs, _stop, _task) = start(controller, |run| match (run.key.name(), run.failures) {
        ("a", 0..3) => Err(RunError::retry("not yet")),
        ("hopeless", _) => Err(RunError::terminal("never")),
        ("again", _) => Ok(Action::after(Duration::from_secs(10))),
        _ => Ok(Action::done()),
    });
    let mut failures = Vec::new();
    let began = Instant::now();
    for _ in 0..4 {
        failures.push(runs.recv().await.unwrap().failures);
    }
    assert_eq!(failures, [0, 1, 2, 3]);
    assert!((35..45).contains(&began.elapsed().as_millis()), "5, 10 and 20 ms: {:?}", began.elapsed());
    queue.add(key("n/hopeless"));
    assert_eq!(runs.recv().await.unwrap().key, key("n/hopeless"));
    queue.add(key("n/again"));
    runs.recv().await;
    let first = Instant::now();
    assert_eq!(runs.recv().await.unwrap().key, key("n/again"), "hopeless did not come back");
    assert_eq!(first.elapsed().as_secs(), 10);
    assert_eq!((metrics.failed.get(), metrics.terminal.get()), (3, 1));
    assert_eq!(queue.retries(&key("n/a")), 0, "success forgets");
}

#[tokio::test(start_paused = true)]
async fn ct_06_a_panic_or_a_run_that_takes_too_long_is_an_error_of_that_key() {
    let informer = running_informer(&one_object());
    let config = ControllerConfig { run_timeout: Some(Duration::from_secs(5)), ..ControllerConfig::default() };
    let controller = Controller::new("c").config(config).on(&informer, Predicate::any());
    let metrics = controller.metrics();
    let (sender, mut receiver) = mpsc::channel(10);
    let reconcile = move |run: Run| {
        let sender = sender.clone();
        async move {
            assert!(run.failures > 0, "the first run panics");
            if run.failures == 1 {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            let _ = sender.send(run.id).await;
            Ok(Action::done())
        }
    };
    tokio::spawn(controller.run(reconcile, CancellationToken::new()));
    assert_eq!(receiver.recv().await, Some(3));
    assert_eq!((metrics.panics.get(), metrics.timeouts.get(), metrics.failed.get()), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn ct_07_stop_lets_current_runs_end_and_starts_no_other() {
    for (needs, ends_well) in [(10, true), (100, false)] {
        let informer = running_informer(&one_object());
        let controller = Controller::new("c").on(&informer, Predicate::any());
        let queue = controller.queue();
        queue.add(key("n/b"));
        let (sender, mut receiver) = mpsc::channel(10);
        let stop = CancellationToken::new();
        let reconcile = move |_| {
            let sender = sender.clone();
            async move {
                let _ = sender.send("begin").await;
                tokio::time::sleep(Duration::from_secs(needs)).await;
                let _ = sender.send("end").await;
                Ok(Action::done())
            }
        };
        let task = tokio::spawn(controller.run(reconcile, stop.clone()));
        assert_eq!(receiver.recv().await, Some("begin"));
        let asked = Instant::now();
        stop.cancel();
        let result = task.await.unwrap();
        if ends_well {
            result.unwrap();
            assert_eq!(receiver.recv().await, Some("end"));
            assert_eq!(asked.elapsed().as_secs(), needs);
        } else {
            assert!(matches!(result, Err(ControllerError::CutOff { runs: 1, .. })));
            assert_eq!(asked.elapsed().as_secs(), 30);
        }
        assert_eq!(receiver.recv().await, None, "the other key was not begun");
    }
}

#[tokio::test(start_paused = true)]
async fn ct_08_sources_may_run_before_the_controller() {
    let informer = running_informer(&one_object());
    let controller = Controller::new("c").on(&informer, Predicate::any());
    let queue = controller.queue();
    let warm = controller.warm_up().unwrap();
    informer.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.len(), 1, "the key waits for leadership");
    let (sender, mut receiver) = mpsc::channel(10);
    let reconcile = move |run: Run| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(run.key).await;
            Ok(Action::done())
        }
    };
    tokio::spawn(warm.run(reconcile, CancellationToken::new()));
    assert_eq!(receiver.recv().await, Some(key("n/a")));
}

#[tokio::test(start_paused = true)]
async fn ct_07_a_dropped_controller_leaves_its_sources() {
    let informer = running_informer(&one_object());
    let warm = Controller::new("c").on(&informer, Predicate::any()).warm_up().unwrap();
    assert_eq!(informer.report().backlogs.len(), 1);
    drop(warm);
    assert!(informer.report().backlogs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ct_09_a_deleted_object_is_a_name_that_is_not_found() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![
        added("n/a@1"),
        end("5"),
        Step::Wait(Duration::from_secs(5)),
        deleted("n/a@6"),
        Step::Hang,
    ]));
    let informer = running_informer(&source);
    let store = informer.store();
    let (mut runs, _stop, _task) = start(Controller::new("c").on(&informer, Predicate::any()), |_| Ok(Action::done()));
    assert_eq!(runs.recv().await.unwrap().key, key("n/a"));
    assert_eq!(runs.recv().await.unwrap().key, key("n/a"));
    assert!(store.get(&key("n/a")).is_none());
}

#[test]
fn ct_10_owners_finalizers_and_patches() {
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".into());
    let owner = |uid: &str| OwnerReference {
        uid: uid.into(),
        kind: "Deployment".into(),
        name: "d".into(),
        api_version: "apps/v1".into(),
        ..Default::default()
    };
    set_controller_reference(owner("1"), &mut map).unwrap();
    set_controller_reference(owner("1"), &mut map).unwrap();
    assert_eq!(map.metadata.owner_references.as_ref().unwrap().len(), 1);
    assert!(set_controller_reference(owner("2"), &mut map).is_err(), "one controller only");

    assert_eq!(finalizer_step(&map, "f"), FinalizerStep::AddFirst);
    assert!(add_finalizer(&mut map, "f") && !add_finalizer(&mut map, "f"));
    assert_eq!(finalizer_step(&map, "f"), FinalizerStep::Work);
    map.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(finalizer_step(&map, "f"), FinalizerStep::CleanUp);
    assert!(remove_finalizer(&mut map, "f") && !remove_finalizer(&mut map, "f"));
    assert_eq!(finalizer_step(&map, "f"), FinalizerStep::Leave);

    let patch = merge_patch(&json!({"a": 1, "b": {"x": 1, "y": 2}, "c": 3}), &json!({"a": 1, "b": {"x": 5}, "d": [1]}));
    assert_eq!(patch, Some(json!({"b": {"x": 5, "y": null}, "d": [1], "c": null})));
    assert_eq!(merge_patch(&json!({"a": 1}), &json!({"a": 1})), None);
}

#[tokio::test(start_paused = true)]
async fn better_06_a_run_waits_until_the_store_has_seen_its_writes() {
    let source = ScriptedSource::new();
    let steps = vec![added("n/a@1"), end("5"), Step::Wait(Duration::from_secs(7)), added("n/child@20"), Step::Hang];
    source.on_watch(Ok(steps));
    let informer = running_informer(&source);
    let writes = Arc::new(Writes::new());
    writes.follow("configmaps", informer.store());
    let only_a = Predicate::new(|event: &Event<ConfigMap>| event.key() == Some(Key::parse("n/a").unwrap()));
    let controller = Controller::new("c").on(&informer, only_a).read_your_writes(writes.clone());
    let (queue, metrics, recorded) = (controller.queue(), controller.metrics(), writes.clone());
    let (mut runs, _stop, _task) = start(controller, move |run| {
        recorded.record(&run.key, "uid", "configmaps", "20".into());
        recorded.record(&run.key, "uid", "configmaps", "junk".into());
        recorded.record(&run.key, "uid", "unfollowed", "999".into());
        Ok(Action::done())
    });
    runs.recv().await.unwrap();
    let wrote = Instant::now();
    queue.add(key("n/a"));
    runs.recv().await.unwrap();
    assert_eq!(wrote.elapsed().as_secs(), 7, "it waited for the watch, not for a timer");
    assert_eq!((metrics.stale.get(), metrics.failed.get()), (1, 0));
    assert_eq!(informer.store().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn better_06_another_incarnation_or_a_deletion_clears_the_record() {
    let (store, _writer) = crate::store::Store::<ConfigMap>::new();
    let writes = Writes::new();
    writes.follow("r", store);
    writes.record(&key("n/a"), "old", "r", "50".into());
    assert!(writes.behind(&key("n/a")).is_some());
    writes.forget(&key("n/a"));
    assert!(writes.behind(&key("n/a")).is_none());
    writes.record(&key("n/a"), "old", "r", "50".into());
    writes.record(&key("n/a"), "new", "other", "1".into());
    assert!(writes.behind(&key("n/a")).is_none(), "the old incarnation's writes do not count");
}

#[tokio::test(start_paused = true)]
async fn initial_objects_have_low_priority_and_keys_run_in_parallel_but_never_twice() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("n/a@1"), added("n/b@2"), end("5"), Step::Hang]));
    let informer = running_informer(&source);
    let config = ControllerConfig { workers: 2, ..ControllerConfig::default() };
    let controller = Controller::new("c").config(config).on(&informer, Predicate::any());
    let queue = controller.queue();
    let busy: Arc<Mutex<BTreeMap<Key, usize>>> = Arc::default();
    let most = Arc::new(AtomicU64::new(0));
    let (b, m) = (busy.clone(), most.clone());
    let (sender, mut receiver) = mpsc::channel(10);
    let reconcile = move |run: Run| {
        let (b, m, sender) = (b.clone(), m.clone(), sender.clone());
        async move {
            let running = {
                let mut busy = b.lock();
                *busy.entry(run.key.clone()).or_default() += 1;
                assert!(busy.values().all(|n| *n < 2), "one key in two workers");
                busy.values().sum::<usize>() as u64
            };
            m.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            *b.lock().entry(run.key.clone()).or_default() -= 1;
            let _ = sender.send(run.key).await;
            Ok(Action::done())
        }
    };
    tokio::spawn(controller.run(reconcile, CancellationToken::new()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    queue.add(key("n/a"));
    for _ in 0..3 {
        receiver.recv().await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
