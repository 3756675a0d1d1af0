//! Services: fields that only some types have leave with the type, if their author did not touch them.

use serde_json::{Value, json};

use crate::walk::{Fields, Fill as _, Walk as _};

pub(super) fn update(service: &mut Fields, old: &Value) {
    let Some(new) = service.get("spec").cloned() else { return };
    let stored = old.at("spec");
    let Some(spec) = service.child("spec") else { return };
    let same = |name: &str| new.at(name) == stored.at(name);
    // Fields the client left out are not "the same": only what it sent back unchanged is dropped, and what it left out is gone.
    if has_address(stored) && !has_address(&new) {
        if same("clusterIP") && same("clusterIPs") {
            spec.shift_remove("clusterIP");
            spec.shift_remove("clusterIPs");
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            if same(name) {
                spec.shift_remove(name);
            }
        }
    }
    if has_node_ports(stored) && !has_node_ports(&new) && same_node_ports(&new, stored) {
        for port in spec.items("ports") {
            port.shift_remove("nodePort");
        }
    }
    if has_health_check(stored) && !has_health_check(&new) && same("healthCheckNodePort") {
        spec.shift_remove("healthCheckNodePort");
    }
    if is_balanced(stored) && !is_balanced(&new) {
        for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(name) {
                spec.shift_remove(name);
            }
        }
    }
    if is_external(stored) && !is_external(&new) && same("externalTrafficPolicy") {
        spec.shift_remove("externalTrafficPolicy");
    }
    if !is_balanced(&new)
        && let Some(status) = service.child_or_new("status")
    {
        status.insert("loadBalancer".into(), json!({}));
    }
}

fn has_address(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

fn is_balanced(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer"
}

fn has_node_ports(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.flag("allocateLoadBalancerNodePorts") != Some(false),
        _ => false,
    }
}

fn is_external(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !spec.list("externalIPs").is_empty(),
        _ => false,
    }
}

fn has_health_check(spec: &Value) -> bool {
    is_balanced(spec) && spec.text("externalTrafficPolicy") == "Local"
}

/// No node port of the new service is one that its author asked for.
fn same_node_ports(new: &Value, old: &Value) -> bool {
    let ports = |spec: &Value| -> std::collections::BTreeSet<i64> {
        spec.list("ports").iter().filter_map(|port| port.int("nodePort")).filter(|port| *port != 0).collect()
    };
    ports(new).is_subset(&ports(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_to_an_internal_service() {
        let old = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30002, "allocateLoadBalancerNodePorts": true,
            "ports": [{"port": 80, "nodePort": 30001}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
        let mut new = old.clone();
        new["spec"]["type"] = "ClusterIP".into();
        update(new.as_object_mut().unwrap(), &old);
        assert_eq!(
            new["spec"],
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]})
        );
        assert_eq!(new["status"], json!({"loadBalancer": {}}));
    }

    #[test]
    fn an_external_name_has_no_address() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}});
        let mut new = old.clone();
        new["spec"]["type"] = "ExternalName".into();
        new["spec"]["externalName"] = "e.example.com".into();
        update(new.as_object_mut().unwrap(), &old);
        assert_eq!(new["spec"], json!({"type": "ExternalName", "externalName": "e.example.com"}));
    }
}
