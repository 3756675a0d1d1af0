//! Objects that every cluster has from its first start.

use std::sync::Arc;

use machinery::Status;
use machinery::json::{Value, json};

use crate::admission::plugin::{Attributes, Operation, Options};
use crate::read::view::{Outcome, View};
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::write::create::{Tracking, create_draft};
use crate::write::draft::Draft;

const MANAGER: &str = "dogwatch";

/// Creates the default namespaces, the system priority classes and the service of the API itself, each unless it exists.
pub(crate) async fn seed(registry: &Registry) -> Result<(), Status> {
    let namespace = |name: &str| create_missing(registry, "", "namespaces", None, json!({"metadata": {"name": name}}));
    let class = |name: &str, value: i64, what: &str| {
        let class = json!({"metadata": {"name": name}, "value": value, "description": what});
        create_missing(registry, "scheduling.k8s.io", "priorityclasses", None, class)
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
    let first = u32::from(registry.settings().service_range) + 1;
    let address = std::net::Ipv4Addr::from(first).to_string();
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": address, "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
    });
    create_missing(registry, "", "services", Some("default"), service).await
}

/// Gives a new namespace its account `default`, which its pods need. The controller that creates the accounts does the same
/// later; here the first pod need not wait for it. A failure is left to that controller.
pub(crate) async fn complete_namespace(registry: &Registry, written: &Outcome) {
    if let Outcome { code: 201, view: View::Stored { item, .. }, .. } = written {
        let account = json!({"metadata": {"name": "default"}});
        let _ = create_missing(registry, "", "serviceaccounts", Some(item.name()), account).await;
    }
}

async fn create_missing(
    registry: &Registry,
    group: &str,
    plural: &str,
    namespace: Option<&str>,
    mut object: Value,
) -> Result<(), Status> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.get(group, "v1", plural) else {
        return Err(Status::internal(format_args!("{plural} are not served")));
    };
    let target = Target {
        kind: Arc::clone(kind),
        namespace: namespace.map(str::to_owned),
        name: object["metadata"]["name"].as_str().map(str::to_owned),
        subresource: None,
    };
    let key = registry.key(&target)?;
    // An object that cannot be read is reported by the cache, and no reason not to start.
    if registry.collection(kind).damaged(&key).is_some() || registry.storage().current(&key).await?.is_some() {
        return Ok(());
    }
    object["kind"] = json!(kind.gvk.kind);
    object["apiVersion"] = json!(kind.group_version().to_string());
    let ctx = Context::default();
    let attributes = Attributes::new(Operation::Create, &target, Options::None, &ctx);
    match create_draft(registry, &attributes, Draft::new(object), Tracking::Creator(MANAGER)).await {
        // Another server on the same store was first.
        Err(status) if status.is_already_exists() => Ok(()),
        // What cannot be read refuses writes that it might forbid. That is no reason not to start.
        Err(status) if !registry.damage().is_empty() => {
            tracing::error!(%key, %status, "an object that every cluster has is missing and cannot be created");
            Ok(())
        }
        Err(status) => Err(status),
        Ok(_) => Ok(()),
    }
}
