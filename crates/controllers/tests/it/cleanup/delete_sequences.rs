//! The events of watchers when a Deployment is deleted (12.5). The workload controllers do not run: objects are as they would
//! have left them.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::core::DynamicObject;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

use super::{Watched, make, reference, server};
use crate::world::until_gone;

fn template(replicas: i32) -> Value {
    json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    })
}

fn owned_by<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    let mut owner = reference(owner, true);
    owner["controller"] = json!(true);
    json!([owner])
}

/// A Deployment with two ReplicaSets, one of them history, and two pods that were never scheduled.
struct Stack {
    client: Client,
    deployments: Watched,
    replica_sets: Watched,
    pods: Watched,
}

async fn stack(client: Client) -> Stack {
    let web: Deployment = make(&client, json!({"metadata": {"name": "web"}, "spec": template(2)})).await;
    for (name, replicas) in [("web-1", 0), ("web-2", 2)] {
        let set: ReplicaSet = make(
            &client,
            json!({"metadata": {"name": name, "ownerReferences": owned_by(&web)}, "spec": template(replicas)}),
        )
        .await;
        for pod in 0..replicas {
            let name = format!("{name}-{pod}");
            let pod = json!({
                "metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": owned_by(&set)},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            });
            make::<Pod>(&client, pod).await;
        }
    }
    Stack {
        deployments: Watched::start::<Deployment>(&client).await,
        replica_sets: Watched::start::<ReplicaSet>(&client).await,
        pods: Watched::start::<Pod>(&client).await,
        client,
    }
}

/// Finalizers, and how many owners.
fn say(object: &DynamicObject) -> String {
    let deleting = if object.metadata.deletion_timestamp.is_some() { " deleting" } else { "" };
    format!("[{}] {}{deleting}", object.finalizers().join(","), object.owner_references().len())
}

async fn delete_web(stack: &Stack, params: DeleteParams) {
    let api = Api::<Deployment>::namespaced(stack.client.clone(), "default");
    api.delete("web", &params).await.unwrap();
}

#[tokio::test]
async fn sequence_12_5_background() {
    let server = server("garbagecollector").await;
    let stack = stack(server.client()).await;
    delete_web(&stack, DeleteParams::background()).await;
    assert_eq!(stack.deployments.until_deleted("web", say).await, ["DELETED [] 0"]);
    for set in ["web-1", "web-2"] {
        assert_eq!(stack.replica_sets.until_deleted(set, say).await, ["DELETED [] 1"]);
    }
    for pod in ["web-2-0", "web-2-1"] {
        assert_eq!(stack.pods.until_deleted(pod, say).await, ["MODIFIED [] 1 deleting", "DELETED [] 1 deleting"]);
    }
}

#[tokio::test]
async fn sequence_12_5_foreground() {
    let server = server("garbagecollector").await;
    let stack = stack(server.client()).await;
    delete_web(&stack, DeleteParams::foreground()).await;
    let told = stack.deployments.until_deleted("web", say).await;
    let held = "[foregroundDeletion]";
    assert_eq!(told, [format!("MODIFIED {held} 0 deleting"), format!("DELETED {held} 0 deleting")]);
    // The dependents of the old set are deleted already, so it does not wait.
    assert_eq!(stack.replica_sets.until_deleted("web-1", say).await, ["DELETED [] 1"]);
    let told = stack.replica_sets.until_deleted("web-2", say).await;
    assert_eq!(told, [format!("MODIFIED {held} 1 deleting"), format!("DELETED {held} 1 deleting")]);
    let last = |watched: &Watched, name: &str| -> u64 {
        let events = watched.events.lock();
        let deleted = events.iter().rev().find(|(kind, object)| kind == "DELETED" && object.name_any() == name);
        deleted.unwrap().1.resource_version().unwrap().parse().unwrap()
    };
    for pod in ["web-2-0", "web-2-1"] {
        assert_eq!(stack.pods.until_deleted(pod, say).await, ["MODIFIED [] 1 deleting", "DELETED [] 1 deleting"]);
        assert!(last(&stack.pods, pod) < last(&stack.replica_sets, "web-2"), "pods go first");
    }
    assert!(last(&stack.replica_sets, "web-2") < last(&stack.deployments, "web"));
}

#[tokio::test]
async fn sequence_12_5_orphan() {
    let server = server("garbagecollector").await;
    let stack = stack(server.client()).await;
    delete_web(&stack, DeleteParams::orphan()).await;
    let told = stack.deployments.until_deleted("web", say).await;
    assert_eq!(told, ["MODIFIED [orphan] 0 deleting", "DELETED [orphan] 0 deleting"]);
    for set in ["web-1", "web-2"] {
        assert_eq!(stack.replica_sets.about(set, say), ["MODIFIED [] 0"]);
    }
    let pods = Api::<Pod>::namespaced(stack.client.clone(), "default");
    assert_eq!(pods.list(&Default::default()).await.unwrap().items.len(), 2);
    assert!(stack.pods.events.lock().is_empty(), "pods do not change");
    // The remaining set is deleted like any other.
    let sets = Api::<ReplicaSet>::namespaced(stack.client.clone(), "default");
    sets.delete("web-2", &DeleteParams::background()).await.unwrap();
    until_gone(&pods, "web-2-0").await;
    until_gone(&pods, "web-2-1").await;
}
