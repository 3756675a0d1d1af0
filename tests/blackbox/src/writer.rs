//! Changes pods while a client under test watches. It writes with kube-rs, separately from the client under test, so that a
//! suite fails for its own client only.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::server::Server;

pub struct Writer {
    runtime: Runtime,
    pods: Api<Pod>,
}

/// A pod with only the required fields.
pub fn pod(name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    serde_json::from_value(pod).expect("these are fields of a pod")
}

/// A kube-rs client, created from the kubeconfig as its users do.
pub async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("the kubeconfig can be read");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig names a server and a user")).expect("its certificates are usable")
}

impl Writer {
    /// Writes to the namespace `default`.
    pub fn new(server: &Server) -> Self {
        let runtime = Runtime::new().expect("a runtime can be started");
        let client = runtime.block_on(client(server));
        Self { runtime, pods: Api::namespaced(client, "default") }
    }

    pub fn create(&self, name: &str) {
        self.runtime.block_on(self.pods.create(&PostParams::default(), &pod(name))).expect("the pod is created");
    }

    pub fn label(&self, name: &str, key: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        self.runtime.block_on(self.pods.patch(name, &PatchParams::default(), &patch)).expect("the pod is labelled");
    }

    pub fn delete(&self, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.runtime.block_on(self.pods.delete(name, &now)).expect("the pod is deleted");
    }

    /// The names of all pods, in order.
    pub fn names(&self) -> Vec<String> {
        let list = self.runtime.block_on(self.pods.list(&ListParams::default())).expect("the pods are listed");
        list.iter().map(ResourceExt::name_any).collect()
    }
}
