//! Defaults of pods and pod templates.

use machinery::json::{Map, Value, json};
use machinery::quantity::Quantity;

use super::volume;
use crate::walk::{Fields, Fill as _, Walk as _};

/// Sets defaults of a pod that a template does not get, so that templates stay as their author wrote them.
pub(super) fn status(object: &mut Fields) {
    if let Some(status) = object.child("status") {
        addresses(status);
    }
}

pub(super) fn pod(object: &mut Fields) {
    status(object);
    let Some(spec) = object.child("spec") else { return };
    pod_spec(spec);
    for list in ["containers", "initContainers"] {
        for container in spec.items(list) {
            requests_from_limits(container);
        }
    }
    pod_level_resources(spec);
    spec.fill("enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in spec.items(list) {
                for port in container.items("ports") {
                    if let Some(number) = port.get("containerPort").cloned() {
                        port.fill_empty("hostPort", number);
                    }
                }
            }
        }
    }
}

/// Keeps the two fields for one address equal; if they differ, the older field counts.
fn addresses(status: &mut Fields) {
    let first = status.get("podIPs").and_then(|list| list.get(0)).map_or("", |entry| entry.text("ip")).to_owned();
    let address = status.word("podIP").to_owned();
    if !address.is_empty() && address != first {
        status.insert("podIPs", json!([{"ip": address}]));
    } else if address.is_empty() && !first.is_empty() {
        status.insert("podIP", first.into());
    }
}

/// Sets defaults of a pod template, `{metadata, spec}` inside a workload.
pub(super) fn template(template: &mut Fields) {
    if let Some(spec) = template.child("spec") {
        pod_spec(spec);
    }
}

pub(super) fn pod_spec(spec: &mut Fields) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for item in spec.items(list) {
            container(item);
        }
    }
    for item in spec.items("volumes") {
        volume::pod_volume(item);
    }
    // The deprecated field is kept equal to the new one.
    match (spec.word("serviceAccountName"), spec.word("serviceAccount")) {
        ("", "") => {}
        ("", old) => {
            let old = old.to_owned();
            spec.insert("serviceAccountName", old.into());
        }
        (name, _) => {
            let name = name.to_owned();
            spec.insert("serviceAccount", name.into());
        }
    }
    spec.fill_empty("dnsPolicy", "ClusterFirst");
    spec.fill_empty("restartPolicy", "Always");
    spec.fill("securityContext", json!({}));
    spec.fill("terminationGracePeriodSeconds", 30);
    spec.fill_empty("schedulerName", "default-scheduler");
}

fn container(container: &mut Fields) {
    for port in container.items("ports") {
        port.fill_empty("protocol", "TCP");
    }
    for variable in container.items("env") {
        let Some(source) = variable.child("valueFrom") else { continue };
        if let Some(field) = source.child("fieldRef") {
            field.fill_empty("apiVersion", "v1");
        }
        if let Some(file) = source.child("fileKeyRef") {
            file.fill("optional", false);
        }
        if let Some(resource) = source.child("resourceFieldRef") {
            resource.fill_empty("divisor", "0");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.child(name) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = container.child("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(get) = lifecycle.child(hook).and_then(|hook| hook.child("httpGet")) {
                http_get(get);
            }
        }
    }
    let image = container.word("image");
    let policy = if always_pulled(image) { "Always" } else { "IfNotPresent" };
    container.fill_empty("imagePullPolicy", policy);
    container.fill("resources", json!({}));
    if let Some(resources) = container.child("resources") {
        super::round_up(resources, &["limits", "requests"]);
    }
    container.fill_empty("terminationMessagePath", "/dev/termination-log");
    container.fill_empty("terminationMessagePolicy", "File");
    if let Some(context) = container.child("securityContext")
        && context.contains_key("procMount")
    {
        context.fill_empty("procMount", "Default");
    }
}

fn probe(probe: &mut Fields) {
    if let Some(get) = probe.child("httpGet") {
        http_get(get);
    }
    if let Some(grpc) = probe.child("grpc") {
        grpc.fill("service", "");
    }
    probe.fill_empty("timeoutSeconds", 1);
    probe.fill_empty("periodSeconds", 10);
    probe.fill_empty("successThreshold", 1);
    probe.fill_empty("failureThreshold", 3);
}

fn http_get(get: &mut Fields) {
    get.fill_empty("path", "/");
    get.fill_empty("scheme", "HTTP");
}

/// Returns whether an image has the tag `latest`, which it also has if it names neither tag nor digest. A malformed image has
/// no tag.
pub(super) fn always_pulled(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("", name),
    };
    let (path, tag) = path.rsplit_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
    if path.is_empty() || !path.chars().all(legal) || host.contains('_') {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => !digest,
    }
}

fn requests_from_limits(container: &mut Fields) {
    let Some(resources) = container.child("resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()) else {
        return;
    };
    let limits = limits.clone();
    if let Some(requests) = resources.child_or_new("requests") {
        for (name, amount) in limits {
            requests.fill(&name, amount);
        }
    }
}

/// Sets the requests of the pod as a whole: those of its containers, else its limits.
fn pod_level_resources(spec: &mut Fields) {
    let Some(limits) = spec.get("resources").and_then(|resources| resources.map("limits")) else { return };
    if limits.is_empty() {
        return;
    }
    let limits: Map = limits.clone();
    let mut wanted = Map::new();
    for name in ["cpu", "memory"] {
        if let Some(amount) = requested_by_containers(spec, name) {
            wanted.insert(name.to_owned(), amount.to_string().into());
        }
    }
    for (name, limit) in limits {
        wanted.fill(&name, limit);
    }
    if let Some(requests) = spec.child("resources").and_then(|resources| resources.child_or_new("requests")) {
        for (name, amount) in wanted {
            requests.fill(&name, amount);
        }
    }
}

/// Returns what containers need at the same time: the sum of those that stay, or an init container if it needs more.
fn requested_by_containers(spec: &Fields, name: &str) -> Option<Quantity> {
    let list = |field: &str| spec.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let asked = |container: &Value| {
        let amount = container.map("resources.requests")?.get(name)?;
        Quantity::from_value(amount).ok()
    };
    let add = |sum: Option<Quantity>, more: Option<Quantity>| match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.plus(&more)),
        (sum, more) => sum.or(more),
    };
    let (mut staying, mut starting) = (None, None);
    for container in list("initContainers") {
        if container.text("restartPolicy") == "Always" {
            staying = add(staying, asked(container));
        } else {
            starting = starting.max(add(staying.clone(), asked(container)));
        }
    }
    for container in list("containers") {
        staying = add(staying, asked(container));
    }
    staying.max(starting)
}
