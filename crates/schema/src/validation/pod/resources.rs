//! Validation of cpu, memory, huge pages and other resources that containers request.

use std::collections::HashSet;

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;
use machinery::quantity::Quantity;

use super::super::Errors;
use super::super::amount;
use super::super::rules::{named, objections, required, word};
use super::Whole;
use crate::facts::internal;
use crate::walk::Walk as _;

const HUGE: &str = "hugepages-";

fn is_standard(name: &str) -> bool {
    is_for_containers(name)
        || name.starts_with("requests.hugepages-")
        || matches!(
            name,
            "requests.cpu"
                | "requests.memory"
                | "requests.ephemeral-storage"
                | "limits.cpu"
                | "limits.memory"
                | "limits.ephemeral-storage"
                | "pods"
                | "resourcequotas"
                | "services"
                | "replicationcontrollers"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "storage"
                | "requests.storage"
                | "services.nodeports"
                | "services.loadbalancers"
        )
}

fn is_for_containers(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE)
}

/// Returns whether a name is built in: without a domain, or below kubernetes.io.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Returns whether requests may be lower than limits.
fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE)
}

fn is_counted(name: &str) -> bool {
    is_extended(name)
        || matches!(
            name,
            "pods"
                | "resourcequotas"
                | "services"
                | "replicationcontrollers"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "services.nodeports"
                | "services.loadbalancers"
        )
}

/// Checks the name of a resource.
pub(in super::super) fn resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let why = names::qualified_name(name);
    let before = errors.len();
    if why.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
    objections(errors, path, name, why);
    errors.len() == before
}

pub(in super::super) fn container_resource(name: &str, path: &Path<'_>, errors: &mut Errors) {
    resource_name(name, path, errors);
    if !name.contains('/') {
        if !is_for_containers(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn pod_resource(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if resource_name(name, path, errors) && !matches!(name, "cpu" | "memory") && !name.starts_with(HUGE) {
        errors.push(FieldError::not_supported(path, name, ["cpu", HUGE, "memory"]));
    }
}

/// Checks an amount of a resource: not negative, and whole for countable resources.
pub(in super::super) fn quantity(name: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    amount::not_negative(errors, path, value);
    if is_counted(name) && !amount::of(value).is_integer() {
        errors.push(FieldError::invalid(path, amount::text(value), "must be an integer"));
    }
}

fn huge_pages(name: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let size = name.strip_prefix(HUGE).and_then(|size| size.parse().ok());
    if size.is_none_or(|size| !amount::is_multiple(&amount::of(value), &size)) {
        let text = amount::text(value);
        errors.push(FieldError::invalid(
            path,
            text.as_str(),
            format!("{text} is not positive integer multiple of {name}"),
        ));
    }
}

/// Checks limits and requests of a container, or of a pod as a whole.
pub(super) fn requirements(
    resources: &Value,
    claims: &HashSet<&str>,
    whole_pod: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !resources.is_object() {
        return;
    }
    let check_name = if whole_pod { pod_resource } else { container_resource };
    let (limit_path, request_path) = (path.child("limits"), path.child("requests"));
    let (mut computes, mut huge) = (false, false);
    let limits = resources.map("limits");
    for (name, value) in limits.into_iter().flatten() {
        let path = limit_path.key(name);
        check_name(name, &path, errors);
        quantity(name, value, &path, errors);
        if name.starts_with(HUGE) {
            huge = true;
            huge_pages(name, value, &path, errors);
        }
        computes |= matches!(name.as_str(), "cpu" | "memory");
    }
    for (name, value) in resources.map("requests").into_iter().flatten() {
        let path = request_path.key(name);
        check_name(name, &path, errors);
        quantity(name, value, &path, errors);
        match limits.and_then(|limits| limits.get(name)) {
            Some(limit) => {
                let (asked, allowed) = (amount::of(value), amount::of(limit));
                let relation = if asked != allowed && !may_overcommit(name) {
                    "must be equal to"
                } else if asked > allowed {
                    "must be less than or equal to"
                } else {
                    ""
                };
                if !relation.is_empty() {
                    let why = format!("{relation} {name} limit of {}", amount::text(limit));
                    errors.push(FieldError::invalid(request_path, amount::text(value), why));
                }
            }
            None if !may_overcommit(name) => {
                let why = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(limit_path, why));
            }
            None => {}
        }
        if name.starts_with(HUGE) {
            huge = true;
            huge_pages(name, value, &path, errors);
        }
        computes |= matches!(name.as_str(), "cpu" | "memory");
    }
    if huge && !computes {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    let mut seen = HashSet::new();
    let list = path.child("claims");
    for (i, claim) in resources.list("claims").iter().enumerate() {
        let (path, name) = (list.index(i), claim.text("name"));
        if name.is_empty() {
            required(errors, &path);
            continue;
        }
        let request = claim.text("request");
        if seen.contains(&(name, "")) {
            // All requests of that claim are used already.
            errors.push(FieldError::duplicate(path, name));
        } else {
            if !request.is_empty() {
                objections(errors, &path.child("request"), request, names::dns1123_label(request));
            }
            if seen.contains(&(name, request)) {
                errors.push(FieldError::duplicate(path, format!("{name}/{request}")));
            } else if request.is_empty() {
                for _ in seen.iter().filter(|(other, _)| *other == name) {
                    errors.push(FieldError::duplicate(path, name));
                }
            }
            seen.insert((name, request));
        }
        if !claims.contains(name) {
            let mut unknown = FieldError::not_found(path, name);
            let empty = if claims.is_empty() { " which is empty" } else { "" };
            unknown.detail = format!("must be one of the names in pod.spec.resourceClaims{empty}");
            errors.push(unknown);
        }
    }
}

/// Checks the resources of the pod as a whole.
pub(super) fn pod_level(whole: &Whole<'_>, path: &Path<'_>, errors: &mut Errors) {
    let resources = whole.spec.at("resources");
    if !resources.is_object() {
        return;
    }
    if whole.spec.text("os.name") == "windows" {
        errors.push(FieldError::forbidden(path, "may not be set for a windows pod"));
        return;
    }
    if resources.has("claims") {
        let why = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(path.child("claims"), why));
    }
    requirements(resources, &whole.claims, true, path, errors);
    let requests = path.child("requests");
    for (name, value) in resources.map("requests").into_iter().flatten() {
        let containers = whole.spec.list("containers").iter();
        let asked = containers.filter_map(|c| c.map("resources.requests")?.get(name)).map(amount::of);
        let asked = asked.fold(Quantity::default(), |sum, asked| sum.plus(&asked));
        if asked > amount::of(value) {
            let why = "must be greater than or equal to aggregate container requests";
            errors.push(FieldError::invalid(requests.key(name), amount::text(value), why));
        }
    }
    let list = path.child("containers");
    for (i, container) in whole.spec.list("containers").iter().enumerate() {
        for (name, limit) in container.map("resources.limits").into_iter().flatten() {
            let Some(allowed) = resources.map("limits").and_then(|limits| limits.get(name)) else { continue };
            if amount::of(limit) > amount::of(allowed) {
                let entry = list.index(i);
                let entry = entry.key(name);
                let why = format!("must be less than or equal to pod limits of {}", amount::text(allowed));
                errors.push(FieldError::invalid(entry.child("limits"), amount::text(limit), why));
            }
        }
    }
}

/// Checks the overhead of a sandbox. Errors have the words of limits.
pub(in super::super) fn overhead(amounts: &Value, path: &Path<'_>, errors: &mut Errors) {
    let limits = path.child("limits");
    for (name, value) in amounts.as_object().into_iter().flatten() {
        let path = limits.key(name);
        container_resource(name, &path, errors);
        quantity(name, value, &path, errors);
    }
}

pub(super) fn resize_policy(whole: &Whole<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (i, policy) in container.list("resizePolicy").iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(path.index(i), resource));
        }
        for (value, words) in [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
            if value.is_empty() {
                required(errors, path);
            } else {
                word(errors, path, value, &words);
            }
        }
        if whole.restart_policy == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, restart, why));
        }
    }
}

/// Checks claims on devices that containers may use.
pub(super) fn claims(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (i, claim) in spec.list("resourceClaims").iter().enumerate() {
        let path = path.index(i);
        let name = claim.text("name");
        if !name.is_empty() && seen.contains(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        } else {
            named(errors, &path.child("name"), name, names::dns1123_label);
            seen.insert(name);
        }
        let (own, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        let why = match (own.is_string(), template.is_string()) {
            (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !why.is_empty() {
            errors.push(FieldError::invalid(path, internal::shown("core.PodResourceClaim", claim), why));
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if let Some(name) = claim.at(field).as_str() {
                objections(errors, &path.child(field), name, names::dns1123_subdomain(name));
            }
        }
    }
}
