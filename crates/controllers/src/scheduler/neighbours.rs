//! What the pods that are already placed mean to a pod: affinity, anti-affinity, and even spreading.
//!
//! All of it is counted once for a pod, by the value of a node label (a zone, a host), and only if somebody asks: a pod
//! without wishes in a cluster without pods that keep others away costs nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use client::Key;
use client::store::Store;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodAffinityTerm, TopologySpreadConstraint};

use super::cluster::{Cluster, NodeInfo, Placed};
use super::filters::Reason;
use super::selectors::{selects, tolerated};
use crate::placement::affinity_allows;

/// What one pod's neighbours mean to it.
#[derive(Default)]
pub(super) struct Neighbours {
    /// Required company: where it is, by label key; and whether the pod is its own.
    near: Vec<(String, BTreeSet<String>, bool)>,
    /// Required distance.
    away: Vec<(String, BTreeSet<String>)>,
    /// Where somebody keeps this pod away.
    kept_from: Vec<(String, String)>,
    spread: Vec<Spread>,
    /// What being somewhere is worth.
    preferred: HashMap<(String, String), i64>,
}

struct Spread {
    key: String,
    counts: BTreeMap<String, i64>,
    least: i64,
    skew_max: i64,
    /// Whether the pod counts itself.
    own: i64,
    required: bool,
}

/// Whether a pod's own anti-affinity must be asked when others come.
pub(crate) fn keeps_others_away(pod: &Pod) -> bool {
    !anti_terms(pod).is_empty()
}

fn affinity_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
}

fn anti_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
}

/// Preferred terms with their weights; those of distance are negative.
fn preferences(pod: &Pod) -> Vec<(i64, &PodAffinityTerm)> {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else { return Vec::new() };
    let near = affinity.pod_affinity.iter().flat_map(|a| &a.preferred_during_scheduling_ignored_during_execution);
    let away = affinity.pod_anti_affinity.iter().flat_map(|a| &a.preferred_during_scheduling_ignored_during_execution);
    let near = near.flatten().map(|term| (i64::from(term.weight), &term.pod_affinity_term));
    let away = away.flatten().map(|term| (-i64::from(term.weight), &term.pod_affinity_term));
    near.chain(away).collect()
}

fn constraints(pod: &Pod) -> &[TopologySpreadConstraint] {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.topology_spread_constraints.as_deref()).unwrap_or_default()
}

impl Neighbours {
    pub(super) fn of(pod: &Pod, cluster: &Cluster, namespaces: &Store<Namespace>) -> Self {
        let mut found = Self::default();
        let nobody_asks = affinity_terms(pod).is_empty() && anti_terms(pod).is_empty();
        let preferences = preferences(pod);
        if !(nobody_asks && preferences.is_empty()) {
            found.company(pod, &preferences, cluster, namespaces);
        }
        for other in cluster.keeping_away() {
            let Some(node) = cluster.node(&other.node) else { continue };
            for term in anti_terms(&other.pod) {
                if let Some(value) = node.label(&term.topology_key)
                    && means(term, &other.pod, pod, namespaces)
                {
                    found.kept_from.push((term.topology_key.clone(), value.to_owned()));
                }
            }
        }
        found.spread = constraints(pod).iter().map(|constraint| Spread::of(constraint, pod, cluster)).collect();
        found
    }

    fn company(
        &mut self,
        pod: &Pod,
        preferences: &[(i64, &PodAffinityTerm)],
        cluster: &Cluster,
        namespaces: &Store<Namespace>,
    ) {
        let places = |term: &PodAffinityTerm| -> BTreeSet<String> {
            let others = cluster.all_placed().filter(|other| means(term, pod, &other.pod, namespaces));
            others.filter_map(|other| place_of(cluster, other, &term.topology_key)).map(str::to_owned).collect()
        };
        for term in affinity_terms(pod) {
            let own = means(term, pod, pod, namespaces);
            self.near.push((term.topology_key.clone(), places(term), own));
        }
        // The first of a group that wants to be together may begin anywhere.
        if self.near.iter().any(|(_, places, own)| !places.is_empty() || !own) {
            self.near.iter_mut().for_each(|(_, _, own)| *own = false);
        }
        self.away = anti_terms(pod).iter().map(|term| (term.topology_key.clone(), places(term))).collect();
        for (weight, term) in preferences {
            for other in cluster.all_placed().filter(|other| means(term, pod, &other.pod, namespaces)) {
                if let Some(value) = place_of(cluster, other, &term.topology_key) {
                    *self.preferred.entry((term.topology_key.clone(), value.to_owned())).or_default() += weight;
                }
            }
        }
    }

    /// Why this node is not possible, if it is not.
    pub(super) fn objection(&self, node: &NodeInfo) -> Option<Reason> {
        for spread in self.spread.iter().filter(|spread| spread.required) {
            let Some(value) = node.label(&spread.key) else { return Some(Reason::SpreadLabel) };
            let here = spread.counts.get(value).copied().unwrap_or_default();
            if here + spread.own - spread.least > spread.skew_max {
                return Some(Reason::Spread);
            }
        }
        let at = |key: &str, places: &BTreeSet<String>| node.label(key).is_some_and(|value| places.contains(value));
        let together = |(key, places, own): &(String, BTreeSet<String>, bool)| {
            at(key, places) || (*own && node.label(key).is_some())
        };
        if !self.near.iter().all(together) {
            return Some(Reason::Affinity);
        }
        if self.away.iter().any(|(key, places)| at(key, places)) {
            return Some(Reason::AntiAffinity);
        }
        let kept = self.kept_from.iter().any(|(key, value)| node.label(key) == Some(value));
        kept.then_some(Reason::ExistingAntiAffinity)
    }

    /// What the neighbourhood of this node is worth by preferences; more is better, zero is neutral.
    pub(super) fn preference(&self, node: &NodeInfo) -> i64 {
        let worth = self.preferred.iter().filter(|((key, value), _)| node.label(key) == Some(value));
        worth.map(|(_, weight)| weight).sum()
    }

    /// How crowded this node's places are already; less is better. None if nobody asked for spreading.
    pub(super) fn crowd(&self, node: &NodeInfo) -> Option<i64> {
        let soft = self.spread.iter().filter(|spread| !spread.required);
        let counts = soft.map(|spread| {
            let value = node.label(&spread.key);
            value.and_then(|value| spread.counts.get(value)).copied().unwrap_or_default()
        });
        counts.reduce(|a, b| a + b)
    }
}

impl Spread {
    fn of(constraint: &TopologySpreadConstraint, pod: &Pod, cluster: &Cluster) -> Self {
        let key = constraint.topology_key.clone();
        let eligible = |node: &NodeInfo| {
            node.label(&key).is_some()
                && (constraint.node_affinity_policy.as_deref() == Some("Ignore") || fits(pod, &node.object))
                && (constraint.node_taints_policy.as_deref() != Some("Honor") || bears(pod, node))
        };
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for node in cluster.nodes().iter().filter(|node| eligible(node)) {
            let here = node.pods.iter().filter(|key| counted(constraint, pod, cluster, key)).count();
            let value = node.label(&key).unwrap_or_default().to_owned();
            *counts.entry(value).or_default() += i64::try_from(here).unwrap_or(i64::MAX);
        }
        let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
        let few = constraint.min_domains.is_some_and(|min| domains < i64::from(min));
        let least = if few { 0 } else { counts.values().copied().min().unwrap_or_default() };
        Spread {
            least,
            counts,
            skew_max: i64::from(constraint.max_skew),
            own: i64::from(selected(constraint, pod, pod)),
            required: constraint.when_unsatisfiable == "DoNotSchedule",
            key,
        }
    }
}

fn counted(constraint: &TopologySpreadConstraint, pod: &Pod, cluster: &Cluster, key: &Key) -> bool {
    let Some(other) = cluster.placed(key) else { return false };
    other.pod.metadata.namespace == pod.metadata.namespace
        && other.pod.metadata.deletion_timestamp.is_none()
        && selected(constraint, pod, &other.pod)
}

fn selected(constraint: &TopologySpreadConstraint, pod: &Pod, other: &Pod) -> bool {
    let value = |of: &Pod, key: &String| of.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let mut same = constraint.match_label_keys.iter().flatten();
    selects(constraint.label_selector.as_ref(), other.metadata.labels.as_ref())
        && same.all(|key| value(pod, key).is_none() || value(pod, key) == value(other, key))
}

fn fits(pod: &Pod, node: &Node) -> bool {
    pod.spec.as_ref().is_none_or(|spec| affinity_allows(spec, node))
}

fn bears(pod: &Pod, node: &NodeInfo) -> bool {
    node.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").all(|taint| tolerated(pod, taint))
}

fn place_of<'a>(cluster: &'a Cluster, other: &Placed, key: &str) -> Option<&'a str> {
    cluster.node(&other.node)?.label(key)
}

/// Whether a term of `whose` means `other`.
fn means(term: &PodAffinityTerm, whose: &Pod, other: &Pod, namespaces: &Store<Namespace>) -> bool {
    let namespace = other.metadata.namespace.as_deref().unwrap_or_default();
    let named = term.namespaces.as_deref().unwrap_or_default();
    let in_namespace = match &term.namespace_selector {
        None if named.is_empty() => whose.metadata.namespace.as_deref().unwrap_or_default() == namespace,
        None => named.iter().any(|name| name == namespace),
        Some(selector) => {
            named.iter().any(|name| name == namespace) || {
                let labels = namespaces.get(&Key::new(None, namespace)).and_then(|ns| ns.metadata.labels.clone());
                selects(Some(selector), labels.as_ref())
            }
        }
    };
    in_namespace && selects(term.label_selector.as_ref(), other.metadata.labels.as_ref())
}
