//! A process that is killed between two of its writes, server and controllers together: the next one on the same store ends
//! where it would have ended.
//!
//! The writes of many controllers have no fixed order, so that each run is killed in another place. By default some numbers of
//! writes are tried; `KILLS_STEP=1 cargo test … killed_after` tries every one.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use controllers::settings::Timing;
use controllers::{Settings, Stages};
use dogwatch::testing::{Controllers, Server};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Endpoints, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::memory::MemoryStore;
use store::{ListQuery, Prefix, Retention, Store};
use testkit::killable_store::KillableStore;
use tokio::runtime::Runtime;

use crate::world::PATIENCE;

const NAMESPACE: &str = "work";
const DEFINITION: &str = "things.example.com";

/// A server and its controllers, on a view of the store that dies.
struct Process {
    server: Server,
    store: Arc<KillableStore>,
    /// Of the controllers, so that a kill ends every task of theirs where it waits.
    runtime: Runtime,
    controllers: Controllers,
}

impl Process {
    async fn start(store: &Arc<dyn Store>) -> Self {
        let timing = Timing {
            namespace_start: Duration::from_millis(20),
            job_batch: Duration::from_millis(20),
            node_check: Duration::from_millis(100),
            ..Timing::default()
        };
        let stages = Stages { events: false, ..Stages::immediate() };
        let settings = Settings { nodes: 2, timing, stages, ..Settings::default() };
        let store = KillableStore::new(Arc::clone(store), usize::MAX);
        let server = Server::start_on(Arc::clone(&store) as _).await;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let controllers = {
            let _inside = runtime.enter();
            server.run_controllers(settings)
        };
        Process { server, store, runtime, controllers }
    }

    fn kill(self) {
        self.store.die_after(0);
        self.runtime.shutdown_background();
        drop(self.controllers);
        drop(self.server);
    }

    fn client(&self) -> Client {
        self.server.client()
    }
}

fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(client: &Client) -> Api<K> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Creates an object unless it exists. A dying server refuses.
async fn create<K>(api: &Api<K>, object: Value) -> Result<(), kube::Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of its kind");
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        created => created.map(|_| ()),
    }
}

async fn delete<K>(api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), kube::Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    match api.delete(name, params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

/// Everything a user asks for.
async fn create_all(client: &Client) -> Result<(), kube::Error> {
    create::<Namespace>(&Api::all(client.clone()), json!({"metadata": {"name": NAMESPACE}})).await?;
    for number in 0..2 {
        let spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"},
            "persistentVolumeReclaimPolicy": "Retain",
        });
        let volume = json!({"metadata": {"name": format!("v{number}")}, "spec": spec});
        create::<PersistentVolume>(&Api::all(client.clone()), volume).await?;
    }
    let template = |app: &str| {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"labels": {"app": app}}, "spec": spec})
    };
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let spec = json!({"replicas": 2, "selector": selector("web"), "template": template("web")});
    create::<Deployment>(&api(client), json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    create::<Service>(&api(client), json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let mut ending = template("job");
    ending["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({"completions": 2, "parallelism": 2, "template": ending});
    create::<Job>(&api(client), json!({"metadata": {"name": "job"}, "spec": spec})).await?;
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let spec = json!({
        "replicas": 2, "serviceName": "db", "selector": selector("db"), "template": template("db"),
        "volumeClaimTemplates": [claim],
    });
    create::<StatefulSet>(&api(client), json!({"metadata": {"name": "db"}, "spec": spec})).await?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        },
    });
    create::<CustomResourceDefinition>(&Api::all(client.clone()), definition).await
}

async fn delete_all(client: &Client) -> Result<(), kube::Error> {
    delete::<Deployment>(&api(client), "web", &DeleteParams::foreground()).await?;
    delete::<Job>(&api(client), "job", &DeleteParams::background()).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    delete(&definitions, DEFINITION, &DeleteParams::default()).await?;
    delete::<Namespace>(&Api::all(client.clone()), NAMESPACE, &DeleteParams::default()).await
}

async fn all<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    Ok(api::<K>(client).list(&ListParams::default()).await?.items)
}

/// What is not yet as the objects of [`create_all`] want it.
async fn missing(client: &Client) -> Result<Vec<String>, kube::Error> {
    let mut missing = Vec::new();
    let (sets, jobs) = (all::<ReplicaSet>(client).await?, all::<Job>(client).await?);
    let (stateful, pods) = (all::<StatefulSet>(client).await?, all::<Pod>(client).await?);
    let owners: Vec<Option<String>> = sets
        .iter()
        .map(ResourceExt::uid)
        .chain(jobs.iter().map(ResourceExt::uid))
        .chain(stateful.iter().map(ResourceExt::uid))
        .collect();
    for pod in &pods {
        let owner = pod.owner_references().first().map(|owner| owner.uid.clone());
        if !owners.contains(&owner) {
            missing.push(format!("{} has no owner", pod.name_any()));
        }
        if pod.metadata.deletion_timestamp.is_some() {
            missing.push(format!("{} is being deleted", pod.name_any()));
        }
    }
    for (app, phase) in [("web", "Running"), ("db", "Running"), ("job", "Succeeded")] {
        let of_app = |pod: &&Pod| pod.labels().get("app").is_some_and(|label| label == app);
        let in_phase = |pod: &&Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some(phase));
        let (there, ready) = (pods.iter().filter(of_app).count(), pods.iter().filter(of_app).filter(in_phase).count());
        if (there, ready) != (2, 2) {
            missing.push(format!("{there} pods of {app}, {ready} {phase}"));
        }
    }
    if sets.len() != 1 {
        missing.push(format!("{} replica sets", sets.len()));
    }
    let succeeded = jobs.first().and_then(|job| job.status.as_ref()).map(|status| {
        (
            status.succeeded,
            status.completion_time.is_some(),
            status.uncounted_terminated_pods.clone().unwrap_or_default(),
        )
    });
    if succeeded != Some((Some(2), true, Default::default())) {
        missing.push(format!("the job: {succeeded:?}"));
    }
    if pods.iter().any(|pod| pod.finalizers().iter().any(|name| name == "batch.kubernetes.io/job-tracking")) {
        missing.push("a pod is held by its job".to_owned());
    }
    let claims = all::<PersistentVolumeClaim>(client).await?;
    let bound = |claim: &&PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    if (claims.len(), claims.iter().filter(bound).count()) != (2, 2) {
        missing.push(format!("{} claims", claims.len()));
    }
    let deployment = api::<Deployment>(client).get_opt("web").await?.and_then(|deployment| deployment.status);
    if deployment.is_none_or(|status| status.available_replicas != Some(2) || status.replicas != Some(2)) {
        missing.push("the deployment is not complete".to_owned());
    }
    let endpoints = api::<Endpoints>(client).get_opt("web").await?.and_then(|endpoints| endpoints.subsets);
    let addresses = endpoints.into_iter().flatten().flat_map(|subset| subset.addresses.unwrap_or_default()).count();
    if addresses != 2 {
        missing.push(format!("{addresses} addresses"));
    }
    Ok(missing)
}

/// The keys that the deletion of the namespace and the definition should have removed.
async fn left(store: &dyn Store) -> Vec<String> {
    let listed = store.list(ListQuery::prefix(Prefix::new(""))).await.expect("a memory store can be read");
    let keys = listed.entries.iter().map(|entry| entry.key.to_string());
    let within = format!("/{NAMESPACE}");
    keys.filter(|key| key.ends_with(&within) || key.contains(&format!("{within}/")) || key.ends_with(DEFINITION))
        .collect()
}

async fn until_empty<E: Debug>(what: &str, look: impl AsyncFn() -> Result<Vec<String>, E>) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = look().await;
        if matches!(&found, Ok(found) if found.is_empty()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Numbers of writes after which to kill.
fn kills(default_step: usize) -> impl Iterator<Item = usize> {
    let step = std::env::var("KILLS_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(default_step);
    (1..).step_by(step)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_after_any_write_while_it_builds_ends_complete() {
    for writes in kills(17) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
        let process = Process::start(&store).await;
        process.store.die_after(writes);
        let client = process.client();
        // A dead server refuses; the user tries again with the next one.
        let survived = async {
            let _ = create_all(&client).await;
            while !process.store.is_dead() {
                if matches!(missing(&client).await.as_deref(), Ok([])) {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            false
        };
        let survived = tokio::time::timeout(PATIENCE, survived).await.expect("it is complete, or dead");
        process.kill();
        let process = Process::start(&store).await;
        create_all(&process.client()).await.expect("the server lives");
        until_empty(&format!("killed after {writes} writes"), async || missing(&process.client()).await).await;
        process.kill();
        if survived {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_after_any_write_while_it_cleans_up_leaves_nothing() {
    for writes in kills(9) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
        let process = Process::start(&store).await;
        let client = process.client();
        create_all(&client).await.expect("the server lives");
        until_empty("before the kill", async || missing(&client).await).await;
        process.store.die_after(writes);
        let _ = delete_all(&client).await;
        let survived = async {
            while !process.store.is_dead() {
                if left(&*store).await.is_empty() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            false
        };
        let survived = tokio::time::timeout(PATIENCE, survived).await.expect("it is gone, or dead");
        process.kill();
        let process = Process::start(&store).await;
        delete_all(&process.client()).await.expect("the server lives");
        let look = async || Ok::<_, std::convert::Infallible>(left(&*store).await);
        until_empty(&format!("killed after {writes} writes"), look).await;
        process.kill();
        if survived {
            return;
        }
    }
}
