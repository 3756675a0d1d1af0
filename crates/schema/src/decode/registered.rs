//! Kinds that a Kubernetes server can read, served or not. An object of another version of its kind is refused for its version; an
//! object of an unknown version is not of a registered kind.

use std::sync::LazyLock;

use machinery::GroupVersionKind;
use machinery::json::Value;

use crate::facts::Types;

const UNSERVED: &str = include_str!("registered.tsv");

/// Reports whether the kind is known in this version.
pub(crate) fn knows(gvk: &GroupVersionKind) -> bool {
    Types::get().kind(gvk).is_some() || is_unserved(gvk)
}

/// Reports whether the kind is known in this version, but not served.
pub(crate) fn is_unserved(gvk: &GroupVersionKind) -> bool {
    /// Group, version and kind, sorted: every patch asks.
    static TABLE: LazyLock<Vec<(&str, &str, &str)>> = LazyLock::new(|| {
        let mut all: Vec<_> = UNSERVED.lines().flat_map(kinds_of_line).collect();
        all.sort_unstable();
        all
    });
    TABLE.binary_search(&(&gvk.group, &gvk.version, &gvk.kind)).is_ok()
}

/// Sets what the old version of a workload defaults and the served one does not: labels, to those of the pod template.
pub(crate) fn default_labels(gvk: &GroupVersionKind, object: &mut Value) {
    let has_default = match (gvk.group.as_str(), gvk.version.as_str()) {
        ("apps", "v1beta1") => matches!(gvk.kind.as_str(), "Deployment" | "StatefulSet"),
        ("extensions", "v1beta1") => matches!(gvk.kind.as_str(), "DaemonSet" | "Deployment" | "ReplicaSet"),
        _ => false,
    };
    let is_empty = |labels: &Value| labels.as_object().is_none_or(|labels| labels.is_empty());
    let of_template = object["spec"]["template"]["metadata"]["labels"].clone();
    if has_default && !is_empty(&of_template) && is_empty(&object["metadata"]["labels"]) {
        object["metadata"]["labels"] = of_template;
    }
}

/// The kinds of a line: group, version, and names with blanks between them.
fn kinds_of_line(line: &'static str) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let mut columns = line.split('\t');
    let mut next = || columns.next().unwrap_or_default();
    let (group, version, kinds) = (next(), next(), next());
    kinds.split(' ').map(move |kind| (group, version, kind))
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn old_versions_are_known_and_invented_ones_are_not() {
        assert!(knows(&GroupVersionKind::new("apps", "v1", "Deployment")));
        assert!(is_unserved(&GroupVersionKind::new("apps", "v1beta1", "Deployment")));
        assert!(!knows(&GroupVersionKind::new("apps", "v3", "Deployment")));
        assert!(!knows(&GroupVersionKind::new("apps", "v1", "ConfigMap")));
    }

    #[test]
    fn old_workloads_get_the_labels_of_their_template() {
        let deployment = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}});
        for (group, version, expected) in [
            ("apps", "v1beta1", json!({"app": "x"})),
            ("extensions", "v1beta1", json!({"app": "x"})),
            ("apps", "v1beta2", json!({})),
        ] {
            let gvk = GroupVersionKind::new(group, version, "Deployment");
            let mut bare = deployment(json!({}));
            default_labels(&gvk, &mut bare);
            assert_eq!(bare["metadata"]["labels"], expected, "{gvk}");
            let mut labelled = deployment(json!({"own": "y"}));
            default_labels(&gvk, &mut labelled);
            assert_eq!(labelled["metadata"]["labels"], json!({"own": "y"}), "{gvk}");
        }
    }
}
