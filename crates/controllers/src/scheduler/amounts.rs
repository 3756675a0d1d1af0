//! The requests of pods and the resources of nodes: quantities as whole numbers, and their sums.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The values of unset requests in scores, and only there (SC-7).
const UNSET_CPU: i64 = 100;
const UNSET_MEMORY: i64 = 200 * 1024 * 1024;

use super::volumes::VolumePlace;

/// Amounts of resources. CPU in thousandths, everything else in units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) storage: i64,
    pub(crate) others: BTreeMap<String, i64>,
}

impl Amounts {
    /// Reads `requests` or `allocatable`. The number of pods is not an amount.
    pub(crate) fn of(resources: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in resources.into_iter().flatten() {
            match name.as_str() {
                "cpu" => amounts.cpu = thousandths(quantity),
                "memory" => amounts.memory = units(quantity),
                "ephemeral-storage" => amounts.storage = units(quantity),
                "pods" => {}
                other => {
                    amounts.others.insert(other.to_owned(), units(quantity));
                }
            }
        }
        amounts
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.change(more, 1);
    }

    pub(crate) fn remove(&mut self, less: &Self) {
        self.change(less, -1);
    }

    fn change(&mut self, by: &Self, sign: i64) {
        self.cpu = self.cpu.saturating_add(sign.saturating_mul(by.cpu));
        self.memory = self.memory.saturating_add(sign.saturating_mul(by.memory));
        self.storage = self.storage.saturating_add(sign.saturating_mul(by.storage));
        for (name, amount) in &by.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = sum.saturating_add(sign.saturating_mul(*amount));
        }
    }

    /// The larger of both, resource by resource.
    fn at_least(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.storage = self.storage.max(other.storage);
        for (name, amount) in &other.others {
            let most = self.others.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// The resources that a pod uses on its node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Request {
    pub(crate) amounts: Amounts,
    /// The same for scores: unset requests have a default.
    pub(crate) scored_cpu: i64,
    pub(crate) scored_memory: i64,
    /// Protocol, address and number of the ports it wants on the node itself.
    pub(crate) ports: Vec<HostPort>,
    /// Where its volumes can be reached.
    pub(crate) volumes: Vec<VolumePlace>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) protocol: String,
    pub(crate) address: String,
    pub(crate) port: i32,
}

impl HostPort {
    /// True if both cannot be on one node: an unspecified address means all addresses.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        let everywhere = |address: &str| address.is_empty() || address == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (everywhere(&self.address) || everywhere(&other.address) || self.address == other.address)
    }
}

/// SC-5: the larger of the final sum and the peak during initialisation, plus the overhead.
pub(crate) fn request_of(pod: &Pod) -> Request {
    let Some(spec) = &pod.spec else { return Request::default() };
    let none = Vec::new();
    let init = spec.init_containers.as_ref().unwrap_or(&none);
    let restartable = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let sum = |of: &dyn Fn(&Container) -> Amounts| {
        let mut running = Amounts::default();
        spec.containers.iter().for_each(|container| running.add(&of(container)));
        let (mut sidecars, mut peak) = (Amounts::default(), Amounts::default());
        for container in init {
            if restartable(container) {
                sidecars.add(&of(container));
                peak.at_least(&sidecars);
            } else {
                let mut with_sidecars = of(container);
                with_sidecars.add(&sidecars);
                peak.at_least(&with_sidecars);
            }
        }
        running.add(&sidecars);
        running.at_least(&peak);
        // A request of the whole pod replaces those of its containers.
        let whole = Amounts::of(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        if whole.cpu > 0 {
            running.cpu = whole.cpu;
        }
        if whole.memory > 0 {
            running.memory = whole.memory;
        }
        running.add(&Amounts::of(spec.overhead.as_ref()));
        running
    };
    let requests =
        |resources: Option<&ResourceRequirements>| Amounts::of(resources.and_then(|said| said.requests.as_ref()));
    let amounts = sum(&|container| requests(container.resources.as_ref()));
    let scored = sum(&|container| {
        let said = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let mut amounts = Amounts::of(said);
        if said.is_none_or(|said| !said.contains_key("cpu")) {
            amounts.cpu = UNSET_CPU;
        }
        if said.is_none_or(|said| !said.contains_key("memory")) {
            amounts.memory = UNSET_MEMORY;
        }
        amounts
    });
    let containers = spec.containers.iter().chain(init.iter().filter(|container| restartable(container)));
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let ports = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        Some(HostPort { protocol, address: port.host_ip.clone().unwrap_or_default(), port: number })
    });
    Request {
        amounts,
        scored_cpu: scored.cpu,
        scored_memory: scored.memory,
        ports: ports.collect(),
        volumes: Vec::new(),
    }
}

/// A quantity in thousandths, rounded up.
pub(crate) fn thousandths(quantity: &Quantity) -> i64 {
    parsed(quantity).milli_value()
}

/// A quantity in units, rounded up.
pub(crate) fn units(quantity: &Quantity) -> i64 {
    parsed(quantity).value()
}

/// The server has validated it; a quantity that cannot be read is zero.
fn parsed(quantity: &Quantity) -> machinery::quantity::Quantity {
    quantity.0.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn quantities_are_rounded_up() {
        for (text, thousand, unit) in [
            ("1", 1000, 1),
            ("100m", 100, 1),
            ("1.5", 1500, 2),
            ("0.1", 100, 1),
            ("1n", 1, 1),
            ("2e3", 2_000_000, 2000),
            ("1Ki", 1_024_000, 1024),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("1E", i64::MAX, 1_000_000_000_000_000_000),
            ("-5", -5000, -5),
        ] {
            let quantity = Quantity(text.to_owned());
            assert_eq!((thousandths(&quantity), units(&quantity)), (thousand, unit), "{text}");
        }
        for bad in ["", "x", "1.2.3", "1Zi"] {
            assert_eq!(units(&Quantity(bad.to_owned())), 0, "{bad}");
        }
    }

    #[test]
    fn sc_5_a_request_is_the_larger_of_the_sum_and_the_peak_before_it() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let request = request_of(&pod(json!({
            "containers": [{"name": "a", "resources": cpu("100m")}, {"name": "b", "resources": cpu("200m")}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": cpu("50m")},
                {"name": "big", "resources": cpu("1")},
                {"name": "late", "restartPolicy": "Always", "resources": cpu("10m")},
            ],
            "overhead": {"cpu": "5m"},
        })));
        assert_eq!(request.amounts.cpu, 1055, "big beside side, and the overhead");
        let request = request_of(&pod(json!({
            "containers": [{"name": "a", "resources": cpu("2")}],
            "initContainers": [{"name": "small", "resources": cpu("1")}],
        })));
        assert_eq!(request.amounts.cpu, 2000);
    }

    #[test]
    fn sc_7_unset_requests_count_for_scores_only() {
        let request = request_of(&pod(json!({"containers": [{"name": "a"}, {"name": "b"}]})));
        assert_eq!((request.amounts.cpu, request.amounts.memory), (0, 0));
        assert_eq!((request.scored_cpu, request.scored_memory), (200, 2 * UNSET_MEMORY));
    }

    #[test]
    fn ports_collide_unless_their_addresses_differ() {
        let port = |address: &str, port| HostPort { protocol: "TCP".into(), address: address.into(), port };
        assert!(port("", 80).collides(&port("10.0.0.1", 80)));
        assert!(!port("10.0.0.2", 80).collides(&port("10.0.0.1", 80)));
        assert!(!port("", 80).collides(&port("", 81)));
    }
}
