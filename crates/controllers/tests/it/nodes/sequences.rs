//! The events of a watcher of pods, one by one (section 12.1).

use controllers::Stages;
use controllers::nodes::stages::Profile;
use dogwatch::testing::Server;
use kube::api::{DeleteParams, WatchParams};
use serde_json::{Value, json};

use super::{
    NODES, Watched, make_pod, merge, nodes, pod_condition, pods, settings, taints, told, until_open, until_running,
    until_scheduling,
};
use crate::world::until;

/// The difference of each event from the one before, in a few words.
fn story(events: &[(String, Value)]) -> Vec<String> {
    events
        .iter()
        .map(|(kind, pod)| {
            let mut words = vec![kind.clone(), pod["status"]["phase"].as_str().unwrap_or_default().to_owned()];
            words.extend(pod["spec"]["nodeName"].as_str().map(|_| "bound".to_owned()));
            let state = &pod["status"]["containerStatuses"][0]["state"];
            words.extend(state["waiting"]["reason"].as_str().map(str::to_owned));
            words.extend(state["terminated"]["reason"].as_str().map(str::to_owned));
            words.extend(pod["status"]["podIP"].as_str().map(|_| "ip".to_owned()));
            let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ready = conditions.iter().find(|c| c["type"] == "Ready").and_then(|c| c["status"].as_str());
            words.extend(ready.map(|ready| format!("ready={ready}")));
            let grace = &pod["metadata"]["deletionGracePeriodSeconds"];
            words.extend(grace.as_i64().map(|grace| format!("grace={grace}")));
            words.push(format!("gen={}", pod["metadata"]["generation"]));
            words.join(" ")
        })
        .collect()
}

async fn world(stages: Stages) -> Server {
    let mut settings = settings(NODES);
    settings.stages = stages;
    let server = Server::with_controllers(settings).await;
    until_open(&server, "node-1").await;
    until_scheduling(&server).await;
    server
}

async fn run_and_delete(server: &Server, how: DeleteParams) -> Vec<(String, Value)> {
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    make_pod(server, "p", |_| {}).await;
    until_running(server, "p").await;
    pods(server).delete("p", &how).await.unwrap();
    watched.until("DELETED").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_of_one_pod() {
    let server = world(Stages::immediate()).await;
    let events = run_and_delete(&server, DeleteParams::default()).await;
    assert_eq!(
        story(&events),
        [
            "ADDED Pending gen=1",
            "MODIFIED Pending bound gen=1",
            "MODIFIED Pending bound ContainerCreating ready=False gen=1",
            "MODIFIED Running bound ip ready=True gen=1",
            "MODIFIED Running bound ip ready=True grace=30 gen=2",
            "MODIFIED Succeeded bound Completed ip ready=False grace=30 gen=2",
            "MODIFIED Succeeded bound Completed ip ready=False grace=0 gen=2",
            "DELETED Succeeded bound Completed ip ready=False grace=0 gen=2",
        ]
    );
    let (first, bound) = (&events[0].1, &events[1].1);
    assert!(first["status"].get("conditions").is_none(), "{first}");
    assert_eq!(first["status"]["qosClass"], "BestEffort");
    let conditions = bound["status"]["conditions"].as_array().unwrap();
    assert_eq!((conditions.len(), &conditions[0]["type"]), (1, &json!("PodScheduled")));
    let kinds = |pod: &Value| -> Vec<String> {
        let all = pod["status"]["conditions"].as_array().unwrap();
        all.iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect()
    };
    let order = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    assert_eq!(kinds(&events[2].1), order);
    assert_eq!(events[2].1["status"]["observedGeneration"], 1);
    let version = |at: usize| -> u64 { events[at].1["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap() };
    assert!((1..events.len()).all(|at| version(at - 1) < version(at)));
    let deleted = |at: usize| events[at].1["metadata"]["deletionTimestamp"].as_str().unwrap().to_owned();
    assert!(deleted(6) <= deleted(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_on_fast_nodes() {
    let server = world(Stages { profile: Profile::Fast, ..Stages::immediate() }).await;
    let events = run_and_delete(&server, DeleteParams::default()).await;
    assert_eq!(
        story(&events),
        [
            "ADDED Pending gen=1",
            "MODIFIED Pending bound gen=1",
            "MODIFIED Running bound ip ready=True gen=1",
            "MODIFIED Running bound ip ready=True grace=30 gen=2",
            "MODIFIED Running bound ip ready=True grace=0 gen=2",
            "DELETED Running bound ip ready=True grace=0 gen=2",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_by_force() {
    let server = world(Stages::immediate()).await;
    let events = run_and_delete(&server, DeleteParams::default().grace_period(0)).await;
    let end = [
        "MODIFIED Running bound ip ready=True gen=1",
        "MODIFIED Running bound ip ready=True grace=0 gen=2",
        "DELETED Running bound ip ready=True grace=0 gen=2",
    ];
    assert_eq!(story(&events)[3..], end);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_of_a_pod_that_finds_no_node_at_first() {
    let server = world(Stages::immediate()).await;
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    make_pod(&server, "p", |pod| pod["spec"]["nodeSelector"] = json!({"disk": "ssd"})).await;
    until(&pods(&server), "p", "unschedulable", |pod| pod_condition(pod, "PodScheduled") == "False").await;
    // Nothing else happens to it while nothing changes.
    merge(&nodes(&server), "node-1", json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    until_running(&server, "p").await;
    let events = watched.so_far();
    assert_eq!(
        story(&events)[..4],
        [
            "ADDED Pending gen=1",
            "MODIFIED Pending gen=1",
            "MODIFIED Pending bound gen=1",
            "MODIFIED Pending bound ContainerCreating ready=False gen=1",
        ]
    );
    let condition = &events[1].1["status"]["conditions"][0];
    assert_eq!(condition["reason"], "Unschedulable");
    assert_eq!(
        condition["message"],
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, \
         preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    assert_eq!(events[2].1["status"]["conditions"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_of_a_pod_deleted_before_it_has_a_node() {
    let server = world(Stages::immediate()).await;
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    make_pod(&server, "p", |pod| pod["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}])).await;
    pods(&server).delete("p", &DeleteParams::default()).await.unwrap();
    let events = watched.until("DELETED").await;
    let expected = ["ADDED Pending gen=1", "MODIFIED Pending grace=0 gen=2", "DELETED Pending grace=0 gen=2"];
    assert_eq!(story(&events), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_with_a_finalizer() {
    let server = world(Stages::immediate()).await;
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    make_pod(&server, "p", |pod| pod["metadata"]["finalizers"] = json!(["example.com/hold"])).await;
    until_running(&server, "p").await;
    pods(&server).delete("p", &DeleteParams::default()).await.unwrap();
    until(&pods(&server), "p", "stopped and held", |pod| pod.metadata.deletion_grace_period_seconds == Some(0)).await;
    merge(&pods(&server), "p", json!({"metadata": {"finalizers": null}})).await;
    let events = watched.until("DELETED").await;
    let end = [
        "MODIFIED Succeeded bound Completed ip ready=False grace=30 gen=2",
        "MODIFIED Succeeded bound Completed ip ready=False grace=0 gen=2",
        "DELETED Succeeded bound Completed ip ready=False grace=0 gen=2",
    ];
    assert_eq!(story(&events)[5..], end);
    assert_eq!(events[7].1["metadata"]["finalizers"], json!(["example.com/hold"]), "DE-6");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_for_watchers_with_selectors() {
    let server = world(Stages::immediate()).await;
    let here = Watched::pods(server.client(), WatchParams::default().fields("spec.nodeName=node-1")).await;
    let pending = Watched::pods(server.client(), WatchParams::default().fields("status.phase=Pending")).await;
    make_pod(&server, "p", |_| {}).await;
    until_running(&server, "p").await;
    let left = pending.until("DELETED").await;
    let expected = [
        "ADDED Pending gen=1",
        "MODIFIED Pending bound gen=1",
        "MODIFIED Pending bound ContainerCreating ready=False gen=1",
        "DELETED Pending bound ContainerCreating ready=False gen=1",
    ];
    assert_eq!(story(&left), expected, "what leaves the selection shows its last state within it");
    let running = until(&pods(&server), "p", "there", |_| true).await;
    assert_eq!(left[3].1["metadata"]["resourceVersion"].as_str(), running.metadata.resource_version.as_deref());
    assert_eq!(story(&here.so_far())[0], "ADDED Pending bound gen=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequence_12_1_is_told_as_events_in_order() {
    let server = world(Stages::immediate()).await;
    run_and_delete(&server, DeleteParams::default()).await;
    let events = told(&server.client(), "p", 6).await;
    let mut lines: Vec<String> = events
        .iter()
        .map(|e| {
            let who = e.reporting_component.clone().unwrap_or_default();
            format!("{who} {}: {}", e.reason.clone().unwrap_or_default(), e.message.clone().unwrap_or_default())
        })
        .collect();
    // Two programs write them; each in its own order.
    lines.sort_by_key(|line| !line.starts_with("default-scheduler"));
    assert_eq!(
        lines,
        [
            "default-scheduler Scheduled: Successfully assigned default/p to node-1",
            "kubelet Pulling: Pulling image \"nginx\"",
            "kubelet Pulled: Successfully pulled image \"nginx\" in 0s (0s including waiting). Image size: 0 bytes.",
            "kubelet Created: Container created",
            "kubelet Started: Container started",
            "kubelet Killing: Stopping container c",
        ]
    );
    let pulling = events.iter().find(|event| event.reason.as_deref() == Some("Pulling")).unwrap();
    assert_eq!(pulling.involved_object.field_path.as_deref(), Some("spec.containers{c}"));
    assert_eq!(pulling.source.as_ref().unwrap().host.as_deref(), Some("node-1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_are_named_as_on_a_real_cluster() {
    let server = world(Stages::immediate()).await;
    make_pod(&server, "lost", |pod| pod["spec"]["nodeSelector"] = json!({"no": "where"})).await;
    let lost = until(&pods(&server), "lost", "unschedulable", |p| pod_condition(p, "PodScheduled") == "False").await;
    make_pod(&server, "p", |_| {}).await;
    let pod = until_running(&server, "p").await;
    merge(&nodes(&server), "node-1", json!({"spec": {"unschedulable": true}})).await;
    let node = until(&nodes(&server), "node-1", "tainted", |node| !taints(node).is_empty()).await;
    let managers = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| -> Vec<String> {
        meta.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone()).collect()
    };
    assert!(managers(&lost.metadata).contains(&"kube-scheduler".to_owned()), "{:?}", managers(&lost.metadata));
    assert!(managers(&pod.metadata).contains(&"kubelet".to_owned()), "{:?}", managers(&pod.metadata));
    let of_node = managers(&node.metadata);
    assert!(of_node.contains(&"kubelet".to_owned()), "{of_node:?}");
    assert!(of_node.contains(&"kube-controller-manager".to_owned()), "{of_node:?}");
}
