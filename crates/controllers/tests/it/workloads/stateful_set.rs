//! StatefulSets (SS-*).

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::stage::{Stage, until};

fn stateful_set(replicas: i32, extra: Value) -> Value {
    let mut value = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
    });
    for (name, field) in extra.as_object().unwrap() {
        value["spec"][name] = field.clone();
    }
    value
}

fn image(tag: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": format!("i:{tag}")}]}}}})
}

fn image_of(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

async fn names(stage: &Stage) -> Vec<String> {
    stage.active().await.iter().map(ResourceExt::name_any).collect()
}

/// replicas, ready, current, updated
fn counts(set: &StatefulSet) -> [i32; 4] {
    let status = set.status.clone().unwrap_or_default();
    let count = |field: Option<i32>| field.unwrap_or(0);
    [status.replicas, count(status.ready_replicas), count(status.current_replicas), count(status.updated_replicas)]
}

#[tokio::test]
async fn ss_2_ss_8_pods_come_one_after_the_other_and_go_backwards() {
    let stage = Stage::with("statefulset").await;
    stage.create::<StatefulSet>(stateful_set(3, json!({}))).await;
    for ordinal in 0..3 {
        let pod = format!("db-{ordinal}");
        stage.until::<Pod>(&pod, "there", |_| true).await;
        stage.until::<StatefulSet>("db", "waiting", |set| counts(set)[..2] == [ordinal + 1, ordinal]).await;
        assert_eq!(stage.all::<Pod>().await.len() as i32, ordinal + 1, "the next waits for {pod}");
        stage.run(&pod).await;
    }
    let done = stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [3, 3, 3, 3]).await;
    let status = done.status.unwrap();
    assert_eq!((status.current_revision.clone(), status.available_replicas), (status.update_revision, Some(3)));
    let pod = stage.until::<Pod>("db-1", "there", |_| true).await;
    assert_eq!(pod.labels()["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(Some(&pod.labels()["controller-revision-hash"]), status.current_revision.as_ref());
    assert_eq!(pod.spec.unwrap().hostname.as_deref(), Some("db-1"));
    let messages = stage.until_events("db", "SuccessfulCreate", 3).await;
    assert!(messages.contains(&"Create Pod db-0 in StatefulSet db successful".to_owned()), "{messages:?}");

    stage.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    let leaving = stage.until::<Pod>("db-2", "leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(names(&stage).await, ["db-0", "db-1"], "db-1 waits for the end of {}", leaving.name_any());
    stage.end("db-2").await;
    stage.until::<Pod>("db-1", "leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    stage.end("db-1").await;
    stage.until::<StatefulSet>("db", "shrunk", |set| counts(set) == [1, 1, 1, 1]).await;
}

#[tokio::test]
async fn ss_2_parallel_pods_come_together() {
    let stage = Stage::with("statefulset").await;
    let extra = json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 7}});
    stage.create::<StatefulSet>(stateful_set(3, extra)).await;
    stage.until_active(3).await;
    assert_eq!(names(&stage).await, ["db-7", "db-8", "db-9"]);
    stage.patch::<StatefulSet>("db", json!({"spec": {"replicas": 0}})).await;
    stage.until_active(0).await;
}

#[tokio::test]
async fn ss_3_a_pod_that_failed_is_made_again_under_its_name() {
    let stage = Stage::with("statefulset").await;
    stage.create::<StatefulSet>(stateful_set(1, json!({}))).await;
    let first = stage.until::<Pod>("db-0", "there", |_| true).await;
    stage.run("db-0").await;
    stage.set_status("db-0", json!({"phase": "Failed"})).await;
    // A pod that has ended needs no grace period: it is deleted at once, and created again.
    stage.until::<Pod>("db-0", "made again", |pod| pod.uid() != first.uid()).await;
    stage.until_events("db", "SuccessfulDelete", 1).await;
}

#[tokio::test]
async fn ss_4_ss_5_an_update_goes_down_one_by_one_and_an_undo_reuses_the_revision() {
    let stage = Stage::with("statefulset").await;
    stage.create::<StatefulSet>(stateful_set(3, json!({}))).await;
    {
        let _nodes = stage.nodes();
        stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [3, 3, 3, 3]).await;
    }
    let before = stage.until::<StatefulSet>("db", "there", |_| true).await.status.unwrap().current_revision;
    stage.patch::<StatefulSet>("db", image("2")).await;
    for (step, pod) in ["db-2", "db-1", "db-0"].iter().enumerate() {
        stage.until::<Pod>(pod, "leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await;
        assert_eq!(stage.active().await.len(), 2, "one at a time");
        let rolling = stage.until::<StatefulSet>("db", "rolling", |set| counts(set)[3] == step as i32).await;
        assert_ne!(rolling.status.as_ref().unwrap().update_revision, before);
        stage.end(pod).await;
        let new = stage.until::<Pod>(pod, "new", |pod| pod.metadata.deletion_timestamp.is_none()).await;
        assert_eq!(image_of(&new), "i:2");
        stage.run(pod).await;
    }
    let done = stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [3, 3, 3, 3]).await.status.unwrap();
    assert_eq!(done.current_revision, done.update_revision);
    assert_ne!(done.current_revision, before);

    let _nodes = stage.nodes();
    stage.patch::<StatefulSet>("db", image("1")).await;
    stage
        .until::<StatefulSet>("db", "back", |set| {
            set.status.as_ref().unwrap().current_revision == before && counts(set) == [3, 3, 3, 3]
        })
        .await;
    let revisions = stage.all::<ControllerRevision>().await;
    let mut numbers: Vec<(Option<String>, i64)> = revisions.iter().map(|r| (Some(r.name_any()), r.revision)).collect();
    numbers.sort_by_key(|(_, number)| *number);
    assert_eq!(numbers, [(done.current_revision, 2), (before, 3)], "the old revision is the newest again");
    let data = revisions[0].data.as_ref().unwrap().0.clone();
    assert_eq!(data["spec"]["template"]["$patch"], "replace");
}

#[tokio::test]
async fn ss_5_ss_6_a_partition_holds_back() {
    let stage = Stage::with("statefulset").await;
    let _nodes = stage.nodes();
    let extra = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
    stage.create::<StatefulSet>(stateful_set(3, extra)).await;
    stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [3, 3, 3, 3]).await;
    stage.patch::<StatefulSet>("db", image("2")).await;
    stage.until::<StatefulSet>("db", "held back", |set| counts(set) == [3, 3, 2, 1]).await;
    stage.delete::<Pod>("db-0", &DeleteParams::default().grace_period(0)).await;
    stage.until::<StatefulSet>("db", "whole again", |set| counts(set) == [3, 3, 2, 1]).await;
    let images = until("three pods", async || {
        let pods = stage.active().await;
        (pods.len() == 3).then(|| pods.iter().map(|pod| image_of(pod).to_owned()).collect::<Vec<_>>())
    })
    .await;
    assert_eq!(images, ["i:1", "i:1", "i:2"]);
}

#[tokio::test]
async fn ss_5_on_delete_updates_nothing_by_itself() {
    let stage = Stage::with("statefulset").await;
    let _nodes = stage.nodes();
    stage.create::<StatefulSet>(stateful_set(1, json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [1, 1, 1, 1]).await;
    stage.patch::<StatefulSet>("db", image("2")).await;
    stage.until::<StatefulSet>("db", "seen", |set| counts(set) == [1, 1, 1, 0]).await;
    assert_eq!(image_of(&stage.active().await[0]), "i:1");
    stage.delete::<Pod>("db-0", &DeleteParams::default()).await;
    stage.until::<Pod>("db-0", "new", |pod| image_of(pod) == "i:2").await;
}

#[tokio::test]
async fn ss_1_ss_7_claims_are_made_first_kept_and_given_owners_by_policy() {
    let stage = Stage::with("statefulset").await;
    let _nodes = stage.nodes();
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let claims = stage.record::<PersistentVolumeClaim>().await;
    let pods = stage.record::<Pod>().await;
    stage.create::<StatefulSet>(stateful_set(2, json!({"volumeClaimTemplates": templates}))).await;
    stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [2, 2, 2, 2]).await;
    let version = |text: Option<String>| text.unwrap().parse::<u64>().unwrap();
    let first = |name: &str| version(claims.about(name)[0].1.resource_version());
    assert!(first("data-db-0") < version(pods.about("db-0")[0].1.resource_version()), "the claim comes before the pod");
    let claim = stage.until::<PersistentVolumeClaim>("data-db-1", "there", |_| true).await;
    assert_eq!((claim.labels()["app"].as_str(), claim.owner_references().len()), ("db", 0));
    let volumes = stage.until::<Pod>("db-1", "there", |_| true).await.spec.unwrap().volumes.unwrap();
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name, "data-db-1");

    stage.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    stage.until_active(1).await;
    assert_eq!(stage.all::<PersistentVolumeClaim>().await.len(), 2, "a claim outlives its pod");
    let policy =
        json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}});
    stage.patch::<StatefulSet>("db", policy).await;
    let owned =
        stage.until::<PersistentVolumeClaim>("data-db-0", "owned", |claim| !claim.owner_references().is_empty()).await;
    assert_eq!(owned.owner_references()[0].kind, "StatefulSet");
    let told = stage.until_events("db", "SuccessfulCreate", 4).await;
    assert!(told.contains(&"Create Claim data-db-0 Pod db-0 in StatefulSet db success".to_owned()), "{told:?}");
}

#[tokio::test]
async fn ss_1_a_pod_that_lost_its_label_gets_it_back() {
    let stage = Stage::with("statefulset").await;
    let _nodes = stage.nodes();
    stage.create::<StatefulSet>(stateful_set(1, json!({}))).await;
    stage.until::<StatefulSet>("db", "complete", |set| counts(set) == [1, 1, 1, 1]).await;
    const LABEL: &str = "statefulset.kubernetes.io/pod-name";
    stage.patch::<Pod>("db-0", json!({"metadata": {"labels": {LABEL: null}}})).await;
    stage.until::<Pod>("db-0", "itself again", |pod| pod.labels().get(LABEL).map(String::as_str) == Some("db-0")).await;
}
