//! Validation of pods and of pod specs in other kinds.
//!
//! - this file: a spec as a whole
//! - `container.rs`: containers of all kinds, their ports, variables, probes and hooks
//! - `resources.rs`: amounts of cpu, memory and the like
//! - `volume.rs`: volumes and their mounts
//! - `security.rs`: security contexts, and fields that an operating system does not support
//! - `scheduling.rs`: affinity, tolerations, spreading, gates
//! - `update.rs`: updates, and the status

use std::collections::{HashMap, HashSet};

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::rules::{id, named, objections, optional, required, template_meta, word};
use super::{Errors, address};
use crate::walk::Walk as _;

mod container;
mod resources;
pub(super) mod scheduling;
mod security;
pub(super) mod update;
pub(super) mod volume;

pub(super) use resources::{container_resource, overhead, resource_name};

/// Properties of the whole spec that its parts are checked with.
struct Whole<'a> {
    spec: &'a Value,
    /// The spec is that of a pod, not of a template.
    is_pod: bool,
    grace_period: Option<i64>,
    restart_policy: &'a str,
    host_users: bool,
    /// The valid ones only.
    volumes: HashMap<&'a str, &'a Value>,
    claims: HashSet<&'a str>,
}

/// Checks a new pod.
pub(super) fn create(pod: &Value, errors: &mut Errors) {
    metadata_and_spec(pod, errors);
    let spec = pod.at("spec");
    let path = Path::new("spec");
    if !spec.list("ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(path.child("ephemeralContainers"), "cannot be set on create"));
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(path.child("nodeName"), why));
    }
}

/// Checks the rules that hold on create and on update.
fn metadata_and_spec(pod: &Value, errors: &mut Errors) {
    annotations(pod, &Path::new("metadata.annotations"), errors);
    let spec = pod.at("spec");
    let path = Path::new("spec");
    pod_spec(spec, &path, true, pod.text("metadata.name"), errors);
    if spec.text("serviceAccountName").is_empty() {
        for (i, volume) in spec.list("volumes").iter().enumerate() {
            for (j, source) in volume.list("projected.sources").iter().enumerate() {
                if source.has("serviceAccountToken") {
                    let (list, at) = (path.child("volumes"), i);
                    let volume = list.index(at);
                    let sources = volume.child("projected.sources");
                    let why = "must not be specified when serviceAccountName is not set";
                    errors.push(FieldError::forbidden(sources.index(j).child("serviceAccountToken"), why));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        container::only_in_pods(spec.list(list), &path.child(list), errors);
    }
}

/// The annotations of a pod that have a meaning: what is checked of it apart from its spec.
pub(super) fn annotations(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let Some(annotations) = pod.map("metadata.annotations") else { return };
    if let Some(mirror) = annotations.get("kubernetes.io/config.mirror")
        && pod.text("spec.nodeName").is_empty()
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(path.key("kubernetes.io/config.mirror"), mirror, why));
    }
    if let Some(cost) = annotations.get(COST).and_then(Value::as_str) {
        let plain = cost == "0" || !cost.trim_start_matches('-').starts_with(['0', '+']);
        if cost.starts_with('+') || !plain || cost.parse::<i32>().is_err() {
            errors.push(FieldError::invalid(path.key(COST), cost, "must be a 32bit integer"));
        }
    }
}

/// Checks a template, `{metadata, spec}` inside a workload.
pub(super) fn template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Errors in the metadata of a template have the path of the template itself.
    template_meta(errors, path, template.at("metadata"));
    annotations_of_template(template, path, errors);
    pod_spec(template.at("spec"), &path.child("spec"), false, "", errors);
    if !template.list("spec.ephemeralContainers").is_empty() {
        let path = path.child("spec.ephemeralContainers");
        errors.push(FieldError::forbidden(path, "ephemeral containers not allowed in pod template"));
    }
}

fn annotations_of_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    if template.has("metadata.annotations") {
        annotations(template, &path.child("annotations"), errors);
    }
}

pub(super) fn pod_spec(spec: &Value, path: &Path<'_>, is_pod: bool, name: &str, errors: &mut Errors) {
    let mut whole = Whole {
        spec,
        is_pod,
        grace_period: spec.int("terminationGracePeriodSeconds"),
        restart_policy: spec.text("restartPolicy"),
        host_users: spec.flag("hostUsers").unwrap_or(true),
        volumes: HashMap::new(),
        claims: spec.list("resourceClaims").iter().map(|claim| claim.text("name")).collect(),
    };
    if whole.grace_period.is_none() && is_pod {
        required(errors, &path.child("terminationGracePeriodSeconds"));
    }
    volume::volumes(&mut whole, name, &path.child("volumes"), errors);
    resources::claims(spec, &path.child("resourceClaims"), errors);
    container::containers(&whole, &path.child("containers"), errors);
    container::init_containers(&whole, &path.child("initContainers"), errors);
    container::ephemeral_containers(&whole, &path.child("ephemeralContainers"), errors);
    resources::pod_level(&whole, &path.child("resources"), errors);
    container::host_ports(&whole, path, errors);
    super::rules::one_of(
        errors,
        &path.child("restartPolicy"),
        spec.text("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    super::rules::one_of(errors, &path.child("dnsPolicy"), spec.text("dnsPolicy"), &policies);
    super::rules::labels(errors, &path.child("nodeSelector"), spec.at("nodeSelector"));
    security::pod(spec, &path.child("securityContext"), errors);
    scheduling::affinity(spec.at("affinity"), &path.child("affinity"), errors);
    dns(spec, &path.child("dnsConfig"), errors);
    scheduling::gates(spec, path, errors);
    scheduling::spreading(spec, &path.child("topologySpreadConstraints"), errors);
    security::host_process(spec, path, errors);
    host_users(spec, path, errors);
    host_name(spec, path, errors);
    optional(errors, &path.child("serviceAccountName"), spec.text("serviceAccountName"), names::dns1123_subdomain);
    optional(errors, &path.child("nodeName"), spec.text("nodeName"), names::dns1123_subdomain);
    super::rules::between(
        errors,
        &path.child("activeDeadlineSeconds"),
        spec.int("activeDeadlineSeconds"),
        1,
        i64::from(i32::MAX),
    );
    optional(errors, &path.child("hostname"), spec.text("hostname"), names::dns1123_label);
    optional(errors, &path.child("subdomain"), spec.text("subdomain"), names::dns1123_label);
    scheduling::tolerations(spec.list("tolerations"), &path.child("tolerations"), errors);
    host_aliases(spec, &path.child("hostAliases"), errors);
    optional(errors, &path.child("priorityClassName"), spec.text("priorityClassName"), names::dns1123_subdomain);
    if let Some(class) = spec.at("runtimeClassName").as_str() {
        objections(errors, &path.child("runtimeClassName"), class, names::dns1123_subdomain(class));
    }
    if let Some(policy) = spec.at("preemptionPolicy").as_str() {
        let words = ["PreemptLowerPriority", "Never"];
        super::rules::one_of(errors, &path.child("preemptionPolicy"), policy, &words);
    }
    overhead(spec.at("overhead"), &path.child("overhead"), errors);
    security::operating_system(spec, path, errors);
}

fn dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let config = spec.at("dnsConfig");
    let servers = config.list("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if !config.is_object() {
            errors.push(FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required(path.child("nameservers"), why));
            return;
        }
    }
    let list = path.child("nameservers");
    if servers.len() > 3 {
        errors.push(FieldError::invalid(list, config.at("nameservers"), "must not have more than 3 nameservers"));
    }
    for (i, server) in servers.iter().enumerate() {
        address::address(errors, &list.index(i), server.as_str().unwrap_or_default());
    }
    let searches = config.list("searches");
    let list = path.child("searches");
    if searches.len() > 32 {
        errors.push(FieldError::invalid(list, config.at("searches"), "must not have more than 32 search paths"));
    }
    let characters: usize = searches.iter().map(|s| s.as_str().map_or(0, str::len) + 1).sum();
    if characters > 2049 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(FieldError::invalid(list, config.at("searches"), why));
    }
    for (i, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            // Underscores are allowed in search paths.
            let why = names::dns1123_subdomain_with_underscores(search);
            objections(errors, &list.index(i), search, why);
        }
    }
    for (i, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.push(FieldError::required(path.child("options").index(i), "must not be empty"));
        }
    }
}

fn host_users(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if spec.flag("hostUsers") != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) == Some(true) {
            errors.push(FieldError::forbidden(path.child(shown), "when `hostUsers` is false"));
        }
    }
}

fn host_name(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(name) = spec.at("hostnameOverride").as_str() else { return };
    let path = path.child("hostnameOverride");
    if spec.flag("setHostnameAsFQDN") == Some(true) {
        errors.push(FieldError::forbidden(path, "may not be specified when setHostnameAsFQDN is true"));
    }
    if spec.flag("hostNetwork") == Some(true) {
        errors.push(FieldError::forbidden(path, "may not be specified when hostNetwork is true"));
    }
    if name.len() > 64 {
        errors.push(FieldError::too_long(path, 64));
    }
    objections(errors, &path, name, names::dns1123_subdomain(name));
}

fn host_aliases(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, alias) in spec.list("hostAliases").iter().enumerate() {
        let path = path.index(i);
        address::address(errors, &path.child("ip"), alias.text("ip"));
        let list = path.child("hostnames");
        for (j, name) in alias.list("hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            objections(errors, &list.index(j), name, names::dns1123_subdomain(name));
        }
    }
}

/// Iterates over all containers of a spec, with the name of their list.
fn all_containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| spec.list(list).iter().enumerate().map(move |(i, container)| (list, i, container)))
}

/// Checks the target of a binding.
pub(super) fn binding(binding: &Value, errors: &mut Errors) {
    let kind = binding.text("target.kind");
    if !kind.is_empty() && kind != "Node" {
        word(errors, &Path::new("target.kind"), kind, &["Node", "<empty>"]);
    }
    named(errors, &Path::new("target.name"), binding.text("target.name"), |_| Vec::new());
}

/// Checks the ids in a list.
fn ids(values: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, value) in values.iter().enumerate() {
        id(errors, &path.index(i), value.as_i64());
    }
}
