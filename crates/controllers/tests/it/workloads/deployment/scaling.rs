//! The sizes of replica sets over time (DP-14, DP-27), and the events about them (DP-37).

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::stage::{Stage, until};
use super::{BOTH, REVISION, counts, deployment, image, image_of, is, is_complete, running, scale_steps, sets, size};

const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";

/// `image size` of each set, oldest revision first.
async fn sizes(stage: &Stage) -> Vec<(String, i32)> {
    sets(stage).await.iter().map(|set| (image_of(set), size(set))).collect()
}

async fn until_sizes(stage: &Stage, expected: &[(&str, i32)]) {
    let expected: Vec<(String, i32)> = expected.iter().map(|(image, size)| ((*image).to_owned(), *size)).collect();
    until(&format!("{expected:?}"), async || (sizes(stage).await == expected).then_some(())).await;
}

async fn rolled_out(stage: &Stage, replicas: i32, revision: &str) {
    let done = |d: &Deployment| is_complete(d, replicas) && d.annotations()[REVISION] == revision;
    stage.until::<Deployment>("web", "rolled out", done).await;
}

#[tokio::test]
async fn dp_14_a_new_set_is_made_with_its_first_size() {
    // A quarter more: one pod at once. Nothing more: none, until an old one is deleted.
    let none = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    for (strategy, first, steps) in
        [(json!({"type": "RollingUpdate"}), 1, ["2: 0→1", "1: 3→2"]), (none, 0, ["1: 3→2", "2: 0→1"])]
    {
        let stage = Stage::with(BOTH).await;
        let mut wanted = deployment(3);
        wanted["spec"]["strategy"] = strategy;
        let made = stage.record::<ReplicaSet>().await;
        running(&stage, wanted).await;
        assert_eq!(size(&made.seen()[0].1), 3, "the first set of all");
        let known = stage.all::<ReplicaSet>().await;
        let recording = stage.record::<ReplicaSet>().await;
        let _nodes = stage.nodes();
        stage.patch::<Deployment>("web", image("2")).await;
        rolled_out(&stage, 3, "2").await;
        let seen = recording.seen();
        let added = seen.iter().find(|(kind, _)| *kind == "ADDED").expect("a new set");
        assert_eq!(size(&added.1), first);
        assert_eq!(scale_steps(&recording, &known)[..2], steps);
    }
}

#[tokio::test]
async fn dp_27_the_only_active_set_or_the_newest_gets_all() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(2)).await;
    let _nodes = stage.nodes();
    stage.patch::<Deployment>("web", image("2")).await;
    rolled_out(&stage, 2, "2").await;
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 0, "paused": true}})).await;
    until_sizes(&stage, &[("i:1", 0), ("i:2", 0)]).await;
    // None is active: the set of the template.
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 3}})).await;
    until_sizes(&stage, &[("i:1", 0), ("i:2", 3)]).await;
    // One is active.
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
    until_sizes(&stage, &[("i:1", 0), ("i:2", 5)]).await;
    // None is active and none has the template: the newest.
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 0}})).await;
    until_sizes(&stage, &[("i:1", 0), ("i:2", 0)]).await;
    let mut third = image("3");
    third["spec"]["replicas"] = json!(4);
    stage.patch::<Deployment>("web", third).await;
    until_sizes(&stage, &[("i:1", 0), ("i:2", 4)]).await;
}

#[tokio::test]
async fn dp_27_once_the_new_set_is_saturated_the_others_go() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(2)).await;
    // Paused, so that no rollout does it.
    stage.patch::<Deployment>("web", json!({"spec": {"paused": true}})).await;
    stage.until::<Deployment>("web", "paused", |d| is(d, "Progressing", "Unknown", "DeploymentPaused")).await;
    let before = stage.all::<ReplicaSet>().await.remove(0);
    assert_eq!((size(&before), before.annotations()[DESIRED].as_str()), (2, "2"));
    let stray = json!({
        "metadata": {"name": "stray", "labels": {"app": "web"}, "annotations": {REVISION: "0"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web", "from": "elsewhere"}},
            "template": {
                "metadata": {"labels": {"app": "web", "from": "elsewhere"}},
                "spec": {"containers": [{"name": "c", "image": "i:0"}]},
            },
        },
    });
    stage.create::<ReplicaSet>(stray).await;
    let adopted = stage.until::<ReplicaSet>("stray", "emptied", |set| size(set) == 0).await;
    assert_eq!(adopted.owner_references()[0].kind, "Deployment");
    stage.until::<Deployment>("web", "as before", |d| counts(d) == [2, 2, 2, 2, 0]).await;
    assert_eq!(size(&stage.until::<ReplicaSet>(&before.name_any(), "there", |_| true).await), 2);
}

/// All events about a deployment's sets: `Normal deployment-controller: message`.
async fn told(stage: &Stage) -> Vec<String> {
    let mut events = stage.all::<Event>().await;
    events.retain(|event| event.reason.as_deref() == Some("ScalingReplicaSet"));
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        let source = event.source.and_then(|source| source.component).unwrap_or_default();
        let (kind, message) = (event.type_.unwrap_or_default(), event.message.unwrap_or_default());
        lines.push(format!("{kind} {source}: {message}"));
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn dp_37_every_change_of_size_is_told_and_nothing_else() {
    let stage = Stage::with(BOTH).await;
    running(&stage, deployment(3)).await;
    stage.patch::<Deployment>("web", image("2")).await;
    until_sizes(&stage, &[("i:1", 3), ("i:2", 1)]).await;
    let names: Vec<String> = sets(&stage).await.iter().map(ResourceExt::name_any).collect();
    let line = |direction: &str, set: usize, change: &str| {
        format!("Normal deployment-controller: Scaled {direction} replica set {} {change}", names[set])
    };
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let mut expected = vec![line("up", 0, "from 0 to 3"), line("up", 1, "from 0 to 1")];
    until("what was told", async || (told(&stage).await == sorted(expected.clone())).then_some(())).await;

    // Four wanted and no surge: sizes stay, and only the annotations of both sets change.
    let strategy = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    let calm: Value = json!({"spec": {"paused": true, "replicas": 4, "strategy": strategy}});
    stage.patch::<Deployment>("web", calm).await;
    until("both annotated", async || {
        sets(&stage).await.iter().all(|set| set.annotations()[DESIRED] == "4").then_some(())
    })
    .await;
    until_sizes(&stage, &[("i:1", 3), ("i:2", 1)]).await;
    // So does an annotation of the deployment's own.
    stage.patch::<Deployment>("web", json!({"metadata": {"annotations": {"cause": "another"}}})).await;
    until("the new set annotated", async || (sets(&stage).await[1].annotations()["cause"] == "another").then_some(()))
        .await;

    // Scaling down has an event like scaling up; events of the other changes would have been recorded before it.
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 0}})).await;
    until_sizes(&stage, &[("i:1", 0), ("i:2", 0)]).await;
    expected.extend([line("down", 0, "from 3 to 0"), line("down", 1, "from 1 to 0")]);
    until("what was told", async || (told(&stage).await == sorted(expected.clone())).then_some(())).await;
}
