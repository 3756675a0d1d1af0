//! Validation of ingresses, network policies, endpoint slices and addresses.

use std::collections::HashSet;

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::rules::{annotation, immutable, named, objections, one_of, port_number, required, same, selector, word};
use super::service::host_name;
use super::{Errors, address};
use crate::facts::internal;
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    match kind {
        "Ingress" => ingress(object, old, errors),
        "IngressClass" => {
            if let Some(old) = old {
                immutable(errors, &SPEC.child("controller"), spec.at("controller"), old.at("spec.controller"));
            }
            ingress_class(spec, errors);
        }
        "NetworkPolicy" => network_policy(spec, errors),
        "EndpointSlice" => endpoint_slice(object, old, errors),
        "IPAddress" => ip_address(object, old, errors),
        "ServiceCIDR" => service_range(spec, errors),
        _ => {}
    }
}

fn ingress(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    let rules = spec.list("rules");
    let default = spec.at("defaultBackend");
    if rules.is_empty() && !default.is_object() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(SPEC, spec.at("rules"), why));
    }
    if default.is_object() {
        backend(default, &SPEC.child("defaultBackend"), errors);
    }
    let list = SPEC.child("rules");
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        let host = rule.text("host");
        if !host.is_empty() {
            let path = path.child("host");
            if address::parse(host).is_some() {
                errors.push(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
            }
            objections(errors, &path, host, wildcard_or_name(host));
        }
        if rule.has("http") {
            let paths = rule.list("http.paths");
            let list = path.child("http.paths");
            if paths.is_empty() {
                required(errors, &list);
            }
            for (j, entry) in paths.iter().enumerate() {
                http_path(entry, &list.index(j), errors);
            }
        }
    }
    let list = SPEC.child("tls");
    for (i, tls) in spec.list("tls").iter().enumerate() {
        let path = list.index(i);
        let hosts = path.child("hosts");
        for (j, host) in tls.list("hosts").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            objections(errors, &hosts.index(j), host, wildcard_or_name(host));
        }
        super::rules::optional(errors, &path.child("secretName"), tls.text("secretName"), names::dns1123_subdomain);
    }
    if let Some(class) = spec.at("ingressClassName").as_str() {
        objections(errors, &SPEC.child("ingressClassName"), class, names::dns1123_subdomain(class));
        const ANNOTATION: &str = "kubernetes.io/ingress.class";
        if let Some(other) = annotation(object, ANNOTATION).filter(|other| old.is_none() && *other != class) {
            let why = "must match `ingressClassName` when both are specified";
            errors.push(FieldError::invalid(Path::new("annotations").child(ANNOTATION), other, why));
        }
    }
}

fn wildcard_or_name(host: &str) -> names::Objections {
    if host.contains('*') { names::wildcard_dns1123_subdomain(host) } else { names::dns1123_subdomain(host) }
}

fn http_path(entry: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(kind) = entry.at("pathType").as_str() else {
        errors.push(FieldError::required(path.child("pathType"), "pathType must be specified"));
        return;
    };
    let target = entry.text("path");
    let target_path = path.child("path");
    let absolute = target.starts_with('/');
    match kind {
        "Exact" | "Prefix" => {
            if !absolute {
                errors.push(FieldError::invalid(target_path, target, "must be an absolute path"));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if target.contains(sequence) {
                    let why = format!("must not contain '{sequence}'");
                    errors.push(FieldError::invalid(target_path, target, why));
                }
            }
            for suffix in ["/..", "/."] {
                if target.ends_with(suffix) {
                    errors.push(FieldError::invalid(target_path, target, format!("cannot end with '{suffix}'")));
                }
            }
        }
        "ImplementationSpecific" => {
            if !target.is_empty() && !absolute {
                errors.push(FieldError::invalid(target_path, target, "must be an absolute path"));
            }
        }
        other => word(errors, &path.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(entry.at("backend"), &path.child("backend"), errors);
}

fn backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.at("resource"), backend.at("service"));
    match (resource.is_object(), service.is_object()) {
        (true, true) => errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends")),
        (true, false) => typed_reference(resource, &path.child("resource"), errors),
        (false, true) => {
            named(errors, &path.child("service.name"), service.text("name"), names::dns1123_label);
            match (service.text("port.name"), service.int("port.number").unwrap_or(0)) {
                ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
                ("", number) => port_number(errors, &path.child("service.port.number"), number),
                (name, 0) => objections(errors, &path.child("service.port.name"), name, names::port_name(name)),
                _ => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
            }
        }
        (false, false) => {
            errors.push(FieldError::invalid(path, "", "resource or service backend is required"));
        }
    }
}

fn typed_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = reference.at("apiGroup").as_str() {
        objections(errors, &path.child("apiGroup"), group, names::dns1123_subdomain(group));
    }
    named(errors, &path.child("kind"), reference.text("kind"), names::path_segment);
    named(errors, &path.child("name"), reference.text("name"), names::path_segment);
}

/// Checks a name such as `example.com/some/path`.
pub(super) fn domain_prefixed_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.is_empty() {
        return required(errors, path);
    }
    let Some((domain, rest)) = value.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
    else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(path, value, why));
        return;
    };
    objections(errors, path, domain, names::dns1123_subdomain(domain));
    let inner = |c: char| c.is_ascii_alphanumeric() || "/:._~!$&'()*+,;=%-".contains(c);
    if !rest.chars().all(inner) {
        let words = "Invalid path";
        let why = names::regex_objection(words, r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid(path, rest, why));
    }
}

fn ingress_class(spec: &Value, errors: &mut Errors) {
    let (controller, path) = (spec.text("controller"), SPEC.child("controller"));
    if controller.len() > 250 {
        errors.push(FieldError::too_long(path, 250));
    }
    domain_prefixed_path(controller, &path, errors);
    let (parameters, path) = (spec.at("parameters"), SPEC.child("parameters"));
    if !parameters.is_object() {
        return;
    }
    typed_reference(parameters, &path, errors);
    let namespace = parameters.at("namespace").as_str();
    match parameters.text("scope") {
        "" => required(errors, &path.child("scope")),
        "Namespace" => match namespace {
            None => {
                errors.push(FieldError::required(path.child("namespace"), "`parameters.scope` is set to 'Namespace'"))
            }
            Some(name) => objections(errors, &path.child("namespace"), name, names::dns1123_label(name)),
        },
        "Cluster" => {
            if namespace.is_some() {
                errors.push(FieldError::forbidden(path.child("namespace"), "`parameters.scope` is set to 'Cluster'"));
            }
        }
        other => word(errors, &path.child("scope"), other, &["Cluster", "Namespace"]),
    }
}

pub(super) fn ingress_status(object: &Value, errors: &mut Errors) {
    let list = Path::new("status.loadBalancer.ingress");
    for (i, entry) in object.list("status.loadBalancer.ingress").iter().enumerate() {
        let path = list.index(i);
        if !entry.text("ip").is_empty() {
            address::address(errors, &path.child("ip"), entry.text("ip"));
        }
        host_name(entry.text("hostname"), &path.child("hostname"), errors);
    }
}

fn network_policy(spec: &Value, errors: &mut Errors) {
    selector(errors, &SPEC.child("podSelector"), spec.at("podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let list = SPEC.child(direction);
        for (i, rule) in spec.list(direction).iter().enumerate() {
            let path = list.index(i);
            let ports = path.child("ports");
            for (j, port) in rule.list("ports").iter().enumerate() {
                policy_port(port, &ports.index(j), errors);
            }
            let list = path.child(peers);
            for (j, peer) in rule.list(peers).iter().enumerate() {
                policy_peer(peer, &list.index(j), errors);
            }
        }
    }
    let (types, path) = (spec.list("policyTypes"), SPEC.child("policyTypes"));
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(path, spec.at("policyTypes"), why));
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        word(errors, &path.index(i), kind.as_str().unwrap_or_default(), &["Ingress", "Egress"]);
    }
}

fn policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    super::rules::optional_word(errors, &path.child("protocol"), port.at("protocol"), &["TCP", "UDP", "SCTP"]);
    let (end, end_path) = (port.int("endPort"), path.child("endPort"));
    match port.at("port") {
        Value::String(name) => {
            if let Some(end) = end {
                errors.push(FieldError::invalid(end_path, end, "may not be specified when `port` is non-numeric"));
            }
            objections(errors, &path.child("port"), name, names::port_name(name));
        }
        Value::Number(number) => {
            let number = number.as_i64().unwrap_or(0);
            port_number(errors, &path.child("port"), number);
            if let Some(end) = end {
                if end < number {
                    // The reference reports the wrong one of the two.
                    errors.push(FieldError::invalid(end_path, number, "must be greater than or equal to `port`"));
                }
                port_number(errors, &end_path, end);
            }
        }
        _ => {
            if let Some(end) = end {
                errors.push(FieldError::invalid(end_path, end, "may not be specified when `port` is not specified"));
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut peers = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if peer.has(field) {
            peers += 1;
            selector(errors, &path.child(field), peer.at(field));
        }
    }
    let block = peer.at("ipBlock");
    if block.is_object() {
        peers += 1;
        address_block(block, &path.child("ipBlock"), errors);
    }
    if peers == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if peers > 1 && block.is_object() {
        errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
    }
}

fn address_block(block: &Value, path: &Path<'_>, errors: &mut Errors) {
    let range = block.text("cidr");
    if range.is_empty() {
        return required(errors, &path.child("cidr"));
    }
    address::range(errors, &path.child("cidr"), range);
    let Some(outer) = address::parse_range(range) else { return };
    let list = path.child("except");
    for (i, except) in block.list("except").iter().enumerate() {
        let except = except.as_str().unwrap_or_default();
        address::range(errors, &list.index(i), except);
        if address::parse_range(except).is_some_and(|inner| !address::holds(outer, inner)) {
            errors.push(FieldError::invalid(list.index(i), except, "must be a strict subset of `cidr`"));
        }
    }
}

fn endpoint_slice(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let family = object.text("addressType");
    one_of(errors, &Path::new("addressType"), family, &["FQDN", "IPv4", "IPv6"]);
    let ports = object.list("ports");
    let list = Path::new("ports");
    if ports.len() > 20_000 {
        errors.push(FieldError::too_many(list, ports.len(), 20_000));
    }
    let mut taken = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = list.index(i);
        let name = port.text("name");
        super::rules::optional(errors, &path.child("name"), name, names::dns1123_label);
        if !taken.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
        one_of(errors, &path.child("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = port.at("appProtocol").as_str() {
            objections(errors, &path.child("appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
    if old.is_none_or(|old| !same(old.at("endpoints"), object.at("endpoints"))) {
        let list = Path::new("endpoints");
        let endpoints = object.list("endpoints");
        if endpoints.len() > 1000 {
            errors.push(FieldError::too_many(list, endpoints.len(), 1000));
        } else {
            for (i, entry) in endpoints.iter().enumerate() {
                endpoint(entry, family, &list.index(i), errors);
            }
        }
    }
    if let Some(old) = old {
        immutable(errors, &Path::new("addressType"), object.at("addressType"), old.at("addressType"));
    }
}

fn endpoint(entry: &Value, family: &str, path: &Path<'_>, errors: &mut Errors) {
    let addresses = entry.list("addresses");
    let list = path.child("addresses");
    if addresses.is_empty() {
        errors.push(FieldError::required(list, "must contain at least 1 address"));
    }
    if addresses.len() > 100 {
        errors.push(FieldError::too_many(list, addresses.len(), 100));
    }
    for (i, text) in addresses.iter().enumerate() {
        let text = text.as_str().unwrap_or_default();
        let path = list.index(i);
        match family {
            "IPv4" | "IPv6" => {
                if let Some(address) = address::strict_address(errors, &path, text) {
                    if address.is_ipv4() != (family == "IPv4") {
                        errors.push(FieldError::invalid(list, text, format!("must be an {family} address")));
                    }
                    address::reachable(errors, &path, text);
                }
            }
            "FQDN" => {
                objections(errors, &path, text, names::dns1123_subdomain(text));
                if !text.contains('.') {
                    let why = "should be a domain with at least two segments separated by dots";
                    errors.push(FieldError::invalid(path, text, why));
                }
            }
            _ => {}
        }
    }
    if let Some(node) = entry.at("nodeName").as_str() {
        objections(errors, &path.child("nodeName"), node, names::dns1123_subdomain(node));
    }
    if let Some(host) = entry.at("hostname").as_str() {
        objections(errors, &path.child("hostname"), host, names::dns1123_label(host));
    }
    let zones = path.child("hints.forZones");
    let mut taken = HashSet::new();
    for (i, zone) in entry.list("hints.forZones").iter().enumerate() {
        let (name, zone_path) = (zone.text("name"), zones.index(i));
        if !taken.insert(name) {
            errors.push(FieldError::duplicate(zone_path.child("name"), name));
        }
        objections(errors, &zone_path.child("name"), name, names::label_value(name));
    }
    let nodes = path.child("hints.forNodes");
    let mut taken = HashSet::new();
    for (i, node) in entry.list("hints.forNodes").iter().enumerate() {
        let (name, node_path) = (node.text("name"), nodes.index(i));
        if !taken.insert(name) {
            errors.push(FieldError::duplicate(node_path.child("name"), name));
        }
        objections(errors, &node_path.child("name"), name, names::dns1123_subdomain(name));
    }
}

fn ip_address(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = SPEC.child("parentRef");
    let parent = object.at("spec.parentRef");
    if let Some(old) = old {
        if !super::rules::same(parent, old.at("spec.parentRef")) {
            let shown = internal::shown("networking.ParentReference", parent);
            errors.push(FieldError::invalid(path, shown, super::rules::IMMUTABLE));
        }
        return;
    }
    address::strict_address(errors, &Path::new("metadata.name"), object.text("metadata.name"));
    if !parent.is_object() {
        return required(errors, &path);
    }
    super::rules::optional(errors, &path.child("group"), parent.text("group"), names::dns1123_subdomain);
    named(errors, &path.child("resource"), parent.text("resource"), names::path_segment);
    named(errors, &path.child("name"), parent.text("name"), names::path_segment);
    super::rules::optional(errors, &path.child("namespace"), parent.text("namespace"), names::path_segment);
}

fn service_range(spec: &Value, errors: &mut Errors) {
    let (ranges, path) = (spec.list("cidrs"), SPEC.child("cidrs"));
    match ranges.len() {
        0 => errors.push(FieldError::required(path, "at least one CIDR required")),
        1 | 2 => {
            for (i, range) in ranges.iter().enumerate() {
                address::range(errors, &path.index(i), range.as_str().unwrap_or_default());
            }
        }
        _ => errors.push(FieldError::invalid(path, spec, "may only hold up to 2 values")),
    }
}
