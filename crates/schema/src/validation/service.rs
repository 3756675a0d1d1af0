//! Validation of services: addresses, ports, and the fields that only some types have.

use std::collections::HashSet;

use machinery::field_error::{BadValue, FieldError, Path};
use machinery::json::{Value, json};
use machinery::names;

use super::rules::{annotation, objections, one_of, optional_word, port, port_number, required, word};
use super::{Errors, address};
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = service.at("spec");
    if let Some(old) = old.map(|old| old.at("spec")) {
        kept_addresses(spec, old, errors);
        if is_balanced(spec) && is_balanced(old) && spec.at("loadBalancerClass") != old.at("loadBalancerClass") {
            let path = SPEC.child("loadBalancerClass");
            errors.push(FieldError::invalid(path, spec.at("loadBalancerClass"), "may not change once set"));
        }
        if let Some(class) = spec.at("loadBalancerClass").as_str() {
            balancer_class(spec, class, errors);
        }
        let checked = |spec| needs_health_check(spec).then(|| spec.int("healthCheckNodePort"));
        if let (Some(new), Some(old)) = (checked(spec), checked(old))
            && new != old
        {
            errors.push(FieldError::forbidden(SPEC.child("healthCheckNodePort"), "field is immutable"));
        }
    }
    let kind = spec.text("type");
    let ports = spec.list("ports");
    if ports.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        required(errors, &SPEC.child("ports"));
    }
    let addresses = SPEC.child("clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(addresses.index(0), "None", why));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let given = spec.has(field) && (field == "ipFamilyPolicy" || !spec.list(field).is_empty());
                if given {
                    errors.push(FieldError::forbidden(SPEC.child(field), "may not be set for ExternalName services"));
                }
            }
            let name = spec.text("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            super::rules::named(errors, &SPEC.child("externalName"), name, names::dns1123_subdomain);
        }
        _ => {}
    }
    service_ports(ports, errors);
    super::rules::labels(errors, &SPEC.child("selector"), spec.at("selector"));
    one_of(errors, &SPEC.child("sessionAffinity"), spec.text("sessionAffinity"), &["ClientIP", "None"]);
    affinity(spec, errors);
    cluster_addresses(spec, errors);
    let list = SPEC.child("externalIPs");
    for (i, ip) in spec.list("externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        address::address(errors, &list.index(i), ip);
        address::reachable(errors, &list.index(i), ip);
    }
    one_of(errors, &SPEC.child("type"), kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    unique_ports(kind, ports, errors);
    source_ranges(service, errors);
    let allocate = spec.at("allocateLoadBalancerNodePorts");
    if !allocate.is_null() && !is_balanced(spec) {
        errors.push(FieldError::forbidden(SPEC.child("allocateLoadBalancerNodePorts"), ONLY_BALANCED));
    }
    if allocate.is_null() && is_balanced(spec) {
        required(errors, &Path::new("allocateLoadBalancerNodePorts"));
    }
    if let Some(class) = spec.at("loadBalancerClass").as_str() {
        balancer_class(spec, class, errors);
    }
    traffic(spec, errors);
}

fn balancer_class(spec: &Value, class: &str, errors: &mut Errors) {
    let path = SPEC.child("loadBalancerClass");
    if is_balanced(spec) {
        objections(errors, &path, class, names::qualified_name(class));
    } else {
        errors.push(FieldError::forbidden(path, ONLY_BALANCED));
    }
}

fn is_balanced(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer"
}

fn is_headless(spec: &Value) -> bool {
    matches!(spec.list("clusterIPs"), [only] if only == "None")
}

fn needs_health_check(spec: &Value) -> bool {
    is_balanced(spec) && spec.text("externalTrafficPolicy") == "Local"
}

fn service_ports(ports: &[Value], errors: &mut Errors) {
    let list = SPEC.child("ports");
    let mut taken = HashSet::new();
    for (i, entry) in ports.iter().enumerate() {
        let path = list.index(i);
        let name = entry.text("name");
        if name.is_empty() && ports.len() > 1 {
            required(errors, &path.child("name"));
        } else if !name.is_empty() {
            objections(errors, &path.child("name"), name, names::dns1123_label(name));
            if !taken.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
        }
        port_number(errors, &path.child("port"), entry.int("port").unwrap_or(0));
        one_of(errors, &path.child("protocol"), entry.text("protocol"), &["SCTP", "TCP", "UDP"]);
        port(errors, &path.child("targetPort"), entry.at("targetPort"));
        if let Some(protocol) = entry.at("appProtocol").as_str() {
            objections(errors, &path.child("appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
}

fn unique_ports(kind: &str, ports: &[Value], errors: &mut Errors) {
    let list = SPEC.child("ports");
    let on_node = |port: &Value| port.int("nodePort").filter(|number| *number != 0);
    if kind == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, port)| on_node(port).is_some()) {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(list.index(i).child("nodePort"), why));
        }
    }
    let mut taken = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        if let Some(number) = on_node(port)
            && !taken.insert((port.text("protocol"), number))
        {
            errors.push(FieldError::duplicate(list.index(i).child("nodePort"), number));
        }
    }
    let mut taken = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (protocol, number) = (port.text("protocol"), port.int("port").unwrap_or(0));
        if !taken.insert((protocol, number)) {
            let key = json!({"Name": "", "Protocol": protocol, "AppProtocol": null, "Port": number, "TargetPort": 0, "NodePort": 0});
            errors.push(FieldError::duplicate(list.index(i), BadValue::text(key.to_string())));
        }
    }
}

fn affinity(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("sessionAffinityConfig");
    let config = spec.at("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "ClientIP" => match config.int("clientIP.timeoutSeconds") {
            Some(seconds) if (1..=86400).contains(&seconds) => {}
            Some(seconds) => {
                let path = path.child("clientIP.timeoutSeconds");
                errors.push(FieldError::invalid(path, seconds, "must be greater than 0 and less than 86400"));
            }
            None => {
                let path = match (config.is_object(), config.has("clientIP")) {
                    (false, _) => path,
                    (true, false) => path.child("clientIP"),
                    (true, true) => path.child("clientIP.timeoutSeconds"),
                };
                errors.push(FieldError::required(path, "when session affinity type is ClientIP"));
            }
        },
        "None" if config.is_object() => {
            errors.push(FieldError::forbidden(path, "must not be set when session affinity is None"));
        }
        _ => {}
    }
}

/// Checks the addresses by themselves, then whether the cluster has their families.
pub(super) fn families(spec: &Value, errors: &mut Errors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    cluster_addresses(spec, errors);
    if !errors.is_empty() {
        return;
    }
    let (policy, path) = (spec.at("ipFamilyPolicy"), SPEC.child("ipFamilyPolicy"));
    let (addresses, families) = (spec.list("clusterIPs"), spec.list("ipFamilies"));
    if policy == "SingleStack" {
        for (count, what) in [(addresses.len(), "cluster IPs"), (families.len(), "IP families")] {
            if count == 2 {
                let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.push(FieldError::invalid(path, policy, why));
            }
        }
    }
    let list = SPEC.child("clusterIPs");
    for (i, address) in addresses.iter().enumerate().skip(families.len()) {
        if address.as_str().is_some_and(|address| address.contains(':')) {
            let why = "IPv6 is not configured on this cluster";
            errors.push(FieldError::invalid(list.index(i), spec.at("clusterIPs"), why));
        }
    }
    let unselected = spec.map("selector").is_none_or(|selector| selector.is_empty());
    if !errors.is_empty() || is_headless(spec) && unselected {
        return;
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(path, policy, why));
    }
    let list = SPEC.child("ipFamilies");
    for (i, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
        errors.push(FieldError::invalid(list.index(i), family, "not configured on this cluster"));
    }
}

fn cluster_addresses(spec: &Value, errors: &mut Errors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let (first, all, addresses) = (spec.text("clusterIP"), spec.at("clusterIPs"), spec.list("clusterIPs"));
    match (first.is_empty(), addresses.first()) {
        (false, None) => required(errors, &path),
        (false, Some(address)) if address != first => {
            errors.push(FieldError::invalid(path, all, "first value must match `clusterIP`"));
        }
        (true, Some(_)) => {
            errors.push(FieldError::invalid(path, all, "must be empty when `clusterIP` is not specified"));
        }
        _ => {}
    }
    let list = SPEC.child("ipFamilies");
    let mut seen = HashSet::new();
    for (i, family) in spec.list("ipFamilies").iter().enumerate() {
        let family = family.as_str().unwrap_or_default();
        word(errors, &list.index(i), family, &["IPv4", "IPv6"]);
        if !seen.insert(family) {
            errors.push(FieldError::duplicate(list.index(i), family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    optional_word(errors, &SPEC.child("ipFamilyPolicy"), spec.at("ipFamilyPolicy"), &policies);
    let before = errors.len();
    for (i, entry) in addresses.iter().enumerate() {
        let text = entry.as_str().unwrap_or_default();
        if i == 0 && text == "None" {
            if addresses.len() > 1 {
                errors.push(FieldError::invalid(path, all, "'None' must be the first and only value"));
            }
            continue;
        }
        address::address(errors, &path.index(i), text);
    }
    let broken = errors.len() > before;
    if addresses.len() > 2 {
        errors.push(FieldError::invalid(path, all, "may only hold up to 2 values"));
    }
    if broken {
        return;
    }
    let is_v6 = |entry: &Value| address::parse(entry.as_str().unwrap_or_default()).map(|address| address.is_ipv6());
    let families: HashSet<bool> = addresses.iter().filter_map(is_v6).collect();
    if addresses.len() > 1 && families.len() < 2 {
        errors.push(FieldError::invalid(path, all, "may specify no more than one IP for each IP family"));
    }
    for (i, (entry, family)) in addresses.iter().zip(spec.list("ipFamilies")).enumerate() {
        let wanted = family.as_str().unwrap_or_default();
        if let Some(v6) = is_v6(entry)
            && matches!((wanted, v6), ("IPv4", true) | ("IPv6", false))
        {
            let article = format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(path.index(i), entry, article));
        }
    }
}

/// Checks that allocated addresses are unchanged.
fn kept_addresses(new: &Value, old: &Value, errors: &mut Errors) {
    if [new, old].iter().any(|spec| spec.text("type") == "ExternalName") || (is_headless(new) && is_headless(old)) {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let (now, before) = (new.list("clusterIPs"), old.list("clusterIPs"));
    let changed = "may not change once set";
    if now.len() == before.len() {
        for (i, _) in now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before) {
            errors.push(FieldError::invalid(path.index(i), new.at("clusterIPs"), changed));
        }
    } else {
        if now.is_empty() {
            errors.push(FieldError::invalid(path.index(0), new.at("clusterIPs"), "primary clusterIP can not be unset"));
        }
        if let (Some(first), Some(stored)) = (now.first(), before.first())
            && first != stored
        {
            errors.push(FieldError::invalid(path.index(0), new.at("clusterIPs"), changed));
        }
        if now.len() == 1 && before.len() > 1 && new.text("ipFamilyPolicy") != "SingleStack" {
            let why = "must be set to 'SingleStack' when releasing the secondary clusterIP";
            errors.push(FieldError::invalid(SPEC.child("ipFamilyPolicy"), new.at("ipFamilyPolicy"), why));
        }
    }
    if is_headless(new) != is_headless(old) || is_headless(new) {
        return;
    }
    let path = SPEC.child("ipFamilies");
    let (now, before) = (new.list("ipFamilies"), old.list("ipFamilies"));
    if let (Some(first), Some(stored)) = (now.first(), before.first())
        && first != stored
    {
        errors.push(FieldError::invalid(path.index(0), new.at("ipFamilies"), changed));
    }
}

fn source_ranges(service: &Value, errors: &mut Errors) {
    const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let spec = service.at("spec");
    let ranges = spec.list("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        // The error has the Go name of the field.
        let path = SPEC.child("LoadBalancerSourceRanges");
        if !is_balanced(spec) {
            errors.push(FieldError::forbidden(path, ONLY_BALANCED));
        }
        for (i, range) in ranges.iter().enumerate() {
            address::range(errors, &path.index(i), range.as_str().unwrap_or_default().trim());
        }
    } else if let Some(ranges) = annotation(service, ANNOTATION) {
        let annotations = Path::new("metadata.annotations");
        let path = annotations.key(ANNOTATION);
        if !is_balanced(spec) {
            errors.push(FieldError::forbidden(path, ONLY_BALANCED));
        }
        for range in ranges.split(',').map(str::trim).filter(|_| !ranges.trim().is_empty()) {
            address::range(errors, &path, range);
        }
    }
}

fn traffic(spec: &Value, errors: &mut Errors) {
    let kind = spec.text("type");
    let external = match kind {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.list("externalIPs").is_empty(),
        _ => false,
    };
    let (path, policy) = (SPEC.child("externalTrafficPolicy"), spec.text("externalTrafficPolicy"));
    if external {
        one_of(errors, &path, policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.push(FieldError::invalid(path, policy, "may only be set for externally-accessible services"));
    }
    let (path, number) = (SPEC.child("healthCheckNodePort"), spec.int("healthCheckNodePort").unwrap_or(0));
    match (needs_health_check(spec), number) {
        (false, 0) => {}
        (false, number) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(path, number, why));
        }
        (true, 0) => required(errors, &path),
        (true, number) => port_number(errors, &path, number),
    }
    let path = SPEC.child("internalTrafficPolicy");
    if !spec.has("internalTrafficPolicy") && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        required(errors, &path);
    }
    optional_word(errors, &path, spec.at("internalTrafficPolicy"), &["Cluster", "Local"]);
    let ways = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    optional_word(errors, &SPEC.child("trafficDistribution"), spec.at("trafficDistribution"), &ways);
}

/// Checks a write to `/status`.
pub(super) fn status(service: &Value, errors: &mut Errors) {
    let path = Path::new("status.loadBalancer.ingress");
    let list = service.list("status.loadBalancer.ingress");
    if !is_balanced(service.at("spec")) {
        if !list.is_empty() {
            errors.push(FieldError::forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"));
        }
        return;
    }
    for (i, entry) in list.iter().enumerate() {
        let path = path.index(i);
        let ip = entry.text("ip");
        if !ip.is_empty() {
            address::address(errors, &path.child("ip"), ip);
        }
        match (entry.at("ipMode").as_str(), ip.is_empty()) {
            (None, false) => {
                errors.push(FieldError::required(path.child("ipMode"), "must be specified when `ip` is set"));
            }
            (Some(_), true) => {
                let why = "may not be specified when `ip` is not set";
                errors.push(FieldError::forbidden(path.child("ipMode"), why));
            }
            (Some(mode), false) => word(errors, &path.child("ipMode"), mode, &["Proxy", "VIP"]),
            (None, true) => {}
        }
        host_name(entry.text("hostname"), &path.child("hostname"), errors);
    }
}

/// Checks a DNS name; an address is not one.
pub(super) fn host_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return;
    }
    objections(errors, path, name, names::dns1123_subdomain(name));
    if address::parse(name).is_some() {
        errors.push(FieldError::invalid(path, name, "must be a DNS name, not an IP address"));
    }
}
