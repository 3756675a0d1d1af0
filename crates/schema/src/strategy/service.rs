//! Preparation of services: allocated values are kept if a client omits them, and fields that only some types have are removed
//! with a change of the type, unless the client changed them too.

use machinery::json::{Value, json};

use crate::walk::{Fields, Fill as _, Walk as _, is_empty};

/// Keeps the two fields for one address equal.
pub(super) fn create(service: &mut Fields) {
    let Some(spec) = service.child("spec") else { return };
    let address = spec.word("clusterIP").to_owned();
    if !address.is_empty() {
        spec.fill_empty("clusterIPs", json!([address]));
    }
}

pub(super) fn update(service: &mut Fields, old: &Value) {
    keep_allocated(service, old.at("spec"));
    leave_with_type(service, old);
}

fn keep_allocated(service: &mut Fields, stored: &Value) {
    let Some(new) = service.get("spec").cloned() else { return };
    let Some(spec) = service.child("spec") else { return };
    if has_address(stored) && has_address(&new) {
        if let address @ Value::String(_) = stored.at("clusterIP") {
            spec.fill_empty("clusterIP", address.clone());
        }
        if spec.word("clusterIP") == stored.text("clusterIP")
            && let addresses @ Value::Array(_) = stored.at("clusterIPs")
        {
            spec.fill_empty("clusterIPs", addresses.clone());
        }
    }
    if has_node_ports(stored) && has_node_ports(&new) {
        let wanted: Vec<i64> = new.list("ports").iter().filter_map(|port| port.int("nodePort")).collect();
        for port in spec.items("ports") {
            let same = |other: &&Value| {
                other.text("protocol") == port.word("protocol")
                    && other.int("port") == port.get("port").and_then(Value::as_i64)
            };
            let kept = stored.list("ports").iter().find(same).and_then(|other| other.int("nodePort"));
            if let Some(kept) = kept.filter(|kept| !wanted.contains(kept)) {
                port.fill_empty("nodePort", kept);
            }
        }
    }
    if has_health_check(stored)
        && has_health_check(&new)
        && let port @ Value::Number(_) = stored.at("healthCheckNodePort")
    {
        spec.fill_empty("healthCheckNodePort", port.clone());
    }
    // A client that knows only one of the two fields changes both.
    let (address, addresses) = (spec.word("clusterIP").to_owned(), spec.get("clusterIPs").cloned().unwrap_or_default());
    let (old_address, old_addresses) = (stored.text("clusterIP"), stored.at("clusterIPs"));
    if address != old_address && &addresses == old_addresses && has_address(&new) {
        if address.is_empty() {
            spec.shift_remove("clusterIPs");
        } else {
            spec.insert("clusterIPs", json!([address]));
        }
    } else if address == old_address && &addresses != old_addresses && is_empty(Some(&addresses)) {
        spec.shift_remove("clusterIP");
    }
}

fn leave_with_type(service: &mut Fields, old: &Value) {
    let Some(new) = service.get("spec").cloned() else { return };
    let stored = old.at("spec");
    let Some(spec) = service.child("spec") else { return };
    let same = |name: &str| new.at(name) == stored.at(name);
    // Fields that the client omitted are not "the same": only those it sent back unchanged are dropped, and omitted ones are absent.
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
    if has_address(stored) && !has_address(&new) && same("internalTrafficPolicy") {
        spec.shift_remove("internalTrafficPolicy");
    }
    if !is_balanced(&new)
        && let Some(status) = service.child_or_new("status")
    {
        status.insert("loadBalancer", json!({}));
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

/// Returns whether all node ports of the new service are those of the old one.
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
