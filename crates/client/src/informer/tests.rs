//! The rows of the shared informer, one test each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::queue::Certainty;
use crate::scripted::*;
use crate::store::Scope;
use crate::{Key, Object};

fn informer(source: &ScriptedSource) -> SharedInformer<ConfigMap> {
    SharedInformer::new(source.clone(), InformerConfig::default())
}

fn run(informer: &SharedInformer<ConfigMap>) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let stop = CancellationToken::new();
    let future = informer.start(stop.clone()).unwrap();
    (stop, tokio::spawn(future))
}

/// Collects the events of a handler, as text.
#[derive(Clone, Default)]
struct EventLog {
    lines: Arc<Mutex<Vec<String>>>,
    changed: Arc<Notify>,
}

impl EventLog {
    fn handler(&self) -> impl FnMut(Event<ConfigMap>) -> std::future::Ready<()> + Send + 'static {
        let log = self.clone();
        move |event| {
            log.lines.lock().push(format!("{event:?}"));
            log.changed.notify_waiters();
            std::future::ready(())
        }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    async fn until(&self, line: &str) -> Vec<String> {
        loop {
            let changed = self.changed.notified();
            if self.lines.lock().iter().any(|l| l == line) {
                return self.lines();
            }
            changed.await;
        }
    }
}

fn options() -> SubscriptionOptions {
    SubscriptionOptions::default()
}

#[tokio::test(start_paused = true)]
async fn si_01_one_watch_many_handlers_and_never_twice() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), Step::Hang]));
    let informer = informer(&source);
    let (one, two) = (EventLog::default(), EventLog::default());
    informer.add_handler(options(), one.handler()).unwrap();
    informer.add_handler(options(), two.handler()).unwrap();
    let (stop, task) = run(&informer);
    one.until("initial a@1").await;
    two.until("initial a@1").await;
    assert_eq!(source.requests().len(), 1);
    assert_eq!(informer.run(CancellationToken::new()).await, Err(InformerError::Started));
    stop.cancel();
    task.await.unwrap();
    assert_eq!(informer.run(CancellationToken::new()).await, Err(InformerError::Started), "also not after the stop");
}

#[tokio::test(start_paused = true)]
async fn si_02_a_late_handler_gets_everything_once() {
    let source = ScriptedSource::new();
    let mut steps = vec![added("a@1"), added("b@2"), end("5"), Step::Wait(Duration::from_secs(10))];
    steps.extend([modified("a@6"), added("c@7"), deleted("b@8"), Step::Hang]);
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    run(&informer);
    informer.wait_synced().await;
    let log = EventLog::default();
    informer.add_handler(options(), log.handler()).unwrap();
    assert_eq!(
        log.until("deleted b@8").await,
        ["initial a@1", "initial b@2", "updated a@1 a@6", "added c@7", "deleted b@8"]
    );
}

#[tokio::test(start_paused = true)]
async fn si_03_settings_before_the_start_handlers_before_the_stop() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), Step::Hang]));
    let informer = informer(&source);
    informer.set_transform(|_| Err("first".into())).unwrap();
    informer.set_transform(Ok).unwrap();
    let (stop, task) = run(&informer);
    informer.wait_synced().await;
    assert_eq!(informer.store().len(), 1, "the last setter wins");
    assert_eq!(informer.set_transform(Ok), Err(InformerError::Started));
    assert_eq!(informer.on_problem(Arc::new(|_| ())), Err(InformerError::Started));
    stop.cancel();
    task.await.unwrap();
    assert_eq!(informer.subscribe(options()).err(), Some(InformerError::Stopped));
    assert!(informer.add_index("x", |_| Vec::<u8>::new()).is_err());
}

#[tokio::test(start_paused = true)]
async fn si_04_a_handler_gets_one_event_at_a_time_in_order() {
    let source = ScriptedSource::new();
    let mut steps = vec![end("5")];
    steps.extend((6..60).map(|v| if v == 6 { added("a@6") } else { modified(&format!("a@{v}")) }));
    steps.push(Step::Hang);
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    let (busy, worst, last) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(0u64)));
    let done = Arc::new(Notify::new());
    let (b, w, l, d) = (busy.clone(), worst.clone(), last.clone(), done.clone());
    let every = SubscriptionOptions { delivery: Delivery::Every { capacity: 1000 }, ..options() };
    informer
        .add_handler(every, move |event| {
            let (b, w, l, d) = (b.clone(), w.clone(), l.clone(), d.clone());
            async move {
                w.fetch_max(b.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(3)).await;
                let version: u64 = crate::object::version_of(&**event.object().unwrap()).as_str().parse().unwrap();
                assert!(version > *l.lock(), "in order");
                *l.lock() = version;
                b.fetch_sub(1, Ordering::SeqCst);
                if version == 59 {
                    d.notify_one();
                }
            }
        })
        .unwrap();
    run(&informer);
    done.notified().await;
    assert_eq!(worst.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn si_05_a_slow_handler_does_not_delay_others_and_holds_one_entry_for_each_key() {
    let source = ScriptedSource::new();
    let mut steps = vec![end("5")];
    for version in 6..10_006 {
        steps.push(modified(&format!("k{}@{version}", version % 10)));
        if version % 500 == 0 {
            steps.push(Step::Wait(Duration::from_millis(1)));
        }
    }
    steps.push(Step::Hang);
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    let gate = Arc::new(Semaphore::new(0));
    let (slow, quick) = (EventLog::default(), EventLog::default());
    let (g, mut slow_handler) = (gate.clone(), slow.handler());
    let handle = informer
        .add_handler(options(), move |event| {
            let (g, done) = (g.clone(), slow_handler(event));
            async move {
                g.acquire().await.unwrap().forget();
                done.await;
            }
        })
        .unwrap();
    informer.add_handler(options(), quick.handler()).unwrap();
    run(&informer);
    loop {
        let changed = quick.changed.notified();
        if informer.store().version().as_str() == "10005" && informer.report().backlogs[1] == 0 {
            break;
        }
        changed.await;
    }
    assert!(handle.backlog() <= 10, "{} entries wait", handle.backlog());
    gate.add_permits(1000);
    slow.until(slow.lines().last().map_or("", |l| l)).await;
    while handle.backlog() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(slow.lines().len() <= 11, "{:?}", slow.lines());
}

#[tokio::test(start_paused = true)]
async fn si_06_the_store_is_never_behind_the_events_of_a_handler() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![end("5"), added("a@6"), modified("a@7"), deleted("a@8"), added("z@9"), Step::Hang]));
    let informer = informer(&source);
    let store = informer.store();
    let done = Arc::new(Notify::new());
    let d = done.clone();
    let every = SubscriptionOptions { delivery: Delivery::Every { capacity: 100 }, ..options() };
    let handle = informer
        .add_handler(every, move |event| {
            let told = crate::object::version_of(&**event.object().unwrap());
            assert!(store.version().reaches(&told));
            if told.as_str() == "9" {
                d.notify_one();
            }
            std::future::ready(())
        })
        .unwrap();
    run(&informer);
    done.notified().await;
    assert_eq!(handle.stats().panics.get(), 0);
}

fn relisting_source() -> ScriptedSource {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), added("b@2"), end("5"), in_stream(gone())]));
    source.on_watch(Ok(vec![added("a@1"), added("b@7"), added("c@8"), end("9"), Step::Hang]));
    source
}

#[tokio::test(start_paused = true)]
async fn si_07_an_unchanged_object_is_delivered_only_on_request() {
    let source = relisting_source();
    let informer = informer(&source);
    let (plain, wants) = (EventLog::default(), EventLog::default());
    informer.add_handler(options(), plain.handler()).unwrap();
    informer.add_handler(SubscriptionOptions { repeat_unchanged: true, ..options() }, wants.handler()).unwrap();
    run(&informer);
    assert_eq!(plain.until("added c@8").await, ["initial a@1", "initial b@2", "updated b@2 b@7", "added c@8"]);
    assert!(wants.until("added c@8").await.contains(&"updated a@1 a@1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn si_08_client_gos_repetition_after_a_relist_is_an_option() {
    let source = relisting_source();
    let informer = informer(&source);
    let mut wants = informer.subscribe(SubscriptionOptions { repeat_unchanged: true, ..options() }).unwrap();
    run(&informer);
    let mut repeated = 0;
    for _ in 0..5 {
        repeated += u32::from(wants.next().await.unwrap().is_resync());
    }
    assert_eq!(repeated, 1);
}

#[tokio::test(start_paused = true)]
async fn si_09_resync_reaches_those_who_wish_for_it() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), Step::Hang]));
    let config = InformerConfig { resync_check: Some(Duration::from_secs(30)), ..InformerConfig::default() };
    let informer = SharedInformer::<ConfigMap>::new(source.clone(), config);
    let (wishes, plain) = (EventLog::default(), EventLog::default());
    let wish = SubscriptionOptions { resync: Some(Duration::from_secs(30)), ..options() };
    informer.add_handler(wish, wishes.handler()).unwrap();
    informer.add_handler(options(), plain.handler()).unwrap();
    run(&informer);
    tokio::time::sleep(Duration::from_secs(95)).await;
    assert_eq!(wishes.lines(), ["initial a@1", "updated a@1 a@1", "updated a@1 a@1", "updated a@1 a@1"]);
    assert_eq!(plain.lines(), ["initial a@1"]);
}

#[tokio::test(start_paused = true)]
async fn si_10_a_handle_has_synced_when_its_last_initial_add_returned() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), added("b@2"), end("5"), Step::Hang]));
    let informer = informer(&source);
    let gate = Arc::new(Semaphore::new(0));
    let g = gate.clone();
    let handle = informer
        .add_handler(options(), move |_| {
            let g = g.clone();
            async move { g.acquire().await.unwrap().forget() }
        })
        .unwrap();
    run(&informer);
    assert!(informer.wait_synced().await);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!handle.has_synced());
        gate.add_permits(1);
    }
    assert!(handle.wait_synced().await);
}

#[tokio::test(start_paused = true)]
async fn si_10_waiting_on_a_stopped_informer_ends() {
    let source = ScriptedSource::new();
    let informer = informer(&source);
    let handle = informer.add_handler(options(), EventLog::default().handler()).unwrap();
    let (stop, task) = run(&informer);
    stop.cancel();
    task.await.unwrap();
    assert!(!informer.wait_synced().await);
    assert!(!handle.wait_synced().await);
}

#[tokio::test(start_paused = true)]
async fn si_11_initial_is_for_the_first_set_and_for_late_joins() {
    let source = relisting_source();
    let informer = informer(&source);
    let first = EventLog::default();
    informer.add_handler(options(), first.handler()).unwrap();
    run(&informer);
    first.until("added c@8").await;
    let late = EventLog::default();
    informer.add_handler(options(), late.handler()).unwrap();
    assert_eq!(late.until("initial c@8").await, ["initial a@1", "initial b@7", "initial c@8"]);
}

#[tokio::test(start_paused = true)]
async fn si_12_removal_drops_what_waits_and_may_be_repeated() {
    let source = ScriptedSource::new();
    let steps =
        vec![added("a@1"), added("b@2"), end("5"), Step::Wait(Duration::from_secs(5)), added("c@6"), Step::Hang];
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    let before_start = informer.add_handler(options(), EventLog::default().handler()).unwrap();
    before_start.remove();
    let log = EventLog::default();
    let mut inner = log.handler();
    let handle = informer
        .add_handler(options(), move |event| {
            let told = inner(event);
            async move {
                told.await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .unwrap();
    run(&informer);
    log.until("initial a@1").await;
    handle.remove();
    handle.remove();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(log.lines(), ["initial a@1"]);
    assert!(informer.report().backlogs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn si_13_run_returns_after_the_handlers() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), added("b@2"), end("5"), Step::Hang]));
    let informer = informer(&source);
    let log = EventLog::default();
    let mut inner = log.handler();
    informer
        .add_handler(options(), move |event| {
            let told = inner(event);
            async move {
                told.await;
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        })
        .unwrap();
    let (stop, task) = run(&informer);
    log.until("initial a@1").await;
    let stopped = Instant::now();
    stop.cancel();
    task.await.unwrap();
    assert!(stopped.elapsed() >= Duration::from_secs(2), "the current event was finished");
    assert_eq!(log.lines(), ["initial a@1"], "what waited was dropped");
}

#[tokio::test(start_paused = true)]
async fn si_14_a_panic_costs_one_event_and_a_pause() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), added("b@2"), end("5"), Step::Hang]));
    let informer = informer(&source);
    let log = EventLog::default();
    let mut inner = log.handler();
    let handle = informer
        .add_handler(options(), move |event| {
            assert_ne!(format!("{event:?}"), "initial a@1", "this handler does not like a");
            inner(event)
        })
        .unwrap();
    let began = Instant::now();
    run(&informer);
    assert_eq!(log.until("initial b@2").await, ["initial b@2"]);
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(handle.stats().panics.get(), 1);
}

#[test]
fn si_15_a_filter_turns_updates_into_additions_and_deletions() {
    let map = |text: &str| Arc::new(ConfigMap::from_raw(&object(text)).unwrap());
    let even =
        |map: &ConfigMap| map.metadata.resource_version.as_deref().unwrap_or_default().parse::<u64>().unwrap() % 2 == 0;
    let update =
        |a: &str, b: &str| Event::Updated { old: map(a), new: map(b) }.filtered(even).map(|e| format!("{e:?}"));
    assert_eq!(update("a@1", "a@2").as_deref(), Some("added a@2"));
    assert_eq!(update("a@2", "a@3").as_deref(), Some("deleted a@2"));
    assert_eq!(update("a@2", "a@4").as_deref(), Some("updated a@2 a@4"));
    assert_eq!(update("a@1", "a@3"), None);
    let gone = |text: &str| Event::Deleted { object: map(text), certainty: Certainty::Inferred }.filtered(even);
    assert!(gone("a@2").is_some() && gone("a@1").is_none(), "tombstones are filtered like all others");
}

#[tokio::test(start_paused = true)]
async fn si_16_an_inferred_deletion_reaches_the_handler_as_such() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), in_stream(gone())]));
    source.on_watch(Ok(vec![end("9"), Step::Hang]));
    let informer = informer(&source);
    let log = EventLog::default();
    informer.add_handler(options(), log.handler()).unwrap();
    run(&informer);
    log.until("vanished a@1").await;
}

#[tokio::test(start_paused = true)]
async fn si_17_a_deletion_carries_the_last_state_and_its_version() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), Step::Wait(Duration::from_secs(1)), deleted("a@9"), Step::Hang]));
    let informer = informer(&source);
    let mut events = informer.subscribe(options()).unwrap();
    run(&informer);
    events.next().await;
    let Some(Event::Deleted { object, certainty: Certainty::Observed }) = events.next().await else {
        panic!("a deletion")
    };
    assert_eq!(object.metadata.resource_version.as_deref(), Some("9"));
}

#[tokio::test(start_paused = true)]
async fn si_18_the_report_has_backlogs_versions_and_counters() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), added("b@6"), Step::Hang]));
    let informer = informer(&source);
    let idle = informer.subscribe(options()).unwrap();
    run(&informer);
    informer.store().wait_until(&"6".into()).await;
    let report = informer.report();
    assert_eq!((report.objects, report.version.as_str(), report.queued), (2, "6", 0));
    assert_eq!(report.backlogs, [2]);
    assert_eq!(idle.backlog(), 2);
    assert_eq!(report.reflectors[0].events.get(), 1);
    assert!(report.reflectors[0].bytes.get() > 0);
    let mut text = String::new();
    crate::metrics::render_informer("maps", &report, &mut text);
    for line in [
        "informer_queued_items{name=\"maps\"} 2",
        "informer_store_resource_version{name=\"maps\"} 6",
        "informer_processing_latency_seconds_count{name=\"maps\"} 2",
        "reflector_events_total{name=\"maps\"} 1",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

// ---- the mailbox ----

#[tokio::test(start_paused = true)]
async fn better_05_every_delivers_each_change_or_reports_that_it_lagged() {
    let source = ScriptedSource::new();
    let mut steps = vec![added("a@1"), end("5")];
    steps.extend((6..30).map(|v| modified(&format!("a@{v}"))));
    steps.extend([Step::Wait(Duration::from_secs(1)), modified("a@30"), Step::Hang]);
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    let options = SubscriptionOptions { delivery: Delivery::Every { capacity: 4 }, ..options() };
    let mut slow = informer.subscribe(options).unwrap();
    run(&informer);
    informer.store().wait_until(&"29".into()).await;
    let Some(Event::Lagged { missed, snapshot }) = slow.next().await else { panic!("it lagged") };
    assert_eq!((missed, snapshot.version().as_str()), (25, "29"));
    assert_eq!(format!("{:?}", slow.next().await.unwrap()), "updated a@29 a@30", "and goes on exactly from there");
    assert!(slow.has_synced(), "the snapshot contained the initial objects");
}

#[tokio::test(start_paused = true)]
async fn better_05_latest_folds_what_was_not_seen() {
    let source = ScriptedSource::new();
    let mut steps = vec![added("keep@1"), added("gone@2"), added("swap@3#one"), end("5")];
    steps.push(Step::Wait(Duration::from_secs(5)));
    steps.extend([modified("keep@6"), modified("keep@7"), modified("gone@8"), deleted("gone@9")]);
    steps.extend([deleted("swap@10#one"), added("swap@11#two"), modified("swap@12#two")]);
    steps.extend([added("flash@13"), modified("flash@14"), deleted("flash@15"), bookmark("20"), Step::Hang]);
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    let mut events = informer.subscribe(options()).unwrap();
    run(&informer);
    for _ in 0..3 {
        events.next().await;
    }
    informer.store().wait_until(&"20".into()).await;
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(format!("{:?}", events.next().await.unwrap()));
    }
    assert_eq!(told, ["updated keep@1 keep@7", "deleted gone@9", "deleted swap@10", "added swap@12"]);
    assert_eq!(events.backlog(), 0, "flash came and went unseen");
}

#[tokio::test(start_paused = true)]
async fn rf_18_subscribers_receive_a_history_reset() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@90"), end("100"), bookmark("40"), Step::Hang]));
    source.on_watch(Ok(vec![added("a@30"), end("41"), Step::Hang]));
    let informer = informer(&source);
    let log = EventLog::default();
    informer.add_handler(options(), log.handler()).unwrap();
    run(&informer);
    assert_eq!(log.until("updated a@90 a@30").await, ["initial a@90", "reset 41", "updated a@90 a@30"]);
}

#[tokio::test(start_paused = true)]
async fn rf_17_subscribers_receive_undecodable_objects() {
    let source = ScriptedSource::new();
    let bad = raw(json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "6"}, "data": 7}));
    let steps = vec![
        added("a@1"),
        end("5"),
        Step::Wait(Duration::from_secs(1)),
        Step::Item(crate::list_watch::WatchItem::Modified(bad)),
        Step::Wait(Duration::from_secs(1)),
        modified("a@7"),
        Step::Hang,
    ];
    source.on_watch(Ok(steps));
    let informer = informer(&source);
    let log = EventLog::default();
    informer.add_handler(options(), log.handler()).unwrap();
    run(&informer);
    assert_eq!(log.until("added a@7").await, ["initial a@1", "undecodable a", "added a@7"]);
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_one_informer() {
    let (one, two) = (ScriptedSource::new(), ScriptedSource::new());
    one.on_watch(Ok(vec![added("one/a@1"), end("5"), Step::Hang]));
    two.on_watch(Ok(vec![Step::Wait(Duration::from_secs(3)), added("two/a@2"), end("6"), Step::Hang]));
    let informer = SharedInformer::<ConfigMap>::of_sources(
        vec![(Scope::namespace("one"), Arc::new(one)), (Scope::namespace("two"), Arc::new(two))],
        InformerConfig::default(),
    );
    let log = EventLog::default();
    let handle = informer.add_handler(options(), log.handler()).unwrap();
    run(&informer);
    log.until("initial one/a@1").await;
    assert!(!informer.has_synced(), "one namespace is still missing");
    assert!(handle.wait_synced().await);
    assert_eq!(log.lines(), ["initial one/a@1", "initial two/a@2"]);
    assert_eq!(informer.store().version().as_str(), "5");
    assert!(informer.store().get(&Key::parse("two/a").unwrap()).is_some());
}

#[test]
fn script_13_a_million_changes_of_ten_keys_are_ten_entries() {
    use super::mailbox::{Mailbox, TakeResult};
    use crate::store::Applied;
    let states: Vec<Arc<ConfigMap>> =
        (0..20).map(|n| Arc::new(ConfigMap::from_raw(&object(&format!("k{}@{}", n % 10, n + 1))).unwrap())).collect();
    let mailbox = Mailbox::new(Delivery::Latest, false);
    for n in 0..1_000_000 {
        let (old, new) = (states[n % 10].clone(), states[(n % 10) + 10].clone());
        mailbox.push(&Applied::Updated { old, new }, false);
    }
    assert_eq!(mailbox.len(), 10);
    let mut told = 0;
    while let TakeResult::Event(event) = mailbox.take() {
        assert!(matches!(event, Event::Updated { .. }));
        told += 1;
    }
    assert_eq!(told, 10);
}

#[tokio::test(start_paused = true)]
async fn rw_06_waiting_on_an_informer_survives_a_relist() {
    let source = ScriptedSource::new();
    source.on_watch(Ok(vec![added("a@1"), end("5"), Step::Wait(Duration::from_secs(1)), in_stream(gone())]));
    source.on_watch(Ok(vec![end("9"), Step::Hang]));
    let informer = informer(&source);
    let mut events = informer.subscribe(options()).unwrap();
    run(&informer);
    let deleted = events.until(|event| matches!(event, Event::Deleted { .. })).await;
    let last_known = deleted.and_then(|event| event.object().cloned()).unwrap();
    assert_eq!(last_known.metadata.resource_version.as_deref(), Some("1"), "the last state known");
}
