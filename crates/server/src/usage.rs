//! `metrics.k8s.io`: what nodes and their pods use. The server knows the kinds, and an implementation of [`Usage`] measures.

use std::collections::BTreeMap;

use bytes::Bytes;
use machinery::json::{Value, json};
use machinery::quantity::{Notation, Quantity};

/// What a container or a node uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Billionths of a core.
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
}

impl Amounts {
    #[must_use]
    pub fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            cpu_nanos: self.cpu_nanos.saturating_add(other.cpu_nanos),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// `{"cpu": "50m", "memory": "10Mi"}`
    pub(crate) fn to_value(self) -> Value {
        let cpu: Quantity = format!("{}n", self.cpu_nanos).parse().unwrap_or_default();
        let memory = Quantity::new(i64::try_from(self.memory_bytes).unwrap_or(i64::MAX), Notation::Binary);
        json!({"cpu": cpu.to_string(), "memory": memory.to_string()})
    }
}

/// What the containers of a running pod use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodUsage {
    pub namespace: String,
    pub name: String,
    pub node: String,
    pub labels: BTreeMap<String, String>,
    pub containers: Vec<(String, Amounts)>,
}

impl PodUsage {
    #[must_use]
    pub fn total(&self) -> Amounts {
        self.containers.iter().fold(Amounts::default(), |sum, (_, amounts)| sum.plus(*amounts))
    }
}

/// Measures nodes and pods.
pub trait Usage: Send + Sync {
    /// Whether a node with these labels is measured here, and with it its pods.
    fn is_measured(&self, label: &dyn Fn(&str) -> Option<String>) -> bool;

    /// What these pods use; those that do not run are left out. All pods of a namespace are given together, since some share
    /// a load.
    fn of_pods(&self, pods: &[Bytes]) -> Vec<PodUsage>;

    /// What a node uses whose pods together use this.
    fn of_node(&self, node: &Bytes, pods: Amounts) -> Amounts;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx_2_amounts_are_canonical_quantities() {
        let shown = |cpu_nanos, memory_bytes| Amounts { cpu_nanos, memory_bytes }.to_value();
        assert_eq!(shown(50_000_000, 10 << 20), json!({"cpu": "50m", "memory": "10Mi"}));
        assert_eq!(shown(1_234_567, 1_000_001), json!({"cpu": "1234567n", "memory": "1000001"}));
        // Below 1024 a quantity with binary units is written with decimal ones, as Go writes it.
        assert_eq!(shown(1, 1_000), json!({"cpu": "1n", "memory": "1k"}));
        assert_eq!(shown(2_000_000_000, 0), json!({"cpu": "2", "memory": "0"}));
    }
}
