//! What a request may ask for.

use std::time::Duration;

use crate::world::{Place, message};

const MILLION: u64 = 1_000_000;

#[tokio::test]
async fn list_watch_15_03_initial_events_need_a_match() {
    let place = Place::new("r15-03").await;
    let status = place.answer("configmaps?watch=1&sendInitialEvents=true").await.refused(422, "Invalid");
    assert_eq!(status["details"]["group"], "meta.k8s.io");
    assert_eq!(status["details"]["kind"], "ListOptions");
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["field"], "resourceVersionMatch", "{status}");
    assert_eq!(cause["reason"], "FieldValueForbidden", "{status}");
    assert_eq!(
        message(&status),
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
         sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    );
}

#[tokio::test]
async fn list_watch_15_04_exact_initial_events_have_two_causes() {
    let place = Place::new("r15-04").await;
    let path = "configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1";
    let status = place.answer(path).await.refused(422, "Invalid");
    let causes = status["details"]["causes"].as_array().unwrap();
    let reasons: Vec<_> = causes.iter().map(|cause| cause["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["FieldValueForbidden", "FieldValueNotSupported"], "{status}");
    assert!(causes.iter().all(|cause| cause["field"] == "resourceVersionMatch"), "{status}");
    assert!(message(&status).contains("[resourceVersionMatch: Forbidden: "), "{status}");
    assert!(message(&status).ends_with("supported values: \"NotOlderThan\"]"), "{status}");
}

#[tokio::test]
async fn list_watch_15_09_watch_from_the_future_is_silent() {
    let place = Place::new("r15-09").await;
    let now = place.now().await;
    let mut future = place.watching(&format!("resourceVersion={}&timeoutSeconds=2", now + MILLION)).await;
    let mut present = place.watching(&format!("resourceVersion={now}")).await;
    place.config_map("a").await;
    assert_eq!(present.told().await.unwrap(), "ADDED a");
    assert_eq!(future.event().await, None, "no event and no error, only its end");
    assert!(future.age() >= Duration::from_millis(1800), "not before its time: {:?}", future.age());
}

#[tokio::test]
async fn list_watch_15_10_list_from_the_future_waits_and_gives_up() {
    let place = Place::new("r15-10").await;
    let wanted = place.now().await + MILLION;
    let answer = place.answer(&format!("configmaps?resourceVersion={wanted}")).await;
    let status = answer.refused(504, "Timeout");
    assert!(answer.took >= Duration::from_millis(2500), "it waits about 3 s: {:?}", answer.took);
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{status}");
    assert_eq!(status["details"]["causes"][0]["message"], "Too large resource version", "{status}");
    let start = format!("Timeout: Too large resource version: {wanted}, current: ");
    assert!(message(&status).starts_with(&start), "{status}");
}

#[tokio::test]
async fn list_watch_15_20_unknown_field_of_pods() {
    let place = Place::new("r15-20").await;
    for path in ["pods?fieldSelector=spec.foo%3D1", "pods?watch=1&fieldSelector=spec.foo%3D1"] {
        let status = place.answer(path).await.refused(400, "BadRequest");
        assert_eq!(message(&status), "field label not supported: spec.foo");
    }
}
