//! The agents of simulated nodes: leases, addresses, restarts, whose pods they touch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use controllers::Stages;
use dogwatch::testing::Server;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use store::Retention;
use store::memory::MemoryStore;

use super::{
    NODES, make_pod, merge, node_condition, node_of, nodes, phase, pod_condition, pods, settings, told_of, until_open,
    until_running,
};
use crate::between::{Between, Turn};
use crate::world::{until, until_gone};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_4_a_node_has_a_lease_and_renews_it() {
    let mut settings = settings(NODES);
    settings.timing.node_lease_renew = Duration::from_millis(500);
    let server = Server::with_controllers(settings).await;
    let node = until_open(&server, "node-1").await;
    let leases: Api<Lease> = Api::namespaced(server.client(), "kube-node-lease");
    let lease = until(&leases, "node-1", "there", |_| true).await;
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("node-1"), Some(2)));
    let owner = &lease.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Node", node.metadata.uid.as_ref()));
    until(&leases, "node-1", "renewed", |lease| lease.spec.as_ref().unwrap().renew_time > spec.renew_time).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_4_the_lease_of_a_real_node_is_for_forty_seconds() {
    let server = Server::with_controllers(settings(NODES)).await;
    let leases: Api<Lease> = Api::namespaced(server.client(), "kube-node-lease");
    let lease = until(&leases, "node-1", "there", |_| true).await;
    assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_6_of_several_agents_one_acts_and_another_takes_over() {
    let server = Server::start().await;
    let candidate = |name: &str| {
        let mut settings = settings(NODES);
        (settings.elect, settings.identity) = (true, name.to_owned());
        settings
    };
    let first = server.run_controllers(candidate("first"));
    until_open(&server, "node-1").await;
    let second = server.run_controllers(candidate("second"));
    let locks: Api<Lease> = Api::namespaced(server.client(), "kube-system");
    let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    assert_eq!(holder(&until(&locks, "kube-controller-manager", "held", |_| true).await), "first");
    first.stop().await;
    until(&locks, "kube-controller-manager", "taken over", |lease| holder(lease) == "second").await;
    make_pod(&server, "p", |_| {}).await;
    until_running(&server, "p").await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_10_no_write_while_nothing_changes() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |_| {}).await;
    let before = until_running(&server, "p").await;
    // Another pod, from its creation to its deletion, as a measure of time.
    make_pod(&server, "q", |_| {}).await;
    until_running(&server, "q").await;
    pods(&server).delete("q", &DeleteParams::default()).await.unwrap();
    until_gone(&pods(&server), "q").await;
    let after = pods(&server).get("p").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_11_what_others_say_about_a_pod_stays() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |pod| pod["spec"]["readinessGates"] = json!([{"conditionType": "example.com/up"}])).await;
    until(&pods(&server), "p", "running", |pod| phase(pod) == "Running").await;
    let patch = json!({"status": {"conditions": [{"type": "example.com/up", "status": "True"}]}});
    let strategic = kube::api::Patch::Strategic(patch);
    pods(&server).patch_status("p", &kube::api::PatchParams::default(), &strategic).await.unwrap();
    let ready = until_running(&server, "p").await;
    assert_eq!(pod_condition(&ready, "example.com/up"), "True");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_12_every_pod_has_its_own_address_also_after_a_restart() {
    let store = Arc::new(MemoryStore::new(Retention::default()));
    let server = Server::with_controllers_on(store.clone(), settings(NODES)).await;
    for at in 0..5 {
        make_pod(&server, &format!("a{at}"), |_| {}).await;
    }
    make_pod(&server, "host", |pod| pod["spec"]["hostNetwork"] = json!(true)).await;
    for at in 0..5 {
        until_running(&server, &format!("a{at}")).await;
    }
    let host = until_running(&server, "host").await.status.unwrap();
    assert_eq!((host.pod_ip.as_deref(), host.host_ip.as_deref()), (Some("172.16.0.1"), Some("172.16.0.1")));
    drop(server);
    let server = Server::with_controllers_on(store, settings(NODES)).await;
    for at in 0..5 {
        make_pod(&server, &format!("b{at}"), |_| {}).await;
    }
    for at in 0..5 {
        until_running(&server, &format!("b{at}")).await;
    }
    let all = pods(&server).list(&ListParams::default()).await.unwrap().items;
    let addresses: BTreeSet<String> = all.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
    assert_eq!(addresses.len(), 11, "{addresses:?}");
    let range = nodes(&server).get("node-1").await.unwrap().spec.unwrap().pod_cidr.unwrap();
    assert_eq!(range, "10.128.0.0/24");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_17_a_node_refuses_a_pod_whose_port_is_taken() {
    let server = Server::with_controllers(settings(NODES)).await;
    until_open(&server, "node-1").await;
    let with_port = |pod: &mut serde_json::Value| {
        pod["spec"]["nodeName"] = json!("node-1");
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    };
    make_pod(&server, "first", with_port).await;
    until_running(&server, "first").await;
    make_pod(&server, "second", with_port).await;
    let refused = until(&pods(&server), "second", "failed", |pod| phase(pod) == "Failed").await.status.unwrap();
    assert_eq!(refused.reason.as_deref(), Some("NodePorts"));
    let message = refused.message.unwrap();
    assert!(message.starts_with("Pod was rejected: Predicate NodePorts failed"), "{message}");
    told_of(&server.client(), "second", "NodePorts").await;
    // Room again: the port is free once the first pod is gone.
    pods(&server).delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&pods(&server), "first").await;
    make_pod(&server, "third", with_port).await;
    until_running(&server, "third").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_14_pods_of_other_nodes_are_left_alone() {
    let server = Server::with_controllers(settings(NODES)).await;
    until_open(&server, "node-1").await;
    let real = serde_json::from_value(json!({"metadata": {"name": "real"}})).unwrap();
    nodes(&server).create(&PostParams::default(), &real).await.unwrap();
    make_pod(&server, "theirs", |pod| pod["spec"]["nodeName"] = json!("real")).await;
    make_pod(&server, "ours", |pod| pod["spec"]["nodeName"] = json!("node-1")).await;
    until_running(&server, "ours").await;
    let theirs = pods(&server).get("theirs").await.unwrap();
    assert_eq!(phase(&theirs), "Pending");
    assert_eq!(theirs.status.unwrap().start_time, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn na_15_of_each_pod_one_step_is_under_way_at_a_time() {
    let server = Server::start().await;
    // Steps take a while, so that a second one would meet the first.
    let between = Between::new(server.client(), |asked| {
        let step = asked.path.contains("/pods/p") && matches!(asked.method.as_str(), "PATCH" | "DELETE");
        if step { Turn::Late(Duration::from_millis(30)) } else { Turn::Pass }
    });
    let _running = between.run(settings(NODES));
    until_open(&server, "node-1").await;
    let names: Vec<String> = (0..8).map(|at| format!("p{at}")).collect();
    for name in &names {
        make_pod(&server, name, |pod| pod["spec"]["nodeName"] = json!("node-1")).await;
    }
    // Every change wakes the agent while a step is on its way.
    for round in 0..10 {
        for name in &names {
            merge(&pods(&server), name, json!({"metadata": {"annotations": {"round": round.to_string()}}})).await;
        }
    }
    for name in &names {
        until_running(&server, name).await;
        pods(&server).delete(name, &DeleteParams::default()).await.unwrap();
        let _ = pods(&server).patch(name, &Default::default(), &kube::api::Patch::Merge(json!({}))).await;
    }
    for name in &names {
        until_gone(&pods(&server), name).await;
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let mut steps: Vec<_> = between
            .asked()
            .into_iter()
            .filter(|asked| asked.path.starts_with(&path) && asked.method != "GET")
            .collect();
        steps.sort_by_key(|step| step.at);
        let lines: Vec<String> = steps.iter().map(|step| step.line().replace(&path, "")).collect();
        assert_eq!(lines, ["PATCH /status", "PATCH /status", "PATCH /status", "DELETE "], "accept, run, stop, remove");
        for pair in steps.windows(2) {
            assert!(pair[0].answered.is_some_and(|answered| answered <= pair[1].at), "{name}: {pair:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pr_6_without_the_lifecycle_controller_nothing_is_scheduled() {
    let server = Server::with_controllers(settings("scheduler,nodes")).await;
    let ready = |node: &k8s_openapi::api::core::v1::Node| node_condition(node, "Ready") == "True";
    let node = until(&nodes(&server), "node-1", "ready", ready).await;
    assert_eq!(super::taints(&node), ["node.kubernetes.io/not-ready:NoSchedule"]);
    make_pod(&server, "p", |_| {}).await;
    let refused = until(&pods(&server), "p", "refused", |pod| pod_condition(pod, "PodScheduled") == "False").await;
    assert_eq!(node_of(&refused), "");
    let _lifecycle = server.run_controllers(settings("nodelifecycle"));
    until_open(&server, "node-1").await;
    until_running(&server, "p").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_ones_own_is_served_once_it_has_the_label() {
    let server = Server::with_controllers(settings(NODES)).await;
    let own = json!({"metadata": {"name": "mine", "labels": {"nodes.dogwatch/simulated": "true"}},
        "status": {"capacity": {"cpu": "1", "memory": "1Gi", "pods": "5"}}});
    nodes(&server).create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
    let node = until_open(&server, "mine").await;
    assert_eq!(node.status.unwrap().allocatable.unwrap()["pods"].0, "5");
    make_pod(&server, "p", |pod| pod["spec"]["nodeName"] = json!("mine")).await;
    let pod = until_running(&server, "p").await;
    assert!(pod.status.unwrap().pod_ip.unwrap().starts_with("10.0.0."), "NA-12: the range of nodes that have none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_no_longer_wanted_go() {
    let store = Arc::new(MemoryStore::new(Retention::default()));
    let mut three = settings(NODES);
    three.nodes = 3;
    let server = Server::with_controllers_on(store.clone(), three).await;
    until_open(&server, "node-3").await;
    drop(server);
    let server = Server::with_controllers_on(store, settings(NODES)).await;
    until_gone(&nodes(&server), "node-3").await;
    until_gone(&nodes(&server), "node-2").await;
    assert_eq!(node_condition(&nodes(&server).get("node-1").await.unwrap(), "Ready"), "True");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_make_a_pod_crash_and_wait() {
    let server = Server::with_controllers(settings(NODES)).await;
    make_pod(&server, "p", |pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/exit-after": "10ms", "nodes.dogwatch/exit-code": "3"});
    })
    .await;
    let pod = until(&pods(&server), "p", "restarted twice", |pod| {
        let containers =
            pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        containers.first().is_some_and(|container| container.restart_count >= 2)
    })
    .await;
    let container = &pod.status.unwrap().container_statuses.unwrap()[0];
    assert_eq!(container.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 3);
    merge(&pods(&server), "p", json!({"metadata": {"annotations": {"nodes.dogwatch/exit-after": "1h"}}})).await;
    until_running(&server, "p").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_spread_over_many_nodes() {
    let mut settings = settings(NODES);
    (settings.nodes, settings.stages) = (12, Stages { events: false, ..Stages::immediate() });
    let server = Server::with_controllers(settings).await;
    for at in 1..=12 {
        until_open(&server, &format!("node-{at}")).await;
    }
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    for at in 0..60 {
        make_pod(&server, &format!("p{at}"), |pod| pod["metadata"]["ownerReferences"] = owner.clone()).await;
    }
    for at in 0..60 {
        until_running(&server, &format!("p{at}")).await;
    }
    let all = pods(&server).list(&ListParams::default()).await.unwrap().items;
    for at in 1..=12 {
        let here = all.iter().filter(|pod| node_of(pod) == format!("node-{at}")).count();
        assert_eq!(here, 5, "node-{at}");
    }
}
