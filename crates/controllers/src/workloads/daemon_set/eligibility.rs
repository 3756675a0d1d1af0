//! On which nodes the pods of a daemon set run, and what such a pod looks like.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec, Toleration,
};

use crate::owners::{name, namespace, reference};
use crate::{placement, pods};

/// The label that says of which revision a pod is.
pub(super) const REVISION: &str = "controller-revision-hash";

/// What a node means to a daemon set (DS-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A pod runs there.
    Run,
    /// None is started, but one that runs may stay.
    Stay,
    /// None may be there.
    Never,
}

/// The template of a daemon set with the tolerations that every daemon pod has (DS-3).
pub(super) fn template(set: &DaemonSet) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    tolerate(template.spec.get_or_insert_default());
    template
}

fn tolerate(spec: &mut PodSpec) {
    let host_network = spec.host_network == Some(true);
    let tolerations = spec.tolerations.get_or_insert_default();
    let mut add = |key: &str, effect: &str| {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{key}")),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        let same = |known: &Toleration| Toleration { toleration_seconds: None, ..known.clone() } == toleration;
        tolerations.retain(|known| !same(known));
        tolerations.push(toleration);
    };
    add("not-ready", "NoExecute");
    add("unreachable", "NoExecute");
    add("disk-pressure", "NoSchedule");
    add("memory-pressure", "NoSchedule");
    add("pid-pressure", "NoSchedule");
    add("unschedulable", "NoSchedule");
    if host_network {
        add("network-unavailable", "NoSchedule");
    }
}

/// Whether the pods of this template run on a node.
pub(super) fn judge(template: &PodTemplateSpec, node: &Node) -> Verdict {
    let Some(spec) = &template.spec else { return Verdict::Never };
    let named = spec.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name(node));
    if !named || !placement::affinity_allows(spec, node) {
        return Verdict::Never;
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if placement::untolerated(node, tolerations, &["NoExecute"]).is_some() {
        Verdict::Never
    } else if placement::untolerated(node, tolerations, &["NoSchedule"]).is_some() {
        Verdict::Stay
    } else {
        Verdict::Run
    }
}

/// The pod for a node. It is the scheduler that binds it; the affinity leaves it no choice (DS-2).
pub(super) fn pod(set: &DaemonSet, template: &PodTemplateSpec, hash: &str, node: &str) -> Pod {
    let mut pod = pods::of_template(template, reference(set), namespace(set));
    pod.metadata.labels.get_or_insert_default().insert(REVISION.into(), hash.into());
    let only = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![only]), match_expressions: None };
    let affinity: &mut Affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
    affinity.node_affinity.get_or_insert_default().required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

/// The node that a daemon pod is on or will be on.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    if let Some(node) = pods::node(pod) {
        return Some(node);
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut rules = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let rule = rules.find(|rule| rule.key == "metadata.name" && rule.operator == "In")?;
    match rule.values.as_deref() {
        Some([only]) => Some(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": "agent", "namespace": "n", "uid": "u"},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}},
        }))
        .unwrap()
    }

    fn node(taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {"taints": taints}}))
            .unwrap()
    }

    #[test]
    fn ds_1_eligible_nodes() {
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        let rows = [
            (json!({"containers": []}), json!([]), Verdict::Run),
            (json!({"containers": [], "nodeName": "n1"}), json!([]), Verdict::Run),
            (json!({"containers": [], "nodeName": "n2"}), json!([]), Verdict::Never),
            (json!({"containers": [], "nodeSelector": {"zone": "b"}}), json!([]), Verdict::Never),
            (json!({"containers": []}), taint("own", "NoSchedule"), Verdict::Stay),
            (json!({"containers": []}), taint("own", "NoExecute"), Verdict::Never),
            (json!({"containers": []}), taint("own", "PreferNoSchedule"), Verdict::Run),
            (
                json!({"containers": [], "tolerations": [{"key": "own", "operator": "Exists"}]}),
                taint("own", "NoExecute"),
                Verdict::Run,
            ),
            // DS-3: what happens to nodes does not drive daemons away.
            (json!({"containers": []}), taint("node.kubernetes.io/unreachable", "NoExecute"), Verdict::Run),
            (json!({"containers": []}), taint("node.kubernetes.io/unschedulable", "NoSchedule"), Verdict::Run),
            (json!({"containers": []}), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), Verdict::Stay),
            (
                json!({"containers": [], "hostNetwork": true}),
                taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
                Verdict::Run,
            ),
        ];
        for (spec, taints, expected) in rows {
            assert_eq!(judge(&template(&set(spec.clone())), &node(taints.clone())), expected, "{spec} {taints}");
        }
    }

    #[test]
    fn ds_2_a_pod_is_meant_for_one_node_and_bound_by_the_scheduler() {
        let set = set(
            json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}}}),
        );
        let pod = pod(&set, &template(&set), "abc", "n7");
        let value = serde_json::to_value(&pod).unwrap();
        assert_eq!(value["spec"].get("nodeName"), None);
        let terms = &value["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(terms, &json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]));
        assert_eq!(value["metadata"]["labels"], json!({"app": "agent", REVISION: "abc"}));
        assert_eq!(node_of(&pod), Some("n7"));
    }

    #[test]
    fn ds_3_tolerations_are_added_once() {
        let given = json!({"containers": [], "hostNetwork": true, "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]});
        let template = template(&set(given));
        let tolerations = template.spec.unwrap().tolerations.unwrap();
        let keys: Vec<&str> =
            tolerations.iter().map(|t| t.key.as_deref().unwrap().rsplit('/').next().unwrap()).collect();
        assert_eq!(
            keys,
            [
                "not-ready",
                "unreachable",
                "disk-pressure",
                "memory-pressure",
                "pid-pressure",
                "unschedulable",
                "network-unavailable"
            ]
        );
        assert!(tolerations.iter().all(|toleration| toleration.toleration_seconds.is_none()));
    }
}
