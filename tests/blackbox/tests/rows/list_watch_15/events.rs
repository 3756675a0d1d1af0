//! Which events a watch brings, and in which order.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::world::{Place, ends_initial_events, name, revision};

#[tokio::test]
async fn list_watch_15_01_initial_state_in_key_order_then_the_end() {
    let place = Place::new("r15-01").await;
    place.config_maps(&["b", "a"]).await;
    let mut watch = place.watching("resourceVersion=0&timeoutSeconds=1").await;
    assert_eq!(watch.told().await.unwrap(), "ADDED a");
    assert_eq!(watch.told().await.unwrap(), "ADDED b");
    assert_eq!(watch.event().await, None, "no bookmark, and a clean end");
    assert!(watch.age() >= Duration::from_millis(900), "not before its time: {:?}", watch.age());
}

#[tokio::test]
async fn list_watch_15_02_bookmark_after_the_initial_state() {
    let place = Place::new("r15-02").await;
    place.config_maps(&["b", "a"]).await;
    let newest = place.now().await;
    let mut watch = place.watching("resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true").await;
    assert_eq!(watch.told().await.unwrap(), "ADDED a");
    assert_eq!(watch.told().await.unwrap(), "ADDED b");
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
    let place = Place::new("r15-05").await;
    let stored = place.make("configmaps", &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let mut watch = place.watching(&format!("resourceVersion={}", revision(&stored))).await;
    let again = place.put(place.path("configmaps/a"), &stored).answer().await.expect(200);
    assert_eq!(revision(&again), revision(&stored));
    // What comes first is what is written next: nothing came of the update.
    place.config_map("next").await;
    assert_eq!(watch.told().await.unwrap(), "ADDED next");
}

#[tokio::test]
async fn list_watch_15_06_label_change_out_of_selector_is_deleted() {
    let place = Place::new("r15-06").await;
    let before = place.labelled("a", "app", "web").await;
    let mut watch = place.watching(&format!("labelSelector=app%3Dweb&resourceVersion={}", revision(&before))).await;
    let after = place.label("a", "app", "db").await;
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({"app": "web"}), "the old labels");
    assert_eq!(revision(&event["object"]), revision(&after), "the revision of the change");
}

#[tokio::test]
async fn list_watch_15_07_label_change_back_is_added() {
    let place = Place::new("r15-07").await;
    let before = place.labelled("a", "app", "web").await;
    let mut watch = place.watching(&format!("labelSelector=app%3Dweb&resourceVersion={}", revision(&before))).await;
    place.label("a", "app", "db").await;
    place.label("a", "seen", "by-nobody").await;
    let back = place.label("a", "app", "web").await;
    assert_eq!(watch.told().await.unwrap(), "DELETED a");
    let event = watch.event().await.unwrap();
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({"app": "web", "seen": "by-nobody"}));
    assert_eq!(revision(&event["object"]), revision(&back));
}

#[tokio::test]
async fn list_watch_15_21_all_watchers_see_the_same_sequence() {
    const EACH: usize = 40;
    let place = Place::new("r15-21").await;
    let begin = place.now().await;
    let from = format!("resourceVersion={begin}");
    let watches = join_all((0..10).map(|_| place.watching(&from))).await;
    let write = async |writer: usize| {
        for turn in 0..EACH {
            // Both change the one object, and each makes its own.
            let own = format!("w{writer}-{turn}");
            let shared = json!({"metadata": {"labels": {format!("w{writer}"): turn.to_string()}}});
            match turn {
                0 if writer == 0 => drop(place.config_map("shared").await),
                _ => drop(place.patch("merge", place.path("configmaps/shared"), &shared).answer().await),
            }
            place.config_map(&own).await;
        }
        place.config_map(&format!("last-{writer}")).await;
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
