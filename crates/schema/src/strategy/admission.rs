//! Built-in admission that needs the object only. Admission that needs other objects (classes, limits, quotas, accounts) is in
//! the registry.

use std::sync::OnceLock;

use machinery::json::{List, Value, json};

use crate::kind::Kind;
use crate::walk::{Fields, Fill as _, Walk as _};

/// Changes a new object as the default admission plugins do.
pub fn admit_create(kind: &Kind, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => {
            if let Some(spec) = fields.child("spec") {
                tolerate_lost_nodes(spec);
                priority(spec);
            }
        }
        ("", "Node") => taint_not_ready(fields),
        ("", "PersistentVolumeClaim") => protect(fields, "kubernetes.io/pvc-protection"),
        ("", "PersistentVolume") => protect(fields, "kubernetes.io/pv-protection"),
        _ => {}
    }
}

/// DefaultTolerationSeconds: adds tolerations to a pod, unless its spec is the one that was admitted before.
pub fn tolerate_lost(pod: &mut Value, old: Option<&Value>) {
    let Some(spec) = pod.as_object_mut().and_then(|fields| fields.child("spec")) else { return };
    if !old.and_then(|old| old.map("spec")).is_some_and(|old| spec.is_same(old)) {
        tolerate_lost_nodes(spec);
    }
}

/// Priority: an update that states no priority keeps that of the pod.
pub fn keep_priority(pod: &mut Value, old: &Value) {
    let Some(spec) = pod.as_object_mut().and_then(|fields| fields.child("spec")) else { return };
    if old.map("spec").is_some_and(|old| spec.is_same(old)) {
        return;
    }
    for name in ["priority", "preemptionPolicy"] {
        if let stored @ (Value::Number(_) | Value::String(_)) = old.at("spec").at(name) {
            spec.fill(name, stored.clone());
        }
    }
}

/// TaintNodesByCondition: keeps pods from a new node until it is ready.
pub fn taint_new_node(node: &mut Value) {
    if let Some(fields) = node.as_object_mut() {
        taint_not_ready(fields);
    }
}

/// StorageObjectInUseProtection: adds the finalizer of volumes, claims and their classes.
pub fn protect_in_use(kind: &Kind, object: &mut Value) {
    let finalizer = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "PersistentVolumeClaim") => "kubernetes.io/pvc-protection",
        ("", "PersistentVolume") => "kubernetes.io/pv-protection",
        ("storage.k8s.io", "VolumeAttributesClass") => "kubernetes.io/vac-protection",
        _ => return,
    };
    if let Some(fields) = object.as_object_mut() {
        protect(fields, finalizer);
    }
}

/// Changes an update as the default admission plugins do.
pub fn admit_update(kind: &Kind, new: &mut Value, old: &Value) {
    let Some(fields) = new.as_object_mut() else { return };
    if kind.gvk.group.is_empty()
        && kind.gvk.kind == "Pod"
        && let Some(spec) = fields.child("spec")
        // An unchanged spec was admitted before.
        && !old.map("spec").is_some_and(|old| spec.is_same(old))
    {
        tolerate_lost_nodes(spec);
        for name in ["priority", "preemptionPolicy"] {
            if let stored @ (Value::Number(_) | Value::String(_)) = old.at("spec").at(name) {
                spec.fill(name, stored.clone());
            }
        }
    }
}

const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds tolerations with which a pod stays on a node that is not ready or unreachable for five minutes, unless it has its own.
fn tolerate_lost_nodes(spec: &mut Fields) {
    static TOLERATIONS: OnceLock<[Value; 2]> = OnceLock::new();
    let tolerations = TOLERATIONS.get_or_init(|| {
        LOST.map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
    });
    for (key, toleration) in LOST.into_iter().zip(tolerations) {
        let tolerated = spec.get("tolerations").and_then(Value::as_array).into_iter().flatten().any(|toleration| {
            matches!(toleration.text("effect"), "NoExecute" | "")
                && (toleration.text("key") == key || toleration.text("key").is_empty())
        });
        if tolerated {
            continue;
        }
        spec.fill("tolerations", List::new());
        if let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            list.push(toleration.clone());
        }
    }
}

/// Sets the priorities that need no lookup: those without a class, or with one of the two that every server has.
fn priority(spec: &mut Fields) {
    let value = match spec.word("priorityClassName") {
        "" => 0,
        "system-cluster-critical" => 2_000_000_000,
        "system-node-critical" => 2_000_001_000,
        _ => return,
    };
    spec.fill("priority", value);
    spec.fill("preemptionPolicy", "PreemptLowerPriority");
}

/// Adds the taint that keeps pods from a new node until it is ready.
fn taint_not_ready(node: &mut Fields) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let Some(spec) = node.child_or_new("spec") else { return };
    spec.fill("taints", json!([]));
    if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut)
        && !taints.iter().any(|taint| taint.text("key") == KEY && taint.text("effect") == "NoSchedule")
    {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}

/// Adds the finalizer that keeps volumes and claims in use from being removed.
fn protect(object: &mut Fields, finalizer: &str) {
    let Some(metadata) = object.child_or_new("metadata") else { return };
    metadata.fill("finalizers", json!([]));
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut)
        && !finalizers.iter().any(|f| f == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;

    #[test]
    fn a_toleration_for_everything_adds_none() {
        let pods = builtin().get("", "v1", "pods").unwrap();
        let mut pod = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        admit_create(pods, &mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
        let mut pod = json!({"spec": {"priorityClassName": "system-node-critical"}});
        admit_create(pods, &mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
        assert_eq!(pod["spec"]["priority"], 2_000_001_000);
    }

    #[test]
    fn an_unknown_priority_class_is_left_to_the_lookup() {
        let mut pod = json!({"spec": {"priorityClassName": "mine"}});
        admit_create(builtin().get("", "v1", "pods").unwrap(), &mut pod);
        assert!(pod["spec"].get("priority").is_none());
    }
}
