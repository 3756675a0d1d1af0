//! The pods of one node that have to go for another pod (SC-15).

use std::cmp::Reverse;
use std::sync::Arc;

use client::Key;
use client::store::Store;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::{Candidate, started};
use crate::scheduler::amounts::Request;
use crate::scheduler::cluster::{Cluster, Placed};
use crate::scheduler::filters::Objection;
use crate::scheduler::neighbours::Neighbours;
use crate::scheduler::nominations::objection_with_nominated;
use crate::scheduler::queue::priority;
use crate::selectors::Selects;

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// A pod that was taken off the node.
type Out = (Key, Placed);

/// The victims on a node, or the reasons that it is not possible even without all pods of lower priority. Pods
/// are taken out of the cluster and put back; afterwards it is as it was.
pub(super) fn on_node(
    pod: &Pod,
    request: &Request,
    node: &Arc<str>,
    cluster: &mut Cluster,
    namespaces: &Store<Namespace>,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Candidate, Vec<String>> {
    let Some(info) = cluster.node(node) else { return Err(vec![NO_VICTIMS.to_owned()]) };
    let lower = |key: &&Key| cluster.placed(key).is_some_and(|placed| priority(&placed.pod) < priority(pod));
    let keys: Vec<Key> = info.pods.iter().filter(lower).cloned().collect();
    if keys.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    let mut out: Vec<Out> =
        keys.into_iter().filter_map(|key| cluster.take_out(&key).map(|placed| (key, placed))).collect();
    let objection = |cluster: &mut Cluster| -> Option<Objection> {
        let neighbours = Neighbours::of(pod, cluster, namespaces);
        objection_with_nominated(pod, request, &neighbours, node, cluster, namespaces)
    };
    if let Some(objection) = objection(cluster) {
        out.into_iter().for_each(|(key, placed)| cluster.put_back(&key, placed));
        return Err(objection.reasons.iter().map(|reason| reason.text()).collect());
    }
    // The most important ones stay if they can; those that a budget protects before all others.
    out.sort_by_key(|(_, placed)| importance(&placed.pod));
    let (protected, others) = by_protection(out, budgets);
    let mut victims: Vec<Out> = Vec::new();
    let mut spare = |cluster: &mut Cluster, key: Key, placed: Placed| {
        cluster.put_back(&key, placed);
        if objection(cluster).is_some()
            && let Some(placed) = cluster.take_out(&key)
        {
            victims.push((key, placed));
        }
        victims.len()
    };
    let mut violations = 0;
    for (key, placed) in protected {
        violations = spare(cluster, key, placed);
    }
    for (key, placed) in others {
        spare(cluster, key, placed);
    }
    if victims.is_empty() {
        return Err(vec![format!("expected at least one victim pod on node {node:?}")]);
    }
    victims.sort_by_key(|(_, placed)| importance(&placed.pod));
    let pods = victims.iter().map(|(_, placed)| placed.pod.clone()).collect();
    victims.into_iter().for_each(|(key, placed)| cluster.put_back(&key, placed));
    Ok(Candidate { node: node.clone(), victims: pods, violations })
}

/// The order of pods: the highest priority first, then the longest running.
fn importance(pod: &Pod) -> (Reverse<i32>, jiff::Timestamp) {
    (Reverse(priority(pod)), started(pod))
}

/// The pods whose removal violates a disruption budget, and the others. Each keeps its order, in which the
/// disruptions that budgets allow are used up.
fn by_protection(pods: Vec<Out>, budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Out>, Vec<Out>) {
    let mut allowed: Vec<(&PodDisruptionBudget, Selects, i32)> = budgets
        .iter()
        .map(|budget| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or_default();
            (&**budget, Selects::of_workload(selector), allowed)
        })
        .collect();
    pods.into_iter().partition(|(_, placed)| {
        let meta = &placed.pod.metadata;
        if meta.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            return false;
        }
        let name = meta.name.as_deref().unwrap_or_default();
        let mut violates = false;
        for (budget, selects, allowed) in &mut allowed {
            let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
            if budget.metadata.namespace == meta.namespace
                && selects.matches(meta.labels.as_ref())
                && !disrupted.is_some_and(|disrupted| disrupted.contains_key(name))
            {
                *allowed -= 1;
                violates |= *allowed < 0;
            }
        }
        violates
    })
}
