//! Which nodes a pod names, and whether labels are what a selector means.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

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

/// Whether these labels satisfy a label selector; an absent selector selects nothing.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: Option<&BTreeMap<String, String>>) -> bool {
    let Some(selector) = selector else { return false };
    let value = |key: &String| labels.and_then(|labels| labels.get(key));
    let required = selector.match_expressions.as_deref().unwrap_or_default();
    selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted))
        && required.iter().all(|rule| {
            let among = || value(&rule.key).is_some_and(|value| rule.values.iter().flatten().any(|one| one == value));
            match rule.operator.as_str() {
                "In" => among(),
                "NotIn" => !among(),
                "Exists" => value(&rule.key).is_some(),
                "DoesNotExist" => value(&rule.key).is_none(),
                _ => false,
            }
        })
}

/// Whether a pod tolerates a taint.
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

    #[test]
    fn selectors_of_labels() {
        let labels: BTreeMap<String, String> = [("a".to_owned(), "1".to_owned())].into();
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}), true),
            (json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(selects(Some(&parsed), Some(&labels)), expected, "{selector}");
        }
        assert!(!selects(None, Some(&labels)));
    }
}
