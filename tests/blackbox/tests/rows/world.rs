//! The server that the rows share, and a namespace for each of them.

use std::sync::{Arc, Weak};

use blackbox::Server;
use blackbox::wire::{Answer, Ask, Stream, Wire};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Started by the first test that asks; stopped when the last that holds it ends. A static would never let go of the
/// process.
static SHARED: Mutex<Weak<Running>> = Mutex::new(Weak::new());

struct Running {
    wire: Wire,
    _server: Mutex<Server>,
}

fn shared() -> Arc<Running> {
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Server::start();
        let running = Arc::new(Running { wire: Wire::to(&server), _server: Mutex::new(server) });
        *shared = Arc::downgrade(&running);
        running
    })
}

/// A namespace of the test's own.
pub(crate) struct Place {
    wire: Wire,
    namespace: String,
    _running: Option<Arc<Running>>,
}

impl std::ops::Deref for Place {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl Place {
    /// On the shared server.
    pub(crate) async fn new(namespace: &str) -> Self {
        let running = shared();
        let mut place = Self::on(running.wire.clone(), namespace).await;
        place._running = Some(running);
        place
    }

    /// On a server of the test's own.
    pub(crate) async fn on(wire: Wire, namespace: &str) -> Self {
        let place = Self { wire, namespace: namespace.to_owned(), _running: None };
        let body = json!({"metadata": {"name": namespace}});
        place.post("/api/v1/namespaces", &body).answer().await.expect(201);
        // Pods are refused until their account is there, and no controller runs here that would make it.
        let account = json!({"metadata": {"name": "default"}});
        place.post(place.path("serviceaccounts"), &account).answer().await.expect(201);
        place
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A collection of the core group, and what may follow it: `pods`, `configmaps/a`, `pods?watch=1`.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// The same in another group: `apps/v1`, `deployments`.
    pub(crate) fn path_in(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.namespace)
    }

    /// Creates it; gives it as stored.
    pub(crate) async fn make(&self, resource: &str, body: &Value) -> Value {
        self.post(self.path(resource), body).answer().await.expect(201)
    }

    /// A ConfigMap, the plainest kind there is.
    pub(crate) async fn config_map(&self, name: &str) -> Value {
        self.make("configmaps", &json!({"metadata": {"name": name}})).await
    }

    pub(crate) async fn config_maps(&self, names: &[&str]) {
        for name in names {
            self.config_map(name).await;
        }
    }

    pub(crate) async fn labelled(&self, name: &str, key: &str, value: &str) -> Value {
        self.make("configmaps", &json!({"metadata": {"name": name, "labels": {key: value}}})).await
    }

    pub(crate) async fn pod(&self, name: &str, node: Option<&str>) -> Value {
        let mut spec = json!({"containers": [{"name": "app", "image": "app"}]});
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        self.make("pods", &json!({"metadata": {"name": name}, "spec": spec})).await
    }

    /// Merges into an object; gives what is stored then.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.patch("merge", self.path(path), patch).answer().await.expect(200)
    }

    /// Labels a ConfigMap.
    pub(crate) async fn label(&self, name: &str, key: &str, value: &str) -> Value {
        self.merge(&format!("configmaps/{name}"), &json!({"metadata": {"labels": {key: value}}})).await
    }

    pub(crate) async fn remove(&self, path: &str) {
        self.delete(self.path(path)).answer().await.expect(200);
    }

    pub(crate) async fn read(&self, path: &str) -> Value {
        self.get(self.path(path)).answer().await.expect(200)
    }

    pub(crate) async fn answer(&self, path: &str) -> Answer {
        self.get(self.path(path)).answer().await
    }

    pub(crate) fn getting(&self, path: &str) -> Ask<'_> {
        self.get(self.path(path))
    }

    /// A watch of ConfigMaps with these parameters.
    pub(crate) async fn watching(&self, parameters: &str) -> Stream {
        self.watch(self.path(&format!("configmaps?watch=1&{parameters}"))).await
    }

    /// The revision a fresh list of ConfigMaps shows.
    pub(crate) async fn now(&self) -> u64 {
        revision(&self.read("configmaps").await)
    }
}

pub(crate) fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no revision in {object}"))
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The names of a list's items, in its order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap_or_else(|| panic!("no items in {list}")).iter().map(name).collect()
}

pub(crate) fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// The annotation that marks the end of what was there when the watch began.
pub(crate) fn ends_initial_events(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}
