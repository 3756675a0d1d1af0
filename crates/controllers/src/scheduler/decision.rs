//! The node for a pod, or the reasons that there is none: a pure function of the pod and the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Key;
use client::store::Store;
use k8s_openapi::api::core::v1::{Namespace, Pod};

use super::amounts::Request;
use super::cluster::{Cluster, NodeInfo};
use super::neighbours::Neighbours;
use super::nominations::objection_with_nominated;
use super::queue::Remedy;
use super::scores;
use super::selectors::named_nodes;

/// No node was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// SC-12, in the words of the reference, without the sentence about preemption.
    pub(super) message: String,
    /// The changes that may help.
    pub(super) remedy: Remedy,
    /// Number of nodes in the cluster.
    pub(super) nodes: usize,
    /// The nodes where the removal of pods could help.
    pub(super) resolvable: Vec<Arc<str>>,
}

/// The name of the node for a pod. `start` is the node at which the search starts; it advances, so that all nodes are used.
pub(super) fn decide(
    pod: &Pod,
    request: &Request,
    cluster: &mut Cluster,
    namespaces: &Store<Namespace>,
    start: &mut usize,
) -> Result<String, Refusal> {
    let count = cluster.nodes().len();
    if count == 0 {
        let message = "no nodes available to schedule pods".to_owned();
        return Err(Refusal { message, remedy: Remedy::NODES, nodes: 0, resolvable: Vec::new() });
    }
    let neighbours = Neighbours::of(pod, cluster, namespaces);
    let objection = |node: &Arc<str>, cluster: &mut Cluster| {
        objection_with_nominated(pod, request, &neighbours, node, cluster, namespaces)
    };
    // SC-18: the nominated node comes before all others.
    if let Some(node) = cluster.nominations.node_of(&Key::of(pod)).cloned()
        && cluster.node(&node).is_some()
        && objection(&node, cluster).is_none()
    {
        return Ok(node.to_string());
    }
    let mut why = Why::default();
    let mut possible: Vec<Arc<str>> = Vec::new();
    let mut look = |node: Arc<str>, cluster: &mut Cluster, why: &mut Why| match objection(&node, cluster) {
        None => possible.push(node),
        Some(objection) => why.note(node, objection),
    };
    if let Some(named) = pod.spec.as_ref().and_then(named_nodes) {
        let there: Vec<Arc<str>> =
            named.iter().filter_map(|name| cluster.node(name)).map(|node| node.name.clone()).collect();
        why.unnamed = count - there.len();
        there.into_iter().for_each(|node| look(node, cluster, &mut why));
    } else {
        let enough = scores::enough(count);
        let mut looked_at = 0;
        while looked_at < count && looked_at - why.nodes < enough {
            let node = cluster.nodes()[(*start + looked_at) % count].name.clone();
            looked_at += 1;
            look(node, cluster, &mut why);
        }
        *start = (*start + looked_at) % count;
    }
    let possible: Vec<&NodeInfo> = possible.iter().filter_map(|name| cluster.node(name)).collect();
    match possible.as_slice() {
        [] => Err(why.refusal(count)),
        [only] => Ok(only.name.to_string()),
        several => {
            let totals = scores::totals(pod, request, &neighbours, several);
            let best = scores::best(&totals, |choices| rand::random_range(0..choices)).unwrap_or_default();
            Ok(several[best].name.to_string())
        }
    }
}

/// A pod that no node can take.
pub(super) fn nowhere(nodes: usize, why: &str, remedy: Remedy) -> Refusal {
    let message = format!("0/{nodes} nodes are available: {why}.");
    Refusal { message, remedy, nodes, resolvable: Vec::new() }
}

/// The reasons for which nodes were excluded.
#[derive(Default)]
struct Why {
    reasons: BTreeMap<String, usize>,
    remedy: Remedy,
    /// Number of nodes that were excluded.
    nodes: usize,
    /// Nodes from which the removal of pods could help.
    resolvable: Vec<Arc<str>>,
    /// Nodes that a pod which names its nodes did not name.
    unnamed: usize,
}

impl Why {
    fn note(&mut self, node: Arc<str>, objection: super::filters::Objection) {
        self.nodes += 1;
        if objection.resolvable {
            self.resolvable.push(node);
        }
        for reason in objection.reasons {
            self.remedy = self.remedy.or(reason.remedy());
            *self.reasons.entry(reason.text()).or_default() += 1;
        }
    }

    fn refusal(mut self, nodes: usize) -> Refusal {
        if self.unnamed > 0 {
            self.reasons.insert("node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned(), self.unnamed);
            self.remedy = self.remedy.or(Remedy::NODES);
        }
        let message = format!("0/{nodes} nodes are available: {}.", counted(&self.reasons));
        Refusal { message, remedy: self.remedy, nodes, resolvable: self.resolvable }
    }
}

/// `1 Too many pods, 2 Insufficient cpu`, sorted as texts.
pub(super) fn counted(reasons: &BTreeMap<String, usize>) -> String {
    let mut texts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.sort();
    texts.join(", ")
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
