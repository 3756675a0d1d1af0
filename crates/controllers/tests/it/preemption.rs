//! Pods that make room for others of a higher priority. Most nodes here have no agent, so that victims stay until
//! the test removes them.

use dogwatch::testing::Server;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::nodes::{
    NODES, make_pod, merge, node_of, nodes, pod_condition, pods, settings, told, until_open, until_running,
};
use crate::world::{until, until_gone};

const RESOURCE: &str = "scheduling.k8s.io/foo";

/// A server with nodes that no agent serves. Each has 4 of the resource.
async fn world(names: &[&str]) -> Server {
    let mut settings = settings("scheduler,disruption");
    settings.nodes = 0;
    let server = Server::with_controllers(settings).await;
    for name in names {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes(&server).create(&PostParams::default(), &node).await.unwrap();
        offer(&server, name, json!({"cpu": "8", "pods": "10", RESOURCE: "4"})).await;
        merge(&nodes(&server), name, json!({"spec": {"taints": []}})).await;
    }
    make_classes(&server).await;
    server
}

async fn make_classes(server: &Server) {
    let classes: Api<PriorityClass> = Api::all(server.client());
    for (name, value) in [("low", 1), ("medium", 100), ("high", 1000)] {
        let class = serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
        classes.create(&PostParams::default(), &class).await.unwrap();
    }
}

async fn offer(server: &Server, node: &str, amounts: serde_json::Value) {
    let patch = Patch::Strategic(json!({"status": {"capacity": amounts, "allocatable": amounts}}));
    nodes(server).patch_status(node, &PatchParams::default(), &patch).await.unwrap();
}

async fn make(server: &Server, name: &str, class: &str, amount: &str) -> Pod {
    make_pod(server, name, |pod| {
        pod["metadata"]["labels"] = json!({"app": name});
        pod["spec"]["priorityClassName"] = json!(class);
        let amounts = json!({RESOURCE: amount});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    })
    .await
}

async fn until_bound(server: &Server, name: &str) -> Pod {
    until(&pods(server), name, "bound", |pod| !node_of(pod).is_empty()).await
}

async fn until_leaving(server: &Server, name: &str) -> Pod {
    until(&pods(server), name, "being deleted", |pod| pod.metadata.deletion_timestamp.is_some()).await
}

fn nominated(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default()
}

fn refusal(pod: &Pod) -> &str {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    scheduled.and_then(|condition| condition.message.as_deref()).unwrap_or_default()
}

async fn remove(server: &Server, name: &str) {
    pods(server).delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&pods(server), name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_17_victims_are_told_why_they_are_deleted() {
    let server = world(&["n"]).await;
    make(&server, "victim", "low", "4").await;
    until_bound(&server, "victim").await;
    let preemptor = make(&server, "preemptor", "high", "4").await;
    let victim = until_leaving(&server, "victim").await;
    let conditions = victim.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("PreemptionByScheduler")));
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    assert_eq!(target.message.as_deref(), Some(message));
    let events = told(&server.client(), "victim", 2).await;
    let preempted = events.iter().find(|event| event.reason.as_deref() == Some("Preempted")).unwrap();
    assert_eq!((preempted.type_.as_deref(), preempted.action.as_deref()), (Some("Normal"), Some("Preempting")));
    let uid = preemptor.metadata.uid.unwrap();
    assert_eq!(preempted.message, Some(format!("Preempted by pod {uid} on node n")));
    assert_eq!(preempted.related.as_ref().and_then(|related| related.name.as_deref()), Some("preemptor"));

    // SC-18: the nomination is in the status until the binding.
    let waiting = until(&pods(&server), "preemptor", "nominated", |pod| nominated(pod) == "n").await;
    assert_eq!(refusal(&waiting), "0/1 nodes are available: 1 Insufficient scheduling.k8s.io/foo.");
    remove(&server, "victim").await;
    let bound = until_bound(&server, "preemptor").await;
    assert_eq!(nominated(&bound), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_14_a_pod_preempts_once() {
    let server = world(&["n", "m"]).await;
    make(&server, "first", "low", "4").await;
    make(&server, "second", "low", "4").await;
    for name in ["first", "second"] {
        until_bound(&server, name).await;
    }
    make(&server, "preemptor", "high", "4").await;
    let pod = until(&pods(&server), "preemptor", "nominated", |pod| !nominated(pod).is_empty()).await;
    let (mut leaving, mut staying) = ("first", "second");
    if node_of(&pods(&server).get("second").await.unwrap()) == nominated(&pod) {
        (leaving, staying) = (staying, leaving);
    }
    until_leaving(&server, leaving).await;
    // A change that may help makes it try again, while its victim is still there.
    merge(&nodes(&server), "n", json!({"metadata": {"labels": {"a": "b"}}})).await;
    let text = "preemption: not eligible due to a terminating pod on the nominated node.";
    let again = until(&pods(&server), "preemptor", "refused again", |pod| refusal(pod).ends_with(text)).await;
    assert_eq!(nominated(&again), nominated(&pod), "it keeps its nomination");
    assert_eq!(pods(&server).get(staying).await.unwrap().metadata.deletion_timestamp, None);
    remove(&server, leaving).await;
    assert_eq!(node_of(&until_bound(&server, "preemptor").await), nominated(&pod));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_18_nominations_end_when_they_are_of_no_use() {
    let server = world(&["n"]).await;
    make(&server, "victim", "low", "4").await;
    until_bound(&server, "victim").await;
    make(&server, "middle", "medium", "4").await;
    until(&pods(&server), "middle", "nominated", |pod| nominated(pod) == "n").await;
    until_leaving(&server, "victim").await;
    // A pod of a higher priority takes the nomination over.
    make(&server, "top", "high", "4").await;
    until(&pods(&server), "top", "nominated", |pod| nominated(pod) == "n").await;
    until(&pods(&server), "middle", "not nominated", |pod| nominated(pod).is_empty()).await;
    // The node cannot be used any more.
    merge(&nodes(&server), "n", json!({"spec": {"unschedulable": true}})).await;
    let top = until(&pods(&server), "top", "not nominated", |pod| nominated(pod).is_empty()).await;
    assert!(
        refusal(&top).ends_with("0/1 nodes are available: 1 Preemption is not helpful for scheduling."),
        "{top:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_19_room_is_kept_for_the_nominated_pod() {
    let server = world(&["n"]).await;
    make(&server, "victim", "low", "4").await;
    until_bound(&server, "victim").await;
    make(&server, "preemptor", "high", "4").await;
    until(&pods(&server), "preemptor", "nominated", |pod| nominated(pod) == "n").await;
    make(&server, "late", "medium", "1").await;
    let text = "0/1 nodes are available: 1 Insufficient scheduling.k8s.io/foo.";
    until(&pods(&server), "late", "refused", |pod| refusal(pod).starts_with(text)).await;
    remove(&server, "victim").await;
    until_bound(&server, "preemptor").await;
    assert_eq!(node_of(&pods(&server).get("late").await.unwrap()), "");
    // The nominated pod is gone, and with it its claim to the node.
    remove(&server, "preemptor").await;
    until_bound(&server, "late").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_15_sc_16_budgets_are_respected_where_another_victim_will_do() {
    let server = world(&["n", "m"]).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(server.client(), "default");
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    until(&budgets, "b", "observed", |budget| {
        budget.status.as_ref().is_some_and(|status| status.observed_generation == Some(1))
    })
    .await;
    make(&server, "guarded", "low", "4").await;
    make(&server, "free", "medium", "4").await;
    for name in ["guarded", "free"] {
        until_bound(&server, name).await;
    }
    make(&server, "preemptor", "high", "4").await;
    until_leaving(&server, "free").await;
    assert_eq!(pods(&server).get("guarded").await.unwrap().metadata.deletion_timestamp, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_17_on_a_simulated_node_the_preemptor_runs_soon() {
    let server = Server::with_controllers(settings(NODES)).await;
    until_open(&server, "node-1").await;
    make_classes(&server).await;
    offer(&server, "node-1", json!({RESOURCE: "5"})).await;
    make(&server, "low", "low", "2").await;
    make(&server, "medium", "medium", "2").await;
    until_running(&server, "low").await;
    until_running(&server, "medium").await;
    make(&server, "critical", "system-cluster-critical", "2").await;
    until_running(&server, "critical").await;
    until_gone(&pods(&server), "low").await;
    let medium = pods(&server).get("medium").await.unwrap();
    assert_eq!(
        (medium.metadata.deletion_timestamp.as_ref(), pod_condition(&medium, "DisruptionTarget")),
        (None, String::new())
    );
}
