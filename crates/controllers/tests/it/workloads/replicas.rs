//! ReplicaSets and ReplicationControllers (RS-*).

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::stage::{Stage, until};

pub(super) fn replica_set(name: &str, replicas: i32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"note": "kept"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

pub(super) fn counts(set: &ReplicaSet) -> [i32; 4] {
    let status = set.status.clone().unwrap_or_default();
    let count = |field: Option<i32>| field.unwrap_or(0);
    [
        status.replicas,
        count(status.ready_replicas),
        count(status.available_replicas),
        count(status.terminating_replicas),
    ]
}

#[tokio::test]
async fn rs_4_rs_6_rs_8_rs_13_pods_of_a_template_are_created_counted_and_told() {
    let stage = Stage::with("replicaset").await;
    let (sets, pods) = (stage.record::<ReplicaSet>().await, stage.record::<Pod>().await);
    let made: ReplicaSet = stage.create(replica_set("web", 3)).await;
    let created = stage.until_active(3).await;
    for pod in &created {
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("web-"));
        assert_eq!((pod.labels()["app"].as_str(), pod.annotations()["note"].as_str()), ("web", "kept"));
        let owner = &pod.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("ReplicaSet", "web"));
        assert_eq!(
            (owner.uid.as_str(), owner.controller, owner.block_owner_deletion),
            (made.uid().unwrap().as_str(), Some(true), Some(true))
        );
    }
    stage.until::<ReplicaSet>("web", "counted", |set| counts(set) == [3, 0, 0, 0]).await;
    stage.run_all().await;
    let done = stage.until::<ReplicaSet>("web", "available", |set| counts(set) == [3, 3, 3, 0]).await;
    let status = done.status.unwrap();
    assert_eq!((status.fully_labeled_replicas, status.observed_generation), (Some(3), Some(1)));
    // The first report is of the pods before the creation (section 14, 10).
    let first = &sets.about("web")[1].1;
    assert_eq!((counts(first), first.status.as_ref().unwrap().observed_generation), ([0, 0, 0, 0], Some(1)));
    assert_eq!(pods.count("ADDED"), 3);
    let messages = stage.until_events("web", "SuccessfulCreate", 3).await;
    assert!(created.iter().all(|pod| messages.contains(&format!("Created pod: {}", pod.name_any()))), "{messages:?}");
}

#[tokio::test]
async fn rs_5_rs_8_victims_are_deleted_and_counted_until_they_are_gone() {
    let stage = Stage::with("replicaset").await;
    stage.create::<ReplicaSet>(replica_set("web", 4)).await;
    let all = stage.until_active(4).await;
    // Two are ready: those that are not go first (RS-7).
    for pod in &all[..2] {
        stage.run(&pod.name_any()).await;
    }
    for pod in &all[2..] {
        stage.bind(&pod.name_any(), "n1").await;
    }
    stage.until::<ReplicaSet>("web", "half ready", |set| counts(set) == [4, 2, 2, 0]).await;
    stage.patch::<ReplicaSet>("web", json!({"spec": {"replicas": 2}})).await;
    let left = stage.until_active(2).await;
    let names = |pods: &[Pod]| pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names(&left), names(&all[..2]));
    stage.until::<ReplicaSet>("web", "shrinking", |set| counts(set) == [2, 2, 2, 2]).await;
    for pod in &all[2..] {
        stage.end(&pod.name_any()).await;
    }
    stage.until::<ReplicaSet>("web", "shrunk", |set| counts(set) == [2, 2, 2, 0]).await;
    assert_eq!(stage.until_events("web", "SuccessfulDelete", 2).await.len(), 2);
}

#[tokio::test]
async fn rs_11_sequence_12_5_a_pod_that_is_being_deleted_is_replaced_at_once() {
    let stage = Stage::with("replicaset").await;
    stage.create::<ReplicaSet>(replica_set("web", 1)).await;
    let old = stage.until_active(1).await.remove(0).name_any();
    stage.run(&old).await;
    stage.delete::<Pod>(&old, &DeleteParams::default()).await;
    let new = stage.until_active(1).await.remove(0).name_any();
    assert_ne!(new, old);
    assert_eq!(stage.all::<Pod>().await.len(), 2, "the old pod is still there");
}

#[tokio::test]
async fn rs_1_a_failed_pod_is_replaced_and_left() {
    let stage = Stage::with("replicaset").await;
    stage.create::<ReplicaSet>(replica_set("web", 1)).await;
    let old = stage.until_active(1).await.remove(0).name_any();
    stage.run(&old).await;
    stage.set_status(&old, json!({"phase": "Failed"})).await;
    let new = stage.until_count::<Pod>("a replacement", 1, |pod| pod.name_any() != old).await;
    assert_eq!(new.len(), 1);
    assert_eq!(stage.all::<Pod>().await.len(), 2);
}

#[tokio::test]
async fn rs_2_orphans_are_adopted_and_strangers_released() {
    let stage = Stage::with("replicaset").await;
    let pod = json!({"metadata": {"name": "lone", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    stage.create::<Pod>(pod).await;
    let set: ReplicaSet = stage.create(replica_set("web", 2)).await;
    let adopted = stage.until::<Pod>("lone", "adopted", |pod| !pod.owner_references().is_empty()).await;
    assert_eq!(adopted.owner_references()[0].uid, set.uid().unwrap());
    stage.until::<ReplicaSet>("web", "counted", |set| counts(set)[0] == 2).await;
    assert_eq!(stage.all::<Pod>().await.len(), 2, "the adopted pod counts");
    stage.patch::<Pod>("lone", json!({"metadata": {"labels": {"app": "other"}}})).await;
    stage.until::<Pod>("lone", "released", |pod| pod.owner_references().is_empty()).await;
    stage.until_count::<Pod>("a replacement", 2, |pod| pod.labels()["app"] == "web").await;
    // An orphan that begins to match wakes the set, which then has one too many.
    stage.patch::<Pod>("lone", json!({"metadata": {"labels": {"app": "web"}}})).await;
    stage.until_active(2).await;
}

#[tokio::test]
async fn rs_9_a_quota_that_refuses_is_told_once_and_tried_ever_more_seldom() {
    let stage = Stage::with("replicaset").await;
    stage.create::<ResourceQuota>(json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).await;
    stage
        .until::<ResourceQuota>("none", "in force", |quota| quota.status.as_ref().is_some_and(|s| s.hard.is_some()))
        .await;
    let writes = stage.record::<ReplicaSet>().await;
    stage.create::<ReplicaSet>(replica_set("web", 10)).await;
    let failing = stage
        .until::<ReplicaSet>("web", "failing", |set| {
            set.status.as_ref().is_some_and(|status| status.conditions.as_ref().is_some_and(|c| !c.is_empty()))
        })
        .await;
    let condition = &failing.status.unwrap().conditions.unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("ReplicaFailure", "True"));
    assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
    assert!(condition.message.as_ref().unwrap().contains("exceeded quota: none"), "{condition:?}");
    let message = stage.until_events("web", "FailedCreate", 1).await.remove(0);
    assert!(
        message.starts_with("Error creating: pods \"web-") && message.contains("is forbidden: exceeded quota"),
        "{message}"
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let modified = writes.count("MODIFIED");
    assert!(modified <= 2, "{modified} writes of the replica set in two seconds");
    assert!(stage.all::<Pod>().await.is_empty());
    // Doubling from 5 ms: 9 tries in 2.5 s; the events of equal messages are counted, not repeated.
    let told = stage.events("web", "FailedCreate").await.len();
    assert!(told <= 12, "{told} events");

    stage.delete::<ResourceQuota>("none", &DeleteParams::default()).await;
    stage.patch::<ReplicaSet>("web", json!({"metadata": {"annotations": {"try": "again"}}})).await;
    stage.until_active(10).await;
    stage
        .until::<ReplicaSet>("web", "well", |set| {
            counts(set)[0] == 10 && set.status.as_ref().is_some_and(|status| status.conditions.is_none())
        })
        .await;
}

#[tokio::test]
async fn rs_10_a_ready_pod_becomes_available_later_without_another_event() {
    let stage = Stage::with("replicaset").await;
    let mut wanted = replica_set("web", 1);
    wanted["spec"]["minReadySeconds"] = json!(1);
    stage.create::<ReplicaSet>(wanted).await;
    let pod = stage.until_active(1).await.remove(0).name_any();
    let sets = stage.record::<ReplicaSet>().await;
    stage.run(&pod).await;
    stage.until::<ReplicaSet>("web", "available", |set| counts(set) == [1, 1, 1, 0]).await;
    let states: Vec<[i32; 4]> = until("both states", async || {
        let states: Vec<_> = sets.about("web").iter().map(|(_, set)| counts(set)).collect();
        (states.last() == Some(&[1, 1, 1, 0])).then_some(states)
    })
    .await;
    assert!(states.contains(&[1, 1, 0, 0]), "ready before it is available: {states:?}");
}

#[tokio::test]
async fn rs_3_a_large_set_is_created_exactly_once() {
    let stage = Stage::with("replicaset").await;
    let pods = stage.record::<Pod>().await;
    stage.create::<ReplicaSet>(replica_set("web", 600)).await;
    stage.until_active(600).await;
    stage.until::<ReplicaSet>("web", "counted", |set| counts(set)[0] == 600).await;
    assert_eq!(pods.count("ADDED"), 600);
    stage.patch::<ReplicaSet>("web", json!({"spec": {"replicas": 7}})).await;
    // Pods without a node go at once.
    stage.until_count::<Pod>("7 pods", 7, |_| true).await;
    stage.until::<ReplicaSet>("web", "counted", |set| counts(set) == [7, 0, 0, 0]).await;
    until("all deletions", async || (pods.count("DELETED") >= 593).then_some(())).await;
    assert_eq!((pods.count("ADDED"), pods.count("DELETED")), (600, 593));
}

#[tokio::test]
async fn rs_a_replication_controller_works_the_same_way() {
    let stage = Stage::with("replicationcontroller").await;
    stage
        .create::<ReplicationController>(json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"app": "web"},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        }))
        .await;
    let pods = stage.until_active(2).await;
    assert_eq!(pods[0].owner_references()[0].kind, "ReplicationController");
    stage.run_all().await;
    stage
        .until::<ReplicationController>("web", "available", |rc| {
            rc.status
                .as_ref()
                .is_some_and(|status| status.available_replicas == Some(2) && status.observed_generation == Some(1))
        })
        .await;
    stage.patch::<ReplicationController>("web", json!({"spec": {"replicas": 0}})).await;
    stage.until_active(0).await;
    let events = stage.all::<k8s_openapi::api::core::v1::Event>().await;
    assert!(
        events
            .iter()
            .all(|event| event.source.as_ref().unwrap().component.as_deref() == Some("replication-controller"))
    );
}
