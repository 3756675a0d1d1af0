//! The nodes that a pod names, and the taints that it tolerates.

use k8s_openapi::api::core::v1::{Pod, PodSpec, Taint};

use crate::placement::is_tolerated;

/// SC-13: the nodes a pod names by field; none if it does not, or if another way in is open.
pub(super) fn named_nodes(spec: &PodSpec) -> Option<Vec<&str>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut names = Vec::new();
    for term in &required.node_selector_terms {
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let named = fields.iter().find(|field| field.key == "metadata.name" && field.operator == "In")?;
        names.extend(named.values.iter().flatten().map(String::as_str));
    }
    Some(names)
}

/// True if a pod tolerates a taint.
pub(super) fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    is_tolerated(taint, tolerations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn sc_13_fields_name_the_candidates() {
        let spec = |terms: Value| -> PodSpec {
            serde_json::from_value(json!({"containers": [], "affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}))
            .unwrap()
        };
        let field = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        let other = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        assert_eq!(named_nodes(&spec(json!([field("n1")]))), Some(vec!["n1"]));
        assert_eq!(named_nodes(&spec(json!([field("n1"), other]))), None, "another way in");
    }
}
