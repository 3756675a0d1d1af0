//! The conformance scenarios, each named by its number. Numbers 17 (same key while processing) and 18 (two delays) are
//! `wq_02` and `wq_04`, and 19 (partitioned leader) is `script_19`, in the crate's unit tests on virtual time; the
//! million updates of 13 are pushed there too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use client::informer::HandlerHandle;
use client::store::pods_by_node;
use testkit::fake_server::*;

use super::*;

#[tokio::test]
async fn script_01_streaming_list_then_changes_on_one_request() {
    let server = FakeServer::start().await;
    let answer = ["a", "b", "c"].iter().fold(Answer::watch(), |answer, name| answer.line(added(&pod(name, 5))));
    server.answer(answer.line(bookmark_end(10)).line(modified(&pod("a", 11))).hold());
    let mut rig = Rig::start(&server, quick());
    rig.reaches("11").await;
    assert_eq!(rig.names(), ["default/a", "default/b", "default/c"]);
    let report = rig.informer.report();
    assert_eq!((report.reflectors[0].replacements.get(), report.reflectors[0].events.get()), (1, 1));
    assert_eq!(server.summaries(), ["stream "]);
    for _ in 0..3 {
        assert!(rig.next().await.starts_with("initial default/"));
    }
}

#[tokio::test]
async fn script_02_a_server_that_cannot_stream_is_listed() {
    let server = FakeServer::start().await;
    server.answer(Answer::status(422, "Invalid"));
    server.answer(Answer::list(10, vec![pod("a", 5)]));
    server.answer(Answer::watch().hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("10").await;
    server.wait_for_requests(3).await;
    assert_eq!(server.summaries(), ["stream ", "list 0", "watch 10"]);
    assert_eq!(rig.names(), ["default/a"]);
}

#[tokio::test]
async fn script_03_an_unfinished_initial_stream_leaves_nothing_behind() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(added(&pod("ghost", 5))).line(added(&pod("a", 6))));
    server.answer(Answer::watch().line(added(&pod("a", 6))).line(bookmark_end(9)).hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("9").await;
    assert_eq!(server.summaries(), ["stream ", "stream "]);
    assert_eq!(rig.names(), ["default/a"]);
}

#[tokio::test]
async fn script_04_a_watch_that_ends_is_reopened_at_the_last_version() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(bookmark_end(10)).line(added(&pod("a", 11))));
    server.answer(Answer::watch().line(modified(&pod("a", 12))));
    server.answer(Answer::watch().hold());
    let _rig = Rig::start(&server, quick());
    server.wait_for_requests(3).await;
    assert_eq!(server.summaries(), ["stream ", "watch 11", "watch 12"], "no list");
}

#[tokio::test]
async fn script_05_an_expired_watch_asks_for_its_version_first_and_then_for_the_most_recent() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(bookmark_end(10)).line(error_event(410, "Expired")).hold());
    server.answer(Answer::status(410, "Expired"));
    server.answer(Answer::watch().line(added(&pod("a", 20))).line(bookmark_end(21)).hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("21").await;
    assert_eq!(server.summaries(), ["stream ", "stream 10", "stream "]);
    let requests = server.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_millis(20), "the watch error backs off");
}

#[tokio::test]
async fn script_06_a_refused_watch_keeps_its_version() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![pod("a", 5)]));
    server.answer(Answer::watch().line(bookmark(11)).hold());
    let rig = Rig::start(&server, listing());
    rig.reaches("11").await;
    server.refuse();
    let refused = async {
        while rig.problems.lock().iter().filter(|p| p.error.is_refused()).count() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the refusals are told");
    server.answer(Answer::watch().hold());
    server.listen_again().await;
    server.wait_for_requests(3).await;
    assert_eq!(server.summaries(), ["list 0", "watch 10", "watch 11"]);
}

#[tokio::test]
async fn rc_02_script_07_retry_after_is_a_floor() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::status(429, "TooManyRequests").header("Retry-After", "1"));
    server.answer(Answer::watch().hold());
    let _rig = Rig::start(&server, listing());
    server.wait_for_requests(3).await;
    let requests = server.requests();
    assert!(requests[2].at - requests[1].at >= Duration::from_secs(1));
    assert_eq!(requests[2].summary(), "watch 10");
}

#[tokio::test]
async fn script_08_a_watch_that_ends_at_once_leads_to_a_relist() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch());
    server.answer(Answer::list(12, vec![pod("a", 11)]));
    server.answer(Answer::watch().hold());
    // Long enough that a slow machine does not turn a very short watch into an ordinary one.
    let _rig = Rig::start(&server, ReflectorConfig { very_short: PATIENCE, ..listing() });
    server.wait_for_requests(4).await;
    assert_eq!(server.summaries(), ["list 0", "watch 10", "list 10", "watch 12"]);
}

#[tokio::test]
async fn script_09_a_bookmark_moves_the_version() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(bookmark_end(10)).line(bookmark(50)).cut());
    server.answer(Answer::watch().hold());
    let _rig = Rig::start(&server, quick());
    server.wait_for_requests(2).await;
    assert_eq!(server.summaries(), ["stream ", "watch 50"]);
}

#[tokio::test]
async fn script_10_a_deletion_while_disconnected_is_inferred() {
    let server = FakeServer::start().await;
    let first = Answer::watch().line(added(&pod("a", 5))).line(added(&pod("b", 6))).line(bookmark_end(10));
    let (first, live) = first.live();
    server.answer(first);
    server.answer(Answer::watch().line(added(&pod("b", 6))).line(bookmark_end(20)).hold());
    let mut rig = Rig::start(&server, quick());
    let by_node = pods_by_node(&rig.informer.store()).unwrap();
    assert_eq!([rig.next().await, rig.next().await], ["initial default/a@5", "initial default/b@6"]);
    live.line(error_event(410, "Expired")).await;
    assert_eq!(rig.next().await, "vanished default/a@5");
    assert_eq!(rig.names(), ["default/b"]);
    assert_eq!(by_node.values(), ["node-of-b"]);
}

#[tokio::test]
async fn script_11_another_incarnation_is_a_deletion_and_an_addition() {
    let server = FakeServer::start().await;
    let (first, live) = Answer::watch().line(added(&pod_with_uid("a", 5, "old"))).line(bookmark_end(10)).live();
    server.answer(first);
    server.answer(Answer::watch().line(added(&pod_with_uid("a", 15, "new"))).line(bookmark_end(20)).hold());
    let mut rig = Rig::start(&server, quick());
    assert_eq!(rig.next().await, "initial default/a@5");
    live.line(error_event(410, "Expired")).await;
    assert_eq!([rig.next().await, rig.next().await], ["vanished default/a@5", "added default/a@15"]);
}

#[tokio::test]
async fn script_12_an_expired_page_leads_to_one_list_without_pages() {
    let server = FakeServer::start().await;
    let pods = |from: usize, to: usize| (from..to).map(|n| pod(&format!("p{n:04}"), 5)).collect::<Vec<_>>();
    server.answer(Answer::list_page(10, pods(0, 500), Some("two")));
    server.answer(Answer::list_page(10, pods(500, 1000), Some("three")));
    server.answer(Answer::status(410, "Expired"));
    server.answer(Answer::list(30, pods(0, 1001)));
    server.answer(Answer::watch().hold());
    let rig = Rig::start(&server, listing());
    rig.reaches("30").await;
    server.wait_for_requests(5).await;
    let requests = server.requests();
    let seen: Vec<_> =
        requests[..4].iter().map(|r| (r.query("resourceVersion"), r.query("limit"), r.query("continue"))).collect();
    assert_eq!(
        seen,
        [
            (Some("0"), Some("500"), None),
            (None, Some("500"), Some("two")),
            (None, Some("500"), Some("three")),
            (Some("0"), None, None)
        ]
    );
    assert_eq!(rig.names().len(), 1001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn script_13_a_blocked_handler_costs_one_entry_a_key() {
    let server = FakeServer::start().await;
    let (answer, live) = Answer::watch().line(bookmark_end(1)).live();
    server.answer(answer);
    let rig = Rig::start(&server, quick());
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let seen = Arc::new(AtomicUsize::new(0));
    let (g, s) = (gate.clone(), seen.clone());
    let blocked: HandlerHandle<Pod> = rig
        .informer
        .add_handler(SubscriptionOptions::default(), move |_| {
            let (g, s) = (g.clone(), s.clone());
            async move {
                s.fetch_add(1, Ordering::SeqCst);
                let _permit = g.acquire().await;
            }
        })
        .unwrap();
    for version in 2..3002u64 {
        live.line(modified(&pod(&format!("p{}", version % 10), version))).await;
    }
    rig.reaches("3001").await;
    assert!(blocked.backlog() <= 10, "{}", blocked.backlog());
    gate.add_permits(1000);
    let drained = async {
        while blocked.backlog() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, drained).await.unwrap();
    // One in work, ten that waited, and those of the last batch, which may be in the store a moment before they are delivered.
    assert!(seen.load(Ordering::SeqCst) <= 21, "{}", seen.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn script_14_a_late_subscriber_misses_nothing_and_sees_nothing_twice() {
    let server = FakeServer::start().await;
    let (answer, live) = Answer::watch().line(added(&pod("p0", 1))).line(bookmark_end(1)).live();
    server.answer(answer);
    let rig = Rig::start(&server, quick());
    const LAST: u64 = 2000;
    let burst = tokio::spawn(async move {
        for version in 2..=LAST {
            live.line(modified(&pod(&format!("p{}", version % 7), version))).await;
        }
        live // keeps the watch open
    });
    rig.reaches("200").await;
    let mut late = rig.informer.subscribe(SubscriptionOptions::default()).unwrap();
    let mut state = std::collections::BTreeMap::<String, u64>::new();
    let final_state: std::collections::BTreeMap<String, u64> =
        (LAST - 6..=LAST).map(|version| (format!("p{}", version % 7), version)).collect();
    while state != final_state {
        let event = tokio::time::timeout(PATIENCE, late.next()).await.unwrap().unwrap();
        let object = event.object().unwrap();
        let version: u64 = object.metadata.resource_version.as_deref().unwrap().parse().unwrap();
        let before = state.insert(object.metadata.name.clone().unwrap(), version);
        assert!(before.is_none_or(|before| before < version), "{event:?} after {before:?}");
    }
    burst.await.unwrap();
}

#[tokio::test]
async fn script_15_a_handle_has_synced_when_the_last_initial_add_returned() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(added(&pod("a", 1))).line(added(&pod("b", 2))).line(bookmark_end(5)).hold());
    let rig = Rig::start(&server, quick());
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let entered = Arc::new(tokio::sync::Semaphore::new(0));
    let (g, e) = (gate.clone(), entered.clone());
    let handle = rig
        .informer
        .add_handler(SubscriptionOptions::default(), move |_| {
            let (g, e) = (g.clone(), e.clone());
            async move {
                e.add_permits(1);
                g.acquire().await.unwrap().forget();
            }
        })
        .unwrap();
    for _ in 0..2 {
        entered.acquire().await.unwrap().forget();
        assert!(rig.informer.wait_synced().await);
        assert!(!handle.has_synced());
        gate.add_permits(1);
    }
    assert!(tokio::time::timeout(PATIENCE, handle.wait_synced()).await.unwrap());
}

#[tokio::test]
async fn script_16_no_resync_without_a_check_period() {
    let server = FakeServer::start().await;
    let (answer, live) = Answer::watch().line(added(&pod("a", 1))).line(bookmark_end(5)).live();
    server.answer(answer);
    let rig = Rig::start(&server, quick());
    let wish = SubscriptionOptions { resync: Some(Duration::from_millis(1)), ..SubscriptionOptions::default() };
    let mut events = rig.informer.subscribe(wish).unwrap();
    assert_eq!(format!("{:?}", events.next().await.unwrap()), "initial default/a@1");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    live.line(modified(&pod("a", 6))).await;
    assert_eq!(format!("{:?}", events.next().await.unwrap()), "updated default/a@1 default/a@6");
}

#[tokio::test]
async fn script_20_stop_in_every_state_leaves_no_connection() {
    // (name, script, requests until the state is reached)
    type Script = fn(&FakeServer);
    let states: [(&str, Script, usize); 5] = [
        ("initial stream", |s| s.answer(Answer::watch().line(added(&pod("a", 1))).hold()), 1),
        ("watch", |s| s.answer(Answer::watch().line(bookmark_end(5)).hold()), 1),
        (
            "list",
            |s| {
                s.answer(Answer::status(422, "Invalid"));
                s.answer(Answer::watch().hold());
            },
            2,
        ),
        ("pause", |s| s.answer(Answer::status(429, "TooManyRequests").header("Retry-After", "3600")), 1),
        ("headers outstanding", |s| s.answer(Answer::watch().hold()), 1),
    ];
    for (name, script, requests) in states {
        let server = FakeServer::start().await;
        script(&server);
        let rig = Rig::start(&server, quick());
        server.wait_for_requests(requests).await;
        let Rig { informer, events, stop, task, .. } = rig;
        let asked = Instant::now();
        stop.cancel();
        tokio::time::timeout(PATIENCE, task).await.unwrap_or_else(|_| panic!("{name} does not stop")).unwrap();
        // Generous for a busy machine; on virtual time the unit test holds it to 100 ms.
        assert!(asked.elapsed() < Duration::from_secs(5), "{name} took {:?}", asked.elapsed());
        assert!(informer.is_stopped());
        drop((events, informer));
        server.all_closed().await;
    }
}
