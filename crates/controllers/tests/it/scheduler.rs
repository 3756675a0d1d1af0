//! Bindings, and the conditions and events of pods without a node.

use dogwatch::testing::Server;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, PostParams, WatchParams};
use serde_json::json;

use crate::nodes::{
    NODES, Watched, make_pod, merge, node_of, nodes, pod_condition, pods, settings, told, until_open, until_running,
    until_scheduling,
};
use crate::world::{until, until_gone};

async fn world() -> Server {
    let server = Server::with_controllers(settings(NODES)).await;
    until_open(&server, "node-1").await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_1_only_pods_that_want_this_scheduler_are_bound() {
    let server = world().await;
    make_pod(&server, "other", |pod| pod["spec"]["schedulerName"] = json!("other-scheduler")).await;
    make_pod(&server, "gated", |pod| pod["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}])).await;
    make_pod(&server, "usual", |_| {}).await;
    until_running(&server, "usual").await;
    for name in ["other", "gated"] {
        let pod = pods(&server).get(name).await.unwrap();
        assert_eq!(node_of(&pod), "", "{name}");
    }
    merge(&pods(&server), "gated", json!({"spec": {"schedulingGates": []}})).await;
    until_running(&server, "gated").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_2_what_was_decided_counts_before_it_is_written() {
    let mut settings = settings(NODES);
    settings.stages.nodes.capacity.insert("cpu".into(), "1".into());
    let server = Server::with_controllers(settings).await;
    until_open(&server, "node-1").await;
    until_scheduling(&server).await;
    for at in 0..4 {
        make_pod(&server, &format!("p{at}"), |pod| {
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
        })
        .await;
    }
    let name = |at: usize| format!("p{at}");
    until_running(&server, &name(0)).await;
    until_running(&server, &name(1)).await;
    for at in [2, 3] {
        let pod = until(&pods(&server), &name(at), "refused", |p| pod_condition(p, "PodScheduled") == "False").await;
        let message = pod.status.unwrap().conditions.unwrap()[0].message.clone().unwrap();
        assert_eq!(
            message,
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
             0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
    }
    // SC-3: room lets one of those that wait in.
    pods(&server).delete("p0", &DeleteParams::default()).await.unwrap();
    until_gone(&pods(&server), "p0").await;
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    loop {
        let mut bound = 0;
        for at in [2, 3] {
            bound += usize::from(!node_of(&pods(&server).get(&name(at)).await.unwrap()).is_empty());
        }
        if bound == 1 {
            break;
        }
        assert!(bound == 0 && tokio::time::Instant::now() < deadline, "{bound} pods got the room of one");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_9_a_binding_sets_the_node_and_the_condition_in_one_write() {
    let server = world().await;
    // A pod that is refused first has one more write.
    until_open(&server, "node-1").await;
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    make_pod(&server, "p", |_| {}).await;
    until_running(&server, "p").await;
    let bound = &watched.so_far()[1].1;
    assert_eq!(bound["spec"]["nodeName"], "node-1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bound["status"]["conditions"][0]["status"], "True");
    assert_eq!(bound["metadata"]["generation"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_11_sc_12_are_told_as_events() {
    let server = world().await;
    make_pod(&server, "p", |_| {}).await;
    make_pod(&server, "lost", |pod| pod["spec"]["nodeSelector"] = json!({"no": "where"})).await;
    let events = told(&server.client(), "p", 1).await;
    let scheduled = events.iter().find(|event| event.reason.as_deref() == Some("Scheduled")).unwrap();
    assert_eq!(scheduled.type_.as_deref(), Some("Normal"));
    assert_eq!(scheduled.action.as_deref(), Some("Binding"));
    assert_eq!(scheduled.message.as_deref(), Some("Successfully assigned default/p to node-1"));
    assert_eq!(scheduled.reporting_component.as_deref(), Some("default-scheduler"));
    let failed = &told(&server.client(), "lost", 1).await[0];
    assert_eq!((failed.type_.as_deref(), failed.reason.as_deref()), (Some("Warning"), Some("FailedScheduling")));
    assert_eq!(failed.action.as_deref(), Some("Scheduling"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_12_no_nodes_and_then_one() {
    let mut settings = settings(NODES);
    settings.nodes = 0;
    let server = Server::with_controllers(settings).await;
    let watched = Watched::pods(server.client(), WatchParams::default()).await;
    make_pod(&server, "p", |_| {}).await;
    let pod = until(&pods(&server), "p", "refused", |pod| pod_condition(pod, "PodScheduled") == "False").await;
    let condition = &pod.status.unwrap().conditions.unwrap()[0];
    assert_eq!(condition.message.as_deref(), Some("no nodes available to schedule pods"));
    assert_eq!(condition.reason.as_deref(), Some("Unschedulable"));
    let node = json!({"metadata": {"name": "late", "labels": {"nodes.dogwatch/simulated": "true"}}});
    nodes(&server).create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    assert_eq!(node_of(&until_running(&server, "p").await), "late");
    // The condition is written when it changes, not with each attempt.
    let refusals: Vec<String> = watched
        .so_far()
        .iter()
        .filter(|(_, pod)| pod["status"]["conditions"][0]["status"] == "False")
        .filter_map(|(_, pod)| pod["status"]["conditions"][0]["message"].as_str().map(str::to_owned))
        .collect();
    let mut distinct = refusals.clone();
    distinct.dedup();
    assert_eq!(refusals, distinct);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_waited_for() {
    let server = world().await;
    let with_claim = |pod: &mut serde_json::Value| {
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    };
    make_pod(&server, "p", with_claim).await;
    let refused = |text: &'static str| {
        let api = pods(&server);
        async move {
            until(&api, "p", text, |pod| {
                let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
                conditions.iter().any(|c| c.message.as_deref().is_some_and(|message| message.contains(text)))
            })
            .await
        }
    };
    refused("0/1 nodes are available: persistentvolumeclaim \"data\" not found. ").await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(server.client(), "default");
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    refused("pod has unbound immediate PersistentVolumeClaims").await;
    merge(&claims, "data", json!({"spec": {"volumeName": "pv"}})).await;
    let bound = kube::api::Patch::Merge(json!({"status": {"phase": "Bound"}}));
    claims.patch_status("data", &kube::api::PatchParams::default(), &bound).await.unwrap();
    until_running(&server, "p").await;
}
