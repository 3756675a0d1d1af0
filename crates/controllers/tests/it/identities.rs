//! Every program acts as its own user, within the role that Kubernetes gives it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use controllers::Settings;
use dogwatch::testing::{Entry, Server};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::{PATIENCE, until, until_gone};

type Seen = Arc<Mutex<BTreeSet<(String, String)>>>;

/// Collects who did what: `("system:kube-scheduler", "create pods/binding")`.
fn collect(server: &Server) -> Seen {
    let (seen, mut events) = (Seen::default(), server.audit());
    let collected = seen.clone();
    tokio::spawn(async move {
        while let Some(entry) = events.next_entry().await {
            let Entry::Event(line) = entry else { continue };
            let event: Value = serde_json::from_slice(&line).expect("an event is JSON");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let about = &event["objectRef"];
            let mut action = format!("{} {}", text(&event["verb"]), text(&about["resource"]));
            if let Some(subresource) = about["subresource"].as_str() {
                action = format!("{action}/{subresource}");
            }
            collected.lock().insert((text(&event["user"]["username"]), action));
        }
    });
    seen
}

async fn create<K>(client: &Client, namespace: &str, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("the object is of its kind");
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &object).await.expect("the object is created");
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn workload(name: &str, more: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name)},
    });
    for (member, value) in more.as_object().into_iter().flatten() {
        object["spec"][member] = value.clone();
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn az_109_az_112_every_program_acts_as_its_own_user_within_its_role() {
    let server = Server::start().await;
    let seen = collect(&server);
    let mut settings = Settings { nodes: 2, ..Settings::default() };
    settings.timing.namespace_start = Duration::from_millis(50);
    let _controllers = server.run_controllers(settings);
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let shop: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    namespaces.create(&PostParams::default(), &shop).await.unwrap();
    create::<Deployment>(&client, "shop", workload("web", json!({"replicas": 2}))).await;
    create::<StatefulSet>(&client, "shop", workload("db", json!({"replicas": 1, "serviceName": "db"}))).await;
    create::<DaemonSet>(&client, "shop", workload("agent", json!({}))).await;
    let mut pod = template("task");
    pod["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "task"}, "spec": {"template": pod, "ttlSecondsAfterFinished": 0}});
    create::<Job>(&client, "shop", job).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    create::<Service>(&client, "shop", service).await;
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    create::<PodDisruptionBudget>(&client, "shop", budget).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaler =
        json!({"metadata": {"name": "web"}, "spec": {"minReplicas": 3, "maxReplicas": 4, "scaleTargetRef": target}});
    create::<HorizontalPodAutoscaler>(&client, "shop", scaler).await;
    let claim = json!({
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create::<PersistentVolumeClaim>(&client, "shop", claim).await;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    let ready =
        |deployment: &Deployment| deployment.status.as_ref().and_then(|status| status.ready_replicas) == Some(3);
    until(&deployments, "web", "scaled and ready", ready).await;
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "shop");
    until(&sets, "db", "ready", |set| set.status.as_ref().and_then(|status| status.ready_replicas) == Some(1)).await;
    let agents: Api<DaemonSet> = Api::namespaced(client.clone(), "shop");
    until(&agents, "agent", "ready", |set| set.status.as_ref().is_some_and(|status| status.number_ready == 2)).await;
    until_gone(&Api::<Job>::namespaced(client.clone(), "shop"), "task").await;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "shop");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let count = |slice: &EndpointSlice| slice.endpoints.as_ref().map_or(0, Vec::len);
    while slices.list(&Default::default()).await.unwrap().items.iter().all(|slice| count(slice) < 3) {
        assert!(tokio::time::Instant::now() < deadline, "the service has no endpoints");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    until_gone(&namespaces, "shop").await;

    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let node = |number: usize| format!("system:node:node-{number}");
    let expected = [
        (account("deployment-controller"), "create replicasets"),
        (account("deployment-controller"), "update deployments/status"),
        (account("replicaset-controller"), "create pods"),
        (account("statefulset-controller"), "create pods"),
        (account("daemon-set-controller"), "create pods"),
        (account("job-controller"), "create pods"),
        (account("ttl-after-finished-controller"), "delete jobs"),
        (account("horizontal-pod-autoscaler"), "update deployments/scale"),
        (account("disruption-controller"), "update poddisruptionbudgets/status"),
        (account("endpointslice-controller"), "create endpointslices"),
        (account("endpoint-controller"), "create endpoints"),
        (account("service-account-controller"), "create serviceaccounts"),
        (account("root-ca-cert-publisher"), "create configmaps"),
        (account("pvc-protection-controller"), "update persistentvolumeclaims"),
        (account("namespace-controller"), "deletecollection pods"),
        (account("namespace-controller"), "update namespaces/finalize"),
        ("system:kube-scheduler".to_owned(), "create pods/binding"),
        ("system:kube-controller-manager".to_owned(), "watch pods"),
        (node(1), "create nodes"),
        (node(1), "patch pods/status"),
        (node(2), "create leases"),
        (node(2), "create events"),
    ];
    let expected: BTreeSet<_> = expected.into_iter().map(|(user, action)| (user, action.to_owned())).collect();
    // A request is recorded after its effect can be seen, so the last ones may still be missing.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !expected.is_subset(&seen.lock()) {
        let missing: Vec<_> = expected.difference(&seen.lock()).cloned().collect();
        assert!(tokio::time::Instant::now() < deadline, "not done: {missing:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = seen.lock().clone();
    let unknown: Vec<_> = seen.iter().filter(|(user, _)| user == "system:apiserver").collect();
    assert!(unknown.is_empty(), "no program acts beyond its role: {unknown:?}");
    assert!(server.refusals().is_empty(), "{:?}", server.refusals());
}
