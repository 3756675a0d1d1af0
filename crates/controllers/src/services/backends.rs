//! Which pods answer for a service, under which address and on which ports.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::pods;

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// The families of a service, the first one first.
pub(super) fn families(service: &Service) -> Vec<Family> {
    let spec = service.spec.as_ref();
    let named = spec.and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let mut families: Vec<Family> =
        named.iter().map(|name| if name == "IPv6" { Family::V6 } else { Family::V4 }).collect();
    if families.is_empty() {
        let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).and_then(|ip| ip.parse::<IpAddr>().ok());
        families.push(address.as_ref().map_or(Family::V4, Family::of));
    }
    families
}

/// The addresses of a pod in a family.
pub(super) fn addresses(pod: &Pod, family: Family) -> Vec<String> {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let parsed = ips.iter().filter_map(|ip| ip.ip.parse::<IpAddr>().ok());
    parsed.filter(|ip| Family::of(ip) == family).map(|ip| ip.to_string()).collect()
}

/// Whether a pod counts at all (EP-2): it has an address and has not ended.
pub(super) fn counts(pod: &Pod, also_terminating: bool) -> bool {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    !pods::is_terminal(pod) && !ips.is_empty() && (also_terminating || !pods::is_terminating(pod))
}

pub(super) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default()
}

pub(super) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).is_none_or(|ip| ip.is_empty() || ip == "None")
}

/// The name under which a pod is known in the domain of a service.
pub(super) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let same_domain = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    let same_namespace = pod.metadata.namespace == service.metadata.namespace;
    spec.hostname.clone().filter(|name| !name.is_empty() && same_domain && same_namespace)
}

/// The pod itself, as endpoints refer to it.
pub(super) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// One port of a service as it is on a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) number: i32,
    pub(super) protocol: String,
    pub(super) application: Option<String>,
}

/// The ports of a service on a pod; one whose name the pod does not know is left out.
pub(super) fn ports(service: &Service, pod: &Pod) -> Vec<Port> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let found = ports.iter().filter_map(|port| Some((port, number_on(pod, port)?)));
    found
        .map(|(port, number)| Port {
            name: port.name.clone().unwrap_or_default(),
            number,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            application: port.app_protocol.clone(),
        })
        .collect()
}

fn number_on(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars);
    let mut ports = containers.flat_map(|container| container.ports.as_deref().unwrap_or_default());
    let found = ports.find(|known| {
        known.name.as_deref() == Some(name.as_str()) && known.protocol.as_deref().unwrap_or("TCP") == protocol
    });
    found.map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: serde_json::Value) -> Pod {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {
                "hostname": "h", "subdomain": "s",
                "containers": [{"name": "c", "ports": [
                    {"name": "web", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                ]}],
                "initContainers": [{"name": "side", "restartPolicy": "Always", "ports": [{"name": "adm", "containerPort": 9}]}],
            },
            "status": status,
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn ep_2_only_pods_with_an_address_that_have_not_ended_count() {
        let with = |phase: &str| json!({"phase": phase, "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]});
        assert!(counts(&pod(with("Running")), false) && counts(&pod(with("Pending")), false));
        assert!(!counts(&pod(with("Succeeded")), true) && !counts(&pod(with("Failed")), true));
        assert!(!counts(&pod(json!({"phase": "Running"})), true));
        let mut going = pod(with("Running"));
        going.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(counts(&going, true) && !counts(&going, false));
        assert_eq!(addresses(&going, Family::V4), ["10.0.0.1"]);
        assert_eq!(addresses(&going, Family::V6), ["fd00::1"]);
    }

    #[test]
    fn ep_4_ports_are_found_by_number_and_by_name() {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": 8081},
            {"name": "c", "port": 82, "targetPort": "web", "appProtocol": "http"},
            {"name": "d", "port": 83, "targetPort": "dns"}, {"name": "e", "port": 84, "targetPort": "dns", "protocol": "UDP"},
            {"name": "f", "port": 85, "targetPort": "adm"}, {"name": "g", "port": 86, "targetPort": "no-such"},
        ]}}))
        .unwrap();
        let found = ports(&service, &pod(json!({})));
        let found: Vec<(&str, i32)> = found.iter().map(|port| (port.name.as_str(), port.number)).collect();
        assert_eq!(found, [("a", 80), ("b", 8081), ("c", 8080), ("e", 53), ("f", 9)], "names go with their protocol");
        assert_eq!(hostname(&pod(json!({})), &service).as_deref(), Some("h"));
    }
}
