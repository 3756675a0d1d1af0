//! Preparation of namespaces, volumes, certificates, leases and definitions.

use machinery::json::{Value, json};

use super::copy_field;
use crate::walk::{Fields, Fill as _, Walk as _};

pub(super) fn create(group: &str, kind: &str, object: &mut Fields) {
    match (group, kind) {
        ("", "Namespace") => {
            let Some(spec) = object.child_or_new("spec") else { return };
            spec.fill("finalizers", json!([]));
            if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut)
                && !finalizers.iter().any(|f| f == "kubernetes")
            {
                finalizers.push("kubernetes".into());
            }
        }
        ("", "PersistentVolume") => {
            let now = object.get("metadata").map_or(Value::Null, |metadata| metadata.at("creationTimestamp").clone());
            object.insert("status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
        }
        ("", "PersistentVolumeClaim") => data_sources(object),
        ("", "ServiceAccount") => only_names_of_secrets(object),
        ("", "Node") => drop_from_spec(object, &Value::Null, "configSource"),
        ("storage.k8s.io", "CSIDriver") => drop_from_spec(object, &Value::Null, "preventPodSchedulingIfMissing"),
        ("coordination.k8s.io", "Lease") => gated_lease_fields(object, &Value::Null),
        ("apiregistration.k8s.io", "APIService") => {
            let is_local = object.get("spec").is_none_or(|spec| spec.at("service").is_null());
            let now = object.get("metadata").map_or(Value::Null, |metadata| metadata.at("creationTimestamp").clone());
            let local = json!({"conditions": [{
                "type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
                "message": "Local APIServices are always available",
            }]});
            object.insert("status", if is_local { local } else { json!({}) });
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let versions = object.get("spec").map(|spec| spec.list("versions")).unwrap_or_default();
            let stored = versions.iter().filter(|version| version.flag("storage") == Some(true));
            let stored: Vec<Value> = stored.map(|version| version.at("name").clone()).take(1).collect();
            let status =
                json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
            object.insert("status", status);
        }
        _ => {}
    }
}

/// Keeps the names of the secrets of an account only: they are in its namespace.
fn only_names_of_secrets(object: &mut Fields) {
    for secret in object.items("secrets") {
        secret.retain(|field, _| field == "name");
    }
}

/// Removes a field that only objects which have it already may keep.
fn drop_from_spec(object: &mut Fields, old: &Value, field: &str) {
    if !old.at("spec").has(field)
        && let Some(spec) = object.child("spec")
    {
        spec.shift_remove(field);
    }
}

pub(super) fn update(group: &str, kind: &str, new: &mut Fields, old: &Value) {
    match (group, kind) {
        ("", "Namespace") => {
            if let Some(spec) = new.child_or_new("spec") {
                copy_field(spec, old.at("spec"), "finalizers");
            }
        }
        ("", "PersistentVolumeClaim") => data_sources(new),
        ("", "Secret") => {
            if let kind @ Value::String(_) = old.at("type") {
                new.fill_empty("type", kind.clone());
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => store_version(new),
        ("certificates.k8s.io", "CertificateSigningRequest") => copy_field(new, old, "spec"),
        ("", "ServiceAccount") => only_names_of_secrets(new),
        ("", "Node") => drop_from_spec(new, old, "configSource"),
        ("storage.k8s.io", "CSIDriver") => {
            drop_from_spec(new, old, "preventPodSchedulingIfMissing");
            count_driver_changes(new, old);
        }
        ("coordination.k8s.io", "Lease") => gated_lease_fields(new, old),
        _ => {}
    }
}

/// Adds the storage version to those that objects in the store may have.
fn store_version(definition: &mut Fields) {
    let versions = definition.get("spec").map(|spec| spec.list("versions")).unwrap_or_default();
    let Some(name) = versions.iter().find(|version| version.flag("storage") == Some(true)) else { return };
    let name = name.at("name").clone();
    let Some(status) = definition.child_or_new("status") else { return };
    status.fill("storedVersions", json!([]));
    if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut)
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}

/// Keeps `dataSource` and `dataSourceRef` equal where both can express the source.
fn data_sources(claim: &mut Fields) {
    let Some(spec) = claim.child("spec") else { return };
    let source = spec.get("dataSource").filter(|source| source.is_object()).cloned();
    let reference = spec.get("dataSourceRef").filter(|source| source.is_object()).cloned();
    let known = |source: &Value| {
        matches!(
            (source.text("apiGroup"), source.text("kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    match (source, reference) {
        // The old field allows no other source: it is dropped silently.
        (Some(source), None) if !known(&source) => {
            spec.shift_remove("dataSource");
        }
        (Some(source), None) => {
            spec.insert("dataSourceRef", source);
        }
        (None, Some(reference)) if reference.text("namespace").is_empty() => {
            spec.insert("dataSource", reference);
        }
        _ => {}
    }
}

/// Counts the changes of a driver, which has no generation until its spec changes for the first time.
fn count_driver_changes(new: &mut Fields, old: &Value) {
    if new.get("spec").unwrap_or(&Value::Null) != old.at("spec") {
        super::set_generation(new, old.int("metadata.generation").unwrap_or(0) + 1);
    }
}

/// Drops fields of a disabled feature, unless the stored object has them.
fn gated_lease_fields(lease: &mut Fields, old: &Value) {
    if let Some(spec) = lease.child("spec") {
        for name in ["strategy", "preferredHolder"] {
            if !old.at("spec").has(name) {
                spec.shift_remove(name);
            }
        }
    }
}

/// Records the time of a change of a volume's phase.
pub(super) fn volume_phase(volume: &mut Fields, old: &Value, now: &str) {
    let stored = old.at("status.lastPhaseTransitionTime");
    let Some(status) = volume.child("status") else { return };
    let changed = status.word("phase") != old.text("status.phase");
    let sent = status.get("lastPhaseTransitionTime").filter(|time| !time.is_null());
    if changed && sent.is_none_or(|sent| sent == stored) {
        status.insert("lastPhaseTransitionTime", now.into());
    } else if !changed && sent.is_none() && !stored.is_null() {
        status.insert("lastPhaseTransitionTime", stored.clone());
    }
}

/// Keeps the decisions about a request as they are stored. Where the status has more or fewer of them, validation refuses it.
pub(super) fn certificate_status(request: &mut Fields, old: &Value, now: &str) {
    let Some(status) = request.child("status") else { return };
    for kind in ["Approved", "Denied"] {
        let stored = old.list("status.conditions").iter().filter(|condition| condition.text("type") == kind);
        let sent = status.items("conditions").filter(|condition| condition.word("type") == kind);
        let (stored, mut sent): (Vec<&Value>, Vec<_>) = (stored.collect(), sent.collect());
        if stored.len() == sent.len() {
            for (condition, stored) in sent.iter_mut().zip(stored) {
                if let Some(stored) = stored.as_object() {
                    **condition = stored.clone();
                }
            }
        }
    }
    condition_times(status, old, now);
}

/// Keeps the stored request except for the conditions of its status.
pub(super) fn approve_certificate(request: &mut Fields, old: &Value, now: &str) {
    let conditions = request.get("status").map(|status| status.at("conditions").clone());
    copy_field(request, old, "spec");
    copy_field(request, old, "status");
    let Some(status) = request.child_or_new("status") else { return };
    match conditions {
        Some(conditions @ Value::Array(_)) => status.insert("conditions", conditions),
        _ => status.shift_remove("conditions"),
    };
    condition_times(status, old, now);
}

fn condition_times(status: &mut Fields, old: &Value, now: &str) {
    for condition in status.items("conditions") {
        condition.fill_empty("lastUpdateTime", now);
        if !condition.given("lastTransitionTime") {
            let same = old.list("status.conditions").iter().find(|stored| {
                stored.text("type") == condition.word("type") && stored.text("status") == condition.word("status")
            });
            let time = same.map(|stored| stored.at("lastTransitionTime").clone()).filter(|time| !time.is_null());
            condition.insert("lastTransitionTime", time.unwrap_or_else(|| now.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_a_claim_mirror_each_other() {
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
        let mut claim = json!({"spec": {"dataSourceRef": snapshot}});
        data_sources(claim.as_object_mut().unwrap());
        assert_eq!(claim["spec"]["dataSource"], snapshot);
        let mut claim = json!({"spec": {"dataSource": {"apiGroup": "example.com", "kind": "Other", "name": "o"}}});
        data_sources(claim.as_object_mut().unwrap());
        assert_eq!(claim, json!({"spec": {}}));
    }

    #[test]
    fn csr_7_a_status_write_keeps_decisions_as_they_are() {
        let old = json!({"status": {"conditions": [
            {"type": "Denied", "status": "True", "message": "m", "lastTransitionTime": "t", "lastUpdateTime": "t"},
        ]}});
        let mut new = json!({"status": {"conditions": [
            {"type": "Failed", "status": "True"}, {"type": "Denied", "status": "True", "message": "other"},
            {"type": "Approved", "status": "True"},
        ]}});
        certificate_status(new.as_object_mut().unwrap(), &old, "now");
        let conditions = &new["status"]["conditions"];
        assert_eq!(conditions[1], old["status"]["conditions"][0]);
        assert_eq!(conditions[0]["lastTransitionTime"], "now");
        assert_eq!(conditions[2]["type"], "Approved", "validation refuses it");
    }

    #[test]
    fn phases_remember_their_start() {
        let old = json!({"status": {"phase": "Pending", "lastPhaseTransitionTime": "then"}});
        let mut new = json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "then"}});
        volume_phase(new.as_object_mut().unwrap(), &old, "now");
        assert_eq!(new["status"]["lastPhaseTransitionTime"], "now");
    }
}
