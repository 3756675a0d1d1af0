//! Events of a watch, and their order.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::world::{Namespace, ends_initial_events, name, revision};

#[tokio::test]
async fn list_watch_15_01_initial_state_in_key_order_then_the_end() {
    let ns = Namespace::new("r15-01").await;
    ns.config_maps(&["b", "a"]).await;
    let mut watch = ns.watching("resourceVersion=0&timeoutSeconds=1").await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED a");
    assert_eq!(watch.summary().await.unwrap(), "ADDED b");
    assert_eq!(watch.event().await, None, "no bookmark, and a clean end");
    let at_1_s = Duration::from_millis(900)..Duration::from_secs(5);
    assert!(at_1_s.contains(&watch.age()), "it ends at 1 s: {:?}", watch.age());
}

#[tokio::test]
async fn list_watch_15_02_bookmark_after_the_initial_state() {
    let ns = Namespace::new("r15-02").await;
    ns.config_maps(&["b", "a"]).await;
    let newest = ns.now().await;
    let mut watch = ns.watching("resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true").await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED a");
    assert_eq!(watch.summary().await.unwrap(), "ADDED b");
    let bookmark = watch.event().await.unwrap();
    assert!(ends_initial_events(&bookmark), "{bookmark}");
    assert!(revision(&bookmark["object"]) >= newest, "{bookmark}");
    let object = bookmark["object"].as_object().unwrap();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!(object["metadata"].get("name"), None, "a bookmark has no name");
    assert_eq!(watch.event().await, None);
}

#[tokio::test]
async fn list_watch_15_05_update_with_identical_content_is_no_event() {
    let ns = Namespace::new("r15-05").await;
    let stored = ns.create("configmaps", &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let mut watch = ns.watching(&format!("resourceVersion={}", revision(&stored))).await;
    let again = ns.put(ns.path("configmaps/a"), &stored).send().await.expect(200);
    assert_eq!(revision(&again), revision(&stored));
    // The first event is of the next write, so the update had none.
    ns.config_map("next").await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED next");
}

#[tokio::test]
async fn list_watch_15_06_label_change_out_of_selector_is_deleted() {
    let ns = Namespace::new("r15-06").await;
    let before = ns.labelled("a", "app", "web").await;
    let mut watch = ns.watching(&format!("labelSelector=app%3Dweb&resourceVersion={}", revision(&before))).await;
    let after = ns.label("a", "app", "db").await;
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({"app": "web"}), "the old labels");
    assert_eq!(revision(&event["object"]), revision(&after), "the revision of the change");
}

#[tokio::test]
async fn list_watch_15_07_label_change_back_is_added() {
    let ns = Namespace::new("r15-07").await;
    let before = ns.labelled("a", "app", "web").await;
    let mut watch = ns.watching(&format!("labelSelector=app%3Dweb&resourceVersion={}", revision(&before))).await;
    ns.label("a", "app", "db").await;
    ns.label("a", "outside", "selector").await;
    let back = ns.label("a", "app", "web").await;
    assert_eq!(watch.summary().await.unwrap(), "DELETED a");
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({"app": "web", "outside": "selector"}));
    assert_eq!(revision(&event["object"]), revision(&back));
}

#[tokio::test]
async fn list_watch_15_21_all_watchers_see_the_same_sequence() {
    const EACH: usize = 40;
    let ns = Namespace::new("r15-21").await;
    let begin = ns.now().await;
    let from = format!("resourceVersion={begin}");
    let watches = join_all((0..10).map(|_| ns.watching(&from))).await;
    let write = async |writer: usize| {
        for turn in 0..EACH {
            // Both change the shared object, and each creates its own.
            let own = format!("w{writer}-{turn}");
            let shared = json!({"metadata": {"labels": {format!("w{writer}"): turn.to_string()}}});
            match turn {
                0 if writer == 0 => drop(ns.config_map("shared").await),
                _ => drop(ns.patch("merge", ns.path("configmaps/shared"), &shared).send().await),
            }
            ns.config_map(&own).await;
        }
        ns.config_map(&format!("last-{writer}")).await;
    };
    futures::join!(write(0), write(1));
    let sequences = join_all(watches.into_iter().map(async |mut watch| {
        let (mut seen, mut ends) = (Vec::new(), 0);
        while ends < 2 {
            let event = watch.event().await.unwrap();
            ends += usize::from(name(&event["object"]).starts_with("last-"));
            seen.push((event["type"].as_str().unwrap().to_owned(), revision(&event["object"])));
        }
        seen
    }))
    .await;
    assert!(sequences[0].len() > 3 * EACH, "{}", sequences[0].len());
    assert!(sequences[0].is_sorted_by(|a, b| a.1 < b.1), "strictly increasing");
    for sequence in &sequences[1..] {
        assert_eq!(sequence, &sequences[0]);
    }
}
