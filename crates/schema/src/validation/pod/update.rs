//! Validation of updates of a pod: few fields of its spec may change, some only through a subresource; and of its status.

use std::collections::{HashMap, HashSet};

use machinery::field_error::{FieldError, Path};
use machinery::json::{Value, json};
use machinery::names;

use super::super::rules::{IMMUTABLE, objections, same};
use super::super::{Errors, address};
use super::{annotations, metadata_and_spec, scheduling};
use crate::facts::internal;
use crate::strategy::qos_class;
use crate::walk::{Walk as _, is_empty};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");

pub(in super::super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (new.at("spec"), old.at("spec"));
    // An unchanged spec was checked when it was stored.
    if new_spec.is_same(old_spec) {
        return annotations(new, &Path::new("metadata.annotations"), errors);
    }
    metadata_and_spec(new, errors);
    for list in ["containers", "initContainers"] {
        let path = SPEC.child(list);
        let containers = new_spec.list(list);
        if containers.len() != old_spec.list(list).len() {
            errors.push(FieldError::forbidden(path, "pod updates may not add or remove containers"));
            return;
        }
        for (i, container) in containers.iter().enumerate() {
            let image = container.text("image");
            let path = path.index(i);
            if image.is_empty() {
                errors.push(FieldError::required(path.child("image"), ""));
            }
            if image.trim().len() != image.len() {
                let why = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(path.child("image"), image, why));
            }
        }
    }
    if !deadline(new_spec, old_spec, errors) {
        return;
    }
    added_tolerations(new_spec, old_spec, errors);
    removed_gates(new_spec, old_spec, errors);
    let munged = munged(new_spec, old_spec, errors);
    if !same(&munged, old_spec) {
        let difference = internal::difference("core.PodSpec", old_spec, &munged);
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
            `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
            `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";
        errors.push(FieldError::forbidden(SPEC, format!("{why}{difference}")));
    }
}

/// Checks that the deadline only decreases. Returns false if the other checks are to be skipped.
fn deadline(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let path = SPEC.child("activeDeadlineSeconds");
    match (new.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds")) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(FieldError::invalid(path, new, "must be between 0 and 2147483647, inclusive"));
            return false;
        }
        (Some(new), Some(old)) if old < new => {
            errors.push(FieldError::invalid(path, new, "must be less than or equal to previous value"));
            return false;
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(path, Value::Null, why));
        }
        _ => {}
    }
    true
}

fn added_tolerations(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("tolerations");
    fn identity(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|name| toleration.text(name))
    }
    let sent: HashSet<[&str; 4]> = new.list("tolerations").iter().map(identity).collect();
    if !old.list("tolerations").iter().all(|old| sent.contains(&identity(old))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path, why));
        return;
    }
    scheduling::tolerations(new.list("tolerations"), &path, errors);
}

fn removed_gates(new: &Value, old: &Value, errors: &mut Errors) {
    let list = SPEC.child("schedulingGates");
    let stored: HashSet<&str> = old.list("schedulingGates").iter().map(|gate| gate.text("name")).collect();
    for (i, gate) in new.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !stored.contains(name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(list.index(i).child("name"), why));
        }
    }
}

/// Returns the new spec with the mutable fields of the old one.
fn munged(new: &Value, old: &Value, errors: &mut Errors) -> Value {
    let mut spec = new.clone();
    let Some(fields) = spec.as_object_mut() else { return spec };
    let mut put_back = |name: &str| match old.as_object().and_then(|old| old.get(name)) {
        Some(value) => {
            fields.insert(name.to_owned(), value.clone());
        }
        None => {
            fields.shift_remove(name);
        }
    };
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put_back(name);
    }
    if old.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0)
        && new.int("terminationGracePeriodSeconds") == Some(1)
    {
        put_back("terminationGracePeriodSeconds");
    }
    // A pod with a scheduling gate may get stricter scheduling rules.
    if !old.list("schedulingGates").is_empty() {
        if !same(new.at("nodeSelector"), old.at("nodeSelector")) {
            let kept = old
                .map("nodeSelector")
                .into_iter()
                .flatten()
                .all(|(key, value)| new.map("nodeSelector").and_then(|selector| selector.get(key)) == Some(value));
            if !kept {
                let path = SPEC.child("nodeSelector");
                errors.push(FieldError::invalid(
                    path,
                    new.at("nodeSelector"),
                    "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
                ));
            }
            put_back("nodeSelector");
        }
        let affinity = (new.at("affinity.nodeAffinity"), old.at("affinity.nodeAffinity"));
        if !same(affinity.0, affinity.1) {
            stricter_affinity(affinity.0, affinity.1, errors);
            let mut kept = new.at("affinity").clone();
            match kept.as_object_mut() {
                Some(fields) if affinity.1.is_null() => {
                    fields.shift_remove("nodeAffinity");
                }
                Some(fields) => {
                    fields.insert("nodeAffinity", affinity.1.clone());
                }
                None => kept = json!({"nodeAffinity": affinity.1}),
            }
            if !old.has("affinity") && is_empty(Some(&kept)) {
                fields.shift_remove("affinity");
            } else {
                fields.insert("affinity", kept);
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let Some(containers) = fields.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (container, stored) in containers.iter_mut().zip(old.list(list)) {
            if let Some(container) = container.as_object_mut() {
                container.insert("image", stored.at("image").clone());
            }
        }
    }
    spec
}

/// Checks that the required terms of a node affinity only gain requirements.
fn stricter_affinity(new: &Value, old: &Value, errors: &mut Errors) {
    const TERMS: &str = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let affinity = SPEC.child("affinity.nodeAffinity");
    let path = affinity.child(TERMS);
    let (terms, stored) = (new.list(TERMS), old.list(TERMS));
    if !stored.is_empty() && stored.len() != terms.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = internal::shown_list("core.NodeSelectorTerm", new.at(TERMS));
        errors.push(FieldError::invalid(path, shown, why));
        return;
    }
    for (i, (term, stored)) in terms.iter().zip(stored).enumerate() {
        let lists = ["matchExpressions", "matchFields"];
        let was_empty = lists.iter().all(|list| stored.list(list).is_empty());
        let only_added = lists.iter().all(|list| {
            let (new, old) = (term.list(list), stored.list(list));
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
        });
        let gained = lists.iter().any(|list| !term.list(list).is_empty());
        if !only_added || was_empty && gained {
            let shown = internal::shown("core.NodeSelectorTerm", term);
            let why = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(path.index(i), shown, why));
        }
    }
}

/// Checks a write to `/ephemeralcontainers`.
pub(in super::super) fn ephemeral_containers(new: &Value, old: &Value, errors: &mut Errors) {
    metadata_and_spec(new, errors);
    if is_mirror(old) {
        let why = "static pods do not support ephemeral containers";
        *errors = vec![FieldError::forbidden("", why)].into();
        return;
    }
    let path = SPEC.child("ephemeralContainers");
    // The last of several of one name counts.
    let sent: HashMap<&str, &Value> =
        new.list("spec.ephemeralContainers").iter().map(|container| (container.text("name"), container)).collect();
    for stored in old.list("spec.ephemeralContainers") {
        let name = stored.text("name");
        let why = match sent.get(name) {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            Some(sent) if !same(sent, stored) => {
                let difference = internal::difference("core.EphemeralContainer", stored, sent);
                format!("existing ephemeral containers {name:?} may not be changed\n{difference}")
            }
            Some(_) => continue,
        };
        errors.push(FieldError::forbidden(path, why));
    }
}

fn is_mirror(pod: &Value) -> bool {
    pod.map("metadata.annotations").is_some_and(|map| map.contains_key("kubernetes.io/config.mirror"))
}

/// Checks a write to `/resize`.
pub(in super::super) fn resize(new: &Value, old: &Value, errors: &mut Errors) {
    metadata_and_spec(new, errors);
    if is_mirror(old) {
        *errors = vec![FieldError::forbidden("", "static pods cannot be resized")].into();
        return;
    }
    if old.text("spec.os.name") == "windows" {
        *errors = vec![FieldError::forbidden("", "windows pods cannot be resized")].into();
        return;
    }
    let (new_spec, old_spec) = (new.at("spec"), old.at("spec"));
    let class = Some(old.text("status.qosClass")).filter(|class| !class.is_empty()).unwrap_or(qos_class(old_spec));
    if class != qos_class(new_spec) {
        errors.push(FieldError::invalid(SPEC, class, "Pod QOS Class may not change as a result of resizing"));
    }
    for list in ["containers", "initContainers"] {
        let (path, sent, stored) = (SPEC.child(list), new_spec.list(list), old_spec.list(list));
        if sent.len() != stored.len() {
            errors.push(FieldError::forbidden(path, format!("{list} may not be added or removed on resize")));
            return;
        }
        if let Some(i) = sent.iter().zip(stored).position(|(new, old)| new.text("name") != old.text("name")) {
            let why = format!("{list} may not be renamed or reordered on resize");
            errors.push(FieldError::forbidden(path.index(i).child("name"), why));
            return;
        }
        for (i, (new, old)) in sent.iter().zip(stored).enumerate() {
            let path = path.index(i);
            let stays = list == "containers" || old.text("restartPolicy") == "Always";
            if stays {
                resized(new, old, &path.child("resources"), errors);
            }
            if !same(&without_compute(new, old), old) {
                let (path, why) = match (list, stays) {
                    ("containers", _) => (SPEC, "only cpu and memory resources are mutable"),
                    (_, true) => (path, "only cpu and memory resources for init or sidecar containers are mutable"),
                    (_, false) => (SPEC, "resources for non-sidecar init containers are immutable"),
                };
                errors.push(FieldError::forbidden(path, why));
            } else if !stays && !same(new, old) {
                errors.push(FieldError::forbidden(SPEC, "resources for non-sidecar init containers are immutable"));
            }
        }
    }
}

/// Checks that requests and limits of a container are not removed.
fn resized(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (which, word) in [("requests", "requests"), ("limits", "limits")] {
        let names = |of: &Value| -> Vec<String> {
            let map = of.map(&format!("resources.{which}"));
            map.into_iter()
                .flat_map(|map| map.keys().map(ToString::to_string))
                .filter(|n| n == "cpu" || n == "memory")
                .collect()
        };
        let kept = names(new);
        if names(old).iter().any(|name| !kept.contains(name)) {
            errors.push(FieldError::forbidden(path.child(which), format!("resource {word} cannot be removed")));
        }
    }
}

/// Returns a container with the cpu and memory of the old one.
fn without_compute(container: &Value, old: &Value) -> Value {
    let mut container = container.clone();
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return container };
    for which in ["limits", "requests"] {
        let stored = old.at("resources").map(which);
        let mut amounts = resources.get(which).and_then(Value::as_object).cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            match stored.and_then(|stored| stored.get(name)) {
                Some(amount) => amounts.insert(name.to_owned(), amount.clone()),
                None => amounts.shift_remove(name),
            };
        }
        if amounts.is_empty() {
            resources.shift_remove(which);
        } else {
            resources.insert(which.to_owned(), Value::Object(amounts));
        }
    }
    container
}

/// Checks a write to `/status`.
pub(in super::super) fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let (status, stored) = (new.at("status"), old.at("status"));
    let list = STATUS.child("conditions");
    for (i, condition) in status.list("conditions").iter().enumerate() {
        let path = list.index(i);
        if let Some(seen) = condition.int("observedGeneration").filter(|seen| *seen < 0) {
            errors.push(FieldError::invalid(path.child("observedGeneration"), seen, "must be a non-negative integer"));
        }
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            objections(errors, &path.child("Type"), kind, names::qualified_name(kind));
        }
    }
    let nominated = status.text("nominatedNodeName");
    if nominated != stored.text("nominatedNodeName") && !nominated.is_empty() {
        let path = STATUS.child("nominatedNodeName");
        objections(errors, &path, nominated, names::dns1123_subdomain(nominated));
    }
    if let Some(seen) = status.int("observedGeneration").filter(|seen| *seen < 0) {
        let path = STATUS.child("observedGeneration");
        errors.push(FieldError::invalid(path, seen, "must be a non-negative integer"));
    }
    if status.text("qosClass") != stored.text("qosClass") {
        errors.push(FieldError::invalid(STATUS.child("qosClass"), status.text("qosClass"), IMMUTABLE));
    }
    let restart = old.text("spec.restartPolicy");
    for field in ["containerStatuses", "initContainerStatuses"] {
        let list = STATUS.child(field);
        // The first of several of one name counts.
        let sent: HashMap<&str, &Value> =
            status.list(field).iter().rev().map(|after| (after.text("name"), after)).collect();
        for (i, before) in stored.list(field).iter().enumerate() {
            let Some(exit) = before.at("state.terminated").as_object() else { continue };
            let failed = exit.get("exitCode").and_then(Value::as_i64).unwrap_or(0) != 0;
            let may_restart = restart == "Always" || (restart == "OnFailure" && failed);
            let after = sent.get(before.text("name"));
            if !may_restart && after.is_some_and(|after| !after.has("state.terminated")) {
                let why = "may not be transitioned to non-terminated state";
                errors.push(FieldError::forbidden(list.index(i).child("state"), why));
            }
        }
    }
    addresses(status, errors);
}

fn addresses(status: &Value, errors: &mut Errors) {
    let list = STATUS.child("podIPs");
    let single = [machinery::json::json!({"ip": status.text("podIP")})];
    let addresses = match status.list("podIPs") {
        [] if !status.text("podIP").is_empty() => &single[..],
        addresses => addresses,
    };
    for (i, entry) in addresses.iter().enumerate() {
        address::address(errors, &list.index(i), entry.text("ip"));
    }
    let families: Vec<bool> =
        addresses.iter().filter_map(|a| address::parse(a.text("ip"))).map(|a| a.is_ipv4()).collect();
    if addresses.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        let why = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(list, status.at("podIPs"), why));
    }
    let hosts = status.list("hostIPs");
    let list = STATUS.child("hostIPs");
    if let Some(first) = hosts.first()
        && first.text("ip") != status.text("hostIP")
    {
        let path = list.index(0);
        errors.push(FieldError::invalid(path.child("ip"), first.text("ip"), "must be equal to `hostIP`"));
    }
    for (i, entry) in hosts.iter().enumerate() {
        address::address(errors, &list.index(i), entry.text("ip"));
    }
}
