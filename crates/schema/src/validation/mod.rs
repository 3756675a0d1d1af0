//! What is wrong with an object: on create, on update, and on writes to subresources, with the reference's fields and words.
//!
//! - `rules.rs`, `amount.rs`, `address.rs`: what many kinds share
//! - `pod/`: pods and pod templates
//! - `core.rs`, `service.rs`: the rest of the core group
//! - `workload.rs`, `batch.rs`, `autoscaling.rs`: what runs pods
//! - `network.rs`, `storage.rs`, `rbac.rs`, `admission.rs`, `cluster.rs`, `devices.rs`: the other groups
//!
//! Kinds check their own fields together with their metadata; only an object that passes is checked again with the rules
//! that hold for every object (spec 02 §2).

use machinery::field_error::{FieldError, Path};
use machinery::names;
use machinery::object_meta::{MetaRules, validate_object_meta, validate_object_meta_update};
use serde_json::Value;

use crate::kind::{Kind, NameRule};
use crate::walk::Walk as _;

mod address;
mod admission;
mod amount;
mod autoscaling;
mod batch;
mod cluster;
mod core;
mod devices;
mod network;
mod pod;
mod rbac;
mod rules;
mod service;
mod storage;
mod workload;

type Errors = Vec<FieldError>;

/// A new object, after defaults, admission and `strategy::prepare_for_create`.
#[must_use]
pub fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !kind.custom {
        metadata(kind, object, &mut errors);
        own(kind, object, None, &mut errors);
    }
    if errors.is_empty() {
        let rules = MetaRules { name: names::NameRule::PathSegment, ..meta_rules(kind) };
        errors = validate_object_meta(object.at("metadata"), &MetaRules { known_finalizers_only: false, ..rules });
    }
    errors
}

/// A changed object, after `strategy::prepare_for_update`.
#[must_use]
pub fn validate_update(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = any_update(kind, new, old);
    if kind.custom {
        return errors;
    }
    let (group, name) = (kind.gvk.group.as_str(), kind.gvk.kind.as_str());
    // Most kinds check the metadata of an update once more with their own rules, and some the object as if it were new.
    if !matches!((group, name), ("", "Event") | ("events.k8s.io", _)) {
        update_metadata(kind, new, old, &mut errors);
    }
    match (group, name) {
        ("", "Pod") => {
            metadata(kind, new, &mut errors);
            pod::update::update(new, old, &mut errors);
        }
        _ => {
            own(kind, new, Some(old), &mut errors);
        }
    }
    errors
}

/// A write to `/status`.
#[must_use]
pub fn validate_status_update(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = any_update(kind, new, old);
    if kind.custom {
        return errors;
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
        ("certificates.k8s.io", _) => cluster::certificate_status(new, old, errors_of),
        _ => {}
    }
    errors
}

/// A write to another subresource that speaks the kind itself.
#[must_use]
pub fn validate_subresource_update(kind: &Kind, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    if subresource == "status" {
        return validate_status_update(kind, new, old);
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
        "approval" => cluster::certificate_approval(new, old, &mut errors),
        _ => {}
    }
    errors
}

/// A Scale sent to `/scale`.
#[must_use]
pub fn validate_scale(scale: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let rules = MetaRules { name: names::NameRule::DnsSubdomain, namespaced: true, known_finalizers_only: true };
    errors.extend(validate_object_meta(scale.at("metadata"), &rules));
    rules::not_negative(&mut errors, &Path::new("spec.replicas"), scale.int("spec.replicas"));
    errors
}

/// A Binding sent to `/binding`.
#[must_use]
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    pod::binding(binding, &mut errors);
    errors
}

/// A TokenRequest sent to `/token`.
#[must_use]
pub fn validate_token_request(request: &Value) -> Vec<FieldError> {
    let path = Path::new("spec.expirationSeconds");
    let mut errors = Vec::new();
    let seconds = request.int("spec.expirationSeconds").unwrap_or(3600);
    if seconds < 600 {
        errors.push(FieldError::invalid(path, seconds, "may not specify a duration less than 10 minutes"));
    }
    if seconds > 1 << 32 {
        errors.push(FieldError::invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"));
    }
    errors
}

/// The rules of a kind's own fields; `old` is there on update.
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
        group => cluster::validate(group, name, object, old, errors),
    }
}

fn meta_rules(kind: &Kind) -> MetaRules {
    let name = match kind.rules.name {
        NameRule::Dns1123Subdomain | NameRule::CronJob => names::NameRule::DnsSubdomain,
        NameRule::Dns1123Label => names::NameRule::DnsLabel,
        NameRule::PathSegment | NameRule::Own => names::NameRule::PathSegment,
    };
    // A set names its pods after itself, and pods become host names.
    let name =
        if kind.gvk.group == "apps" && kind.gvk.kind == "StatefulSet" { names::NameRule::DnsLabel } else { name };
    MetaRules { name, namespaced: kind.namespaced, known_finalizers_only: !kind.custom }
}

/// The metadata of an object as its kind wants it.
fn metadata(kind: &Kind, object: &Value, errors: &mut Errors) {
    let generic = matches!(
        kind.gvk.group.as_str(),
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io" | "scheduling.k8s.io"
    );
    if kind.gvk.kind == "Event" && kind.gvk.group.is_empty() {
        return;
    }
    let rules = MetaRules { known_finalizers_only: !generic, ..meta_rules(kind) };
    errors.extend(validate_object_meta(object.at("metadata"), &rules));
}

fn update_metadata(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    errors.extend(validate_object_meta_update(new.at("metadata"), old.at("metadata"), &meta_rules(kind)));
}

/// What no update may do.
fn any_update(kind: &Kind, new: &Value, old: &Value) -> Errors {
    let rules = MetaRules { known_finalizers_only: false, ..meta_rules(kind) };
    validate_object_meta_update(new.at("metadata"), old.at("metadata"), &rules)
}
