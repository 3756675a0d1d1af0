//! Request options.

use std::ops::Range;
use std::time::Duration;

use crate::world::{Namespace, message};

const MILLION: u64 = 1_000_000;

/// The end of a watch with a timeout of 2 s, with slack for a busy machine.
const AT_2_S: Range<Duration> = Duration::from_millis(1800)..Duration::from_secs(6);

#[tokio::test]
async fn list_watch_15_03_initial_events_need_a_match() {
    let ns = Namespace::new("r15-03").await;
    let status = ns.get_response("configmaps?watch=1&sendInitialEvents=true").await.refused(422, "Invalid");
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
    let ns = Namespace::new("r15-04").await;
    let path = "configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1";
    let status = ns.get_response(path).await.refused(422, "Invalid");
    let causes = status["details"]["causes"].as_array().unwrap();
    let reasons: Vec<_> = causes.iter().map(|cause| cause["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["FieldValueForbidden", "FieldValueNotSupported"], "{status}");
    assert!(causes.iter().all(|cause| cause["field"] == "resourceVersionMatch"), "{status}");
    assert!(message(&status).contains("[resourceVersionMatch: Forbidden: "), "{status}");
    assert!(message(&status).ends_with("supported values: \"NotOlderThan\"]"), "{status}");
}

#[tokio::test]
async fn list_watch_15_09_watch_from_the_future_is_silent() {
    let ns = Namespace::new("r15-09").await;
    let now = ns.now().await;
    let mut future = ns.watching(&format!("resourceVersion={}&timeoutSeconds=2", now + MILLION)).await;
    let mut present = ns.watching(&format!("resourceVersion={now}")).await;
    ns.config_map("a").await;
    assert_eq!(present.summary().await.unwrap(), "ADDED a");
    assert_eq!(future.event().await, None, "no event and no error until the end");
    assert!(AT_2_S.contains(&future.age()), "it ends at 2 s: {:?}", future.age());
}

#[tokio::test]
async fn list_watch_15_10_list_from_the_future_waits_and_gives_up() {
    let ns = Namespace::new("r15-10").await;
    let wanted = ns.now().await + MILLION;
    let answer = ns.get_response(&format!("configmaps?resourceVersion={wanted}")).await;
    let status = answer.refused(504, "Timeout");
    let waited = Duration::from_millis(2500)..Duration::from_secs(8);
    assert!(waited.contains(&answer.took), "it waits about 3 s: {:?}", answer.took);
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(status["details"]["retryAfterSeconds"], 1, "{status}");
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{status}");
    assert_eq!(status["details"]["causes"][0]["message"], "Too large resource version", "{status}");
    let start = format!("Timeout: Too large resource version: {wanted}, current: ");
    assert!(message(&status).starts_with(&start), "{status}");
}

#[tokio::test]
async fn list_watch_15_20_unknown_field_of_pods() {
    let ns = Namespace::new("r15-20").await;
    for path in ["pods?fieldSelector=spec.foo%3D1", "pods?watch=1&fieldSelector=spec.foo%3D1"] {
        let status = ns.get_response(path).await.refused(400, "BadRequest");
        assert_eq!(message(&status), "field label not supported: spec.foo");
    }
}
