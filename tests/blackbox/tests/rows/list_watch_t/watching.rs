//! Order, initial events, bookmarks and ends of watches.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::world::{Namespace, ends_initial_events, message, name, revision};

#[tokio::test]
async fn list_watch_t_07_watch_from_an_update_brings_the_next() {
    let ns = Namespace::new("t07-next").await;
    ns.config_map("a").await;
    let first = ns.label("a", "turn", "1").await;
    let second = ns.label("a", "turn", "2").await;
    let mut watch = ns.watching(&format!("resourceVersion={}", revision(&first))).await;
    let event = watch.event().await.unwrap();
    assert_eq!((event["type"].as_str(), revision(&event["object"])), (Some("MODIFIED"), revision(&second)));
    let keys: Vec<_> = event.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["type", "object"]);
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
}

#[tokio::test]
async fn list_watch_t_07_two_watches_from_one_revision_see_the_same() {
    let ns = Namespace::new("t07-same").await;
    let begin = ns.now().await;
    let mut early = ns.watching(&format!("resourceVersion={begin}&timeoutSeconds=2")).await;
    ns.config_maps(&["b", "a"]).await;
    ns.label("a", "turn", "1").await;
    ns.remove("configmaps/b").await;
    let mut late = ns.watching(&format!("resourceVersion={begin}&timeoutSeconds=1")).await;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    while let Some(event) = early.event().await {
        first.push(event);
    }
    while let Some(event) = late.event().await {
        second.push(event);
    }
    let events: Vec<_> = first.iter().map(blackbox::wire::summary).collect();
    assert_eq!(events, ["ADDED b", "ADDED a", "MODIFIED a", "DELETED b"]);
    assert_eq!(first, second);
}

#[tokio::test]
async fn list_watch_t_07_initial_events_of_nothing_are_a_bookmark() {
    let ns = Namespace::new("t07-empty").await;
    let now = ns.now().await;
    let parameters = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = ns.watching(parameters).await;
    let bookmark = watch.event().await.unwrap();
    assert!(ends_initial_events(&bookmark), "{bookmark}");
    assert!(revision(&bookmark["object"]) >= now);
    // A watch that resumes from it misses nothing.
    ns.config_map("a").await;
    let mut resumed = ns.watching(&format!("resourceVersion={}", revision(&bookmark["object"]))).await;
    assert_eq!(resumed.summary().await.unwrap(), "ADDED a");
    assert_eq!(watch.summary().await.unwrap(), "ADDED a");
}

#[tokio::test]
async fn list_watch_t_07_bookmark_two_seconds_before_the_end() {
    let ns = Namespace::new("t07-bookmark").await;
    let begin = ns.now().await;
    let parameters = "labelSelector=app%3Dweb&allowWatchBookmarks=true&timeoutSeconds=10";
    let mut watch = ns.watching(&format!("{parameters}&resourceVersion={begin}")).await;
    let outside = ns.labelled("a", "app", "db").await;
    let bookmark = watch.event().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
    let at_8_s = Duration::from_millis(6500)..Duration::from_millis(9800);
    assert!(at_8_s.contains(&watch.age()), "about 2 s before the end: {:?}", watch.age());
    assert!(revision(&bookmark["object"]) >= revision(&outside), "{bookmark}");
    assert_eq!(bookmark["object"]["metadata"].get("annotations"), None, "{bookmark}");
    assert_eq!(watch.event().await, None, "one bookmark");
    assert!(watch.age() >= Duration::from_millis(9500), "{:?}", watch.age());
}

#[tokio::test]
async fn list_watch_t_07_deletion_sequences() {
    let ns = Namespace::new("t07-deletions").await;
    let begin = ns.now().await;
    let mut pods = ns.watch(ns.path(&format!("pods?watch=1&resourceVersion={begin}"))).await;
    ns.pod("waiting", None).await;
    ns.remove("pods/waiting").await;
    for event in ["ADDED waiting", "MODIFIED waiting", "DELETED waiting"] {
        assert_eq!(pods.summary().await.unwrap(), event);
    }
    let mut watch = ns.watching(&format!("resourceVersion={begin}")).await;
    ns.create("configmaps", &json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}})).await;
    ns.remove("configmaps/held").await;
    ns.merge("configmaps/held", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED held");
    let marked = watch.event().await.unwrap();
    assert_eq!(
        (&marked["type"], &marked["object"]["metadata"]["deletionGracePeriodSeconds"]),
        (&json!("MODIFIED"), &json!(0))
    );
    let gone = watch.event().await.unwrap();
    assert_eq!(gone["type"], "DELETED", "the update that empties the finalizers is no event");
    assert_eq!(gone["object"]["metadata"]["finalizers"], json!(["example.com/held"]), "the last state that was stored");
    assert!(revision(&gone["object"]) > revision(&marked["object"]));
}

#[tokio::test]
async fn list_watch_t_08_initial_state_from_the_future_is_an_error_event() {
    let ns = Namespace::new("t08-future").await;
    let wanted = ns.now().await + 1_000_000;
    let parameters = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = ns.watching(&format!("{parameters}&resourceVersion={wanted}")).await;
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    let status = &event["object"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(504), &json!("Timeout")), "{status}");
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{status}");
    assert!(message(status).starts_with(&format!("Timeout: Too large resource version: {wanted}, ")), "{status}");
    assert_eq!(watch.event().await, None, "it ends right after");
}

#[tokio::test]
async fn list_watch_t_09_timeout_is_a_clean_end() {
    let ns = Namespace::new("t09-timeout").await;
    let mut watch = ns.watching("timeoutSeconds=3").await;
    assert_eq!(watch.header("transfer-encoding"), "chunked");
    assert_eq!(watch.header("content-length"), "");
    assert_eq!(watch.event().await, None, "a complete body without events");
    let at_3_s = Duration::from_millis(2500)..Duration::from_secs(7);
    assert!(at_3_s.contains(&watch.age()), "it ends at 3 s: {:?}", watch.age());
}

#[tokio::test]
async fn list_watch_t_09_reader_that_stalls_loses_nothing() {
    // More than the socket buffers of both sides: the server must keep the rest, or end the watch.
    const WRITERS: usize = 4;
    const WRITES: usize = 500;
    let ns = Namespace::new("t09-stall").await;
    let begin = ns.now().await;
    let mut stalled = ns.watching(&format!("resourceVersion={begin}")).await;
    let filling = "x".repeat(16 * 1024);
    join_all((0..WRITERS).map(async |writer| {
        let mut connection = ns.connection().await;
        for turn in 0..WRITES {
            let body = json!({"metadata": {"name": format!("w{writer}-{turn}")}, "data": {"k": filling}});
            connection.send(ns.post(ns.path("configmaps"), &body)).await.expect(201);
        }
    }))
    .await;
    let (mut seen, mut last) = (0, begin);
    while seen < WRITERS * WRITES {
        match stalled.try_line().await.ok().flatten() {
            Some(line) => {
                let event: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["type"], "ADDED", "no error: {}", &line[..line.len().min(300)]);
                assert!(revision(&event["object"]) > last, "in order, without repetition");
                assert!(name(&event["object"]).starts_with('w'));
                last = revision(&event["object"]);
                seen += 1;
            }
            None => stalled = ns.watching(&format!("resourceVersion={last}")).await,
        }
    }
}
