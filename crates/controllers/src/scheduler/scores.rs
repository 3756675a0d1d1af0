//! The best of the possible nodes for a pod (SC-7). All scores are 0 to 100 and weighted.

use k8s_openapi::api::core::v1::Pod;

use super::amounts::Request;
use super::cluster::NodeInfo;
use super::images;
use super::neighbours::Neighbours;
use super::selectors::tolerated;
use crate::placement::term_allows;

const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const POD_AFFINITY: i64 = 2;
const IMAGES: i64 = 1;

/// The total of each node.
pub(super) fn totals(pod: &Pod, request: &Request, neighbours: &Neighbours, nodes: &[&NodeInfo]) -> Vec<i64> {
    let mut totals: Vec<i64> = nodes.iter().map(|node| fit(request, node)).collect();
    let mut add = |weight: i64, scores: Option<Vec<i64>>| {
        for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
            *total += weight * score;
        }
    };
    let each = |score: &dyn Fn(&NodeInfo) -> i64| nodes.iter().map(|node| score(node)).collect::<Vec<i64>>();
    add(TAINTS, lower_is_better(each(&|node| disliked_taints(pod, node))));
    add(NODE_AFFINITY, higher_is_better(each(&|node| node_preference(pod, node))));
    let crowds: Option<Vec<i64>> = nodes.iter().map(|node| neighbours.spread_count(node)).collect();
    let family = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let siblings = family
        .map(|owner| each(&|node| node.families.get(owner.uid.as_str()).copied().map(i64::from).unwrap_or_default()));
    // Without constraints of its own, a pod is spread away from its siblings.
    add(SPREAD, crowds.or(siblings).and_then(lower_is_better));
    add(POD_AFFINITY, higher_is_better(each(&|node| neighbours.preference(node))));
    add(IMAGES, images::scores(pod, nodes));
    totals
}

/// The free resources of each node, and their balance.
fn fit(request: &Request, node: &NodeInfo) -> i64 {
    let share = |has: i64, taken: i64| -> (i64, f64) {
        if has <= 0 {
            return (0, 1.0);
        }
        ((has - taken).max(0) * 100 / has, (taken as f64 / has as f64).min(1.0))
    };
    let (cpu, cpu_used) = share(node.allocatable.cpu, node.scored_cpu + request.scored_cpu);
    let (memory, memory_used) = share(node.allocatable.memory, node.scored_memory + request.scored_memory);
    let least_allocated = (cpu + memory) / 2;
    let balanced = (100.0 * (1.0 - (cpu_used - memory_used).abs() / 2.0)) as i64;
    least_allocated + balanced
}

fn disliked_taints(pod: &Pod, node: &NodeInfo) -> i64 {
    let disliked = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule" && !tolerated(pod, taint));
    i64::try_from(disliked.count()).unwrap_or(i64::MAX)
}

fn node_preference(pod: &Pod, node: &NodeInfo) -> i64 {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let Some(terms) = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()) else {
        return 0;
    };
    let none = std::collections::BTreeMap::new();
    let labels = node.object.metadata.labels.as_ref().unwrap_or(&none);
    let liked = terms.iter().filter(|term| term_allows(&term.preference, labels, &node.name));
    liked.map(|term| i64::from(term.weight)).sum()
}

/// Scaled to 0..=100; none if all are equal, since then it decides nothing.
fn higher_is_better(raw: Vec<i64>) -> Option<Vec<i64>> {
    let (least, most) = (*raw.iter().min()?, *raw.iter().max()?);
    (most > least).then(|| raw.into_iter().map(|score| (score - least) * 100 / (most - least)).collect())
}

fn lower_is_better(raw: Vec<i64>) -> Option<Vec<i64>> {
    higher_is_better(raw.into_iter().map(|score| -score).collect())
}

/// One of the best nodes, at random.
pub(super) fn best(totals: &[i64], random: impl Fn(usize) -> usize) -> Option<usize> {
    let most = totals.iter().max()?;
    let best: Vec<usize> = totals.iter().enumerate().filter(|(_, total)| *total == most).map(|(at, _)| at).collect();
    best.get(random(best.len()) % best.len()).copied()
}

/// SC-8: number of possible nodes after which the search stops.
pub(super) fn enough(nodes: usize) -> usize {
    if nodes < 100 {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc_8_small_clusters_are_looked_at_whole() {
        for (nodes, expected) in [(3, 3), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (10_000, 500)] {
            assert_eq!(enough(nodes), expected, "{nodes}");
        }
    }

    #[test]
    fn sc_7_ties_are_broken_by_chance() {
        assert_eq!(best(&[5, 9, 9], |_| 0), Some(1));
        assert_eq!(best(&[5, 9, 9], |_| 1), Some(2));
        assert_eq!(best(&[], |_| 0), None);
    }

    #[test]
    fn scores_that_are_all_alike_decide_nothing() {
        assert_eq!(higher_is_better(vec![3, 3]), None);
        assert_eq!(higher_is_better(vec![0, 5, 10]), Some(vec![0, 50, 100]));
        assert_eq!(lower_is_better(vec![0, 5, 10]), Some(vec![100, 50, 0]));
    }
}
