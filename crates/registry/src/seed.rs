//! What every cluster has from its first start.

use machinery::Status;
use machinery::json::{Value, json};

use crate::create::{Sent, Tracking};
use crate::registry::Registry;
use crate::request::{Context, Target};

const MANAGER: &str = "dogwatch";

impl Registry {
    /// Creates the default namespaces, the system priority classes and the service of the API itself, each unless it is
    /// there already.
    pub(crate) async fn seed(&self) -> Result<(), Status> {
        let namespace =
            |name: &str| self.seed_object("", "v1", "namespaces", None, json!({"metadata": {"name": name}}));
        let class = |name: &str, value: i64, what: &str| {
            let class = json!({"metadata": {"name": name}, "value": value, "description": what});
            self.seed_object("scheduling.k8s.io", "v1", "priorityclasses", None, class)
        };
        // Together, so that a first start waits for one sync and not for six.
        tokio::try_join!(
            namespace("default"),
            namespace("kube-system"),
            namespace("kube-public"),
            namespace("kube-node-lease"),
            class("system-node-critical", 2_000_001_000, "For pods that must not be moved from their node."),
            class("system-cluster-critical", 2_000_000_000, "For pods that the cluster cannot do without."),
        )?;
        let first = u32::from(self.settings().service_range) + 1;
        let address = std::net::Ipv4Addr::from(first).to_string();
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": address, "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
        });
        self.seed_object("", "v1", "services", Some("default"), service).await
    }

    async fn seed_object(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Result<(), Status> {
        let kinds = self.kinds();
        let Some(kind) = kinds.get(group, version, plural) else {
            return Err(Status::internal(format_args!("{plural} are not served")));
        };
        let name = object["metadata"]["name"].as_str().map(str::to_owned);
        let target = Target {
            kind: std::sync::Arc::clone(kind),
            namespace: namespace.map(str::to_owned),
            name,
            subresource: None,
        };
        let key = self.key(&target)?;
        if self.current(&key).await?.is_some() {
            return Ok(());
        }
        object["kind"] = json!(kind.gvk.kind);
        object["apiVersion"] = json!(kind.group_version().to_string());
        match self
            .create_object(&target, object, Sent::default(), Tracking::By(MANAGER), false, &Context::default())
            .await
        {
            // Another server on the same store was quicker.
            Err(status) if status.is_already_exists() => Ok(()),
            Err(status) => Err(status),
            Ok(_) => Ok(()),
        }
    }
}
