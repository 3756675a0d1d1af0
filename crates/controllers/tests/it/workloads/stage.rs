//! The test fixture: a server with some controllers, pods that the test runs and ends, and recordings of watches.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use controllers::settings::Timing;
use controllers::{Selection, Settings};
use dogwatch::testing::Server;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::world::PATIENCE;

pub(crate) struct Stage {
    /// Runs as long as this lives.
    _server: Server,
    pub(crate) client: Client,
}

impl Stage {
    /// A server with these controllers and nothing else.
    pub(crate) async fn with(controllers: &str) -> Self {
        Self::on(Server::with_controllers(settings(controllers)).await)
    }

    /// On a server that has the controllers it should have.
    pub(crate) fn on(server: Server) -> Self {
        let client = server.client();
        Self { _server: server, client }
    }

    pub(crate) fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + serde::Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).expect("an object of its kind");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("the server takes it")
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("the server takes it")
    }

    pub(crate) async fn delete<K>(&self, name: &str, how: &DeleteParams)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().delete(name, how).await.expect("the server takes it");
    }

    /// All objects of a kind, by name.
    pub(crate) async fn all<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let mut items = self.api::<K>().list(&ListParams::default()).await.expect("the server answers").items;
        items.sort_by_key(ResourceExt::name_any);
        items
    }

    /// Pods that have not ended and are not being deleted.
    pub(crate) async fn active(&self) -> Vec<Pod> {
        let mut pods = self.all::<Pod>().await;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && !matches!(phase(pod), "Succeeded" | "Failed"));
        pods
    }

    /// Waits until there are so many active pods.
    pub(crate) async fn until_active(&self, count: usize) -> Vec<Pod> {
        until(&format!("{count} active pods"), async || {
            let pods = self.active().await;
            (pods.len() == count).then_some(pods)
        })
        .await
    }

    /// Waits until exactly this many objects of a kind satisfy a condition.
    pub(crate) async fn until_count<K>(&self, what: &str, count: usize, holds: impl Fn(&K) -> bool) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        until(what, async || {
            let mut items = self.all::<K>().await;
            items.retain(|item| holds(item));
            (items.len() == count).then_some(items)
        })
        .await
    }

    /// Waits until an object satisfies a condition.
    pub(crate) async fn until<K>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        crate::world::until(&self.api::<K>(), name, what, holds).await
    }

    /// Binds a pod to a node, as a scheduler.
    pub(crate) async fn bind(&self, pod: &str, node: &str) {
        let binding = json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
        let body = serde_json::to_vec(&binding).expect("JSON");
        let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
        let request =
            http::Request::post(path).header("content-type", "application/json").body(body).expect("a request");
        self.client.request::<Value>(request).await.expect("the pod is bound");
    }

    /// Sets the status of a pod, as a node.
    pub(crate) async fn set_status(&self, pod: &str, status: Value) {
        let api = self.api::<Pod>();
        let patch = Patch::Strategic(json!({ "status": status }));
        api.patch_status(pod, &PatchParams::default(), &patch).await.expect("the status is taken");
    }

    /// A pod that was bound is running and ready from now on.
    pub(crate) async fn make_ready(&self, pod: &str) {
        let now = machinery::clock::Clock::system().now().to_string();
        let condition = json!([{"type": "Ready", "status": "True", "lastTransitionTime": now}]);
        self.set_status(pod, json!({"phase": "Running", "conditions": condition})).await;
    }

    /// Scheduler and node for one pod.
    pub(crate) async fn run(&self, pod: &str) {
        self.bind(pod, "n1").await;
        self.make_ready(pod).await;
    }

    /// Runs so many pods that are not running, in the order of their names.
    pub(crate) async fn run_all(&self) {
        for pod in self.active().await {
            if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
                self.run(&pod.name_any()).await;
            }
        }
    }

    /// Ends a pod that is being deleted.
    pub(crate) async fn end(&self, pod: &str) {
        let _ =
            self.api::<Pod>().delete(pod, &DeleteParams::default().grace_period(0)).await.expect("the pod is removed");
    }

    /// The messages of events about an object with this reason, oldest first.
    pub(crate) async fn events(&self, about: &str, reason: &str) -> Vec<String> {
        let mut events = self.all::<Event>().await;
        events.retain(|event| {
            event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
        });
        events.into_iter().map(|event| event.message.unwrap_or_default()).collect()
    }

    /// Waits until there are so many such events.
    pub(crate) async fn until_events(&self, about: &str, reason: &str, count: usize) -> Vec<String> {
        until(&format!("{count} events {reason} about {about}"), async || {
            let events = self.events(about, reason).await;
            (events.len() >= count).then_some(events)
        })
        .await
    }

    /// Records what a watcher of a kind sees from now on.
    pub(crate) async fn record<K>(&self) -> Recording<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        Recording::start(&self.api::<K>()).await
    }

    /// Plays scheduler and nodes for all pods until it is dropped.
    pub(crate) fn nodes(&self) -> Nodes {
        let (client, api) = (self.client.clone(), self.api::<Pod>());
        Nodes(tokio::spawn(async move {
            let stage = Hands { client, api };
            loop {
                stage.round().await;
                sleep(Duration::from_millis(5)).await;
            }
        }))
    }
}

pub(crate) fn settings(controllers: &str) -> Settings {
    let selection = Selection::parse(controllers).expect("names of controllers");
    let timing = Timing { job_batch: Duration::from_millis(20), ..Timing::default() };
    Settings { selection, nodes: 0, timing, ..Settings::default() }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Waits until a question has an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Nodes that run every pod at once and let it go as soon as it should.
pub(crate) struct Nodes(JoinHandle<()>);

impl Drop for Nodes {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Hands {
    client: Client,
    api: Api<Pod>,
}

impl Hands {
    /// Failures are those of pods that went meanwhile, or of a server that restarts: the next round sees.
    async fn round(&self) {
        let Ok(pods) = self.api.list(&ListParams::default()).await else { return };
        for pod in pods {
            let name = pod.name_any();
            let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some();
            if pod.metadata.deletion_timestamp.is_some() {
                let _ = self.api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            } else if !bound {
                let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
                let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
                let request = http::Request::post(path).header("content-type", "application/json");
                let request = request.body(serde_json::to_vec(&binding).expect("JSON")).expect("a request");
                let _ = self.client.request::<Value>(request).await;
            } else if phase(&pod) == "Pending" {
                let now = machinery::clock::Clock::system().now().to_string();
                let condition = json!([{"type": "Ready", "status": "True", "lastTransitionTime": now}]);
                let patch = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": condition}}));
                let _ = self.api.patch_status(&name, &PatchParams::default(), &patch).await;
            }
        }
    }
}

/// The events that one watcher saw.
pub(crate) struct Recording<K> {
    seen: Arc<Mutex<Vec<(&'static str, K)>>>,
    task: JoinHandle<()>,
}

impl<K> Recording<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    async fn start(api: &Api<K>) -> Self {
        let from = api.list(&ListParams::default()).await.expect("the server answers").metadata.resource_version;
        let mut stream =
            api.watch(&WatchParams::default(), &from.unwrap_or_default()).await.expect("the watch begins").boxed();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(event)) = stream.try_next().await {
                let entry = match event {
                    WatchEvent::Added(object) => ("ADDED", object),
                    WatchEvent::Modified(object) => ("MODIFIED", object),
                    WatchEvent::Deleted(object) => ("DELETED", object),
                    _ => continue,
                };
                shared.lock().push(entry);
            }
        });
        Self { seen, task }
    }

    /// All events so far, with the object.
    pub(crate) fn seen(&self) -> Vec<(&'static str, K)> {
        self.seen.lock().clone()
    }

    /// The events about one object.
    pub(crate) fn about(&self, name: &str) -> Vec<(&'static str, K)> {
        self.seen().into_iter().filter(|(_, object)| object.meta().name.as_deref() == Some(name)).collect()
    }

    /// Number of events of a type.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.seen.lock().iter().filter(|(seen, _)| *seen == kind).count()
    }
}

impl<K> Drop for Recording<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
