//! Other faults of servers and networks.

use testkit::fake_server::*;

use super::*;

#[tokio::test]
async fn a_cut_in_the_middle_of_a_frame_resumes_before_it() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(bookmark_end(10)).line(added(&pod("a", 11))).cut_inside(&added(&pod("b", 12))));
    server.answer(Answer::watch().line(added(&pod("b", 12))).hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("12").await;
    assert_eq!(server.summaries(), ["stream ", "watch 11"]);
    assert_eq!(rig.names(), ["default/a", "default/b"]);
}

#[tokio::test]
async fn a_cut_list_is_not_a_shorter_list() {
    let server = FakeServer::start().await;
    let text = serde_json::json!({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [pod("a", 1), pod("b", 2)]}).to_string();
    server.answer(Answer::watch().bytes(&text.as_bytes()[..text.len() / 2]).cut());
    server.answer(Answer::list(10, vec![pod("a", 1), pod("b", 2)]));
    server.answer(Answer::watch().hold());
    let rig = Rig::start(&server, listing());
    rig.reaches("10").await;
    assert_eq!(rig.names().len(), 2);
}

#[tokio::test]
async fn k_08_better_09_a_silent_watch_is_reopened() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(bookmark_end(10)).hold());
    server.answer(Answer::watch().line(added(&pod("a", 11))).hold());
    let rig = Rig::start(&server, ReflectorConfig { idle_limit: Duration::from_millis(300), ..quick() });
    rig.reaches("11").await;
    assert_eq!(server.summaries()[..2], ["stream ", "watch 10"]);
}

#[tokio::test]
async fn rf_19_a_withheld_bookmark_leads_to_a_list() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(added(&pod("a", 1))).hold());
    server.answer(Answer::list(10, vec![pod("a", 1)]));
    server.answer(Answer::watch().hold());
    let rig = Rig::start(&server, ReflectorConfig { initial_events_limit: Duration::from_millis(300), ..quick() });
    rig.reaches("10").await;
    server.wait_for_requests(3).await;
    assert_eq!(server.summaries(), ["stream ", "list 0", "watch 10"]);
}

#[tokio::test]
async fn rf_18_a_rewound_history_is_noticed_and_reported() {
    let server = FakeServer::start().await;
    let (answer, live) =
        Answer::watch().line(added(&pod("a", 90))).line(added(&pod("lost", 95))).line(bookmark_end(100)).live();
    server.answer(answer);
    server.answer(Answer::watch().line(added(&pod("a", 30))).line(bookmark_end(41)).hold());
    let mut rig = Rig::start(&server, quick());
    assert_eq!([rig.next().await, rig.next().await], ["initial default/a@90", "initial default/lost@95"]);
    live.line(bookmark(40)).await;
    assert_eq!(rig.next().await, "reset 41");
    assert_eq!([rig.next().await, rig.next().await], ["vanished default/lost@95", "updated default/a@90 default/a@30"]);
    assert_eq!(server.summaries(), ["stream ", "stream "]);
}

#[tokio::test]
async fn a_410_as_http_status_of_a_watch_leads_to_a_relist() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::status(410, "Gone"));
    server.answer(Answer::list(20, vec![]));
    server.answer(Answer::watch().hold());
    let _rig = Rig::start(&server, listing());
    server.wait_for_requests(4).await;
    assert_eq!(server.summaries(), ["list 0", "watch 10", "list 10", "watch 20"]);
}

#[tokio::test]
async fn too_large_versions_are_left_within_the_same_round() {
    let server = FakeServer::start().await;
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch().line(error_event(410, "Expired")).hold());
    server.answer(Answer::json(504, &status(504, "Timeout", "Too large resource version: 10, current: 5")));
    server.answer(Answer::list(5, vec![pod("a", 4)]));
    server.answer(Answer::watch().hold());
    let mut rig = Rig::start(&server, listing());
    server.wait_for_requests(5).await;
    assert_eq!(server.summaries(), ["list 0", "watch 10", "list 10", "list ", "watch 5"]);
    assert_eq!(rig.next().await, "reset 5", "and the smaller version is a rewound history");
}

#[tokio::test]
async fn rf_20_three_times_too_busy_to_stream_leads_to_a_list() {
    let server = FakeServer::start().await;
    for _ in 0..3 {
        server.answer(Answer::status(429, "TooManyRequests"));
    }
    server.answer(Answer::list(10, vec![]));
    server.answer(Answer::watch().hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("10").await;
    assert_eq!(server.summaries()[..4], ["stream ", "stream ", "stream ", "list 0"]);
}

#[tokio::test]
async fn k_11_rf_17_an_undecodable_object_is_reported_and_stalls_nothing() {
    let server = FakeServer::start().await;
    let mut bad = pod("a", 11);
    bad["spec"]["containers"] = serde_json::json!("not a list");
    let (answer, live) = Answer::watch().line(added(&pod("a", 5))).line(bookmark_end(10)).live();
    server.answer(answer);
    let mut rig = Rig::start(&server, quick());
    assert_eq!(rig.next().await, "initial default/a@5");
    live.line(modified(&bad)).await;
    let Event::Undecodable { item, previous } = rig.event().await else { panic!("it cannot be decoded") };
    assert_eq!((item.raw.version.as_str(), previous.is_some()), ("11", true));
    assert!(rig.names().is_empty());
    live.line(modified(&pod("a", 12))).await;
    assert_eq!(rig.next().await, "added default/a@12");
}

#[tokio::test]
async fn a_watch_resumes_after_a_restart_of_the_server() {
    let server = FakeServer::start().await;
    server.answer(Answer::watch().line(added(&pod("a", 5))).line(bookmark_end(10)).hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("10").await;
    for round in 0..3u64 {
        server.refuse();
        server.all_closed().await;
        server.answer(Answer::watch().line(modified(&pod("a", 11 + round))).hold());
        server.listen_again().await;
        rig.reaches(&(11 + round).to_string()).await;
    }
    assert_eq!(server.summaries(), ["stream ", "watch 10", "watch 11", "watch 12"]);
}
