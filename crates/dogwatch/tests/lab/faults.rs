//! Faults that act on requests.

use std::time::{Duration, Instant};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::world::{World, code};

#[tokio::test]
async fn flt_1_an_error_is_answered_and_nothing_is_done() {
    let world = World::start().await;
    world
        .fault(
            "refused",
            json!({
                "match": {"verbs": ["create"], "names": ["web"]},
                "effect": {"error": {"code": 409, "reason": "Conflict", "message": "no"}},
            }),
        )
        .await;
    world.make_map("other").await.unwrap();
    world
        .fault("named", json!({"match": {"verbs": ["delete"]}, "effect": {"error": {"reason": "TooManyRequests"}}}))
        .await;
    let deleted = world.maps().delete("other", &DeleteParams::default()).await;
    let Err(kube::Error::Api(status)) = deleted else { panic!("it was deleted") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(status.details.as_ref().unwrap().retry_after_seconds, 1);
    world.maps().get("other").await.unwrap();
    let status = world.hits("named", 1).await;
    assert_eq!((&status["lastHit"]["verb"], &status["lastHit"]["name"]), (&json!("delete"), &json!("other")));
}

#[tokio::test]
async fn flt_1_a_fault_acts_on_the_next_request_and_is_exhausted_after_its_times() {
    let world = World::start().await;
    world.make_map("a").await.unwrap();
    let spec = json!({
        "match": {"verbs": ["get"]}, "when": {"skip": 1, "times": 2},
        "effect": {"error": {"code": 500}}, "expect": {"hits": 2},
    });
    world.fault("some", spec).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(world.maps().get("a").await.is_ok());
    }
    assert_eq!(answers, [true, false, false, true, true]);
    let status = world.hits("some", 2).await;
    let conditions = status["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition["status"] == "True"), "{conditions:?}");
    assert_eq!(conditions.len(), 2);
}

#[tokio::test]
async fn flt_2_an_answer_comes_later() {
    let world = World::start().await;
    world.make_map("a").await.unwrap();
    world.fault("late", json!({"match": {"verbs": ["get"]}, "effect": {"delay": "300ms"}})).await;
    let began = Instant::now();
    world.maps().get("a").await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn flt_3_a_write_whose_answer_is_lost_is_done() {
    let world = World::start().await;
    world
        .fault("lost", json!({"match": {"verbs": ["create"]}, "when": {"times": 1}, "effect": {"loseAnswer": {}}}))
        .await;
    let made = world.make_map("a").await;
    assert!(!matches!(made, Ok(_) | Err(kube::Error::Api(_))), "{made:?}");
    world.maps().get("a").await.unwrap();
    assert_eq!(code(world.make_map("a").await), 409, "the retry of a client meets its own first write");
}

#[tokio::test]
async fn flt_6_a_list_is_told_that_its_revision_is_too_old() {
    let world = World::start().await;
    world.fault("old", json!({"match": {"verbs": ["list"]}, "when": {"times": 1}, "effect": {"expire": {}}})).await;
    assert_eq!(code(world.maps().list(&ListParams::default()).await), 410);
    world.maps().list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn flt_13_the_first_update_of_each_object_is_a_conflict() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world.make_map(name).await.unwrap();
    }
    world.fault("conflicts", json!({"effect": {"conflictOnce": {"perObject": true}}})).await;
    let write = async |name: &str| {
        let patch = json!({"data": {"k": "v"}});
        world.maps().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    assert_eq!(code(write("a").await), 409);
    write("a").await.unwrap();
    assert_eq!(code(write("b").await), 409);
    write("b").await.unwrap();
    world.hits("conflicts", 2).await;
}

#[tokio::test]
async fn flt_14_of_several_errors_the_first_by_name_is_answered() {
    let world = World::start().await;
    world.fault("b", json!({"effect": {"error": {"code": 500}}})).await;
    world.fault("a", json!({"effect": {"error": {"code": 503}}})).await;
    assert_eq!(code(world.maps().list(&ListParams::default()).await), 503);
    world.hits("a", 1).await;
    world.hits("b", 0).await;
}

#[tokio::test]
async fn flt_15_faults_find_clients_by_user_and_user_agent() {
    let world = World::start().await;
    let spec = json!({"match": {"users": ["system:serviceaccount:shop:*"]}, "effect": {"error": {"code": 503}}});
    world.fault("operator", spec).await;
    world.maps().list(&ListParams::default()).await.unwrap();
    let operator = world.server.client_as("system:serviceaccount:shop:operator", &["system:masters"]);
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(operator, "default");
    assert_eq!(code(maps.list(&ListParams::default()).await), 503);
}

#[tokio::test]
async fn flt_16_the_audit_event_of_a_request_names_the_faults_that_hit_it() {
    let world = World::start().await;
    let mut events = world.server.audit();
    world.fault("refused", json!({"match": {"verbs": ["get"]}, "effect": {"error": {"code": 500}}})).await;
    assert_eq!(code(world.maps().get("a").await), 500);
    let named = events.take().into_iter().any(|entry| match entry {
        dogwatch::testing::Entry::Event(line) => {
            let event: serde_json::Value = serde_json::from_slice(&line).unwrap();
            event["annotations"]["lab.dogwatch.dev/faults"] == "refused"
        }
        _ => false,
    });
    assert!(named);
}
