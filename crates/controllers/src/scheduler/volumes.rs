//! Where the bound volumes of a pod can be reached: their node affinity and their zones (SC-20).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume};

use super::filters::Reason;
use crate::placement::term_allows;

/// Labels of volumes and nodes that name a zone or region, with their older names.
const TOPOLOGY: [(&str, &str); 2] = [
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
];
/// Separates the zones of a volume that is in several.
const BETWEEN_ZONES: &str = "__";

/// The nodes from which a volume can be reached.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct VolumePlace {
    /// None allows every node.
    affinity: Option<Vec<NodeSelectorTerm>>,
    /// The label of a node, its older name, and the values that it may have.
    zones: Vec<(&'static str, &'static str, BTreeSet<String>)>,
}

impl VolumePlace {
    pub(super) fn of(volume: &PersistentVolume) -> Self {
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        let labels = volume.metadata.labels.as_ref();
        let values = |(name, older): (&'static str, &'static str)| {
            let found = labels.and_then(|labels| labels.get(name).or_else(|| labels.get(older)))?;
            Some((name, older, found.split(BETWEEN_ZONES).map(str::to_owned).collect()))
        };
        VolumePlace {
            affinity: affinity.map(|required| required.node_selector_terms.clone()),
            zones: TOPOLOGY.into_iter().filter_map(values).collect(),
        }
    }

    /// The reason that excludes a node with these labels.
    pub(super) fn objection(&self, labels: &BTreeMap<String, String>, node: &str) -> Option<Reason> {
        let reached = |terms: &Vec<NodeSelectorTerm>| terms.iter().any(|term| term_allows(term, labels, node));
        if self.affinity.as_ref().is_some_and(|terms| !reached(terms)) {
            return Some(Reason::VolumeAffinity);
        }
        let label = |name: &str, older: &str| labels.get(name).or_else(|| labels.get(older));
        // A node that names no zone can reach all.
        if TOPOLOGY.iter().all(|(name, older)| label(name, older).is_none()) {
            return None;
        }
        let is_in = |(name, older, values): &(&str, &str, BTreeSet<String>)| {
            label(name, older).is_some_and(|value| values.contains(value))
        };
        (!self.zones.iter().all(is_in)).then_some(Reason::VolumeZone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn sc_20_volumes_are_reached_from_their_zones_and_by_their_affinity() {
        let place = |volume: Value| VolumePlace::of(&serde_json::from_value(volume).unwrap());
        let zone = "topology.kubernetes.io/zone";
        let older = "failure-domain.beta.kubernetes.io/zone";
        let expression = json!({"key": "disk", "operator": "In", "values": ["fast"]});
        let required = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
        for (volume, labels, expected) in [
            (json!({}), json!({zone: "a"}), None),
            (json!({"metadata": {"labels": {zone: "a"}}}), json!({zone: "a"}), None),
            (json!({"metadata": {"labels": {zone: "a__b"}}}), json!({zone: "b"}), None),
            (json!({"metadata": {"labels": {zone: "a"}}}), json!({older: "a"}), None),
            (json!({"metadata": {"labels": {older: "a"}}}), json!({zone: "b"}), Some(Reason::VolumeZone)),
            (json!({"metadata": {"labels": {zone: "a"}}}), json!({}), None),
            (
                json!({"metadata": {"labels": {zone: "a"}}}),
                json!({"topology.kubernetes.io/region": "r"}),
                Some(Reason::VolumeZone),
            ),
            (json!({"spec": {"nodeAffinity": required}}), json!({"disk": "fast"}), None),
            (json!({"spec": {"nodeAffinity": required}}), json!({"disk": "slow"}), Some(Reason::VolumeAffinity)),
        ] {
            let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap();
            assert_eq!(place(volume.clone()).objection(&labels, "n"), expected, "{volume} {labels:?}");
        }
    }
}
