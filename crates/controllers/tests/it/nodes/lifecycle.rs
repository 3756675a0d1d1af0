//! Silent nodes, evictions, and pod garbage collection.

use std::time::Duration;

use controllers::Settings;
use dogwatch::testing::Server;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::{
    NODES, make_pod, merge, node_condition, node_of, nodes, pod_condition, pods, settings, taints, told, until_open,
    until_running,
};
use crate::world::{until, until_gone};

/// Three nodes, and everything about a hundred times faster than it is.
fn quick(controllers: &str) -> Settings {
    let mut settings = settings(controllers);
    settings.nodes = 3;
    let timing = &mut settings.timing;
    timing.node_check = Duration::from_millis(50);
    timing.node_grace = Duration::from_secs(2);
    timing.node_startup_grace = Duration::from_secs(2);
    timing.node_lease_renew = Duration::from_millis(200);
    timing.node_eviction_every = Duration::from_millis(100);
    timing.pod_gc = Duration::from_millis(50);
    timing.pod_gc_quarantine = Duration::from_millis(200);
    settings
}

async fn world() -> Server {
    let server = Server::with_controllers(quick(NODES)).await;
    for node in ["node-1", "node-2", "node-3"] {
        until_open(&server, node).await;
    }
    server
}

async fn silence(server: &Server, node: &str, how: Value) {
    merge(&nodes(server), node, json!({"metadata": {"annotations": {"nodes.dogwatch/heartbeat": how}}})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_7_nl_1_nl_2_nl_3_nl_4_a_silent_node_is_noticed_and_emptied_and_may_come_back() {
    let server = world().await;
    let patience = |seconds: u64| {
        json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds}])
    };
    make_pod(&server, "leaves", |pod| {
        pod["spec"]["nodeName"] = json!("node-1");
        pod["spec"]["tolerations"] = patience(0);
    })
    .await;
    make_pod(&server, "stays", |pod| pod["spec"]["nodeName"] = json!("node-1")).await;
    until_running(&server, "leaves").await;
    until_running(&server, "stays").await;
    silence(&server, "node-1", json!("stopped")).await;
    let node = until(&nodes(&server), "node-1", "unknown", |node| node_condition(node, "Ready") == "Unknown").await;
    let leases: Api<Lease> = Api::namespaced(server.client(), "kube-node-lease");
    let renewed = async |node: &str| leases.get(node).await.unwrap().spec.unwrap().renew_time;
    let (last, of_another) = (renewed("node-1").await, renewed("node-2").await);
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(node_condition(&node, kind), "Unknown", "NL-2 {kind}");
    }
    assert_eq!(node_condition(&node, "NetworkUnavailable"), "False");
    let conditions = node.status.unwrap().conditions.unwrap();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.reason.as_deref(), Some("NodeStatusUnknown"));
    assert_eq!(ready.message.as_deref(), Some("Kubelet stopped posting node status."));
    until(&pods(&server), "stays", "not ready", |pod| pod_condition(pod, "Ready") == "False").await;
    until(&nodes(&server), "node-1", "tainted", |node| {
        let taints = taints(node);
        taints.contains(&"node.kubernetes.io/unreachable:NoSchedule".to_owned())
            && taints.contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned())
    })
    .await;
    let leaving = until(&pods(&server), "leaves", "deleted", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(pod_condition(&leaving, "DisruptionTarget"), "True");
    let events = told(&server.client(), "leaves", 1).await;
    let text = "Marking for deletion Pod default/leaves";
    let marked = async || told(&server.client(), "leaves", 1).await.iter().any(|e| e.message.as_deref() == Some(text));
    while !marked().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(events);
    until(&leases, "node-2", "renewed", |lease| lease.spec.as_ref().unwrap().renew_time > of_another).await;
    assert_eq!(renewed("node-1").await, last, "NA-7: its lease is not renewed");
    let events = told(&server.client(), "node-1", 1).await;
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("NodeNotReady")), "NL-2: {events:?}");
    assert!(pods(&server).get("stays").await.unwrap().metadata.deletion_timestamp.is_none());

    silence(&server, "node-1", Value::Null).await;
    until_open(&server, "node-1").await;
    until_running(&server, "stays").await;
    until_gone(&pods(&server), "leaves").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nl_2_a_node_that_never_says_anything_is_marked() {
    let server = world().await;
    let silent = serde_json::from_value(json!({"metadata": {"name": "silent"}})).unwrap();
    nodes(&server).create(&PostParams::default(), &silent).await.unwrap();
    let node = until(&nodes(&server), "silent", "unknown", |node| node_condition(node, "Ready") == "Unknown").await;
    let conditions = node.status.unwrap().conditions.unwrap();
    assert_eq!(conditions[0].reason.as_deref(), Some("NodeStatusNeverUpdated"));
    until(&nodes(&server), "silent", "tainted", |node| {
        taints(node).contains(&"node.kubernetes.io/unreachable:NoSchedule".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nl_3_when_every_node_is_silent_nobody_is_evicted() {
    let server = world().await;
    make_pod(&server, "p", |pod| {
        pod["spec"]["tolerations"] = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 3600}]);
    })
    .await;
    until_running(&server, "p").await;
    for node in ["node-1", "node-2", "node-3"] {
        silence(&server, node, json!("stopped")).await;
    }
    for node in ["node-1", "node-2", "node-3"] {
        until(&nodes(&server), node, "unknown, and not to be emptied", |node| {
            let taints = taints(node);
            taints.contains(&"node.kubernetes.io/unreachable:NoSchedule".to_owned())
                && !taints.contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nl_4_a_taint_of_ones_own_evicts_and_its_removal_cancels() {
    let server = world().await;
    let toleration = |seconds: i64| json!([{"key": "mine", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    make_pod(&server, "patient", |pod| {
        pod["spec"]["nodeName"] = json!("node-2");
        pod["spec"]["tolerations"] = toleration(3600);
    })
    .await;
    make_pod(&server, "other", |pod| pod["spec"]["nodeName"] = json!("node-2")).await;
    until_running(&server, "patient").await;
    until_running(&server, "other").await;
    merge(&nodes(&server), "node-2", json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}})).await;
    until_gone(&pods(&server), "other").await;
    merge(&nodes(&server), "node-2", json!({"spec": {"taints": null}})).await;
    let text = "Cancelling deletion of Pod default/patient";
    while !told(&server.client(), "patient", 1).await.iter().any(|e| e.message.as_deref() == Some(text)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until_running(&server, "patient").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_1_pods_of_a_node_that_is_gone_go() {
    let server = world().await;
    make_pod(&server, "p", |pod| {
        pod["spec"]["nodeName"] = json!("node-3");
        pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    })
    .await;
    until_running(&server, "p").await;
    nodes(&server).delete("node-3", &DeleteParams::default()).await.unwrap();
    let pod = until(&pods(&server), "p", "removed", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!((super::phase(&pod), pod_condition(&pod, "DisruptionTarget")), ("Failed", "True".to_owned()));
    let condition = pod.status.unwrap().conditions.unwrap();
    let condition = condition.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(condition.reason.as_deref(), Some("DeletionByPodGC"));
    assert_eq!(condition.message.as_deref(), Some("PodGC: node no longer exists"));
    merge(&pods(&server), "p", json!({"metadata": {"finalizers": null}})).await;
    until_gone(&pods(&server), "p").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_1_finished_pods_beyond_the_limit_go() {
    let mut settings = quick(NODES);
    settings.terminated_pods_max = 1;
    let server = Server::with_controllers(settings).await;
    for name in ["a", "b"] {
        make_pod(&server, name, |pod| {
            pod["spec"]["restartPolicy"] = json!("Never");
            pod["metadata"]["annotations"] = json!({"nodes.dogwatch/exit-after": "1ms"});
        })
        .await;
    }
    until_gone(&pods(&server), "a").await;
    until(&pods(&server), "b", "finished", |pod| super::phase(pod) == "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cordoned_nodes_take_no_pods_until_they_are_uncordoned() {
    let server = world().await;
    for node in ["node-1", "node-2", "node-3"] {
        merge(&nodes(&server), node, json!({"spec": {"unschedulable": true}})).await;
        until(&nodes(&server), node, "tainted", |node| taints(node) == ["node.kubernetes.io/unschedulable:NoSchedule"])
            .await;
    }
    make_pod(&server, "p", |_| {}).await;
    until(&pods(&server), "p", "unschedulable", |pod| pod_condition(pod, "PodScheduled") == "False").await;
    merge(&nodes(&server), "node-2", json!({"spec": {"unschedulable": null}})).await;
    assert_eq!(node_of(&until_running(&server, "p").await), "node-2");
}
