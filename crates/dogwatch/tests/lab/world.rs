//! A server with a lab, and what the tests do with it.

use std::time::Duration;

use dogwatch::testing::Server;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn start() -> Self {
        let server = Server::start().await;
        World { client: server.client(), server }
    }

    pub(crate) fn faults(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &fault_resource())
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Makes a fault that hits requests for config maps.
    pub(crate) async fn fault(&self, name: &str, mut spec: Value) {
        if spec["match"]["resources"].is_null() {
            spec["match"]["resources"] = json!(["configmaps"]);
        }
        self.faults().create(&PostParams::default(), &fault(name, spec)).await.unwrap();
    }

    pub(crate) async fn remove_fault(&self, name: &str) {
        self.faults().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn make_map(&self, name: &str) -> kube::Result<ConfigMap> {
        self.maps().create(&PostParams::default(), &map(name)).await
    }

    /// Waits until the status of a fault has so many hits.
    pub(crate) async fn hits(&self, name: &str, wanted: u64) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let fault = self.faults().get(name).await.unwrap();
            if fault.data["status"]["hits"] == wanted {
                return fault.data["status"].clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{:?}", fault.data["status"]);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn fault_resource() -> ApiResource {
    ApiResource {
        group: "lab.dogwatch.dev".into(),
        version: "v1".into(),
        api_version: "lab.dogwatch.dev/v1".into(),
        kind: "Fault".into(),
        plural: "faults".into(),
    }
}

pub(crate) fn fault(name: &str, spec: Value) -> DynamicObject {
    let mut fault = DynamicObject::new(name, &fault_resource());
    fault.data = json!({"spec": spec});
    fault
}

pub(crate) fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// The code of an error that the server answered with.
pub(crate) fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}
