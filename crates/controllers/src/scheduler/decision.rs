//! The node for a pod, or the reasons that there is none: a pure function of the pod and the cluster.

use std::collections::BTreeMap;

use client::store::Store;
use k8s_openapi::api::core::v1::{Namespace, Pod};

use super::amounts::Request;
use super::cluster::{Cluster, NodeInfo};
use super::filters::objection;
use super::neighbours::Neighbours;
use super::queue::Remedy;
use super::scores;
use super::selectors::named_nodes;

/// No node was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unschedulable {
    /// SC-12, in the words of the reference.
    pub(super) message: String,
    /// The changes that may help.
    pub(super) remedy: Remedy,
}

/// The name of the node for a pod. `start` is the node at which the search starts; it advances, so that all nodes are used.
pub(super) fn decide(
    pod: &Pod,
    request: &Request,
    cluster: &Cluster,
    namespaces: &Store<Namespace>,
    start: &mut usize,
) -> Result<String, Unschedulable> {
    let nodes = cluster.nodes();
    if nodes.is_empty() {
        return Err(Unschedulable { message: "no nodes available to schedule pods".to_owned(), remedy: Remedy::NODES });
    }
    let neighbours = Neighbours::of(pod, cluster, namespaces);
    let mut why = Why::default();
    let mut possible: Vec<&NodeInfo> = Vec::new();
    let look = |node: &'_ NodeInfo, why: &mut Why| match objection(pod, request, &neighbours, node, cluster) {
        None => true,
        Some(objection) => {
            why.note(objection);
            false
        }
    };
    if let Some(named) = pod.spec.as_ref().and_then(named_nodes) {
        let there: Vec<&NodeInfo> = named.iter().filter_map(|name| cluster.node(name)).collect();
        why.unnamed = nodes.len() - there.len();
        possible.extend(there.into_iter().filter(|node| look(node, &mut why)));
    } else {
        let enough = scores::enough(nodes.len());
        let mut looked_at = 0;
        for step in 0..nodes.len() {
            let node = &nodes[(*start + step) % nodes.len()];
            looked_at += 1;
            if look(node, &mut why) {
                possible.push(node);
                if possible.len() == enough {
                    break;
                }
            }
        }
        *start = (*start + looked_at) % nodes.len();
    }
    match possible.as_slice() {
        [] => Err(why.unschedulable(pod, nodes.len())),
        [only] => Ok(only.name.to_string()),
        several => {
            let totals = scores::totals(pod, request, &neighbours, several);
            let best = scores::best(&totals, |choices| rand::random_range(0..choices)).unwrap_or_default();
            Ok(several[best].name.to_string())
        }
    }
}

/// A pod that no node can take.
pub(super) fn nowhere(pod: &Pod, nodes: usize, why: &str, remedy: Remedy) -> Unschedulable {
    let message = format!("0/{nodes} nodes are available: {why}. {}", after_filters(pod, nodes, 0));
    Unschedulable { message, remedy }
}

/// The reasons for which nodes were excluded.
#[derive(Default)]
struct Why {
    reasons: BTreeMap<String, usize>,
    remedy: Remedy,
    /// Nodes from which the removal of pods could help.
    resolvable: usize,
    /// Nodes that a pod which names its nodes did not name.
    unnamed: usize,
}

impl Why {
    fn note(&mut self, objection: super::filters::Objection) {
        self.resolvable += usize::from(objection.resolvable);
        for reason in objection.reasons {
            self.remedy = self.remedy.or(reason.remedy());
            *self.reasons.entry(reason.text()).or_default() += 1;
        }
    }

    fn unschedulable(mut self, pod: &Pod, nodes: usize) -> Unschedulable {
        if self.unnamed > 0 {
            self.reasons.insert("node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned(), self.unnamed);
            self.remedy = self.remedy.or(Remedy::NODES);
        }
        let counted = counted(self.reasons.iter().map(|(reason, count)| (*count, reason.as_str())));
        let after = after_filters(pod, nodes, self.resolvable);
        let message = format!("0/{nodes} nodes are available: {counted}. {after}");
        Unschedulable { message, remedy: self.remedy }
    }
}

/// The reference then looks for claims to release and for pods to preempt. Neither is done here.
fn after_filters(pod: &Pod, nodes: usize, resolvable: usize) -> String {
    const NO_CLAIMS: &str = "no new claims to deallocate";
    if pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return format!("{NO_CLAIMS}, preemption: not eligible due to preemptionPolicy=Never.");
    }
    let reasons = [
        (resolvable, "No preemption victims found for incoming pod"),
        (nodes - resolvable, "Preemption is not helpful for scheduling"),
    ];
    let counted = counted(reasons.into_iter().filter(|(count, _)| *count > 0));
    format!("{NO_CLAIMS}, preemption: 0/{nodes} nodes are available: {counted}.")
}

/// `2 Insufficient cpu, 1 Too many pods`, sorted as texts.
fn counted<'a>(reasons: impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut texts: Vec<String> = reasons.map(|(count, reason)| format!("{count} {reason}")).collect();
    texts.sort();
    texts.join(", ")
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
