//! Validation of objects on create, on update and on writes to subresources, with the fields and messages of the reference.
//!
//! - `rules.rs`, `amount.rs`, `address.rs`, `go_url.rs`: rules that many kinds share
//! - `pod/`: pods and pod templates
//! - `core.rs`, `service.rs`: the rest of the core group
//! - `workload.rs`, `batch.rs`, `job_policies.rs`, `autoscaling.rs`: workloads
//! - `definition/`: CustomResourceDefinitions and their schemas
//! - `network.rs`, `storage.rs`, `rbac.rs`, `admission.rs`, `certificate.rs`, `cluster.rs`, `api_service.rs`, `devices.rs`: the other groups
//!
//! Most kinds check their own fields together with their metadata. For the others the rules for every object are checked once
//! their own fields pass (spec 02 §2).

use machinery::field_error::{FieldError, Path};
use machinery::field_errors::Errors;
use machinery::json::Value;
use machinery::names;
use machinery::object_meta::{MetaRules, validate_object_meta, validate_object_meta_update};

use crate::custom;
use crate::kind::{Kind, NameRule};
use crate::walk::Walk as _;

mod address;
mod admission;
mod amount;
mod api_service;
mod autoscaling;
mod batch;
mod certificate;
mod cluster;
mod core;
mod definition;
mod devices;
mod go_url;
mod job_policies;
mod network;
mod pod;
mod rbac;
mod rules;
mod service;
mod storage;
mod workload;

pub(crate) use definition::unknown_formats;

/// Validates a new object, after defaults, admission and `strategy::prepare_for_create`. `spec_is_known` for a pod whose spec is that
/// of another pod, which was valid; see [`spec_stands_alone`].
#[must_use]
pub fn validate_create(kind: &Kind, object: &Value, spec_is_known: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if spec_is_known {
        metadata(kind, object, &mut errors);
        pod::annotations(object, &Path::new("metadata.annotations"), &mut errors);
        return errors.into_vec();
    }
    if let Some(definition) = &kind.definition {
        let rules = MetaRules { known_finalizers_only: false, ..meta_rules(kind) };
        errors.extend(validate_object_meta(object.at("metadata"), &rules));
        errors.extend(custom::validate_create(definition, object));
        return errors.into_vec();
    }
    if !kind.custom {
        metadata(kind, object, &mut errors);
        own(kind, object, None, &mut errors);
    }
    // The rules for every object are weaker than those of kinds that check their own metadata.
    if errors.is_empty() && !checks_metadata(kind) {
        let rules = meta_rules(kind);
        let name = if kind.custom { rules.name } else { names::NameRule::PathSegment };
        let rules = MetaRules { name, known_finalizers_only: false, ..rules };
        errors.extend(validate_object_meta(object.at("metadata"), &rules));
    }
    errors.into_vec()
}

/// Returns whether the validity of a pod's spec is independent of the pod's name: then it is the same in every pod.
#[must_use]
pub fn spec_stands_alone(spec: &Value) -> bool {
    !spec.list("volumes").iter().any(|volume| volume.has("ephemeral"))
}

/// Returns whether a kind checks its own metadata: all but events of the core group and custom resources.
fn checks_metadata(kind: &Kind) -> bool {
    !(kind.custom || kind.gvk.group.is_empty() && kind.gvk.kind == "Event")
}

/// Validates a changed object, after `strategy::prepare_for_update`. Errors by rules of a custom resource that the old object
/// has too are returned as warnings.
#[must_use]
pub fn validate_update(kind: &Kind, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Vec<FieldError> {
    let mut errors = any_update(kind, new, old);
    if let Some(definition) = &kind.definition {
        update_metadata(kind, new, old, &mut errors);
        errors.extend(custom::validate_update(definition, new, old, warnings));
    }
    if kind.custom {
        return errors.into_vec();
    }
    let (group, name) = (kind.gvk.group.as_str(), kind.gvk.kind.as_str());
    // Most kinds check the metadata of an update again by their own rules, and some check the object as a new one.
    if !matches!((group, name), ("", "Event") | ("events.k8s.io", _)) {
        update_metadata(kind, new, old, &mut errors);
    }
    match (group, name) {
        ("", "Pod") => {
            metadata(kind, new, &mut errors);
            pod::update::update(new, old, &mut errors);
        }
        ("", "ConfigMap") => {
            metadata(kind, new, &mut errors);
            own(kind, new, Some(old), &mut errors);
        }
        _ => {
            own(kind, new, Some(old), &mut errors);
        }
    }
    errors.into_vec()
}

/// Checks fields that an update may change but a patch may not.
#[must_use]
pub fn validate_patched(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if kind.gvk.group == "apps" && kind.gvk.kind == "ControllerRevision" {
        workload::patched_revision(new, old, &mut errors);
    }
    errors.into_vec()
}

/// Validates a write to `/status`.
#[must_use]
pub fn validate_status_update(kind: &Kind, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Vec<FieldError> {
    let mut errors = any_update(kind, new, old);
    if let Some(definition) = &kind.definition {
        update_metadata(kind, new, old, &mut errors);
        errors.extend(custom::validate_status_update(definition, new, old, warnings));
    }
    if kind.custom {
        return errors.into_vec();
    }
    update_metadata(kind, new, old, &mut errors);
    let errors_of = &mut errors;
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::update::status(new, old, errors_of),
        ("", "Service") => service::status(new, errors_of),
        ("", "Namespace") => core::namespace_status(new, errors_of),
        ("", "Node") => core::node_update(new, old, errors_of),
        ("", "ResourceQuota") => core::quota_amounts(new, "status", errors_of),
        ("", "PersistentVolumeClaim") => storage::claim_status(new, errors_of),
        ("", "ReplicationController") | ("apps", _) => workload::status(&kind.gvk.kind, new, old, errors_of),
        ("batch", "Job") => batch::job_status(new, old, errors_of),
        ("autoscaling", _) => autoscaling::status(new, errors_of),
        ("policy", "PodDisruptionBudget") => workload::budget_status(new, errors_of),
        ("networking.k8s.io", "Ingress") => network::ingress_status(new, errors_of),
        ("apiextensions.k8s.io", _) => definition::accepted_names(new, errors_of),
        ("certificates.k8s.io", "CertificateSigningRequest") => certificate::validate_status(new, old, errors_of),
        _ => {}
    }
    errors.into_vec()
}

/// Validates a write to another subresource whose body is the kind itself.
#[must_use]
pub fn validate_subresource_update(
    kind: &Kind,
    subresource: &str,
    new: &Value,
    old: &Value,
    warnings: &mut Vec<String>,
) -> Vec<FieldError> {
    if subresource == "status" {
        return validate_status_update(kind, new, old, warnings);
    }
    let mut errors = any_update(kind, new, old);
    update_metadata(kind, new, old, &mut errors);
    match subresource {
        "ephemeralcontainers" => {
            metadata(kind, new, &mut errors);
            pod::update::ephemeral_containers(new, old, &mut errors);
        }
        "resize" => {
            metadata(kind, new, &mut errors);
            pod::update::resize(new, old, &mut errors);
        }
        "finalize" => core::namespace_finalizers(new, true, &mut errors),
        "approval" => certificate::validate_approval(new, old, &mut errors),
        _ => {}
    }
    errors.into_vec()
}

/// Validates a Scale sent to `/scale`.
#[must_use]
pub fn validate_scale(scale: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let rules = MetaRules { name: names::NameRule::DnsSubdomain, namespaced: true, known_finalizers_only: true };
    errors.extend(validate_object_meta(scale.at("metadata"), &rules));
    rules::not_negative(&mut errors, &Path::new("spec.replicas"), scale.int("spec.replicas"));
    errors.into_vec()
}

/// Validates a Binding sent to `/binding`.
#[must_use]
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    pod::binding(binding, &mut errors);
    errors.into_vec()
}

/// Checks the addresses and families of a new service in a cluster that has IPv4 only. Other rules are checked later.
#[must_use]
pub fn validate_service_families(service: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    service::families(service.at("spec"), &mut errors);
    errors.into_iter().collect()
}

/// Validates a TokenRequest sent to `/token`.
#[must_use]
pub fn validate_token_request(request: &Value) -> Vec<FieldError> {
    let path = Path::new("spec.expirationSeconds");
    let mut errors = Errors::new();
    let seconds = request.int("spec.expirationSeconds").unwrap_or(3600);
    if seconds < 600 {
        errors.push(FieldError::invalid(path, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > 1 << 32 {
        errors.push(FieldError::invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    errors.into_vec()
}

/// Checks a kind's own fields; `old` is set on update.
fn own(kind: &Kind, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let name = kind.gvk.kind.as_str();
    match kind.gvk.group.as_str() {
        "" => core::validate(name, object, old, errors),
        "apps" => workload::validate(name, object, old, errors),
        "batch" => batch::validate(name, object, old, errors),
        "autoscaling" => autoscaling::validate(&kind.gvk.version, object, errors),
        "policy" => workload::budget(object, errors),
        "networking.k8s.io" | "discovery.k8s.io" => network::validate(name, object, old, errors),
        "storage.k8s.io" => storage::validate(name, object, old, errors),
        "rbac.authorization.k8s.io" => rbac::validate(name, object, old, errors),
        "admissionregistration.k8s.io" => admission::validate(name, object, errors),
        "resource.k8s.io" => devices::validate(name, object, old, errors),
        "apiextensions.k8s.io" => definition::validate(object, old, errors),
        "certificates.k8s.io" if name == "CertificateSigningRequest" => certificate::validate(object, old, errors),
        group => cluster::validate(group, name, object, old, errors),
    }
}

fn meta_rules(kind: &Kind) -> MetaRules {
    let name = match kind.rules.name {
        NameRule::Dns1123Subdomain | NameRule::CronJob => names::NameRule::DnsSubdomain,
        NameRule::Dns1123Label => names::NameRule::DnsLabel,
        NameRule::PathSegment | NameRule::Own => names::NameRule::PathSegment,
    };
    // The name of a set is part of its pods' names, which become host names.
    let name =
        if kind.gvk.group == "apps" && kind.gvk.kind == "StatefulSet" { names::NameRule::DnsLabel } else { name };
    MetaRules { name, namespaced: kind.namespaced, known_finalizers_only: !kind.custom }
}

/// Checks the metadata of an object by the rules of its kind.
fn metadata(kind: &Kind, object: &Value, errors: &mut Errors) {
    if checks_metadata(kind) {
        errors.extend(validate_object_meta(object.at("metadata"), &own_rules(kind)));
    }
}

/// Returns the rules of a kind that checks its own metadata: some accept any finalizer.
fn own_rules(kind: &Kind) -> MetaRules {
    let generic = matches!(
        kind.gvk.group.as_str(),
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io" | "scheduling.k8s.io"
    );
    MetaRules { known_finalizers_only: !generic && !kind.custom, ..meta_rules(kind) }
}

fn update_metadata(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    errors.extend(validate_object_meta_update(new.at("metadata"), old.at("metadata"), &own_rules(kind)));
}

/// Checks fields that no update may change.
fn any_update(kind: &Kind, new: &Value, old: &Value) -> Errors {
    let rules = MetaRules { name: names::NameRule::PathSegment, known_finalizers_only: false, ..meta_rules(kind) };
    let mut errors = Errors::from(validate_object_meta(new.at("metadata"), &rules));
    errors.extend(validate_object_meta_update(new.at("metadata"), old.at("metadata"), &rules));
    errors
}

#[cfg(test)]
mod exact_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{defaults, kinds, strategy};
    use machinery::json::json;

    fn kind(group: &str, plural: &str) -> &'static Kind {
        kinds::builtin().get(group, "v1", plural).unwrap()
    }

    #[test]
    fn custom_resources_are_held_to_metadata_rules() {
        let custom = Kind { custom: true, ..kind("", "configmaps").clone() };
        let mut object = prepared(&custom, json!({"metadata": {"name": "A_b", "finalizers": ["free"]}}));
        let errors = validate_create(&custom, &object, false);
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["metadata.name"]);
        object["metadata"]["name"] = "a-b".into();
        assert!(validate_create(&custom, &object, false).is_empty());
    }

    /// Returns a new object after all steps before validation.
    fn prepared(kind: &Kind, mut object: Value) -> Value {
        object["metadata"]["namespace"] = if kind.namespaced { "ns".into() } else { Value::Null };
        object["metadata"]["uid"] = "u".into();
        defaults::apply(kind, &mut object, None);
        strategy::admit_create(kind, &mut object);
        strategy::prepare_for_create(kind, &mut object);
        object
    }

    fn refused(group: &str, plural: &str, object: Value) -> Vec<String> {
        let kind = kind(group, plural);
        validate_create(kind, &prepared(kind, object), false).iter().map(ToString::to_string).collect()
    }

    fn pod(spec: Value) -> Value {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c", "image": "i"}]);
        }
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    #[test]
    fn small_objects_are_fine() {
        assert_eq!(refused("", "pods", pod(json!({}))), [""; 0]);
        assert_eq!(refused("", "configmaps", json!({"metadata": {"name": "c"}, "data": {"a": "b"}})), [""; 0]);
        let spec = json!({"ports": [{"port": 80}]});
        assert_eq!(refused("", "services", json!({"metadata": {"name": "s"}, "spec": spec})), [""; 0]);
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        assert_eq!(refused("apps", "deployments", json!({"metadata": {"name": "d"}, "spec": spec})), [""; 0]);
    }

    #[test]
    fn pods_say_what_is_wrong_where() {
        assert_eq!(refused("", "pods", pod(json!({"containers": []}))), ["spec.containers: Required value"]);
        assert_eq!(
            refused("", "pods", pod(json!({"restartPolicy": "never"}))),
            [r#"spec.restartPolicy: Unsupported value: "never": supported values: "Always", "OnFailure", "Never""#]
        );
        let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}});
        let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
        assert_eq!(
            refused("", "pods", pod(json!({"containers": containers}))),
            [
                r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#
            ]
        );
    }

    #[test]
    fn what_may_not_change() {
        let pods = kind("", "pods");
        let mut old = prepared(pods, pod(json!({})));
        old["metadata"]["resourceVersion"] = "1".into();
        let mut image = old.clone();
        image["spec"]["containers"][0]["image"] = "other".into();
        assert!(validate_update(pods, &image, &old, &mut Vec::new()).is_empty(), "an image may change");
        let mut node = old.clone();
        node["spec"]["nodeName"] = "n".into();
        let errors = validate_update(pods, &node, &old, &mut Vec::new());
        assert_eq!(errors.len(), 1);
        assert!(errors[0].detail.starts_with("pod updates may not change fields other than"));

        let config_maps = kind("", "configmaps");
        let old = json!({"metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"}, "data": {"a": "1"}, "immutable": true});
        let mut new = old.clone();
        new["data"]["a"] = "2".into();
        let errors: Vec<String> =
            validate_update(config_maps, &new, &old, &mut Vec::new()).iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["data: Forbidden: field is immutable when `immutable` is set"]);
    }

    #[test]
    fn metadata_is_checked_once_more_only_when_the_rest_is_fine() {
        let errors = refused("rbac.authorization.k8s.io", "roles", json!({"metadata": {"name": "a/b"}, "rules": []}));
        assert_eq!(errors, [r#"metadata.name: Invalid value: "a/b": may not contain '/'"#]);
        let errors = refused("", "namespaces", json!({"metadata": {"name": "a.b"}}));
        assert_eq!(errors, [r#"metadata.name: Invalid value: "a.b": must not contain dots"#]);
    }

    #[test]
    fn scales_bindings_and_tokens() {
        let scale =
            |n: i64| validate_scale(&json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"replicas": n}}));
        assert!(scale(0).is_empty() && scale(-1).len() == 1);
        assert_eq!(validate_binding(&json!({"target": {"kind": "Pod", "name": ""}})).len(), 2);
        assert_eq!(validate_token_request(&json!({"spec": {"expirationSeconds": 5}})).len(), 1);
        assert!(validate_token_request(&json!({"spec": {}})).is_empty());
    }

    /// No input makes validation panic: every value of a large object is replaced by odd ones in turn.
    #[test]
    fn odd_values_anywhere_do_not_panic() {
        let whole: Value = serde_json::from_str(
            r#"{
            "metadata": {"name": "a", "namespace": "n", "labels": {"a": "b"}, "annotations": {"a": "b"}, "generation": 1},
            "type": "kubernetes.io/tls", "data": {"a": "MQ=="}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}], "handler": "h",
            "webhooks": [{"name": "a.b.c", "clientConfig": {"url": "https://a"}, "rules": [{"operations": ["*"]}]}],
            "subsets": [{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 1}]}], "parameters": {"a": "b"},
            "addressType": "IPv4", "endpoints": [{"addresses": ["1.1.1.1"]}], "ports": [{"port": 1}], "provisioner": "p",
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "type": "LoadBalancer", "clusterIPs": ["1.1.1.1"],
                "ports": [{"port": 1, "nodePort": 2, "targetPort": "x"}], "nodeSelector": {"a": "b"}, "schedule": "* * * * *",
                "timeZone": "UTC", "completions": 1, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {}}}],
                "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}], "resources": {"limits": {"cpu": "1"}},
                    "livenessProbe": {"httpGet": {"port": 1}}, "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                    "volumeMounts": [{"name": "v", "mountPath": "/"}], "securityContext": {"runAsUser": 1}}],
                "volumes": [{"name": "v", "secret": {"secretName": "s"}}], "tolerations": [{"key": "a"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
                "rules": [{"host": "h", "http": {"paths": [{"path": "/"}]}}], "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}, "request": "YQ==", "usages": ["any"],
                "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}, "drivers": [{"name": "d"}],
                "limits": [{"type": "Container", "max": {"cpu": "1"}}], "hard": {"pods": "1"}, "scopes": ["BestEffort"]
            },
            "status": {"conditions": [{"type": "Complete", "status": "True"}], "phase": "Bound", "podIPs": [{"ip": "x"}]}
        }"#,
        )
        .unwrap();
        let odd = [
            json!(null),
            json!(-1),
            json!("\u{0}%/.."),
            json!([]),
            json!({}),
            json!([null, 1, {"a": []}]),
            json!(1e300),
        ];
        let mut pointers = Vec::new();
        collect(&whole, String::new(), &mut pointers);
        for (i, pointer) in pointers.iter().enumerate() {
            for (j, value) in odd.iter().enumerate() {
                let mut object = whole.clone();
                *object.pointer_mut(pointer).unwrap() = value.clone();
                // A share of the kinds each time, so that every kind gets an odd value at every position.
                for kind in kinds::builtin().iter().skip((i + j) % odd.len()).step_by(odd.len()) {
                    let mut new = object.clone();
                    defaults::apply(kind, &mut new, None);
                    strategy::prepare_for_create(kind, &mut new);
                    let _ = validate_create(kind, &new, false);
                    let _ = crate::warnings::on_write(kind, &new, None, false);
                    let _ = validate_update(kind, &new, &whole, &mut Vec::new());
                    let _ = validate_status_update(kind, &new, &whole, &mut Vec::new());
                }
                for sub in ["resize", "ephemeralcontainers", "finalize", "approval"] {
                    let _ = validate_subresource_update(kind("", "pods"), sub, &object, &whole, &mut Vec::new());
                }
            }
        }
    }

    fn collect(value: &Value, at: String, pointers: &mut Vec<String>) {
        pointers.push(at.clone());
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(k, v)| collect(v, format!("{at}/{}", k.replace('/', "~1")), pointers))
            }
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(i, v)| collect(v, format!("{at}/{i}"), pointers))
            }
            _ => {}
        }
    }
}
