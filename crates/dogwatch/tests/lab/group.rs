//! The group of the lab beside the cluster.

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::discovery::Discovery;
use serde_json::json;

use crate::world::{World, code, fault};

#[tokio::test]
async fn lab_1_making_a_fault_does_not_move_the_revision_of_the_cluster() {
    let world = World::start().await;
    let before = world.maps().list(&ListParams::default()).await.unwrap().metadata.resource_version;
    world.fault("a", json!({"effect": {"error": {"code": 500}}, "match": {"resources": ["secrets"]}})).await;
    world.hits("a", 0).await;
    assert_eq!(world.maps().list(&ListParams::default()).await.unwrap().metadata.resource_version, before);
}

#[tokio::test]
async fn lab_1_the_group_is_in_discovery_and_faults_can_be_applied() {
    let world = World::start().await;
    let discovery = Discovery::new(world.client.clone()).filter(&["lab.dogwatch.dev"]).run().await.unwrap();
    let group = discovery.groups().next().unwrap();
    assert!(group.recommended_resources().iter().any(|(resource, _)| resource.kind == "Fault"));
    let applied = json!({
        "apiVersion": "lab.dogwatch.dev/v1", "kind": "Fault", "metadata": {"name": "a"},
        "spec": {"effect": {"delay": "1ms"}},
    });
    let made = world.faults().patch("a", &PatchParams::apply("test"), &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(made.data["spec"]["effect"]["delay"], "1ms");
}

#[tokio::test]
async fn lab_4_a_fault_that_matches_everything_can_be_removed() {
    let world = World::start().await;
    world.fault("all", json!({"match": {"resources": ["*"]}, "effect": {"error": {"code": 503}}})).await;
    assert_eq!(code(world.maps().list(&ListParams::default()).await), 503);
    world.faults().list(&ListParams::default()).await.unwrap();
    world.remove_fault("all").await;
    world.maps().list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn lab_5_bad_faults_are_refused_by_field() {
    let world = World::start().await;
    let refused = [
        (json!({"effect": {}}), "spec.effect"),
        (json!({"effect": {"delay": "1s", "silence": {}}}), "spec.effect"),
        (json!({"effect": {"error": {"code": 200}}}), "spec.effect.error.code"),
        (json!({"effect": {"delay": "soon"}}), "spec.effect.delay"),
        (json!({"effect": {"delay": "1s"}, "when": {"probability": 2}}), "spec.when.probability"),
        (json!({"effect": {"explode": {}}}), "spec.effect"),
    ];
    for (spec, field) in refused {
        let answer = world.faults().create(&PostParams::default(), &fault("bad", spec.clone())).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{spec} was accepted") };
        assert_eq!(status.code, 422, "{spec}");
        let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
        assert!(causes.iter().any(|cause| cause.field == field), "{spec}: {status:?}");
    }
}
