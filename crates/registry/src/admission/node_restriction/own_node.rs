//! The Node object of a node: its taints, owners and the labels that others rely on are not the node's to change.

use std::collections::BTreeSet;

use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use super::{Request, same};
use crate::admission::plugin::Operation;

/// Labels of Kubernetes that a node sets on itself.
const LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Prefixes of more such labels.
const PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Prefix of labels that no node sets.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

pub(super) fn admit(request: &Request<'_>) -> Result<(), Status> {
    let (node, named) = (quote(request.node), request.name());
    if named != request.node {
        return request.refuse(format!("node {node} is not allowed to modify node {}", quote(named)));
    }
    let new = request.object;
    match (request.attributes.operation, request.old) {
        (Operation::Create, _) => {
            if !new["spec"]["configSource"].is_null() {
                return request
                    .refuse(format!("node {node} is not allowed to create pods with a non-nil configSource"));
            }
            let labels = forbidden_labels(new, &Value::Null);
            if !labels.is_empty() {
                let labels = labels.join(", ");
                return request.refuse(format!("node {node} is not allowed to set the following labels: {labels}"));
            }
            Ok(())
        }
        (Operation::Update, Some(old)) => {
            let source = &new["spec"]["configSource"];
            if !source.is_null() && source != &old["spec"]["configSource"] {
                let why = format!("node {node} is not allowed to update configSource to a new non-nil configSource");
                return request.refuse(why);
            }
            if !same(&new["spec"]["taints"], &old["spec"]["taints"]) {
                return request.refuse(format!("node {node} is not allowed to modify taints"));
            }
            if !same(&new["metadata"]["ownerReferences"], &old["metadata"]["ownerReferences"]) {
                return request.refuse(format!("node {node} is not allowed to modify ownerReferences"));
            }
            let labels = forbidden_labels(new, old);
            if !labels.is_empty() {
                return request.refuse(format!("is not allowed to modify labels: {}", labels.join(", ")));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The changed labels that a node may not change, sorted.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let labels = |of: &Value| of["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (new, old) = (labels(new), labels(old));
    let keys: BTreeSet<String> = new.iter().chain(old.iter()).map(|(key, _)| key.to_string()).collect();
    keys.into_iter().filter(|key| new.get(key) != old.get(key) && is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_below =
        |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if is_below(RESTRICTED) {
        return true;
    }
    let of_kubernetes = is_below("kubernetes.io") || is_below("k8s.io");
    of_kubernetes && !LABELS.contains(&label) && !PREFIXES.iter().any(|prefix| is_below(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sets_the_labels_of_nodes_and_foreign_ones() {
        for label in
            ["a", "example.com/x", "kubernetes.io/hostname", "node.kubernetes.io/x", "a.kubelet.kubernetes.io/x"]
        {
            assert!(!is_forbidden(label), "{label}");
        }
        for label in [
            "kubernetes.io/foo",
            "k8s.io/x",
            "a.k8s.io/x",
            "node-role.kubernetes.io/master",
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
        ] {
            assert!(is_forbidden(label), "{label}");
        }
        assert!(!is_forbidden("notkubernetes.io/x"));
    }
}
