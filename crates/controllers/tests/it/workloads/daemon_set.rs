//! DaemonSets (DS-*).

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::stage::{Stage, until};

fn daemon_set(extra: Value) -> Value {
    let mut value = json!({
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
    });
    for (name, field) in extra.as_object().unwrap() {
        value["spec"][name] = field.clone();
    }
    value
}

async fn node(stage: &Stage, name: &str) {
    let api: Api<Node> = Api::all(stage.client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    api.create(&PostParams::default(), &node).await.unwrap();
    taint(stage, name, json!(null)).await;
}

async fn taint(stage: &Stage, name: &str, taints: Value) {
    let api: Api<Node> = Api::all(stage.client.clone());
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": taints}}))).await.unwrap();
}

fn target(pod: &Pod) -> String {
    let value = serde_json::to_value(pod).unwrap();
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Runs a pod on the node it is meant for.
async fn run(stage: &Stage, pod: &Pod) {
    stage.bind(&pod.name_any(), &target(pod)).await;
    stage.make_ready(&pod.name_any()).await;
}

async fn run_all(stage: &Stage) {
    for pod in stage.active().await {
        if pod.spec.as_ref().unwrap().node_name.is_none() {
            run(stage, &pod).await;
        }
    }
}

/// desired, current, misscheduled, ready, updated, available, unavailable
fn counts(set: &DaemonSet) -> [i32; 7] {
    let status = set.status.clone().unwrap_or_default();
    let count = |field: Option<i32>| field.unwrap_or(0);
    [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled,
        status.number_ready,
        count(status.updated_number_scheduled),
        count(status.number_available),
        count(status.number_unavailable),
    ]
}

#[tokio::test]
async fn ds_2_ds_6_a_pod_for_every_node_now_and_later() {
    let stage = Stage::with("daemonset").await;
    node(&stage, "n1").await;
    node(&stage, "n2").await;
    stage.create::<DaemonSet>(daemon_set(json!({}))).await;
    let pods = stage.until_active(2).await;
    let mut targets: Vec<String> = pods.iter().map(target).collect();
    targets.sort();
    assert_eq!(targets, ["n1", "n2"]);
    assert!(pods.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.is_none()), "the scheduler binds them");
    assert!(pods.iter().all(|pod| pod.metadata.generate_name.as_deref() == Some("agent-")));
    stage.until::<DaemonSet>("agent", "counted", |set| counts(set) == [2, 2, 0, 0, 2, 0, 2]).await;
    run_all(&stage).await;
    let done = stage.until::<DaemonSet>("agent", "available", |set| counts(set) == [2, 2, 0, 2, 2, 2, 0]).await;
    assert_eq!(done.status.unwrap().observed_generation, Some(1));
    let revision = stage.all::<ControllerRevision>().await.remove(0);
    let hash = &revision.labels()["controller-revision-hash"];
    assert_eq!(revision.name_any(), format!("agent-{hash}"));
    assert!(pods.iter().all(|pod| pod.labels()["controller-revision-hash"] == *hash));

    node(&stage, "n3").await;
    stage.until_active(3).await;
    run_all(&stage).await;
    stage.until::<DaemonSet>("agent", "on three nodes", |set| counts(set)[5] == 3).await;
}

#[tokio::test]
async fn ds_1_taints_decide_who_may_come_and_who_may_stay() {
    let stage = Stage::with("daemonset").await;
    node(&stage, "n1").await;
    stage.create::<DaemonSet>(daemon_set(json!({}))).await;
    stage.until_active(1).await;
    run_all(&stage).await;
    stage.until::<DaemonSet>("agent", "available", |set| counts(set)[5] == 1).await;
    let running = stage.active().await.remove(0);
    taint(&stage, "n1", json!([{"key": "k", "effect": "NoSchedule"}])).await;
    stage.until::<DaemonSet>("agent", "misscheduled", |set| counts(set) == [0, 0, 1, 0, 0, 0, 0]).await;
    assert_eq!(stage.active().await[0].uid(), running.uid(), "it may stay");
    taint(&stage, "n1", json!([{"key": "k", "effect": "NoExecute"}])).await;
    stage.until::<Pod>(&running.name_any(), "leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    stage.end(&running.name_any()).await;
    stage.until::<DaemonSet>("agent", "nowhere", |set| counts(set) == [0; 7]).await;
    taint(&stage, "n1", json!(null)).await;
    stage.until_active(1).await;
}

#[tokio::test]
async fn ds_4_failed_pods_are_replaced_more_and_more_slowly() {
    let stage = Stage::with("daemonset").await;
    node(&stage, "n1").await;
    stage.create::<DaemonSet>(daemon_set(json!({}))).await;
    let first = stage.until_active(1).await.remove(0);
    stage.bind(&first.name_any(), "n1").await;
    stage.set_status(&first.name_any(), json!({"phase": "Failed"})).await;
    let second =
        until("a replacement", async || stage.active().await.into_iter().find(|pod| pod.uid() != first.uid())).await;
    let told = stage.until_events("agent", "FailedDaemonPod", 1).await;
    assert_eq!(told, [format!("Found failed daemon pod default/{} on node n1, will try to kill it", first.name_any())]);
    // The next one within a second is left for a while, then deleted without another event.
    stage.bind(&second.name_any(), "n1").await;
    stage.set_status(&second.name_any(), json!({"phase": "Failed"})).await;
    until("another replacement", async || stage.active().await.into_iter().find(|pod| pod.uid() != second.uid())).await;
}

#[tokio::test]
async fn ds_5_an_update_goes_node_by_node() {
    let stage = Stage::with("daemonset").await;
    node(&stage, "n1").await;
    node(&stage, "n2").await;
    stage.create::<DaemonSet>(daemon_set(json!({}))).await;
    stage.until_active(2).await;
    run_all(&stage).await;
    stage.until::<DaemonSet>("agent", "available", |set| counts(set)[5] == 2).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    stage.patch::<DaemonSet>("agent", image).await;
    for updated in 1..=2 {
        let leaving = until("one pod that leaves", async || {
            stage.all::<Pod>().await.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_some())
        })
        .await;
        assert_eq!(stage.active().await.len(), 1, "one at a time");
        stage.end(&leaving.name_any()).await;
        stage.until_active(2).await;
        let set = stage.until::<DaemonSet>("agent", "half way", |set| counts(set)[4] == updated).await;
        assert!(counts(&set)[5] >= 1);
        run_all(&stage).await;
    }
    let done = stage.until::<DaemonSet>("agent", "updated", |set| counts(set) == [2, 2, 0, 2, 2, 2, 0]).await;
    assert_eq!(done.status.unwrap().observed_generation, done.metadata.generation);
    let mut revisions: Vec<i64> = stage.all::<ControllerRevision>().await.iter().map(|r| r.revision).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [1, 2]);
}

#[tokio::test]
async fn ds_5_with_surge_the_old_pod_goes_when_the_new_one_is_available() {
    let stage = Stage::with("daemonset").await;
    node(&stage, "n1").await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    stage.create::<DaemonSet>(daemon_set(json!({"updateStrategy": strategy}))).await;
    let old = stage.until_active(1).await.remove(0);
    run_all(&stage).await;
    stage.until::<DaemonSet>("agent", "available", |set| counts(set)[5] == 1).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    stage.patch::<DaemonSet>("agent", image).await;
    stage.until_active(2).await;
    assert!(stage.active().await.iter().any(|pod| pod.uid() == old.uid()));
    run_all(&stage).await;
    stage.until::<Pod>(&old.name_any(), "leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    stage.delete::<Pod>(&old.name_any(), &DeleteParams::default().grace_period(0)).await;
    stage.until::<DaemonSet>("agent", "updated", |set| counts(set) == [1, 1, 0, 1, 1, 1, 0]).await;
}
