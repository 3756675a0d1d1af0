//! Claims and volumes, disruption budgets.

use controllers::{Selection, Settings};
use dogwatch::testing::Server;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

use crate::world::{PATIENCE, until, until_gone};

async fn server(controllers: &str) -> Server {
    let selection = Selection::parse(controllers).unwrap();
    Server::with_controllers(Settings { selection, ..Settings::default() }).await
}

fn api<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), "default")
}

async fn make<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Waits for an event and returns its message.
async fn event(client: &Client, about: &str, reason: &str) -> String {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let events = api::<Event>(client).list(&ListParams::default()).await.unwrap().items;
        let found = events.into_iter().find(|event| {
            event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(about)
        });
        if let Some(event) = found {
            return event.message.unwrap_or_default();
        }
        assert!(tokio::time::Instant::now() < deadline, "no event {reason} about {about}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

const STORAGE: &str = "persistentvolume-binder,pvc-protection,pv-protection";

fn claim(name: &str, class: Option<&str>) -> Value {
    let resources = json!({"requests": {"storage": "1Gi"}});
    json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": class},
    })
}

fn volume(name: &str, policy: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"},
            "persistentVolumeReclaimPolicy": policy,
        },
    })
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn a_claim_takes_a_volume_and_gives_it_back() {
    let server = server(STORAGE).await;
    let client = server.client();
    let (claims, volumes) = (api::<PersistentVolumeClaim>(&client), Api::<PersistentVolume>::all(client.clone()));
    make(&claims, claim("data", Some(""))).await;
    let message = event(&client, "data", "FailedBinding").await;
    assert_eq!(message, "no persistent volumes available for this claim and no storage class is set");
    make(&volumes, volume("kept", "Retain")).await;
    let bound = until(&claims, "data", "bound", |claim| claim_phase(claim) == "Bound").await;
    assert_eq!(bound.spec.as_ref().unwrap().volume_name.as_deref(), Some("kept"));
    assert_eq!(bound.annotations()["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(bound.status.unwrap().capacity.unwrap()["storage"].0, "2Gi");
    let volume = until(&volumes, "kept", "bound", |volume| volume_phase(volume) == "Bound").await;
    let claim_ref = volume.spec.unwrap().claim_ref.unwrap();
    assert_eq!((claim_ref.name.as_deref(), claim_ref.uid), (Some("data"), bound.metadata.uid));
    // Nothing more is written once both are bound.
    let version = claims.get("data").await.unwrap().resource_version();
    make(&claims, claim("other", Some(""))).await;
    event(&client, "other", "FailedBinding").await;
    assert_eq!(claims.get("data").await.unwrap().resource_version(), version);
    // A volume that is bound is protected; one whose claim went is released, and stays.
    volumes.delete("kept", &DeleteParams::default()).await.unwrap();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "data").await;
    until_gone(&volumes, "kept").await;
}

#[tokio::test]
async fn a_released_volume_is_kept_or_deleted_as_it_says() {
    let server = server(STORAGE).await;
    let client = server.client();
    let (claims, volumes) = (api::<PersistentVolumeClaim>(&client), Api::<PersistentVolume>::all(client.clone()));
    for (name, policy) in [("retain", "Retain"), ("delete", "Delete")] {
        make(&volumes, volume(name, policy)).await;
        let mut wanted = claim(name, Some(""));
        wanted["spec"]["volumeName"] = json!(name);
        make(&claims, wanted).await;
        until(&claims, name, "bound", |claim| claim_phase(claim) == "Bound").await;
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until_gone(&volumes, "delete").await;
    until(&volumes, "retain", "released", |volume| volume_phase(volume) == "Released").await;
    // It belongs to the claim that was: another one of that name does not get it.
    let mut again = claim("retain", Some(""));
    again["spec"]["volumeName"] = json!("retain");
    make(&claims, again).await;
    let message = event(&client, "retain", "FailedBinding").await;
    assert_eq!(message, "volume \"retain\" already bound to a different claim.");
}

#[tokio::test]
async fn a_claim_in_use_stays_until_its_pod_is_gone() {
    let server = server(STORAGE).await;
    let client = server.client();
    let (claims, pods) = (api::<PersistentVolumeClaim>(&client), api::<Pod>(&client));
    make(&claims, claim("used", Some(""))).await;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]);
    let spec = json!({"nodeName": "node", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    make(&pods, json!({"metadata": {"name": "user"}, "spec": spec})).await;
    claims.delete("used", &DeleteParams::default()).await.unwrap();
    make(&claims, claim("unused", Some(""))).await;
    claims.delete("unused", &DeleteParams::default()).await.unwrap();
    until_gone(&claims, "unused").await;
    assert!(claims.get("used").await.unwrap().metadata.deletion_timestamp.is_some(), "a pod has it");
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&claims, "used").await;
}

#[tokio::test]
async fn volumes_are_made_at_once_or_for_the_first_consumer() {
    let server = server(STORAGE).await;
    let client = server.client();
    let (claims, volumes) = (api::<PersistentVolumeClaim>(&client), Api::<PersistentVolume>::all(client.clone()));
    let classes = Api::<StorageClass>::all(client.clone());
    for (name, mode) in [("now", "Immediate"), ("later", "WaitForFirstConsumer")] {
        let class = json!({"metadata": {"name": name}, "provisioner": "example.com/disks", "volumeBindingMode": mode});
        make(&classes, class).await;
    }
    make(&claims, claim("immediate", Some("now"))).await;
    let bound = until(&claims, "immediate", "bound", |claim| claim_phase(claim) == "Bound").await;
    let name = format!("pvc-{}", bound.uid().unwrap());
    assert_eq!(bound.annotations()["volume.kubernetes.io/storage-provisioner"], "example.com/disks");
    let made = volumes.get(&name).await.unwrap();
    assert_eq!(made.annotations()["pv.kubernetes.io/provisioned-by"], "example.com/disks");
    assert_eq!(made.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
    make(&claims, claim("waiting", Some("later"))).await;
    let message = event(&client, "waiting", "WaitForFirstConsumer").await;
    assert_eq!(message, "waiting for first consumer to be created before binding");
    assert_eq!(claim_phase(&claims.get("waiting").await.unwrap()), "Pending");
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node"}}});
    claims.patch("waiting", &PatchParams::default(), &Patch::Merge(selected)).await.unwrap();
    until(&claims, "waiting", "bound", |claim| claim_phase(claim) == "Bound").await;
    make(&claims, claim("classless", Some("no-such"))).await;
    let message = event(&client, "classless", "ProvisioningFailed").await;
    assert_eq!(message, "storageclass.storage.k8s.io \"no-such\" not found");
    // A volume that was provisioned for a claim is deleted with it.
    claims.delete("immediate", &DeleteParams::default()).await.unwrap();
    until_gone(&volumes, &name).await;
}

fn workload(name: &str, replicas: i32) -> Value {
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    json!({"metadata": {"name": name}, "spec": spec})
}

fn owner<K: Resource<DynamicType = ()>>(object: &K) -> Value {
    json!([{
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": object.meta().name, "uid": object.meta().uid,
        "controller": true,
    }])
}

#[tokio::test]
async fn a_budget_counts_what_its_workload_should_have() {
    let server = server("disruption").await;
    let client = server.client();
    let web: Deployment = make(&api(&client), workload("web", 4)).await;
    let mut set = workload("web-1", 4);
    set["metadata"]["ownerReferences"] = owner(&web);
    let set: ReplicaSet = make(&api(&client), set).await;
    let pods = api::<Pod>(&client);
    for at in 0..4 {
        let pod = json!({
            "metadata": {"name": format!("p{at}"), "labels": {"app": "web"}, "ownerReferences": owner(&set)},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]},
        });
        make(&pods, pod).await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(&format!("p{at}"), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    let budgets = api::<PodDisruptionBudget>(&client);
    let spec = json!({"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}});
    make(&budgets, json!({"metadata": {"name": "half"}, "spec": spec})).await;
    let numbers = |budget: &PodDisruptionBudget| {
        let status = budget.status.clone().unwrap_or_default();
        let some = |number: Option<i32>| number.unwrap_or_default();
        (
            some(status.expected_pods),
            some(status.desired_healthy),
            some(status.current_healthy),
            some(status.disruptions_allowed),
        )
    };
    let budget = until(&budgets, "half", "counted", |budget| numbers(budget) == (4, 2, 4, 2)).await;
    let condition = budget.status.unwrap().conditions.unwrap()[0].clone();
    assert_eq!((condition.type_.as_str(), condition.reason.as_str()), ("DisruptionAllowed", "SufficientPods"));
    // An eviction takes one; the evicted pod is not healthy any more.
    for pod in ["p0", "p1"] {
        pods.evict(pod, &EvictParams::default()).await.unwrap();
    }
    until(&budgets, "half", "used up", |budget| numbers(budget) == (4, 2, 2, 0)).await;
    let refused = pods.evict("p2", &EvictParams::default()).await.unwrap_err();
    assert!(
        refused.to_string().contains("Cannot evict pod as it would violate the pod's disruption budget"),
        "{refused}"
    );
    let budget = budgets.get("half").await.unwrap();
    assert_eq!(budget.status.unwrap().conditions.unwrap()[0].reason, "InsufficientPods");
    make(
        &budgets,
        json!({"metadata": {"name": "none"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}),
    )
    .await;
    assert_eq!(event(&client, "none", "NoPods").await, "No matching pods found");
}
