//! Rows of services, endpoints, ingresses and network policies.

use std::collections::BTreeSet;

use machinery::json::Value;

use super::cells::{Cells, NONE, UNSET, first_few, labels, selector};
use crate::walk::Walk as _;

pub(super) fn row(group: &str, kind: &str, cells: &mut Cells<'_>) -> bool {
    let object = cells.object;
    match (group, kind) {
        ("", "Service") => {
            let address = object.list("spec.clusterIPs").first().and_then(Value::as_str).unwrap_or(NONE);
            cells
                .name()
                .text("spec.type")
                .push(address)
                .push(external_address(object))
                .push(service_ports(object))
                .age()
                .push(labels(object.map("spec.selector")));
        }
        ("", "Endpoints") => {
            cells.name().push(endpoints(object)).age();
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            let ports = object.list("ports").iter().map(|port| match port.int("port") {
                Some(number) => number.to_string(),
                None => Some(port.text("name")).filter(|name| !name.is_empty()).unwrap_or("*").to_owned(),
            });
            let addresses = object.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
            let addresses = addresses.filter_map(Value::as_str).map(str::to_owned);
            cells.name().text("addressType").push(some(ports.collect())).push(some(addresses.collect())).age();
        }
        ("networking.k8s.io", "Ingress") => {
            let ports = if object.list("spec.tls").is_empty() { "80" } else { "80, 443" };
            cells
                .name()
                .text_or("spec.ingressClassName", NONE)
                .push(hosts(object))
                .push(balancer(object))
                .push(ports)
                .age();
        }
        ("networking.k8s.io", "IngressClass") => {
            let default = object
                .at("metadata.annotations")
                .as_object()
                .and_then(|map| map.get("ingressclass.kubernetes.io/is-default-class").and_then(Value::as_str));
            let mark = if default == Some("true") { " (default)" } else { "" };
            let parameters = object.at("spec.parameters");
            let text = match (parameters.is_object(), parameters.text("apiGroup")) {
                (false, _) => NONE.to_owned(),
                (true, "") => format!("{}/{}", parameters.text("kind"), parameters.text("name")),
                (true, group) => format!("{}.{group}/{}", parameters.text("kind"), parameters.text("name")),
            };
            cells.push(format!("{}{mark}", object.text("metadata.name"))).text("spec.controller").push(text).age();
        }
        ("networking.k8s.io", "NetworkPolicy") => {
            let text = selector(object.at("spec.podSelector"));
            cells.name().push(if text.is_empty() { NONE.to_owned() } else { text }).age();
        }
        ("networking.k8s.io", "ServiceCIDR") => {
            let ranges: Vec<&str> = object.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
            cells.name().push(ranges.join(",")).age();
        }
        ("networking.k8s.io", "IPAddress") => {
            cells.name().push(parent(object.at("spec.parentRef"))).age();
        }
        _ => return false,
    }
    true
}

fn some(items: Vec<String>) -> String {
    if items.is_empty() { UNSET.to_owned() } else { first_few(items, 3, ",") }
}

fn external_address(service: &Value) -> String {
    let own: Vec<&str> = service.list("spec.externalIPs").iter().filter_map(Value::as_str).collect();
    match service.text("spec.type") {
        "ClusterIP" | "NodePort" if own.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => own.join(","),
        "LoadBalancer" => {
            let balancer = balancer(service);
            let all: Vec<&str> =
                Some(balancer.as_str()).filter(|text| !text.is_empty()).into_iter().chain(own).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => service.text("spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the addresses of a load balancer, sorted, without duplicates.
fn balancer(object: &Value) -> String {
    let addresses: BTreeSet<&str> = object
        .list("status.loadBalancer.ingress")
        .iter()
        .map(|ingress| Some(ingress.text("ip")).filter(|ip| !ip.is_empty()).unwrap_or(ingress.text("hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn service_ports(service: &Value) -> String {
    let ports = service.list("spec.ports");
    if ports.is_empty() {
        return NONE.to_owned();
    }
    let text = |port: &Value| {
        let (number, protocol) = (port.int("port").unwrap_or(0), port.text("protocol"));
        match port.int("nodePort") {
            Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    ports.iter().map(text).collect::<Vec<_>>().join(",")
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in object.list("subsets") {
        let addresses = || subset.list("addresses").iter().map(|address| address.text("ip"));
        let ports = subset.list("ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = port.int("port").unwrap_or(0);
            all.extend(
                addresses().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }),
            );
        }
    }
    if object.list("subsets").is_empty() { NONE.to_owned() } else { first_few(all, 3, ",") }
}

fn hosts(ingress: &Value) -> String {
    let rules = ingress.list("spec.rules");
    let hosts: Vec<&str> = rules.iter().map(|rule| rule.text("host")).filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return "*".to_owned();
    }
    let text = hosts[..hosts.len().min(3)].join(",");
    // Counts rules, not hosts: one without a host counts too.
    if hosts.len() >= 3 && rules.len() > 3 { format!("{text} + {} more...", rules.len() - 3) } else { text }
}

/// Formats `services/namespace/name`.
fn parent(reference: &Value) -> String {
    if !reference.is_object() {
        return NONE.to_owned();
    }
    let mut text = reference.text("resource").to_lowercase();
    for (separator, field) in [(".", "group"), ("/", "namespace")] {
        if !reference.text(field).is_empty() {
            text = format!("{text}{separator}{}", reference.text(field));
        }
    }
    format!("{text}/{}", reference.text("name"))
}
