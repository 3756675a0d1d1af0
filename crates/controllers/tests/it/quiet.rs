//! Objects that can never be finished are left alone: no controller writes the same object again and again without a change.
//!
//! All controllers run, since it takes two to keep each other awake.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use controllers::Settings;
use dogwatch::testing::Server;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, ReplicationController, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::workloads::stage::{Recording, Stage, until};
use crate::world;

/// Time of the observation. A loop without a pause writes hundreds of times meanwhile.
const LOOKED: Duration = Duration::from_secs(5);
/// How often an object may be written from its creation to the end of that: what is refused is tried again ever more slowly,
/// eleven times in the first five seconds.
const WRITES: usize = 20;

async fn all_controllers() -> Stage {
    let server = Server::with_controllers(Settings { nodes: 2, ..Settings::default() }).await;
    let stage = Stage::on(server);
    world::until(&stage.api::<ServiceAccount>(), "default", "there", |_| true).await;
    stage
}

fn pods_of(template: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (name, field) in template.as_object().unwrap() {
        spec[name] = field.clone();
    }
    json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
    })
}

/// Number of writes of each object.
fn writes<K>(recording: &Recording<K>) -> BTreeMap<String, usize>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut counts = BTreeMap::new();
    for (_, object) in recording.seen() {
        *counts.entry(format!("{} {}", K::kind(&()), object.name_any())).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_finished_is_not_written_for_ever() {
    let stage = all_controllers().await;
    let (deployments, sets, pods) =
        (stage.record::<Deployment>().await, stage.record::<ReplicaSet>().await, stage.record::<Pod>().await);
    let (stateful, jobs) = (stage.record::<StatefulSet>().await, stage.record::<Job>().await);
    let (maps, events) = (stage.record::<ConfigMap>().await, stage.record::<Event>().await);

    // Pods that no node takes.
    let nowhere = || pods_of(json!({"nodeSelector": {"no": "where"}}));
    stage.create::<Deployment>(json!({"metadata": {"name": "nowhere"}, "spec": nowhere()})).await;
    stage.create::<StatefulSet>(json!({"metadata": {"name": "nowhere"}, "spec": nowhere()})).await;
    let mut job = json!({"metadata": {"name": "nowhere"}, "spec": {"template": nowhere()["template"]}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    stage.create::<Job>(job).await;
    // Pods that the server does not take.
    let refused = pods_of(json!({"serviceAccountName": "nobody"}));
    stage.create::<Deployment>(json!({"metadata": {"name": "refused"}, "spec": refused})).await;
    // Two that own each other.
    let owned_by = |owner: &ConfigMap| {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "blockOwnerDeletion": true});
        json!({"metadata": {"ownerReferences": [owner]}})
    };
    let first: ConfigMap = stage.create(json!({"metadata": {"name": "first"}})).await;
    let mut second = owned_by(&first);
    second["metadata"]["name"] = json!("second");
    let second: ConfigMap = stage.create(second).await;
    let circle = Patch::Merge(owned_by(&second));
    stage.api::<ConfigMap>().patch("first", &PatchParams::default(), &circle).await.unwrap();
    // Deleted, but held by a finalizer that no controller removes: one alone, and one whose owner waits for it.
    let held = json!({"name": "held", "finalizers": ["example.com/nobody"]});
    let held: ConfigMap = stage.create(json!({ "metadata": held })).await;
    stage.delete::<ConfigMap>("held", &DeleteParams::default()).await;
    let owner: ConfigMap = stage.create(json!({"metadata": {"name": "owner"}})).await;
    let mut waited_for = owned_by(&owner);
    waited_for["metadata"]["name"] = json!("waited-for");
    waited_for["metadata"]["finalizers"] = json!(held.finalizers());
    stage.create::<ConfigMap>(waited_for).await;
    stage.delete::<ConfigMap>("owner", &DeleteParams::foreground()).await;

    // All of them are under way.
    until("pods that are refused by the scheduler", async || {
        let waiting = stage.active().await.into_iter().filter(|pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        });
        (waiting.count() == 3).then_some(())
    })
    .await;
    tokio::time::sleep(LOOKED).await;

    let mut all = writes(&deployments);
    for more in [writes(&sets), writes(&pods), writes(&stateful), writes(&jobs), writes(&maps), writes(&events)] {
        all.extend(more);
    }
    let expected = ["Deployment nowhere", "Deployment refused", "ConfigMap first", "ConfigMap held", "ConfigMap owner"];
    assert!(expected.iter().all(|name| all.contains_key(*name)), "everything was seen: {all:#?}");
    let restless: Vec<_> = all.iter().filter(|(_, count)| **count > WRITES).collect();
    assert!(restless.is_empty(), "written again and again: {restless:#?} of {all:#?}");
}

async fn is_refused<K>(stage: &Stage, mut spec: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    if K::kind(&()) == "ReplicationController" {
        spec["selector"] = json!({"app": "other"});
    } else {
        spec["selector"] = json!({"matchLabels": {"app": "other"}});
    }
    let object: K = serde_json::from_value(json!({"metadata": {"name": "stranger"}, "spec": spec})).unwrap();
    let api: Api<K> = stage.api();
    let refusal = api.create(&PostParams::default(), &object).await;
    assert!(matches!(&refusal, Err(kube::Error::Api(status)) if status.code == 422), "{refusal:?}");
}

/// Such a set would make pods for ever, none of which it would count.
#[tokio::test]
async fn a_selector_that_does_not_match_its_template_is_refused() {
    let stage = Stage::with("deployment").await;
    let spec = || pods_of(json!({}));
    is_refused::<Deployment>(&stage, spec()).await;
    is_refused::<ReplicaSet>(&stage, spec()).await;
    is_refused::<StatefulSet>(&stage, spec()).await;
    is_refused::<DaemonSet>(&stage, spec()).await;
    is_refused::<ReplicationController>(&stage, spec()).await;
}
