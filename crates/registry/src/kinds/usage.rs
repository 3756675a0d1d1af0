//! The kinds of `metrics.k8s.io`, as data: they are read and never written.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use machinery::Revision;
use machinery::json::{Value, json};
use schema::custom::installed;
use schema::kind::Kind;
use schema::kinds::Kinds;

use crate::api_services::METRICS_GROUP as GROUP;

const VERBS: [&str; 2] = ["get", "list"];

/// These kinds and those of measured nodes and pods.
#[must_use]
pub fn beside(kinds: &Kinds) -> Kinds {
    static KINDS: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| [nodes(), pods()].iter().flat_map(read).collect());
    kinds.with_all(KINDS.iter().cloned())
}

/// Whether objects of a kind are measured here, and not those of a definition in the same group.
#[must_use]
pub fn is_measured(kind: &Kind) -> bool {
    kind.gvk.group == GROUP && !kind.allows("create")
}

fn usage() -> Value {
    json!({
        "type": "object",
        "description": "Amounts by resource: cpu in cores, memory in bytes.",
        "additionalProperties": {"x-kubernetes-int-or-string": true},
    })
}

fn spec(plural: &str, kind: &str, scope: &str, about: &str, mut properties: Value) -> Value {
    properties["timestamp"] =
        json!({"type": "string", "format": "date-time", "description": "The end of the time that was measured."});
    properties["window"] = json!({"type": "string", "description": "The length of the time that was measured."});
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    json!({
        "group": GROUP,
        "scope": scope,
        "names": {"plural": plural, "singular": "", "kind": kind, "listKind": format!("{kind}List")},
        "versions": [{
            "name": "v1beta1",
            "served": true,
            "storage": true,
            "additionalPrinterColumns": [
                column("cpu", ".usage.cpu"), column("memory", ".usage.memory"), column("window", ".window"),
            ],
            "schema": {"openAPIV3Schema": {"type": "object", "description": about, "properties": properties}},
        }],
    })
}

fn nodes() -> Value {
    spec("nodes", "NodeMetrics", "Cluster", "NodeMetrics is what a node uses.", json!({"usage": usage()}))
}

fn pods() -> Value {
    let container = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "description": "The name of the container."}, "usage": usage()},
    });
    let containers = json!({"type": "array", "description": "What each container uses.", "items": container});
    let about = "PodMetrics is what the containers of a pod use.";
    spec("pods", "PodMetrics", "Namespaced", about, json!({"containers": containers}))
}

fn read(spec: &Value) -> Vec<Arc<Kind>> {
    // No definition that a client creates can have this name.
    let name = format!("usage:{}", spec["names"]["plural"].as_str().unwrap_or_default());
    let definition = json!({
        "metadata": {"name": name, "uid": name},
        "status": {"acceptedNames": spec["names"], "conditions": [{"type": "Established", "status": "True"}]},
        "spec": spec,
    });
    let made = match installed::install(&Bytes::from(definition.to_string()), Revision::ZERO, None) {
        Ok(installed) => installed.kinds,
        Err(error) => unreachable!("a kind of {GROUP} cannot be installed: {error}"),
    };
    let with_verbs = |kind: Arc<Kind>| {
        let verbs = VERBS.map(str::to_owned).to_vec();
        Arc::new(Kind { verbs, ..Kind::clone(&kind) })
    };
    made.into_iter().map(with_verbs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx_1_nodes_and_pods_can_be_read_only() {
        let kinds = beside(crate::kinds::builtin());
        for (plural, kind, namespaced) in [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)] {
            let served = kinds.get(GROUP, "v1beta1", plural).unwrap();
            assert_eq!((served.gvk.kind.as_str(), served.namespaced), (kind, namespaced));
            assert_eq!(served.verbs, VERBS);
            assert!(is_measured(served));
        }
        assert!(!is_measured(kinds.get("", "v1", "pods").unwrap()));
    }
}
