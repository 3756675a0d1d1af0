//! Rows of nodes, namespaces, configuration, events, access control, admission and devices.

use std::collections::BTreeSet;

use machinery::json::{Text, Value};

use super::cells::{Cells, NONE, UNSET, condition, duration, since};
use crate::walk::Walk as _;

pub(super) fn row(group: &str, kind: &str, cells: &mut Cells<'_>) -> bool {
    let object = cells.object;
    match (group, kind) {
        ("", "Node") => node(cells),
        (_, "Event") => event(cells),
        ("", "Namespace") => {
            cells.name().text("status.phase").age();
        }
        ("", "ConfigMap") => {
            let entries = |field| object.map(field).map_or(0, machinery::json::Map::len);
            cells.name().push(entries("data") + entries("binaryData")).age();
        }
        ("", "Secret") => {
            cells.name().text("type").push(object.map("data").map_or(0, machinery::json::Map::len)).age();
        }
        ("", "ServiceAccount") | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => {
            cells.name().age();
        }
        ("", "ComponentStatus") => {
            let healthy = condition(object.list("conditions"), "Healthy");
            let status = match healthy.map(|condition| condition.text("status")) {
                None => "Unknown",
                Some("True") => "Healthy",
                Some(_) => "Unhealthy",
            };
            let of = |field| healthy.map_or("", |condition| condition.text(field));
            cells.name().push(status).push(of("message")).push(of("error"));
        }
        ("", "ResourceQuota") => {
            let (requests, limits) = quota(object);
            cells.name().push(requests).push(limits).age();
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            cells.name().push(format!("{}/{}", object.text("roleRef.kind"), object.text("roleRef.name"))).age();
            for kind in ["User", "Group", "ServiceAccount"] {
                cells.push(subjects(object, kind));
            }
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            let wanted = object.int("spec.expirationSeconds").map_or(NONE.to_owned(), duration);
            cells
                .name()
                .age()
                .text_or("spec.signerName", NONE)
                .text("spec.username")
                .push(wanted)
                .push(certificate_state(object));
        }
        ("coordination.k8s.io", "Lease") => {
            cells.name().text("spec.holderIdentity").age();
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            cells
                .name()
                .number("value")
                .push(object.flag("globalDefault").unwrap_or(false))
                .age()
                .text("preemptionPolicy");
        }
        ("node.k8s.io", "RuntimeClass") => {
            cells.name().text("handler").age();
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            cells.name().count("webhooks").age();
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => {
            let parameters = object.at("spec.paramKind");
            let parameters = match parameters.is_object() {
                true => format!("{}/{}", parameters.text("apiVersion"), parameters.text("kind")),
                false => UNSET.to_owned(),
            };
            let rules = if kind.starts_with('V') { "spec.validations" } else { "spec.mutations" };
            cells.name().count(rules).push(parameters).age();
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding") => {
            cells.name().text("spec.policyName").push(parameter(object.at("spec.paramRef"))).age();
        }
        ("apiregistration.k8s.io", "APIService") => {
            let service = object.at("spec.service");
            let service = match service.is_object() {
                true => format!("{}/{}", service.text("namespace"), service.text("name")),
                false => "Local".to_owned(),
            };
            let available = match condition(object.list("status.conditions"), "Available") {
                None => "Unknown".to_owned(),
                Some(c) if c.text("status") == "True" || c.text("reason").is_empty() => c.text("status").to_owned(),
                Some(c) => format!("{} ({})", c.text("status"), c.text("reason")),
            };
            cells.name().push(service).push(available).age();
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            let dangling = condition(object.list("status.conditions"), "Dangling").map_or("?", |c| c.text("status"));
            cells
                .name()
                .text("spec.priorityLevelConfiguration.name")
                .number("spec.matchingPrecedence")
                .text_or("spec.distinguisherMethod.type", NONE)
                .age()
                .push(dangling);
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            let number = |path| object.int(path).map_or(Value::from(NONE), Value::from);
            cells
                .name()
                .text("spec.type")
                .push(number("spec.limited.nominalConcurrencyShares"))
                .push(number("spec.limited.limitResponse.queuing.queues"))
                .push(number("spec.limited.limitResponse.queuing.handSize"))
                .push(number("spec.limited.limitResponse.queuing.queueLengthLimit"))
                .age();
        }
        ("resource.k8s.io", "ResourceClaim") => {
            let state = match (object.has("metadata.deletionTimestamp"), object.has("status.allocation")) {
                (false, false) => "pending",
                (true, false) => "deleted",
                (false, true) if object.list("status.reservedFor").is_empty() => "allocated",
                (false, true) => "allocated,reserved",
                (true, true) if object.list("status.reservedFor").is_empty() => "deleted,allocated",
                (true, true) => "deleted,allocated,reserved",
            };
            cells.name().push(state).age();
        }
        ("resource.k8s.io", "ResourceSlice") => {
            cells.name().text("spec.nodeName").text("spec.driver").text("spec.pool.name").age();
        }
        _ => return false,
    }
    true
}

fn node(cells: &mut Cells<'_>) {
    let node = cells.object;
    let mut status = match condition(node.list("status.conditions"), "Ready").map(|c| c.text("status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if node.flag("spec.unschedulable") == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles = BTreeSet::new();
    for (key, value) in node.map("metadata.labels").into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => roles.insert(role),
            None if key == "kubernetes.io/role" => roles.insert(value.as_str().unwrap_or_default()),
            None => false,
        };
    }
    roles.remove("");
    let roles = if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") };
    let address = |kind| {
        condition(node.list("status.addresses"), kind).map_or(NONE, |address| address.text("address")).to_owned()
    };
    let info = |field| {
        let text = node.at("status.nodeInfo").text(field);
        if text.is_empty() { "<unknown>".to_owned() } else { text.to_owned() }
    };
    let mut kernel = info("kernelVersion");
    let architecture = node.text("status.nodeInfo.architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    cells
        .name()
        .push(status)
        .push(roles)
        .age()
        .text("status.nodeInfo.kubeletVersion")
        .push(address("InternalIP"))
        .push(address("ExternalIP"))
        .push(info("osImage"))
        .push(kernel)
        .push(info("containerRuntimeVersion"));
}

fn event(cells: &mut Cells<'_>) {
    let event = cells.object;
    let text = |path: &str| event.text(path);
    let first_of = |a: &'static str, b: &'static str| if text(a).is_empty() { text(b) } else { text(a) };
    let now = cells.now();
    let first = since(first_of("firstTimestamp", "eventTime"), now);
    let series = event.at("series");
    let (last, count) = if series.is_object() {
        (since(series.text("lastObservedTime"), now), series.int("count").unwrap_or(0))
    } else {
        let last = if text("lastTimestamp").is_empty() { first.clone() } else { since(text("lastTimestamp"), now) };
        (last, event.int("count").filter(|count| *count != 0).unwrap_or(1))
    };
    let mut object = text("involvedObject.kind").to_lowercase();
    if !text("involvedObject.name").is_empty() {
        object = format!("{object}/{}", text("involvedObject.name"));
    }
    let mut source = first_of("source.component", "reportingComponent").to_owned();
    let instance = first_of("source.host", "reportingInstance");
    if !instance.is_empty() {
        source = format!("{source}, {instance}");
    }
    cells
        .push(last)
        .text("type")
        .text("reason")
        .push(object)
        .text("involvedObject.fieldPath")
        .push(source)
        .push(text("message").trim())
        .push(first)
        .push(count)
        .name();
}

/// Formats used and hard amounts, requests separate from limits.
fn quota(object: &Value) -> (String, String) {
    let mut names: Vec<&Text> = object.map("status.hard").into_iter().flat_map(|map| map.keys()).collect();
    names.sort_unstable();
    let amount = |field, name: &str| {
        let amount = object.map(field).and_then(|map| map.get(name)).and_then(Value::as_str);
        amount.unwrap_or("0").to_owned()
    };
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for name in names {
        let text = format!("{name}: {}/{}", amount("status.used", name), amount("status.hard", name));
        if name.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    (requests.join(", "), limits.join(", "))
}

fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = binding.list("subjects").iter().filter(|subject| subject.text("kind") == kind);
    let name = |subject: &Value| match subject.text("namespace") {
        "" => subject.text("name").to_owned(),
        namespace => format!("{namespace}/{}", subject.text("name")),
    };
    subjects.map(name).collect::<Vec<_>>().join(", ")
}

fn certificate_state(request: &Value) -> String {
    let conditions = request.list("status.conditions");
    let has = |kind| condition(conditions, kind).is_some();
    let mut state = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !request.text("status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

/// Formats `namespace/name`, `*/name`, or the selector.
fn parameter(reference: &Value) -> String {
    match (reference.text("name"), reference.text("namespace")) {
        ("", _) if reference.has("selector") => super::cells::selector(reference.at("selector")),
        ("", _) => UNSET.to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    }
}
