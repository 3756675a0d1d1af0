//! Validation of the core group except pods, services and storage.

use std::collections::{BTreeSet, HashSet};

use base64::Engine as _;
use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;
use machinery::quantity::{Notation, Quantity};

use super::amount;
use super::rules::{annotation, objections, one_of, port_number, required, same};
use super::{Errors, address, pod, service, storage, workload};
use crate::facts::internal;
use crate::walk::Walk as _;

const MAX_DATA: usize = 1_048_576;

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match kind {
        "Pod" => pod::create(object, errors),
        "PodTemplate" => pod::template(object.at("template"), &Path::new("template"), errors),
        "ReplicationController" => workload::replication_controller(object, errors),
        "Service" => service::validate(object, old, errors),
        "ConfigMap" => config_map(object, old, errors),
        "Secret" => secret(object, old, errors),
        "Namespace" if old.is_none() => namespace_finalizers(object, false, errors),
        "Node" => {
            node(object, errors);
            if let Some(old) = old {
                node_update(object, old, errors);
            }
        }
        "Endpoints" => endpoints(object, old, errors),
        "Event" => event(object, errors),
        "LimitRange" => limit_range(object, errors),
        "ResourceQuota" => quota(object, old, errors),
        "PersistentVolume" => storage::volume(object, old, errors),
        "PersistentVolumeClaim" => storage::claim(object, old, errors),
        _ => {}
    }
}

fn config_map(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        immutable_data(object, old, &["data", "binaryData"], errors);
    }
    let mut size = 0;
    for field in ["data", "binaryData"] {
        let path = Path::new(field);
        for (key, value) in object.map(field).into_iter().flatten() {
            objections(errors, &path.key(key), key, names::config_map_key(key));
            let text = value.as_str().unwrap_or_default();
            size += if field == "data" { text.len() } else { decoded_len(text) };
            if field == "data" && object.map("binaryData").is_some_and(|data| data.contains_key(key)) {
                errors.push(FieldError::invalid(path.key(key), key, "duplicate of key present in binaryData"));
            }
        }
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long("", MAX_DATA));
    }
}

/// Returns the decoded length of Base64 text.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn immutable_data(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if old.flag("immutable") != Some(true) {
        return;
    }
    if new.flag("immutable") != Some(true) {
        errors.push(FieldError::forbidden("immutable", WHY));
    }
    for field in fields {
        if !same(new.at(field), old.at(field)) {
            errors.push(FieldError::forbidden(*field, WHY));
        }
    }
}

fn secret(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        if object.text("type") != old.text("type") {
            errors.push(FieldError::invalid("type", object.text("type"), super::rules::IMMUTABLE));
        }
        immutable_data(object, old, &["data"], errors);
    }
    let path = Path::new("data");
    let mut size = 0;
    for (key, value) in object.map("data").into_iter().flatten() {
        objections(errors, &path.key(key), key, names::config_map_key(key));
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(path, MAX_DATA));
    }
    let entry = |key: &str| object.map("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let mut need = |key: &str| required(errors, &path.key(key));
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if annotation(object, NAME).unwrap_or_default().is_empty() {
                required(errors, &Path::new("metadata.annotations").key(NAME));
            }
        }
        "kubernetes.io/dockercfg" => docker_config(entry(".dockercfg"), &path.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => {
            docker_config(entry(".dockerconfigjson"), &path.key(".dockerconfigjson"), errors);
        }
        "kubernetes.io/basic-auth" if entry("username").is_none() && entry("password").is_none() => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" if entry("ssh-privatekey").unwrap_or_default().is_empty() => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if entry(key).is_none() {
                    need(key);
                }
            }
        }
        _ => {}
    }
}

fn docker_config(entry: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    let Some(entry) = entry else { return required(errors, path) };
    let bytes = base64::engine::general_purpose::STANDARD.decode(entry).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<machinery::json::Map>(&bytes) {
        let why =
            machinery::go_json::syntax_error(&bytes).unwrap_or_else(|| match serde_json::from_slice::<Value>(&bytes) {
                Ok(value) => {
                    let kind = machinery::go_json::json_kind(&value);
                    format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
                }
                Err(_) => error.to_string(),
            });
        errors.push(FieldError::invalid(path, "<secret contents redacted>", why));
    }
}

/// Checks the finalizers of a namespace's spec. Only errors of `/finalize` have the index of the wrong one.
pub(super) fn namespace_finalizers(object: &Value, by_index: bool, errors: &mut Errors) {
    let list = Path::new("spec.finalizers");
    for (i, finalizer) in object.list("spec.finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        let path = if by_index { list.index(i) } else { list };
        objections(errors, &path, finalizer, names::qualified_name(finalizer));
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path, finalizer, why));
        }
    }
}

pub(super) fn namespace_status(new: &Value, errors: &mut Errors) {
    let phase = new.text("status.phase");
    let path = Path::new("status.Phase");
    if !new.has("metadata.deletionTimestamp") && phase != "Active" {
        errors.push(FieldError::invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty"));
    }
    if new.has("metadata.deletionTimestamp") && phase != "Terminating" {
        errors.push(FieldError::invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"));
    }
}

fn node(object: &Value, errors: &mut Errors) {
    pod::scheduling::taints(object.list("spec.taints"), &Path::new("metadata.taints"), errors);
    node_resources(object, errors);
    let list = Path::new("spec.podCIDRs");
    let ranges = object.list("spec.podCIDRs");
    for (i, range) in ranges.iter().enumerate() {
        address::range(errors, &list.index(i), range.as_str().unwrap_or_default());
    }
    let families: Vec<bool> = ranges
        .iter()
        .filter_map(|range| address::parse_range(range.as_str().unwrap_or_default()))
        .map(|(address, _)| address.is_ipv4())
        .collect();
    if ranges.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid(list, object.at("spec.podCIDRs"), why));
    }
}

fn node_resources(object: &Value, errors: &mut Errors) {
    for field in ["capacity", "allocatable"] {
        let path = Path::new("status");
        let path = path.child(field);
        for (name, value) in object.at("status").map(field).into_iter().flatten() {
            amount::not_negative(errors, &path.child(name), value);
        }
    }
}

pub(super) fn node_update(new: &Value, old: &Value, errors: &mut Errors) {
    node_resources(new, errors);
    let mut seen = HashSet::new();
    let list = Path::new("status.addresses");
    for (i, entry) in new.list("status.addresses").iter().enumerate() {
        let (kind, value) = (entry.text("type"), entry.text("address"));
        if !seen.insert((kind, value)) {
            let shown = internal::shown("core.NodeAddress", entry);
            errors.push(FieldError::duplicate(list.index(i), shown));
        }
    }
    if !old.list("spec.podCIDRs").is_empty() && old.at("spec.podCIDRs") != new.at("spec.podCIDRs") {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", why));
    }
    let provider = old.text("spec.providerID");
    if !provider.is_empty() && provider != new.text("spec.providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", why));
    }
    pod::scheduling::taints(new.list("spec.taints"), &Path::new("metadata.taints"), errors);
}

fn endpoints(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if old.is_some_and(|old| same(old.at("subsets"), object.at("subsets"))) {
        return;
    }
    let list = Path::new("subsets");
    for (i, subset) in object.list("subsets").iter().enumerate() {
        let path = list.index(i);
        if subset.list("addresses").is_empty() && subset.list("notReadyAddresses").is_empty() {
            errors.push(FieldError::required(path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for field in ["addresses", "notReadyAddresses"] {
            let list = path.child(field);
            for (j, entry) in subset.list(field).iter().enumerate() {
                let entry_path = list.index(j);
                let path = entry_path.child("ip");
                let ip = entry.text("ip");
                address::address(errors, &path, ip);
                let host = entry.text("hostname");
                super::rules::optional(errors, &entry_path.child("hostname"), host, names::dns1123_label);
                if let Some(node) = entry.at("nodeName").as_str() {
                    objections(errors, &entry_path.child("nodeName"), node, names::dns1123_subdomain(node));
                }
                if address::parse(ip).is_none() {
                    errors.push(FieldError::invalid(path, ip, "must be a valid IP address"));
                }
                address::reachable(errors, &path, ip);
            }
        }
        let ports = subset.list("ports");
        let list = path.child("ports");
        for (j, port) in ports.iter().enumerate() {
            let path = list.index(j);
            let name = port.text("name");
            if ports.len() > 1 && name.is_empty() {
                required(errors, &path.child("name"));
            } else {
                super::rules::optional(errors, &path.child("name"), name, names::dns1123_label);
            }
            port_number(errors, &path.child("port"), port.int("port").unwrap_or(0));
            one_of(errors, &path.child("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
            if let Some(protocol) = port.at("appProtocol").as_str() {
                objections(errors, &path.child("appProtocol"), protocol, names::qualified_name(protocol));
            }
        }
    }
}

/// Checks events of the core group, which have few rules.
fn event(object: &Value, errors: &mut Errors) {
    any_event(
        object,
        EventFields { regarding: "involvedObject", message: "message", controller: "reportingComponent" },
        errors,
    );
}

/// The names of the fields that both kinds of events have.
pub(super) struct EventFields {
    pub(super) regarding: &'static str,
    pub(super) message: &'static str,
    pub(super) controller: &'static str,
}

/// Checks events of both groups. Most errors have the names of the core group.
pub(super) fn any_event(object: &Value, fields: EventFields, errors: &mut Errors) {
    let (namespace, involved) = (object.text("metadata.namespace"), object.at(fields.regarding).text("namespace"));
    let timed = object.has("eventTime");
    let agrees = match (involved, timed) {
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (involved, false) => namespace == involved,
        (_, true) => true,
    };
    if !agrees {
        errors.push(FieldError::invalid("involvedObject.namespace", involved, "does not match event.namespace"));
    }
    if timed {
        let controller = object.text(fields.controller);
        let path = Path::new(fields.controller);
        if controller.is_empty() {
            required(errors, &path);
        }
        objections(errors, &path, controller, names::qualified_name(controller));
        for field in ["reportingInstance", "action", "reason"] {
            let text = object.text(field);
            if text.is_empty() {
                required(errors, &Path::new(field));
            }
            if text.len() > 128 {
                errors.push(FieldError::invalid(field, "", "can have at most 128 characters"));
            }
        }
        if object.text(fields.message).len() > 1024 {
            errors.push(FieldError::invalid("message", "", "can have at most 1024 characters"));
        }
    }
    objections(errors, &Path::new("namespace"), namespace, names::dns1123_subdomain(namespace));
}

/// Checks the name of an amount: those of pods and containers must be resources of containers.
fn limited_name(kind: &str, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(kind, "Pod" | "Container") {
        pod::container_resource(name, path, errors);
    } else {
        pod::resource_name(name, path, errors);
    }
}

fn limit_range(object: &Value, errors: &mut Errors) {
    let list = Path::new("spec.limits");
    let mut kinds = HashSet::new();
    for (i, limit) in object.list("spec.limits").iter().enumerate() {
        let path = list.index(i);
        let kind = limit.text("type");
        let kind_path = path.child("type");
        let why = names::qualified_name(kind);
        if why.is_empty() && !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            errors.push(FieldError::invalid(kind_path, kind, "must be a standard limit type or fully qualified"));
        }
        objections(errors, &kind_path, kind, why);
        if !kinds.insert(kind) {
            errors.push(FieldError::duplicate(kind_path, kind));
        }
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            let amounts = limit.map(field);
            if kind == "Pod" && field.starts_with("default") {
                if amounts.is_some_and(|amounts| !amounts.is_empty()) {
                    let why = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(path.child(field), why));
                }
                continue;
            }
            let field_path = path.child(field);
            for name in amounts.into_iter().flat_map(|amounts| amounts.keys()) {
                limited_name(kind, name, &field_path.key(name), errors);
                names.insert(name.as_str());
            }
        }
        let storage = |field| limit.map(field).is_some_and(|amounts| amounts.contains_key("storage"));
        if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(path.child("limits"), why));
        }
        for name in names {
            limits_of(limit, name, &path, errors);
        }
    }
}

/// Checks that the bounds of one resource are consistent.
fn limits_of(limit: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let given = |field: &str| limit.map(field).and_then(|amounts| amounts.get(name));
    // The path is that of one amount; the value shown is that of another.
    let mut not_more = |low: &str, low_word: &str, high: &str, high_word: &str, at: &str, value: &str| {
        if let (Some(low), Some(high)) = (given(low), given(high))
            && amount::of(low) > amount::of(high)
        {
            let (low, high) = (amount::text(low), amount::text(high));
            let why = format!("{low_word} value {low} is greater than {high_word} value {high}");
            let shown = given(value).map(amount::text).unwrap_or_default();
            errors.push(FieldError::invalid(path.child(at).key(name), shown, why));
        }
    };
    not_more("min", "min", "max", "max", "min", "min");
    not_more("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest");
    not_more("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest");
    not_more("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest");
    not_more("min", "min", "default", "default", "default", "min");
    not_more("default", "default", "max", "max", "default", "max");
    if let Some(ratio) = given("maxLimitRequestRatio")
        && amount::of(ratio) < Quantity::new(1, Notation::Decimal)
    {
        let text = amount::text(ratio);
        let why = format!("ratio {text} is less than 1");
        errors.push(FieldError::invalid(path.child("maxLimitRequestRatio").key(name), text, why));
    }
}

fn quota(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    quota_amounts(object, "spec", errors);
    let scopes = object.at("spec.scopes");
    let path = Path::new("spec.scopes");
    let known = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    for scope in object.list("spec.scopes") {
        if !known.iter().any(|known| scope == known) {
            errors.push(FieldError::invalid(path, scopes, "unsupported scope"));
        }
        for _ in unscoped(object, scope.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path, scopes, "unsupported scope applied to resource"));
        }
    }
    let names: HashSet<&str> = object.list("spec.scopes").iter().filter_map(Value::as_str).collect();
    conflicting_scopes(&names, &path, scopes, errors);
    if object.has("spec.scopeSelector") {
        scope_selector(object, &known, errors);
    }
    if let Some(old) = old {
        let set = |of: &Value| -> BTreeSet<String> {
            of.list("spec.scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        if set(object) != set(old) {
            errors.push(FieldError::invalid(path, scopes, super::rules::IMMUTABLE));
        }
    }
}

/// Returns the standard resources of a quota, in order, that a scope does not apply to.
fn unscoped<'a>(object: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a str> {
    let mut names: Vec<&str> =
        object.map("spec.hard").into_iter().flat_map(|hard| hard.keys()).map(|n| n.as_str()).collect();
    names.sort_unstable();
    names.into_iter().filter(move |name| {
        let name = *name;
        let standard =
            STANDARD_QUOTA.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
        let of_pods =
            matches!(name, "pods" | "cpu" | "memory" | "ephemeral-storage" | "requests.cpu" | "requests.memory")
                || matches!(
                    name,
                    "requests.ephemeral-storage" | "limits.cpu" | "limits.memory" | "limits.ephemeral-storage"
                );
        // Pods without requests can only be counted.
        let applies = match scope {
            "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
                of_pods
            }
            "BestEffort" => name == "pods",
            "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
            _ => true,
        };
        standard && !applies
    })
}

fn conflicting_scopes(names: &HashSet<&str>, path: &Path<'_>, scopes: &Value, errors: &mut Errors) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if names.contains(one) && names.contains(other) {
            errors.push(FieldError::invalid(path, scopes, "conflicting scopes"));
        }
    }
}

fn scope_selector(object: &Value, known: &[&str], errors: &mut Errors) {
    let path = Path::new("spec.scopeSelector.matchExpressions");
    let mut names = HashSet::new();
    for requirement in object.list("spec.scopeSelector.matchExpressions") {
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        if !known.contains(&scope) {
            errors.push(FieldError::invalid(path.child("scopeName"), scope, "unsupported scope"));
        }
        for _ in unscoped(object, scope) {
            let shown = internal::shown("core.ScopeSelector", object.at("spec.scopeSelector"));
            errors.push(FieldError::invalid(path, shown, "unsupported scope applied to resource"));
        }
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass") && known.contains(&scope) && operator != "Exists"
        {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(path.child("operator"), operator, why));
        }
        let values = requirement.list("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(path.child("values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(path.child("values"), requirement.at("values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(path.child("operator"), other, "not a valid selector operator")),
        }
        names.insert(scope);
    }
    conflicting_scopes(&names, &path, object.at("spec.scopes"), errors);
}

pub(super) fn quota_amounts(object: &Value, part: &str, errors: &mut Errors) {
    let fields: &[&str] = if part == "spec" { &["hard"] } else { &["hard", "used"] };
    for field in fields {
        let path = Path::new(part);
        let path = path.child(field);
        for (name, value) in object.at(part).map(field).into_iter().flatten() {
            let path = path.key(name);
            let why = names::qualified_name(name);
            let standard = name.contains('/')
                || name.starts_with("hugepages-")
                || name.starts_with("requests.hugepages-")
                || STANDARD_QUOTA.contains(&name.as_str());
            if why.is_empty() && !standard {
                errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
            }
            objections(errors, &path, name, why);
            if !standard {
                errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
            }
            amount::not_negative(errors, &path, value);
            let counted = name.starts_with("count/") || COUNTED.contains(&name.as_str());
            if counted && !amount::of(value).is_integer() {
                errors.push(FieldError::invalid(path, amount::text(value), "must be an integer"));
            }
        }
    }
}

const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const STANDARD_QUOTA: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
