//! Preemption: the node from which pods of lower priority are removed, so that a pod without a node fits (SC-14…SC-17).
//!
//! - this file: whether a pod may preempt, and the best of the possible nodes; a pure function of the pod and the cluster
//! - `victims`: the pods of one node that have to go, and the budgets that they violate
//! - `eviction`: the writes

pub(super) mod eviction;
mod victims;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use client::Key;
use client::store::Store;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::amounts::Request;
use super::cluster::{Cluster, Placed};
use super::decision::{Refusal, counted};
use super::queue::priority;

/// SC-16: number of possible nodes after which the search stops: this share of those where removal of pods could
/// help, but at least so many.
const CANDIDATES_PERCENT: usize = 10;
const CANDIDATES_MIN: usize = 100;

const NEVER: &str = "not eligible due to preemptionPolicy=Never.";
const TERMINATING: &str = "not eligible due to a terminating pod on the nominated node.";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// The result of a search.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// The pod may not preempt, for this reason. Its nomination does not change.
    NotEligible(&'static str),
    /// No removal of pods helps, for these reasons.
    NoCandidate(String),
    Found(Candidate),
}

/// A node and the pods that have to leave it.
#[derive(Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) node: Arc<str>,
    /// The most important one first.
    pub(super) victims: Vec<Arc<Pod>>,
    /// Number of victims that a disruption budget protects.
    violations: usize,
}

/// The best node to preempt pods on.
pub(super) fn search(
    pod: &Pod,
    request: &Request,
    refusal: &Refusal,
    cluster: &mut Cluster,
    namespaces: &Store<Namespace>,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Outcome {
    if let Some(reason) = ineligible(pod, refusal, cluster) {
        return Outcome::NotEligible(reason);
    }
    let possible = refusal.resolvable.len();
    let enough = (possible * CANDIDATES_PERCENT / 100).max(CANDIDATES_MIN);
    let offset = if possible == 0 { 0 } else { rand::random_range(0..possible) };
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for step in 0..possible {
        let node = &refusal.resolvable[(offset + step) % possible];
        match victims::on_node(pod, request, node, cluster, namespaces, budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(texts) => texts.into_iter().for_each(|text| *reasons.entry(text).or_default() += 1),
        }
        if candidates.len() >= enough && candidates.iter().any(|candidate| candidate.violations == 0) {
            break;
        }
    }
    match candidates.into_iter().min_by_key(cost) {
        Some(best) => Outcome::Found(best),
        None => {
            if refusal.nodes > possible {
                reasons.insert(NOT_HELPFUL.to_owned(), refusal.nodes - possible);
            }
            Outcome::NoCandidate(format!("0/{} nodes are available: {}.", refusal.nodes, counted(&reasons)))
        }
    }
}

/// SC-12: the whole message of a refusal. A successful preemption adds nothing to it.
pub(super) fn message(refusal: &Refusal, outcome: &Outcome) -> String {
    let reason = match outcome {
        Outcome::Found(_) => return refusal.message.clone(),
        _ if refusal.nodes == 0 => return refusal.message.clone(),
        Outcome::NotEligible(reason) => reason,
        Outcome::NoCandidate(reasons) => reasons.as_str(),
    };
    // The reference looks for device claims to release before it preempts. None are simulated here.
    format!("{} no new claims to deallocate, preemption: {reason}", refusal.message)
}

/// SC-14: the reason that a pod may not preempt now.
fn ineligible(pod: &Pod, refusal: &Refusal, cluster: &Cluster) -> Option<&'static str> {
    if pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Some(NEVER);
    }
    let nominated = cluster.nominations.node_of(&Key::of(pod))?;
    // If removal of pods does not help there any more, it may try elsewhere.
    if !refusal.resolvable.contains(nominated) {
        return None;
    }
    let node = cluster.node(nominated)?;
    let mut lower = node.pods.iter().filter_map(|key| cluster.placed(key));
    let leaving = lower.any(|placed| priority(&placed.pod) < priority(pod) && is_leaving(placed));
    leaving.then_some(TERMINATING)
}

/// True if a pod is preempted and not gone yet.
fn is_leaving(placed: &Placed) -> bool {
    let conditions = placed.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let target = conditions.iter().find(|condition| condition.type_ == eviction::DISRUPTION_TARGET);
    let written = target
        .is_some_and(|target| target.status == "True" && target.reason.as_deref() == Some(eviction::PREEMPTED_REASON));
    placed.preempted || (written && placed.pod.metadata.deletion_timestamp.is_some())
}

/// SC-16: what the best node has least of. The priorities are added as if the lowest possible one were 1, so that
/// more pods of a negative priority cost more.
fn cost(candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let victims = &candidate.victims;
    let highest = victims.iter().map(|pod| priority(pod)).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|pod| i64::from(priority(pod)) + i64::from(i32::MAX) + 1).sum();
    let important = victims.iter().filter(|pod| priority(pod) == highest);
    let oldest = important.map(|pod| started(pod)).min().unwrap_or(Timestamp::MAX);
    (candidate.violations, highest, sum, victims.len(), Reverse(oldest))
}

/// The start of a pod. One that has not started yet is the youngest.
fn started(pod: &Pod) -> Timestamp {
    pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(Timestamp::MAX, |time| time.0)
}

#[cfg(test)]
mod tests;
