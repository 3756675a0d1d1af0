//! Preparation of pods: their initial status, and the fields that their subresources may change.

use machinery::json::{Value, json};

use super::{copy_field, keep_metadata};
use crate::walk::{Fields, Fill as _, Walk as _};

pub(super) fn create(pod: &mut Fields) {
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(pod.get("spec").unwrap_or(&Value::Null))});
    let gated = pod.get("spec").is_some_and(|spec| !spec.list("schedulingGates").is_empty());
    if gated {
        let now = pod.get("metadata").map_or(Value::Null, |metadata| metadata.at("creationTimestamp").clone());
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now,
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod.insert("status", status);
}

pub(super) fn update(pod: &mut Fields, old: &Value) {
    // A negative period used to mean "immediately".
    if let Some(spec) = pod.child("spec")
        && !old.map("spec").is_some_and(|old| spec.is_same(old))
        && spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0)
    {
        spec.insert("terminationGracePeriodSeconds", 1.into());
    }
}

pub(super) fn update_status(pod: &mut Fields, old: &Value) {
    keep_metadata(pod, old, &["ownerReferences", "deletionTimestamp"]);
    let class = old.at("status.qosClass");
    if let (false, Some(status)) = (class.is_null(), pod.child("status")) {
        status.fill_empty("qosClass", class.clone());
    }
}

/// Keeps the stored pod except for `spec.ephemeralContainers`.
pub(super) fn update_ephemeral_containers(pod: &mut Fields, old: &Value) {
    let sent = pod.get_mut("spec").and_then(|spec| spec.as_object_mut()?.shift_remove("ephemeralContainers"));
    restore(pod, old);
    if let Some(spec) = pod.child("spec") {
        match sent {
            Some(containers) => spec.insert("ephemeralContainers", containers),
            None => spec.shift_remove("ephemeralContainers"),
        };
    }
}

/// Keeps the stored pod except for the resources and resize policies of containers that both pods have.
pub(super) fn update_resources(pod: &mut Fields, old: &Value) {
    let sent = pod.shift_remove("spec").unwrap_or(Value::Null);
    restore(pod, old);
    let Some(spec) = pod.child("spec") else { return };
    if let Some(resources) = sent.as_object().and_then(|spec| spec.get("resources")) {
        spec.insert("resources", resources.clone());
    }
    for list in ["containers", "initContainers"] {
        let sent = sent.list(list);
        // Validation notices added or removed containers only if the lists differ in length.
        if sent.len() != old.at("spec").list(list).len() {
            spec.insert(list.to_owned(), sent.to_vec().into());
            continue;
        }
        for (container, sent) in spec.items(list).zip(sent) {
            if container.word("name") != sent.text("name") {
                continue;
            }
            for name in ["resources", "resizePolicy"] {
                copy_field(container, sent, name);
            }
        }
    }
}

/// Restores the stored pod, with the metadata that the sent one may change.
fn restore(pod: &mut Fields, old: &Value) {
    let metadata = pod.shift_remove("metadata");
    let Some(old) = old.as_object() else { return };
    let kept = pod.get("apiVersion").cloned().zip(pod.get("kind").cloned());
    *pod = old.clone();
    if let Some((version, kind)) = kept {
        pod.insert("apiVersion", version);
        pod.insert("kind", kind);
    }
    if let Some(metadata @ Value::Object(_)) = metadata {
        // The resourceVersion is a precondition; managedFields record this write.
        for name in ["resourceVersion", "managedFields"] {
            if let (Some(stored), Some(value)) = (pod.child("metadata"), metadata.as_object().and_then(|m| m.get(name)))
            {
                stored.insert(name.to_owned(), value.clone());
            }
        }
    }
}

/// Returns `Guaranteed` if every container has limits for cpu and memory and equal requests, `BestEffort` if none has any
/// requests or limits, else `Burstable`.
#[must_use]
pub fn qos_class(spec: &Value) -> &'static str {
    let amount = |resources: &Value, which: &str, name: &str| -> Option<String> {
        let amount = resources.map(which)?.get(name)?;
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        (text != "0").then_some(text)
    };
    let whole = [spec.at("resources").clone()];
    let containers: Vec<&Value> = if spec.has("resources") {
        whole.iter().collect()
    } else {
        let all = ["containers", "initContainers"].into_iter().flat_map(|list| spec.list(list));
        all.map(|container| container.at("resources")).collect()
    };
    let (mut any, mut all) = (false, true);
    for resources in containers {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(resources, "requests", name), amount(resources, "limits", name));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_service() {
        let pod = |resources: Value| json!({"containers": [{"resources": resources}]});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        assert_eq!(qos_class(&pod(json!({"requests": {"cpu": "0"}}))), "BestEffort");
        assert_eq!(qos_class(&pod(json!({"requests": {"cpu": "1"}}))), "Burstable");
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(qos_class(&pod(json!({"requests": full, "limits": full}))), "Guaranteed");
        assert_eq!(qos_class(&pod(json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}))), "Burstable");
        let mixed = json!({"containers": [{"resources": {"requests": full, "limits": full}}, {"resources": {}}]});
        assert_eq!(qos_class(&mixed), "Burstable");
    }

    #[test]
    fn only_resources_change_through_resize() {
        let old = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "n",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}});
        let mut new = json!({"metadata": {"name": "p", "labels": {"x": "y"}, "resourceVersion": "7"}, "spec": {
            "containers": [{"name": "c", "image": "other", "resources": {"limits": {"cpu": "2"}}}]}});
        update_resources(new.as_object_mut().unwrap(), &old);
        assert_eq!(
            new["spec"]["containers"][0],
            json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}})
        );
        assert_eq!(new["metadata"], json!({"name": "p", "labels": {"a": "b"}, "resourceVersion": "7"}));
        assert_eq!(new["spec"]["nodeName"], "n");
    }
}
