//! Where a pod may be: taints and tolerations, node selectors and required node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

/// Whether a toleration is for this taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let same = |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|w| w.is_empty() || w == actual);
    if !same(&toleration.effect, &taint.effect) || !same(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        Some("Exists") => true,
        _ => false,
    }
}

/// Whether one of the tolerations is for this taint.
pub(crate) fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// The first taint of the node with one of these effects that nothing tolerates.
pub(crate) fn untolerated<'a>(node: &'a Node, tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    let taints = node.spec.as_ref()?.taints.as_deref()?;
    taints.iter().find(|taint| effects.contains(&taint.effect.as_str()) && !is_tolerated(taint, tolerations))
}

/// Whether the node has the labels and the affinity that the pod requires.
pub(crate) fn affinity_allows(spec: &PodSpec, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selected = spec.node_selector.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    selected
        && required.is_none_or(|terms| terms.node_selector_terms.iter().any(|term| term_allows(term, labels, name)))
}

/// Whether a term of a node selector holds. One without requirements never does.
pub(crate) fn term_allows(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |rule: &NodeSelectorRequirement| rule_allows(rule, labels.get(&rule.key).map(String::as_str));
    let by_field = |rule: &NodeSelectorRequirement| rule.key == "metadata.name" && rule_allows(rule, Some(name));
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn rule_allows(rule: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let listed = || actual.is_some_and(|actual| values.iter().any(|value| value == actual));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let numbers = || Some((number(actual)?, number(values.first().map(String::as_str))?));
    match rule.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => numbers().is_some_and(|(actual, bound)| actual > bound),
        "Lt" => numbers().is_some_and(|(actual, bound)| actual < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ds_1_tolerations_by_key_operator_and_effect() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        let rows = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true),
        ];
        for (toleration, expected) in rows {
            let read: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&read, &taint), expected, "{toleration}");
        }
    }

    #[test]
    fn ds_1_required_affinity_and_selector() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}})).unwrap();
        let affine = |terms: serde_json::Value| json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let rows = [
            (json!({"containers": [], "nodeSelector": {"zone": "a"}}), true),
            (json!({"containers": [], "nodeSelector": {"zone": "b"}}), false),
            (affine(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}])), true),
            (affine(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}])), false),
            (affine(json!([{}])), false),
            (affine(json!([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}])), true),
            (affine(json!([{"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["b"]}]}])), true),
            (
                affine(
                    json!([{"matchExpressions": [{"key": "gone", "operator": "Exists"}]}, {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}]),
                ),
                true,
            ),
            (affine(json!([{"matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["8"]}]}])), false),
        ];
        for (spec, expected) in rows {
            let read: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(affinity_allows(&read, &node), expected, "{spec}");
        }
    }
}
