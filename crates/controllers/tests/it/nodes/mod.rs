//! Simulated nodes and what is done about nodes.

mod agents;
mod commands;
mod lifecycle;
mod probes;
mod sequences;
mod usage;

use std::sync::Arc;

use controllers::{Selection, Settings, Stages};
use dogwatch::testing::Server;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{PATIENCE, until, until_gone};

/// The controllers that pods need to run on nodes.
pub(crate) const NODES: &str = "scheduler,nodes,nodelifecycle,tainteviction,podgc";

/// One node, no delays, only what is named.
pub(crate) fn settings(controllers: &str) -> Settings {
    Settings {
        selection: Selection::parse(controllers).unwrap(),
        nodes: 1,
        stages: Stages::immediate(),
        ..Settings::default()
    }
}

pub(crate) fn pods(server: &Server) -> Api<Pod> {
    Api::namespaced(server.client(), "default")
}

pub(crate) fn nodes(server: &Server) -> Api<Node> {
    Api::all(server.client())
}

/// A pod of one container, changed.
pub(crate) async fn make_pod(server: &Server, name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    change(&mut pod);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods(server).create(&PostParams::default(), &pod).await.unwrap()
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// `True`, `False`, `Unknown`, or nothing.
pub(crate) fn pod_condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == kind).map(|c| c.status.clone()).unwrap_or_default()
}

pub(crate) fn node_condition(node: &Node, kind: &str) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == kind).map(|c| c.status.clone()).unwrap_or_default()
}

/// `key:effect` of each taint.
pub(crate) fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

pub(crate) async fn until_running(server: &Server, name: &str) -> Pod {
    until(&pods(server), name, "running and ready", |pod| {
        phase(pod) == "Running" && pod_condition(pod, "Ready") == "True"
    })
    .await
}

/// Waits until a node takes pods.
pub(crate) async fn until_open(server: &Server, name: &str) -> Node {
    until(&nodes(server), name, "ready and without taints", |node| {
        node_condition(node, "Ready") == "True" && taints(node).is_empty()
    })
    .await
}

/// Waits until the scheduler has seen an open node too: it shows when it has placed a pod.
pub(crate) async fn until_scheduling(server: &Server) {
    make_pod(server, "before", |_| {}).await;
    until_running(server, "before").await;
    pods(server).delete("before", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_gone(&pods(server), "before").await;
}

pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The events about an object, as `Reason: message`, oldest first; waits until there are so many.
pub(crate) async fn told(client: &Client, name: &str, at_least: usize) -> Vec<Event> {
    let api: Api<Event> = Api::all(client.clone());
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let mut events = api.list(&about).await.unwrap().items;
        if events.len() >= at_least {
            events.sort_by_key(|event| event.metadata.resource_version.as_ref().and_then(|v| v.parse::<u64>().ok()));
            return events;
        }
        assert!(tokio::time::Instant::now() < deadline, "only {} events about {name}: {events:#?}", events.len());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The first event about a pod with this reason, once there is one.
pub(crate) async fn told_of(client: &Client, name: &str, reason: &str) -> Event {
    let mut at_least = 1;
    loop {
        let events = told(client, name, at_least).await;
        at_least = events.len() + 1;
        if let Some(event) = events.into_iter().find(|event| event.reason.as_deref() == Some(reason)) {
            return event;
        }
    }
}

/// The events of a watcher of pods, in their order.
#[derive(Clone, Default)]
pub(crate) struct Watched(Arc<Mutex<Vec<(String, Value)>>>);

impl Watched {
    /// Begins to watch, and returns once the watch is open.
    pub(crate) async fn pods(client: Client, params: WatchParams) -> Self {
        let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &ApiResource::erase::<Pod>(&()));
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap_or_default();
        let mut stream = api.watch(&params, &version).await.unwrap().boxed();
        let watched = Self::default();
        let log = watched.clone();
        tokio::spawn(async move {
            while let Some(Ok(event)) = stream.next().await {
                let (kind, object) = match event {
                    WatchEvent::Added(object) => ("ADDED", object),
                    WatchEvent::Modified(object) => ("MODIFIED", object),
                    WatchEvent::Deleted(object) => ("DELETED", object),
                    _ => continue,
                };
                log.0.lock().push((kind.to_owned(), serde_json::to_value(object).unwrap()));
            }
        });
        watched
    }

    pub(crate) fn so_far(&self) -> Vec<(String, Value)> {
        self.0.lock().clone()
    }

    /// Everything up to the first event of this kind.
    pub(crate) async fn until(&self, kind: &str) -> Vec<(String, Value)> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let events = self.so_far();
            if events.iter().any(|(known, _)| known == kind) {
                return events;
            }
            assert!(tokio::time::Instant::now() < deadline, "no {kind}: {events:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}
