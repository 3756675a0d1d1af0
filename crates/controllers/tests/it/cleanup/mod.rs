//! Deletions that follow others.

mod delete_sequences;
mod garbage;
mod namespaces;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use controllers::{Selection, Settings};
use dogwatch::testing::Server;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::PATIENCE;

/// A server with these controllers and short intervals.
async fn server(controllers: &str) -> Server {
    let mut settings = Settings { selection: Selection::parse(controllers).unwrap(), ..Settings::default() };
    settings.timing.namespace_start = Duration::from_millis(100);
    settings.timing.gc_discovery = Duration::from_secs(1);
    Server::with_controllers(settings).await
}

/// Makes an object of JSON.
async fn make<K>(client: &Client, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug,
{
    let object: K = serde_json::from_value(object).expect("an object of that kind");
    let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
    let api = Api::<K>::namespaced(client.clone(), &namespace);
    api.create(&PostParams::default(), &object).await.expect("it can be made")
}

async fn make_namespace(client: &Client, name: &str) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

/// A config map `namespace/name` with these owners.
async fn config_map(client: &Client, key: &str, owners: &[Value]) -> ConfigMap {
    let (namespace, name) = key.split_once('/').unwrap();
    make(client, json!({"metadata": {"namespace": namespace, "name": name, "ownerReferences": owners}})).await
}

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// A reference to an owner.
fn reference<K: Resource<DynamicType = ()>>(owner: &K, blocks: bool) -> Value {
    json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": owner.meta().name, "uid": owner.meta().uid,
        "blockOwnerDeletion": blocks,
    })
}

async fn patch<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The events of a watcher of one resource.
#[derive(Clone)]
struct Watched {
    events: Arc<Mutex<Vec<(String, DynamicObject)>>>,
}

impl Watched {
    /// Watches everything from now on.
    async fn start<K: Resource<DynamicType = ()>>(client: &Client) -> Self {
        let api = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::erase::<K>(&()));
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let events: Arc<Mutex<Vec<(String, DynamicObject)>>> = Arc::default();
        let seen = events.clone();
        let mut stream = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
        tokio::spawn(async move {
            while let Some(Ok(event)) = stream.next().await {
                let told = match event {
                    WatchEvent::Added(object) => ("ADDED", object),
                    WatchEvent::Modified(object) => ("MODIFIED", object),
                    WatchEvent::Deleted(object) => ("DELETED", object),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                seen.lock().push((told.0.to_owned(), told.1));
            }
        });
        Self { events }
    }

    /// The events about one object, in the words of `say`.
    fn about(&self, name: &str, say: impl Fn(&DynamicObject) -> String) -> Vec<String> {
        let events = self.events.lock();
        let about = events.iter().filter(|(_, object)| object.name_any() == name);
        about.map(|(kind, object)| format!("{kind} {}", say(object)).trim_end().to_owned()).collect()
    }

    /// Waits for the deletion of an object and returns its events until then.
    async fn until_deleted(&self, name: &str, say: impl Fn(&DynamicObject) -> String) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let told = self.about(name, &say);
            if told.last().is_some_and(|last| last.starts_with("DELETED")) {
                return told;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name} was not deleted: {told:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The names of deleted objects, in the order of their deletion.
    fn deletions(&self) -> Vec<String> {
        let events = self.events.lock();
        events.iter().filter(|(kind, _)| kind == "DELETED").map(|(_, object)| object.name_any()).collect()
    }
}
