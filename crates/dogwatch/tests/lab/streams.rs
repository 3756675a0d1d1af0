//! Faults that act on the events of watches.

use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::world::{PATIENCE, World};

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Send>>;

async fn watch(world: &World) -> Events {
    let revision = world.maps().list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    watch_from(world, &revision).await
}

async fn watch_from(world: &World, revision: &str) -> Events {
    Box::pin(world.maps().watch(&WatchParams::default().disable_bookmarks(), revision).await.unwrap())
}

/// The next event as `ADDED a`, `end` or the text of an error.
async fn next(events: &mut Events) -> String {
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes");
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    match event {
        None => "end".to_owned(),
        Some(Ok(WatchEvent::Added(map))) => format!("ADDED {}", name(&map)),
        Some(Ok(WatchEvent::Modified(map))) => format!("MODIFIED {}", name(&map)),
        Some(Ok(WatchEvent::Deleted(map))) => format!("DELETED {}", name(&map)),
        Some(Ok(WatchEvent::Bookmark(_))) => "BOOKMARK".to_owned(),
        Some(Ok(WatchEvent::Error(status))) => format!("ERROR {}", status.code),
        Some(Err(_)) => "broken".to_owned(),
    }
}

/// Whether no event comes for a while.
async fn is_silent(events: &mut Events) -> bool {
    tokio::time::timeout(Duration::from_millis(200), events.next()).await.is_err()
}

#[tokio::test]
async fn flt_2_events_come_later_and_in_order() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    world.fault("late", json!({"match": {"verbs": ["watch"]}, "effect": {"delay": "300ms"}})).await;
    let began = Instant::now();
    for name in ["a", "b"] {
        world.make_map(name).await.unwrap();
    }
    assert_eq!(next(&mut events).await, "ADDED a");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(next(&mut events).await, "ADDED b");
    world.remove_fault("late").await;
    world.make_map("c").await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED c");
}

#[tokio::test]
async fn flt_4_a_watch_is_cut_at_once_or_at_an_event() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    world.fault("now", json!({"match": {"verbs": ["watch"]}, "when": {"times": 1}, "effect": {"cut": {}}})).await;
    assert_eq!(next(&mut events).await, "end");
    world.remove_fault("now").await;

    let mut events = watch(&world).await;
    let when = json!({"times": 1, "events": {"types": ["DELETED"]}});
    world.fault("later", json!({"match": {"verbs": ["watch"]}, "when": when, "effect": {"cut": {}}})).await;
    let made = world.make_map("a").await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED a");
    world.maps().delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut events).await, "end");
    let mut events = watch_from(&world, &made.metadata.resource_version.unwrap()).await;
    assert_eq!(next(&mut events).await, "DELETED a", "nothing is lost for a client that resumes");
}

#[tokio::test]
async fn flt_4_a_watch_breaks_off_in_the_middle_of_an_event() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    let spec = json!({
        "match": {"verbs": ["watch"]}, "when": {"skip": 1, "times": 1}, "effect": {"cut": {"abruptly": true}},
    });
    world.fault("broken", spec).await;
    world.make_map("a").await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED a");
    world.make_map("b").await.unwrap();
    assert_eq!(next(&mut events).await, "broken");
}

#[tokio::test]
async fn flt_5_what_a_silent_watch_missed_is_sent_when_the_fault_is_gone() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    world.fault("silent", json!({"match": {"verbs": ["watch"]}, "effect": {"silence": {}}})).await;
    for name in ["a", "b", "c"] {
        world.make_map(name).await.unwrap();
    }
    assert!(is_silent(&mut events).await);
    world.remove_fault("silent").await;
    for name in ["a", "b", "c"] {
        assert_eq!(next(&mut events).await, format!("ADDED {name}"));
    }
}

#[tokio::test]
async fn flt_6_a_watch_ends_with_the_error_that_its_revision_is_too_old() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    let spec = json!({"match": {"verbs": ["watch"]}, "when": {"times": 1}, "effect": {"expire": {"form": "event"}}});
    world.fault("old", spec).await;
    assert_eq!(next(&mut events).await, "ERROR 410");
    assert_eq!(next(&mut events).await, "end");
}

#[tokio::test]
async fn flt_7_bookmarks_are_withheld() {
    let world = World::start().await;
    world.make_map("a").await.unwrap();
    world.fault("none", json!({"match": {"verbs": ["watch"]}, "effect": {"withholdBookmarks": {}}})).await;
    let params = WatchParams::default().initial_events();
    let mut events: Events = Box::pin(world.maps().watch(&params, "0").await.unwrap());
    let mut seen = Vec::new();
    while !seen.iter().any(|event| event == "ADDED a") {
        seen.push(next(&mut events).await);
    }
    assert!(is_silent(&mut events).await, "the end of the initial events is not told");
    world.remove_fault("none").await;
    world.make_map("b").await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED b");
}

#[tokio::test]
async fn flt_9_of_quick_changes_only_the_last_is_seen() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    world.fault("quick", json!({"match": {"verbs": ["watch"]}, "effect": {"skipIntermediate": true}})).await;
    world.make_map("a").await.unwrap();
    let set = async |value: &str| {
        let patch = json!({"data": {"k": value}});
        world.maps().patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    for value in ["1", "2", "3"] {
        set(value).await;
    }
    let mut last = String::new();
    let mut seen = 0;
    while last != "3" {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes").unwrap().unwrap();
        let (WatchEvent::Added(map) | WatchEvent::Modified(map)) = event else { panic!("{event:?}") };
        last = map.data.and_then(|data| data.get("k").cloned()).unwrap_or_default();
        seen += 1;
    }
    // On a busy machine the changes may not be quick enough to be one; the last one is always the last.
    assert!((1..=4).contains(&seen), "{seen}");
}

#[tokio::test]
async fn flt_10_an_event_that_is_dropped_never_comes_and_a_list_is_true() {
    let world = World::start().await;
    let mut events = watch(&world).await;
    let spec = json!({"match": {"verbs": ["watch"]}, "effect": {"dropEvents": {"types": ["DELETED"]}}});
    world.fault("deaf", spec).await;
    world.make_map("a").await.unwrap();
    world.maps().delete("a", &DeleteParams::default()).await.unwrap();
    world.make_map("b").await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED a");
    assert_eq!(next(&mut events).await, "ADDED b");
    let names: Vec<_> = world.maps().list(&Default::default()).await.unwrap().items;
    assert!(names.iter().all(|map| map.metadata.name.as_deref() != Some("a")));
}
