//! Order, initial events, bookmarks and ends of watches.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::world::{Place, ends_initial_events, message, name, revision};

#[tokio::test]
async fn list_watch_t_07_watch_from_an_update_brings_the_next() {
    let place = Place::new("t07-next").await;
    place.config_map("a").await;
    let first = place.label("a", "turn", "1").await;
    let second = place.label("a", "turn", "2").await;
    let mut watch = place.watching(&format!("resourceVersion={}", revision(&first))).await;
    let event = watch.event().await.unwrap();
    assert_eq!((event["type"].as_str(), revision(&event["object"])), (Some("MODIFIED"), revision(&second)));
    let keys: Vec<_> = event.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["type", "object"]);
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
}

#[tokio::test]
async fn list_watch_t_07_two_watches_from_one_revision_see_the_same() {
    let place = Place::new("t07-same").await;
    let begin = place.now().await;
    let mut early = place.watching(&format!("resourceVersion={begin}&timeoutSeconds=2")).await;
    place.config_maps(&["b", "a"]).await;
    place.label("a", "turn", "1").await;
    place.remove("configmaps/b").await;
    let mut late = place.watching(&format!("resourceVersion={begin}&timeoutSeconds=1")).await;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    while let Some(event) = early.event().await {
        first.push(event);
    }
    while let Some(event) = late.event().await {
        second.push(event);
    }
    let told: Vec<_> = first.iter().map(blackbox::wire::told).collect();
    assert_eq!(told, ["ADDED b", "ADDED a", "MODIFIED a", "DELETED b"]);
    assert_eq!(first, second);
}

#[tokio::test]
async fn list_watch_t_07_initial_events_of_nothing_are_a_bookmark() {
    let place = Place::new("t07-empty").await;
    let now = place.now().await;
    let parameters = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = place.watching(parameters).await;
    let bookmark = watch.event().await.unwrap();
    assert!(ends_initial_events(&bookmark), "{bookmark}");
    assert!(revision(&bookmark["object"]) >= now);
    // Whoever resumes from it misses nothing.
    place.config_map("a").await;
    let mut resumed = place.watching(&format!("resourceVersion={}", revision(&bookmark["object"]))).await;
    assert_eq!(resumed.told().await.unwrap(), "ADDED a");
    assert_eq!(watch.told().await.unwrap(), "ADDED a");
}

#[tokio::test]
async fn list_watch_t_07_bookmark_two_seconds_before_the_end() {
    let place = Place::new("t07-bookmark").await;
    let begin = place.now().await;
    let parameters = "labelSelector=app%3Dweb&allowWatchBookmarks=true&timeoutSeconds=10";
    let mut watch = place.watching(&format!("{parameters}&resourceVersion={begin}")).await;
    let outside = place.labelled("a", "app", "db").await;
    let bookmark = watch.event().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK", "{bookmark}");
    assert!(watch.age() >= Duration::from_millis(6500), "about 2 s before the end: {:?}", watch.age());
    assert!(revision(&bookmark["object"]) >= revision(&outside), "{bookmark}");
    assert_eq!(bookmark["object"]["metadata"].get("annotations"), None, "{bookmark}");
    assert_eq!(watch.event().await, None, "one bookmark");
    assert!(watch.age() >= Duration::from_millis(9500), "{:?}", watch.age());
}

#[tokio::test]
async fn list_watch_t_07_deletion_sequences() {
    let place = Place::new("t07-deletions").await;
    let begin = place.now().await;
    let mut pods = place.watch(place.path(&format!("pods?watch=1&resourceVersion={begin}"))).await;
    place.pod("waiting", None).await;
    place.remove("pods/waiting").await;
    for told in ["ADDED waiting", "MODIFIED waiting", "DELETED waiting"] {
        assert_eq!(pods.told().await.unwrap(), told);
    }
    let mut watch = place.watching(&format!("resourceVersion={begin}")).await;
    place.make("configmaps", &json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}})).await;
    place.remove("configmaps/held").await;
    place.merge("configmaps/held", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(watch.told().await.unwrap(), "ADDED held");
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
    let place = Place::new("t08-future").await;
    let wanted = place.now().await + 1_000_000;
    let parameters = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = place.watching(&format!("{parameters}&resourceVersion={wanted}")).await;
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
    let place = Place::new("t09-timeout").await;
    let mut watch = place.watching("timeoutSeconds=3").await;
    assert_eq!(watch.header("transfer-encoding"), "chunked");
    assert_eq!(watch.header("content-length"), "");
    assert_eq!(watch.event().await, None, "the last chunk is there, and nothing else");
    assert!(watch.age() >= Duration::from_millis(2500), "{:?}", watch.age());
}

#[tokio::test]
async fn list_watch_t_09_reader_that_stalls_loses_nothing() {
    // More than the sockets of both sides hold: the server must keep the rest, or let go of the watch.
    const WRITERS: usize = 4;
    const WRITES: usize = 500;
    let place = Place::new("t09-stall").await;
    let begin = place.now().await;
    let mut stalled = place.watching(&format!("resourceVersion={begin}")).await;
    let filling = "x".repeat(16 * 1024);
    join_all((0..WRITERS).map(async |writer| {
        let mut connection = place.connection().await;
        for turn in 0..WRITES {
            let body = json!({"metadata": {"name": format!("w{writer}-{turn}")}, "data": {"k": filling}});
            connection.answer(place.post(place.path("configmaps"), &body)).await.expect(201);
        }
    }))
    .await;
    let (mut seen, mut last) = (0, begin);
    while seen < WRITERS * WRITES {
        match stalled.try_line().await.ok().flatten() {
            Some(line) => {
                let event: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["type"], "ADDED", "no error: {}", &line[..line.len().min(300)]);
                assert!(revision(&event["object"]) > last, "in order, nothing twice");
                assert!(name(&event["object"]).starts_with('w'));
                last = revision(&event["object"]);
                seen += 1;
            }
            None => stalled = place.watching(&format!("resourceVersion={last}")).await,
        }
    }
}
