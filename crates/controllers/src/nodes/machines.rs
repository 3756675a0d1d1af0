//! The Node objects of simulated nodes.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value, json};

use super::addresses::{node_address, range_of};
use super::stages::NodeShape;
use crate::requests::{microseconds, seconds};
use crate::scheduler::amounts::units;

/// The label of simulated nodes. A node that a user creates with it is simulated too.
pub(crate) const SIMULATED: &str = "nodes.dogwatch/simulated";
/// The annotation that makes a node fall silent: `stopped`.
const HEARTBEAT: &str = "nodes.dogwatch/heartbeat";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Type, status, reason and message of each condition of a node that is well (NA-2).
const CONDITIONS: [(&str, &str, &str, &str); 5] = [
    ("NetworkUnavailable", "False", "RouteCreated", "RouteController created a route"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// The name of a node that is made here.
pub(super) fn name_of(number: usize) -> String {
    format!("node-{}", number + 1)
}

/// The number of a node that was made here.
pub(super) fn number_of(name: &str) -> Option<usize> {
    let number: usize = name.strip_prefix("node-")?.parse().ok()?;
    (name == format!("node-{number}")).then(|| number.checked_sub(1)).flatten()
}

pub(super) fn is_simulated(node: &Node) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(SIMULATED)).is_some_and(|value| value == "true")
}

/// NA-7: true if the node is to be silent.
pub(super) fn is_silenced(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(HEARTBEAT)).is_some_and(|value| value == "stopped")
}

/// NA-1: the node as it registers, with its first status.
pub(super) fn new_node(number: usize, shape: &NodeShape, now: Timestamp) -> Value {
    let name = name_of(number);
    let mut labels = Map::new();
    let mut label = |key: &str, value: &str| labels.insert(key.to_owned(), value.into());
    for (key, value) in [("os", "linux"), ("arch", "amd64")] {
        label(&format!("beta.kubernetes.io/{key}"), value);
        label(&format!("kubernetes.io/{key}"), value);
    }
    label("kubernetes.io/hostname", &name);
    label(SIMULATED, "true");
    if !shape.zones.is_empty() {
        label(ZONE, &shape.zones[number % shape.zones.len()]);
    }
    shape.labels.iter().for_each(|(key, value)| drop(label(key, value)));
    let pods = shape.capacity.get("pods").map(|amount| units(&Quantity(amount.clone()))).unwrap_or_default();
    let range = range_of(number, pods);
    let spec = range.map_or_else(|| json!({}), |range| json!({"podCIDR": range, "podCIDRs": [range]}));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status(&name, None, shape, node_address(number), now),
    })
}

/// The address a node has, or is to have.
pub(super) fn address_of(node: &Node) -> Ipv4Addr {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let said = addresses.iter().find(|address| address.type_ == "InternalIP").and_then(|a| a.address.parse().ok());
    // A node that a user created gets one by its name, from numbers far from the ones counted up here.
    let other = || name.bytes().fold(500_000usize, |sum, byte| (sum * 31 + usize::from(byte)) % 500_000 + 500_000);
    said.unwrap_or_else(|| node_address(number_of(name).unwrap_or_else(other)))
}

/// NA-1…NA-3: the whole status, keeping the times of conditions that did not change.
pub(super) fn status(name: &str, old: Option<&Node>, shape: &NodeShape, address: Ipv4Addr, now: Timestamp) -> Value {
    let known = old.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
    let condition = |(kind, is, reason, message): (&str, &str, &str, &str)| {
        let same = known.iter().find(|known| known.type_ == kind && known.status == is);
        let since = same.and_then(|known| known.last_transition_time.as_ref()).map_or(now, |time| time.0);
        json!({"type": kind, "status": is, "reason": reason, "message": message,
            "lastHeartbeatTime": seconds(now), "lastTransitionTime": seconds(since)})
    };
    // The resources of a node that a user created stay.
    let given = old.and_then(|node| node.status.as_ref()?.capacity.as_ref()).filter(|capacity| !capacity.is_empty());
    let capacity = given.map_or_else(|| json!(shape.capacity), |given| json!(given));
    let taken = old.and_then(|node| node.status.as_ref()?.allocatable.as_ref()).filter(|given| !given.is_empty());
    let allocatable = taken.map_or_else(|| capacity.clone(), |taken| json!(taken));
    json!({
        "capacity": capacity, "allocatable": allocatable,
        "conditions": CONDITIONS.map(condition),
        "addresses": [{"type": "InternalIP", "address": address.to_string()}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.4", "kubeProxyVersion": "",
            "containerRuntimeVersion": concat!("dogwatch://", env!("CARGO_PKG_VERSION")), "kernelVersion": "simulated",
            "osImage": "dogwatch simulated node", "machineID": name, "systemUUID": name, "bootID": name,
        },
    })
}

/// True if a node has a recent Ready condition.
pub(super) fn needs_status(node: &Node, within: std::time::Duration, now: Timestamp) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    CONDITIONS.iter().any(|(kind, is, ..)| {
        let Some(known) = conditions.iter().find(|known| known.type_ == *kind) else { return true };
        let beat = known.last_heartbeat_time.as_ref().map(|time| now.duration_since(time.0).as_secs());
        known.status != *is || beat.is_none_or(|age| age.unsigned_abs() >= within.as_secs())
    })
}

/// NA-4: the lease of a node, as it is first made.
pub(super) fn new_lease(node: &str, uid: &str, seconds: u64, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": microseconds(now)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn na_1_a_node_registers_with_its_labels_and_its_whole_status() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let shape = NodeShape { zones: vec!["a".into(), "b".into()], ..NodeShape::default() };
        let made = node(new_node(1, &shape, now));
        let labels = made.metadata.labels.clone().unwrap();
        for (key, value) in [
            ("kubernetes.io/hostname", "node-2"),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", "amd64"),
            (ZONE, "b"),
        ] {
            assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
        }
        let status = made.status.as_ref().unwrap();
        assert_eq!(status.capacity, status.allocatable);
        assert_eq!(status.allocatable.as_ref().unwrap()["pods"].0, "110");
        assert!(is_simulated(&made) && !is_silenced(&made));
        assert!(!needs_status(&made, std::time::Duration::from_secs(300), now));
    }

    #[test]
    fn na_2_a_node_that_is_well_says_so_and_ready_comes_last() {
        let made = node(new_node(0, &NodeShape::default(), Timestamp::UNIX_EPOCH));
        let conditions = made.status.unwrap().conditions.unwrap();
        let said: Vec<String> = conditions
            .iter()
            .map(|c| format!("{}={}/{}", c.type_, c.status, c.reason.as_deref().unwrap_or_default()))
            .collect();
        let expected = [
            "NetworkUnavailable=False/RouteCreated",
            "MemoryPressure=False/KubeletHasSufficientMemory",
            "DiskPressure=False/KubeletHasNoDiskPressure",
            "PIDPressure=False/KubeletHasSufficientPID",
            "Ready=True/KubeletReady",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn na_2_a_condition_keeps_its_transition_time_until_its_status_changes() {
        let then = Timestamp::from_second(1_800_000_000).unwrap();
        let later = Timestamp::from_second(1_800_000_600).unwrap();
        let shape = NodeShape::default();
        let mut made = node(new_node(0, &shape, then));
        made.status.as_mut().unwrap().conditions.as_mut().unwrap()[4].status = "Unknown".into();
        let renewed = status("node-1", Some(&made), &shape, address_of(&made), later);
        for condition in renewed["conditions"].as_array().unwrap() {
            let since = if condition["type"] == "Ready" { later } else { then };
            assert_eq!(condition["lastTransitionTime"], json!(seconds(since)), "{condition}");
            assert_eq!(condition["lastHeartbeatTime"], json!(seconds(later)), "{condition}");
        }
    }

    #[test]
    fn na_3_a_node_has_an_address_and_a_name() {
        let made = node(new_node(0, &NodeShape::default(), Timestamp::UNIX_EPOCH));
        assert_eq!(address_of(&made).to_string(), "172.16.0.1");
        let status = made.status.unwrap();
        let addresses: Vec<String> =
            status.addresses.unwrap().into_iter().map(|a| format!("{} {}", a.type_, a.address)).collect();
        assert_eq!(addresses, ["InternalIP 172.16.0.1", "Hostname node-1"]);
        assert_eq!(status.node_info.unwrap().operating_system, "linux");
    }

    #[test]
    fn na_5_a_status_is_written_on_change_or_when_it_is_old() {
        let then = Timestamp::from_second(1_800_000_000).unwrap();
        let five = std::time::Duration::from_secs(300);
        let mut made = node(new_node(0, &NodeShape::default(), then));
        let later = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        assert!(!needs_status(&made, five, later(299)));
        assert!(needs_status(&made, five, later(300)));
        made.status.as_mut().unwrap().conditions.as_mut().unwrap()[4].status = "Unknown".into();
        assert!(needs_status(&made, five, later(1)));
    }

    #[test]
    fn names_are_numbers_and_back() {
        assert_eq!(number_of(&name_of(41)), Some(41));
        for other in ["node-", "node-x", "node-01", "node-0", "worker-1"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
