//! Preparation of objects before a write, after defaults and before validation: fields of the server are set or kept, status and
//! spec are separated, the generation is counted.
//!
//! - this file: the entry points, and the steps that all kinds share
//! - `admission.rs`: admission that needs the object only
//! - `pod.rs`, `service.rs`, `workload.rs`, `cluster.rs`: steps of single kinds
//!
//! The caller has already set `metadata.uid` and `metadata.creationTimestamp` on a new object, and has kept those, the
//! deletion fields and the resourceVersion of the stored one on an update.

use machinery::json::{Value, json};

use crate::kind::Kind;
use crate::walk::{Fields, Fill as _, Walk as _};

mod admission;
mod cluster;
mod pod;
mod service;
mod workload;

pub use admission::{admit_create, admit_update, keep_priority, protect_in_use, taint_new_node, tolerate_lost};
pub use pod::qos_class;

/// Prepares a new object: the server sets its status, its generation is one.
pub fn prepare_for_create(kind: &Kind, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    if kind.rules.generation {
        set_generation(fields, 1);
    }
    if kind.custom {
        if kind.rules.status {
            fields.shift_remove("status");
        }
        return;
    }
    if let Some(status) = first_status(kind) {
        fields.insert("status", status);
    }
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::create(fields),
        ("", "Service") => service::create(fields),
        ("apps", "DaemonSet") => workload::create_daemon_set(fields),
        ("batch", "Job") => workload::create_job(fields),
        (group, kind) => cluster::create(group, kind, fields),
    }
}

/// Copies the labels of its pods to a job without labels, for field ownership only: returns true if they must be removed again.
///
/// The reference sets these labels twice: as a default, which the creator owns, and again after creation has added to them, which
/// no manager owns. This is the first, before ownership is recorded.
pub fn lend_labels(kind: &Kind, object: &mut Value) -> bool {
    if kind.custom || (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) != ("batch", "Job") {
        return false;
    }
    let Some(fields) = object.as_object_mut() else { return false };
    let labelled = |fields: &mut Fields| metadata(fields).is_some_and(|metadata| metadata.contains_key("labels"));
    if labelled(fields) {
        return false;
    }
    workload::default_job_labels(fields);
    labelled(fields)
}

/// Prepares a write to the object itself: the stored status is kept, and the generation rises if the desired state changed.
pub fn prepare_for_update(kind: &Kind, new: &mut Value, old: &Value) {
    let Some(fields) = new.as_object_mut() else { return };
    keep_generation(fields, old);
    if kind.rules.status {
        copy_field(fields, old, "status");
    }
    if !kind.custom {
        match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
            ("", "Pod") => pod::update(fields, old),
            ("", "Service") => service::update(fields, old),
            ("apps", "DaemonSet") => workload::update_daemon_set(fields, old),
            ("batch", "Job") => workload::default_job_labels(fields),
            (group, kind) => cluster::update(group, kind, fields, old),
        }
    }
    if kind.rules.generation && changes_generation(kind, fields, old) {
        set_generation(fields, old.int("metadata.generation").unwrap_or(0) + 1);
    }
}

/// Prepares a write to `/status`: only the status changes, and the metadata that the kind allows. `now` is RFC 3339.
pub fn prepare_for_status_update(kind: &Kind, new: &mut Value, old: &Value, now: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    keep_generation(fields, old);
    if kind.custom {
        // Everything outside the status is kept from the stored object.
        let managed = fields.get("metadata").map(|metadata| metadata.at("managedFields").clone());
        let status = fields.shift_remove("status");
        if let Some(old) = old.as_object() {
            *fields = old.clone();
        }
        match status {
            Some(status) => fields.insert("status", status),
            None => fields.shift_remove("status"),
        };
        set_managed_fields(fields, managed);
        return;
    }
    copy_field(fields, old, "spec");
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::update_status(fields, old),
        ("", "PersistentVolume") => cluster::volume_phase(fields, old, now),
        ("apps", "Deployment") => keep_metadata(fields, old, &["labels"]),
        ("certificates.k8s.io", "CertificateSigningRequest") => cluster::certificate_status(fields, old, now),
        ("flowcontrol.apiserver.k8s.io", _) => {
            let managed = fields.get("metadata").map(|metadata| metadata.at("managedFields").clone());
            copy_field(fields, old, "metadata");
            set_managed_fields(fields, managed);
        }
        ("admissionregistration.k8s.io" | "resource.k8s.io" | "storage.k8s.io" | "apiregistration.k8s.io", _)
        | ("networking.k8s.io", "ServiceCIDR") => {
            keep_metadata(fields, old, &["labels", "annotations", "finalizers", "ownerReferences"]);
        }
        _ => {}
    }
}

/// Prepares a write to another subresource whose body is the kind itself.
pub fn prepare_for_subresource_update(kind: &Kind, subresource: &str, new: &mut Value, old: &Value, now: &str) {
    if subresource == "status" {
        return prepare_for_status_update(kind, new, old, now);
    }
    let Some(fields) = new.as_object_mut() else { return };
    keep_generation(fields, old);
    match subresource {
        "ephemeralcontainers" => pod::update_ephemeral_containers(fields, old),
        "resize" => pod::update_resources(fields, old),
        "approval" => cluster::approve_certificate(fields, old, now),
        "finalize" => copy_field(fields, old, "status"),
        _ => {}
    }
    if kind.rules.generation && changes_generation(kind, fields, old) {
        set_generation(fields, old.int("metadata.generation").unwrap_or(0) + 1);
    }
}

/// Returns the status of a new object; `None` if that of the client is kept.
fn first_status(kind: &Kind) -> Option<Value> {
    Some(match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Node") => return None,
        _ if !kind.rules.status => return None,
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
        }),
        ("autoscaling", _) if kind.gvk.version == "v1" => json!({"currentReplicas": 0, "desiredReplicas": 0}),
        ("autoscaling", _) => json!({"desiredReplicas": 0, "currentMetrics": null}),
        ("policy", "PodDisruptionBudget") => {
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
        }
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        _ => json!({}),
    })
}

/// Returns whether an update changes what the generation counts.
fn changes_generation(kind: &Kind, new: &Fields, old: &Value) -> bool {
    let differs = |name: &str| new.get(name).unwrap_or(&Value::Null) != old.at(name);
    if kind.custom {
        // Everything counts but metadata, and status if it is a subresource.
        let ignored =
            |name: &str| matches!(name, "metadata" | "apiVersion" | "kind") || (name == "status" && kind.rules.status);
        let names = new.keys().chain(old.as_object().into_iter().flat_map(|old| old.keys()));
        return names.filter(|name| !ignored(name)).any(|name| differs(name));
    }
    let of_metadata =
        |name: &str| new.get("metadata").map_or(&Value::Null, |m| m.at(name)) != old.at("metadata").at(name);
    match kind.gvk.kind.as_str() {
        "Deployment" => differs("spec") || of_metadata("annotations"),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => differs("webhooks"),
        "PodTemplate" => differs("template"),
        "EndpointSlice" => ["addressType", "endpoints", "ports"].into_iter().any(differs) || of_metadata("labels"),
        // Its generation is set once.
        "PriorityClass" => false,
        _ => differs("spec"),
    }
}

fn metadata(fields: &mut Fields) -> Option<&mut Fields> {
    fields.child_or_new("metadata")
}

fn set_generation(fields: &mut Fields, generation: i64) {
    if let Some(metadata) = metadata(fields) {
        metadata.insert("generation", generation.into());
    }
}

fn keep_generation(fields: &mut Fields, old: &Value) {
    keep_metadata(fields, old, &["generation"]);
}

/// Replaces a field by that of another object, which may lack it.
fn copy_field(fields: &mut Fields, old: &Value, name: &str) {
    match old.as_object().and_then(|old| old.get(name)) {
        Some(stored) => fields.insert(name.to_owned(), stored.clone()),
        None => fields.shift_remove(name),
    };
}

fn keep_metadata(fields: &mut Fields, old: &Value, names: &[&str]) {
    if let Some(metadata) = metadata(fields) {
        for name in names {
            copy_field(metadata, old.at("metadata"), name);
        }
    }
}

fn set_managed_fields(fields: &mut Fields, managed: Option<Value>) {
    if let Some(metadata) = metadata(fields) {
        match managed {
            Some(managed) if !managed.is_null() => metadata.insert("managedFields", managed),
            _ => metadata.shift_remove("managedFields"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;

    fn kind(group: &str, version: &str, plural: &str) -> &'static Kind {
        builtin().get(group, version, plural).unwrap()
    }

    #[test]
    fn a_new_pod_is_pending_whatever_status_is_sent() {
        let mut pod = json!({"metadata": {"generation": 7}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                             "status": {"phase": "Running"}});
        prepare_for_create(kind("", "v1", "pods"), &mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
        assert_eq!(pod["metadata"]["generation"], 1);
    }

    #[test]
    fn the_generation_rises_with_the_spec_only() {
        let deployments = kind("apps", "v1", "deployments");
        let old = json!({"metadata": {"generation": 3}, "spec": {"replicas": 1}, "status": {"replicas": 1}});
        let mut same =
            json!({"metadata": {"labels": {"a": "b"}, "generation": 9}, "spec": {"replicas": 1}, "status": {}});
        prepare_for_update(deployments, &mut same, &old);
        assert_eq!(same["metadata"]["generation"], 3);
        assert_eq!(same["status"], json!({"replicas": 1}), "the stored status stays");
        let mut scaled = json!({"metadata": {}, "spec": {"replicas": 2}});
        prepare_for_update(deployments, &mut scaled, &old);
        assert_eq!(scaled["metadata"]["generation"], 4);
        let mut annotated = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 1}});
        prepare_for_update(deployments, &mut annotated, &old);
        assert_eq!(annotated["metadata"]["generation"], 4, "annotations of a deployment count");
    }

    #[test]
    fn a_status_write_keeps_the_spec() {
        let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1}, "status": {}});
        let mut new = json!({"metadata": {"labels": {"x": "y"}, "annotations": {"k": "v"}}, "spec": {"replicas": 5}, "status": {"replicas": 1}});
        prepare_for_status_update(kind("apps", "v1", "deployments"), &mut new, &old, "2026-01-01T00:00:00Z");
        assert_eq!(new["spec"], json!({"replicas": 1}));
        assert_eq!(new["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(new["metadata"]["annotations"], json!({"k": "v"}));
        assert_eq!(new["status"], json!({"replicas": 1}));
    }

    #[test]
    fn a_namespace_ends_only_when_its_content_is_gone() {
        let mut namespace = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["example.com/x"]}});
        prepare_for_create(kind("", "v1", "namespaces"), &mut namespace);
        assert_eq!(namespace["spec"]["finalizers"], json!(["example.com/x", "kubernetes"]));
        let old = namespace.clone();
        let mut new = json!({"metadata": {"name": "n"}, "spec": {}});
        prepare_for_update(kind("", "v1", "namespaces"), &mut new, &old);
        assert_eq!(new["spec"]["finalizers"], old["spec"]["finalizers"]);
    }

    #[test]
    fn a_custom_resource_counts_what_is_not_status() {
        let mut custom = Kind::clone(kind("apps", "v1", "deployments"));
        custom.custom = true;
        let old = json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {"s": 1}});
        let mut new = json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {"s": 2}, "extra": true});
        prepare_for_update(&custom, &mut new, &old);
        assert_eq!((&new["metadata"]["generation"], &new["status"]), (&json!(2), &json!({"s": 1})));
        let mut status = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"a": 9}, "status": {"s": 3}});
        prepare_for_status_update(&custom, &mut status, &old, "2026-01-01T00:00:00Z");
        assert_eq!(status, json!({"metadata": {"generation": 1}, "spec": {"a": 1}, "status": {"s": 3}}));
    }

    #[test]
    fn odd_objects_do_not_panic() {
        let odd = [
            json!(null),
            json!([]),
            json!({"metadata": [], "spec": 3, "status": "x"}),
            json!({"spec": {"ports": {}, "template": []}}),
        ];
        for kind in builtin().iter() {
            for old in &odd {
                for new in &odd {
                    prepare_for_create(kind, &mut new.clone());
                    prepare_for_update(kind, &mut new.clone(), old);
                    admit_create(kind, &mut new.clone());
                    for subresource in ["status", "resize", "ephemeralcontainers", "approval", "finalize"] {
                        prepare_for_subresource_update(kind, subresource, &mut new.clone(), old, "");
                    }
                }
            }
        }
    }
}
