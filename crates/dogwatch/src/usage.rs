//! Joins the server, which serves what nodes and pods use, to the simulated nodes, which know it.

use std::sync::Arc;

use bytes::Bytes;
use clock::WorldClock;
use controllers::nodes::containers::is_simulated;
use controllers::nodes::usage::{PodUsed, Usages, Used};
use k8s_openapi::api::core::v1::{Node, Pod};
use server::usage::{Amounts, PodUsage, Usage};

/// What simulated nodes and their pods use.
pub(crate) struct SimulatedUsage {
    pub(crate) usages: Arc<Usages>,
    pub(crate) clock: WorldClock,
}

const NANO: f64 = 1e-9;

fn amounts(used: Used) -> Amounts {
    // A cast to an integer saturates.
    Amounts { cpu_nanos: (used[0] / NANO).round() as u64, memory_bytes: used[1].round() as u64 }
}

fn pod_usage(pod: Pod, used: PodUsed) -> PodUsage {
    PodUsage {
        namespace: pod.metadata.namespace.unwrap_or_default(),
        name: pod.metadata.name.unwrap_or_default(),
        node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default(),
        labels: pod.metadata.labels.unwrap_or_default(),
        containers: used.containers.into_iter().map(|(name, used)| (name, amounts(used))).collect(),
    }
}

impl Usage for SimulatedUsage {
    fn is_measured(&self, label: &dyn Fn(&str) -> Option<String>) -> bool {
        is_simulated(label)
    }

    fn of_pods(&self, pods: &[Bytes]) -> Vec<PodUsage> {
        let pods: Vec<Pod> = pods.iter().filter_map(|pod| serde_json::from_slice(pod).ok()).collect();
        let used = self.usages.of_pods(&pods, self.clock.now());
        pods.into_iter().zip(used).filter_map(|(pod, used)| Some(pod_usage(pod, used?))).collect()
    }

    fn of_node(&self, node: &Bytes, pods: Amounts) -> Amounts {
        let pods = [pods.cpu_nanos as f64 * NANO, pods.memory_bytes as f64];
        match serde_json::from_slice::<Node>(node) {
            Ok(node) => amounts(self.usages.of_node(&node, pods, self.clock.now())),
            Err(_) => amounts(pods),
        }
    }
}
