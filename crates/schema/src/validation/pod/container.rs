//! Validation of containers: names and images, ports, variables, probes and hooks.

use std::collections::HashSet;

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::super::Errors;
use super::super::rules::{named, no_backsteps, not_negative, objections, one_of, port, port_number, required, word};
use super::{Whole, resources, security, volume};
use crate::walk::{Walk as _, is_empty};

pub(super) fn containers(whole: &Whole<'_>, path: &Path<'_>, errors: &mut Errors) {
    let containers = whole.spec.list("containers");
    if containers.is_empty() {
        return required(errors, path);
    }
    let mut names = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        common(whole, container, &path, errors);
        if !names.insert(container.text("name")) {
            errors.push(FieldError::duplicate(path.child("name"), container.text("name")));
        }
        lifecycle(whole, container, &path, errors);
        probes(whole, container, &path, errors);
        restart_policy(container, &path, errors);
    }
    unique_host_ports(containers, path, errors);
}

pub(super) fn init_containers(whole: &Whole<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut names: HashSet<&str> = whole.spec.list("containers").iter().map(|c| c.text("name")).collect();
    for (i, container) in whole.spec.list("initContainers").iter().enumerate() {
        let list = path;
        let path = path.index(i);
        common(whole, container, &path, errors);
        restart_policy(container, &path, errors);
        let name = container.text("name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
        unique_host_ports(std::slice::from_ref(container), list, errors);
        let stays = container.text("restartPolicy") == "Always";
        if stays {
            lifecycle(whole, container, &path, errors);
            probes(whole, container, &path, errors);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(field) {
                    let why = "may not be set for init containers without restartPolicy=Always";
                    errors.push(FieldError::forbidden(path.child(field), why));
                }
            }
            for (j, policy) in container.list("resizePolicy").iter().enumerate() {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let list = path.child("resizePolicy");
                    let entry = list.index(j);
                    let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.push(FieldError::invalid(entry.child("restartPolicy"), "RestartContainer", why));
                }
            }
        }
    }
}

pub(super) fn ephemeral_containers(whole: &Whole<'_>, path: &Path<'_>, errors: &mut Errors) {
    const ALLOWED: [&str; 15] = [
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "envFrom",
        "env",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
    ];
    const WHY: &str = "cannot be set for an Ephemeral Container";
    let list = whole.spec.list("ephemeralContainers");
    if list.is_empty() {
        return;
    }
    let others: HashSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|l| whole.spec.list(l)).map(|c| c.text("name")).collect();
    let mut names = others.clone();
    for (i, container) in list.iter().enumerate() {
        let path = path.index(i);
        common(whole, container, &path, errors);
        only_in_pod(container, &path, errors);
        if !names.insert(container.text("name")) {
            errors.push(FieldError::duplicate(path.child("name"), container.text("name")));
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::not_found(path.child("targetContainerName"), target));
        }
        for (field, value) in container.as_object().into_iter().flatten() {
            let allowed = ALLOWED.contains(&field.as_str()) || field == "tty" || field == "targetContainerName";
            if !allowed && !is_empty(Some(value)) {
                errors.push(FieldError::forbidden(path.child(field), WHY));
            }
        }
        let mounts = path.child("volumeMounts");
        for (j, mount) in container.list("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    errors.push(FieldError::forbidden(mounts.index(j).child(field), WHY));
                }
            }
        }
    }
}

/// Checks the fields that every kind of container has.
fn common(whole: &Whole<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    named(errors, &path.child("name"), container.text("name"), names::dns1123_label);
    if container.text("image").is_empty() {
        required(errors, &path.child("image"));
    }
    let policy = container.text("terminationMessagePolicy");
    one_of(errors, &path.child("terminationMessagePolicy"), policy, &["File", "FallbackToLogsOnError"]);
    ports(container, &path.child("ports"), errors);
    variables(container, &path.child("env"), errors);
    variable_sources(container, &path.child("envFrom"), errors);
    volume::mounts(whole, container, &path.child("volumeMounts"), errors);
    volume::devices(whole, container, &path.child("volumeDevices"), errors);
    let policy = container.text("imagePullPolicy");
    one_of(errors, &path.child("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    resources::requirements(container.at("resources"), &whole.claims, false, &path.child("resources"), errors);
    resources::resize_policy(whole, container, &path.child("resizePolicy"), errors);
    security::container(container.at("securityContext"), whole.host_users, &path.child("securityContext"), errors);
}

fn ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut taken = HashSet::new();
    for (i, entry) in container.list("ports").iter().enumerate() {
        let path = path.index(i);
        let name = entry.text("name");
        if !name.is_empty() {
            let why = names::port_name(name);
            if why.is_empty() && !taken.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
            objections(errors, &path.child("name"), name, why);
        }
        match entry.int("containerPort").unwrap_or(0) {
            0 => required(errors, &path.child("containerPort")),
            number => port_number(errors, &path.child("containerPort"), number),
        }
        if let Some(number) = entry.int("hostPort").filter(|number| *number != 0) {
            port_number(errors, &path.child("hostPort"), number);
        }
        one_of(errors, &path.child("protocol"), entry.text("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// Checks that no host port is used twice.
fn unique_host_ports(containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut taken = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let container_path = path.index(i);
        let path = container_path.child("ports");
        for (j, entry) in container.list("ports").iter().enumerate() {
            let number = entry.int("hostPort").unwrap_or(0);
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", entry.text("protocol"), entry.text("hostIP"));
            if taken.contains(&key) {
                errors.push(FieldError::duplicate(path.index(j).child("hostPort"), &key));
            }
            taken.insert(key);
        }
    }
}

/// Checks that both ports are equal on the network of the host.
pub(super) fn host_ports(whole: &Whole<'_>, path: &Path<'_>, errors: &mut Errors) {
    if whole.spec.flag("hostNetwork") != Some(true) {
        return;
    }
    let list = path.child("containers");
    for (i, container) in whole.spec.list("containers").iter().enumerate() {
        let container_path = list.index(i);
        let ports = container_path.child("ports");
        for (j, entry) in container.list("ports").iter().enumerate() {
            let (host, own) = (entry.int("hostPort").unwrap_or(0), entry.int("containerPort").unwrap_or(0));
            if (whole.is_pod || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(ports.index(j).child("hostPort"), host, why));
            }
        }
    }
}

fn environment_name(name: &str) -> names::Objections {
    if name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        Vec::new()
    } else {
        vec![
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        ]
    }
}

fn variables(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, variable) in container.list("env").iter().enumerate() {
        let path = path.index(i);
        named(errors, &path.child("name"), variable.text("name"), environment_name);
        let source = variable.at("valueFrom");
        if !source.is_object() {
            continue;
        }
        let path = path.child("valueFrom");
        let mut sources = 0;
        if source.has("fieldRef") {
            sources += 1;
            let known = [
                "metadata.name",
                "metadata.namespace",
                "metadata.uid",
                "spec.nodeName",
                "spec.serviceAccountName",
                "status.hostIP",
                "status.hostIPs",
                "status.podIP",
                "status.podIPs",
            ];
            field_reference(source.at("fieldRef"), &known, &path.child("fieldRef"), errors);
        }
        if source.has("resourceFieldRef") {
            sources += 1;
            resource_reference(source.at("resourceFieldRef"), false, &path.child("resourceFieldRef"), errors);
        }
        for field in ["configMapKeyRef", "secretKeyRef"] {
            if source.has(field) {
                sources += 1;
                let (reference, path) = (source.at(field), path.child(field));
                let name = reference.text("name");
                objections(errors, &path.child("name"), name, names::dns1123_subdomain(name));
                named(errors, &path.child("key"), reference.text("key"), names::config_map_key);
            }
        }
        if source.has("fileKeyRef") {
            sources += 1;
            let (reference, path) = (source.at("fileKeyRef"), path.child("fileKeyRef"));
            named(errors, &path.child("key"), reference.text("key"), environment_name);
            named(errors, &path.child("volumeName"), reference.text("volumeName"), names::dns1123_label);
            named(errors, &path.child("path"), reference.text("path"), |_| Vec::new());
            no_backsteps(errors, &path.child("path"), reference.text("path"));
        }
        let why = if sources == 0 {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else if !variable.text("value").is_empty() {
            "may not be specified when `value` is not empty"
        } else if sources > 1 {
            "may not have more than one field specified at a time"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(path, "", why));
    }
}

fn variable_sources(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, entry) in container.list("envFrom").iter().enumerate() {
        let entry_path = path.index(i);
        let prefix = entry.text("prefix");
        objections(errors, &entry_path.child("prefix"), prefix, environment_name(prefix));
        let mut sources = 0;
        for field in ["configMapRef", "secretRef"] {
            if entry.has(field) {
                sources += 1;
                let name = entry.at(field).text("name");
                let field = entry_path.child(field);
                // The name may be a prefix here, as in the reference.
                named(errors, &field.child("name"), name, |name| names::NameRule::DnsSubdomain.check_prefix(name));
            }
        }
        match sources {
            0 => errors.push(FieldError::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(FieldError::invalid(path, "", "may not have more than one field specified at a time")),
        }
    }
}

/// Checks a reference to a field of the pod.
pub(super) fn field_reference(reference: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if reference.text("apiVersion").is_empty() {
        return required(errors, &path.child("apiVersion"));
    }
    let field = reference.text("fieldPath");
    if field.is_empty() {
        return required(errors, &path.child("fieldPath"));
    }
    if let Some((base, key)) = field.strip_suffix("']").and_then(|field| field.split_once("['")) {
        match base {
            "metadata.annotations" => {
                let key = key.to_lowercase();
                objections(errors, path, &key, names::qualified_name(&key));
            }
            "metadata.labels" => objections(errors, path, key, names::qualified_name(key)),
            _ => {
                let why = format!("error converting fieldPath: field label does not support subscript: {field}");
                errors.push(FieldError::invalid(path.child("fieldPath"), field, why));
            }
        }
        return;
    }
    const CONVERTIBLE: [&str; 13] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.podIP",
        "status.podIPs",
    ];
    if !CONVERTIBLE.contains(&field) && !matches!(field, "status.hostIPs" | "spec.host") {
        let why = format!("error converting fieldPath: field label not supported: {field}");
        errors.push(FieldError::invalid(path.child("fieldPath"), field, why));
    } else if !known.contains(&field) {
        let mut known = known.to_vec();
        known.sort_unstable();
        errors.push(FieldError::not_supported(path.child("fieldPath"), field, known));
    }
}

/// Checks a reference to a resource of a container.
pub(super) fn resource_reference(reference: &Value, in_volume: bool, path: &Path<'_>, errors: &mut Errors) {
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = reference.text("resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && reference.text("containerName").is_empty() {
        required(errors, &path.child("containerName"));
    } else if resource.is_empty() {
        required(errors, &path.child("resource"));
    } else if !KNOWN.contains(&resource) && !huge {
        errors.push(FieldError::not_supported(path.child("resource"), resource, KNOWN));
    }
    let divisor = super::super::amount::text(reference.at("divisor"));
    if matches!(divisor.as_str(), "0" | "null" | "") {
        return;
    }
    let bytes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let why = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" if !["1m", "1"].contains(&divisor.as_str()) => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        name @ ("memory" | "ephemeral-storage") if !bytes.contains(&divisor.as_str()) => {
            let name = if name == "memory" { "memory" } else { "local ephemeral storage" };
            format!("only divisor's values {} are supported with the {name} resource", bytes.join(", "))
        }
        _ => return,
    };
    errors.push(FieldError::invalid(path.child("divisor"), resource, why));
}

fn lifecycle(whole: &Whole<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let lifecycle = container.at("lifecycle");
    if !lifecycle.is_object() {
        return;
    }
    let path = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle.has(hook) {
            let handlers = ["exec", "httpGet", "tcpSocket", "sleep"];
            handler(whole, lifecycle.at(hook), &handlers, &path.child(hook), errors);
        }
    }
    if let Some(signal) = lifecycle.at("stopSignal").as_str() {
        let path = path.child("stopSignal");
        match whole.spec.text("os.name") {
            "" => errors.push(FieldError::forbidden(path, "may not be set for containers with empty `spec.os.name`")),
            "windows" => word(errors, &path, signal, &["SIGKILL", "SIGTERM"]),
            _ => {}
        }
    }
}

fn probes(whole: &Whole<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(field);
        if !probe.is_object() {
            continue;
        }
        let path = path.child(field);
        handler(whole, probe, &["exec", "httpGet", "tcpSocket", "grpc"], &path, errors);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            not_negative(errors, &path.child(number), probe.int(number));
        }
        let grace = probe.int("terminationGracePeriodSeconds");
        let grace_path = path.child("terminationGracePeriodSeconds");
        if let Some(grace) = grace.filter(|grace| *grace <= 0) {
            errors.push(FieldError::invalid(grace_path, grace, "must be greater than 0"));
        }
        match (field, grace) {
            ("readinessProbe", Some(grace)) => {
                errors.push(FieldError::invalid(grace_path, grace, "must not be set for readinessProbes"));
            }
            ("readinessProbe", None) => {}
            _ => {
                let threshold = probe.int("successThreshold").unwrap_or(0);
                if threshold != 1 {
                    errors.push(FieldError::invalid(path.child("successThreshold"), threshold, "must be 1"));
                }
            }
        }
    }
}

/// Checks that a handler has exactly one action.
fn handler(whole: &Whole<'_>, handlers: &Value, names: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for name in names {
        let handler = handlers.at(name);
        if !handler.is_object() {
            continue;
        }
        let path = path.child(name);
        if found {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match *name {
            "exec" if handler.list("command").is_empty() => required(errors, &path.child("command")),
            "httpGet" => http_get(handler, &path, errors),
            "tcpSocket" => port(errors, &path.child("port"), handler.at("port")),
            "grpc" => port_number(errors, &path.child("port"), handler.int("port").unwrap_or(0)),
            "sleep" => {
                let seconds = handler.int("seconds").unwrap_or(0);
                if let Some(grace) = whole.grace_period.filter(|grace| seconds < 0 || seconds > *grace) {
                    let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.push(FieldError::invalid(path, seconds, why));
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(get: &Value, path: &Path<'_>, errors: &mut Errors) {
    if get.text("path").is_empty() {
        required(errors, &path.child("path"));
    }
    port(errors, &path.child("port"), get.at("port"));
    word(errors, &path.child("scheme"), get.text("scheme"), &["HTTP", "HTTPS"]);
    for header in get.list("httpHeaders") {
        let name = header.text("name");
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
            let why = names::regex_objection(words, "[-A-Za-z0-9]+", &["X-Header-Name"]);
            errors.push(FieldError::invalid(path.child("httpHeaders"), name, why));
        }
    }
}

fn restart_policy(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = container.at("restartPolicy").as_str();
    let rules = container.list("restartPolicyRules");
    match policy {
        None if rules.is_empty() => return,
        None => {
            let why = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(path.child("restartPolicy"), why));
        }
        Some(policy) => word(errors, &path.child("restartPolicy"), policy, &["Always", "Never", "OnFailure"]),
    }
    let list = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        word(errors, &path.child("action"), rule.text("action"), &["Restart", "RestartAllContainers"]);
        if rule.has("exitCodes") {
            let codes = path.child("exitCodes");
            word(errors, &codes.child("operator"), rule.text("exitCodes.operator"), &["In", "NotIn"]);
            let count = rule.list("exitCodes.values").len();
            if count > 255 {
                errors.push(FieldError::too_many(codes.child("values"), count, 255));
            }
        } else {
            errors.push(FieldError::required(path.child("exitCodes"), "must be specified"));
        }
    }
}

pub(super) fn only_in_pods(containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, container) in containers.iter().enumerate() {
        only_in_pod(container, &path.index(i), errors);
    }
}

fn only_in_pod(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let image = container.text("image");
    if image.trim().len() != image.len() {
        let why = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(path.child("image"), image, why));
    }
}
