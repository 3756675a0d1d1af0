//! The server that the tests share, and a namespace for each of them.

use std::sync::{Arc, Weak};

use blackbox::Server;
use blackbox::wire::{RequestBuilder, Response, Stream, Wire};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Started by the first test that needs it, stopped with the last one: a strong reference in a static would never stop the
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

/// The namespace of one test.
pub(crate) struct Namespace {
    wire: Wire,
    namespace: String,
    _running: Option<Arc<Running>>,
}

impl std::ops::Deref for Namespace {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl Namespace {
    /// Creates a namespace on the shared server.
    pub(crate) async fn new(namespace: &str) -> Self {
        let running = shared();
        let mut namespaced = Self::on(running.wire.clone(), namespace).await;
        namespaced._running = Some(running);
        namespaced
    }

    /// Creates a namespace on a server of the test's own.
    pub(crate) async fn on(wire: Wire, namespace: &str) -> Self {
        let ns = Self { wire, namespace: namespace.to_owned(), _running: None };
        let body = json!({"metadata": {"name": namespace}});
        ns.post("/api/v1/namespaces", &body).send().await.expect(201);
        // Pods need their service account, and no controller runs here that would create it.
        let account = json!({"metadata": {"name": "default"}});
        ns.post(ns.path("serviceaccounts"), &account).send().await.expect(201);
        ns
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A path in the core group, from a collection on: `pods`, `configmaps/a`, `pods?watch=1`.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// The same in another group: `apps/v1`, `deployments`.
    pub(crate) fn path_in(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.namespace)
    }

    /// Creates an object and returns it as stored.
    pub(crate) async fn create(&self, resource: &str, body: &Value) -> Value {
        self.post(self.path(resource), body).send().await.expect(201)
    }

    /// Creates a ConfigMap, the simplest kind.
    pub(crate) async fn config_map(&self, name: &str) -> Value {
        self.create("configmaps", &json!({"metadata": {"name": name}})).await
    }

    pub(crate) async fn config_maps(&self, names: &[&str]) {
        for name in names {
            self.config_map(name).await;
        }
    }

    pub(crate) async fn labelled(&self, name: &str, key: &str, value: &str) -> Value {
        self.create("configmaps", &json!({"metadata": {"name": name, "labels": {key: value}}})).await
    }

    pub(crate) async fn pod(&self, name: &str, node: Option<&str>) -> Value {
        let mut spec = json!({"containers": [{"name": "app", "image": "app"}]});
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        self.create("pods", &json!({"metadata": {"name": name}, "spec": spec})).await
    }

    /// Patches an object by merge and returns it as stored.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.patch("merge", self.path(path), patch).send().await.expect(200)
    }

    /// Labels a ConfigMap.
    pub(crate) async fn label(&self, name: &str, key: &str, value: &str) -> Value {
        self.merge(&format!("configmaps/{name}"), &json!({"metadata": {"labels": {key: value}}})).await
    }

    pub(crate) async fn remove(&self, path: &str) {
        self.delete(self.path(path)).send().await.expect(200);
    }

    /// The body of a GET that must succeed.
    pub(crate) async fn read(&self, path: &str) -> Value {
        self.get(self.path(path)).send().await.expect(200)
    }

    /// The response to a GET, with any status.
    pub(crate) async fn get_response(&self, path: &str) -> Response {
        self.get(self.path(path)).send().await
    }

    pub(crate) fn get_request(&self, path: &str) -> RequestBuilder<'_> {
        self.get(self.path(path))
    }

    /// Opens a watch of ConfigMaps with these parameters.
    pub(crate) async fn watching(&self, parameters: &str) -> Stream {
        self.watch(self.path(&format!("configmaps?watch=1&{parameters}"))).await
    }

    /// The revision of a fresh list of ConfigMaps.
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

/// The names of a list's items, in order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap_or_else(|| panic!("no items in {list}")).iter().map(name).collect()
}

pub(crate) fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// True for the bookmark that marks the end of the initial events.
pub(crate) fn ends_initial_events(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}
