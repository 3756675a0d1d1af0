//! Faults that show the past, and slow answers.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::world::{PATIENCE, World, code};

/// The names in a list, and its revision.
async fn listed(world: &World, params: &ListParams) -> (Vec<String>, u64) {
    let list = world.maps().list(params).await.unwrap();
    let names = list.items.into_iter().filter_map(|map| map.metadata.name);
    let names = names.filter(|name| name != "kube-root-ca.crt").collect();
    (names, list.metadata.resource_version.unwrap().parse().unwrap())
}

fn revision(map: &k8s_openapi::api::core::v1::ConfigMap) -> u64 {
    map.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

#[tokio::test]
async fn flt_8_a_held_client_sees_one_past_in_get_list_and_watch_and_all_of_it_afterwards() {
    let world = World::start().await;
    let before = revision(&world.make_map("a").await.unwrap());
    world.fault("hold", json!({"effect": {"stale": {"hold": true}}})).await;
    world.maps().patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"x": "1"}}))).await.unwrap();
    world.make_map("b").await.unwrap();

    let old = world.maps().get("a").await.unwrap();
    assert_eq!((revision(&old), old.data), (before, None), "the old state at its true revision");
    assert_eq!(code(world.maps().get("b").await), 404);
    // A consistent list, a list of any state, and a page.
    for params in [ListParams::default(), ListParams::default().match_any(), ListParams::default().limit(10)] {
        let (names, at) = listed(&world, &params).await;
        assert_eq!((names, at), (vec!["a".to_owned()], before), "{params:?}");
    }
    let newer = ListParams::default().at(&(before + 1).to_string());
    assert_eq!(code(world.maps().list(&newer).await), 504, "a server that is behind has not seen this");

    let mut events = world.maps().watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    let mut next = async || match tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes") {
        Some(Ok(WatchEvent::Added(map))) => format!("ADDED {} {}", map.metadata.name.unwrap(), map.data.is_some()),
        Some(Ok(WatchEvent::Modified(map))) => {
            format!("MODIFIED {} {}", map.metadata.name.unwrap(), map.data.is_some())
        }
        other => panic!("{other:?}"),
    };
    let mut first = next().await;
    if first.contains("kube-root-ca.crt") {
        first = next().await;
    }
    assert_eq!(first, "ADDED a false");
    world.remove_fault("hold").await;
    assert_eq!(next().await, "MODIFIED a true", "what was missed comes");
    assert_eq!(next().await, "ADDED b false");
    assert_eq!(listed(&world, &ListParams::default()).await.0, ["a", "b"]);
}

#[tokio::test]
async fn flt_8_a_client_is_a_number_of_revisions_behind() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        world.make_map(name).await.unwrap();
    }
    let revision = world.maps().get("c").await.unwrap().metadata.resource_version.unwrap();
    let mut events = world.maps().watch(&WatchParams::default().disable_bookmarks(), &revision).await.unwrap().boxed();
    world.fault("behind", json!({"effect": {"stale": {"by": {"revisions": 1}}}})).await;
    assert_eq!(listed(&world, &ListParams::default()).await.0, ["a", "b"]);
    world.make_map("d").await.unwrap();
    assert_eq!(listed(&world, &ListParams::default()).await.0, ["a", "b", "c"]);
    let is_silent = tokio::time::timeout(Duration::from_millis(200), events.next()).await.is_err();
    assert!(is_silent, "the newest event is held");
    world.make_map("e").await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes");
    assert!(
        matches!(&event, Some(Ok(WatchEvent::Added(map))) if map.metadata.name.as_deref() == Some("d")),
        "{event:?}"
    );
}

#[tokio::test]
async fn flt_8_a_client_is_some_time_behind_and_others_are_not() {
    let world = World::start().await;
    world.make_map("a").await.unwrap();
    world
        .fault("late", json!({"match": {"users": ["operator"]}, "effect": {"stale": {"by": {"duration": "1h"}}}}))
        .await;
    world.maps().delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(listed(&world, &ListParams::default()).await.0.len(), 0, "others see the present");
    let operator: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(world.server.client_as("operator", &["system:masters"]), "default");
    assert_eq!(code(operator.get("a").await), 404, "an hour ago it was not there yet");
    let hits = world.hits("late", 1).await;
    assert_eq!(hits["lastHit"]["user"], "operator");
}

#[tokio::test]
async fn flt_8_bad_pasts_are_refused() {
    let world = World::start().await;
    for wrong in [json!({}), json!({"hold": false}), json!({"by": {}}), json!({"by": {"revisions": 0}})] {
        let fault = crate::world::fault("wrong", json!({"effect": {"stale": wrong}}));
        assert_eq!(code(world.faults().create(&Default::default(), &fault).await), 422, "{wrong}");
    }
}

#[tokio::test]
async fn flt_11_answers_and_events_come_slowly_and_whole() {
    let world = World::start().await;
    let mut big = crate::world::map("big");
    big.data = Some([("big".to_owned(), "x".repeat(4000))].into());
    world.maps().create(&Default::default(), &big).await.unwrap();
    world.fault("slow", json!({"effect": {"slow": {"bytesPerSecond": 20000}}})).await;
    let read = world.maps().get("big").await.unwrap();
    assert_eq!(read.data, big.data);
    let revision = read.metadata.resource_version.unwrap();
    let mut events = world.maps().watch(&WatchParams::default().disable_bookmarks(), &revision).await.unwrap().boxed();
    world.remove_fault("slow").await;
    world.fault("slow", json!({"match": {"verbs": ["watch"]}, "effect": {"slow": {"bytesPerSecond": 20000}}})).await;
    world.maps().delete("big", &DeleteParams::default()).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event comes");
    assert!(matches!(event, Some(Ok(WatchEvent::Deleted(map))) if map.data == big.data));
    world.hits("slow", 1).await;
}
