//! The reasons that exclude a node for a pod (SC-4), in the order of the filters.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Taint};

use super::amounts::Request;
use super::cluster::{Cluster, NodeInfo};
use super::neighbours::Neighbours;
use super::queue::Remedy;
use super::selectors::tolerated;
use crate::placement::affinity_allows;

/// One reason, with its text for users.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    Unschedulable,
    NodeName,
    Taints,
    NodeAffinity,
    Ports,
    TooManyPods,
    Insufficient(String),
    VolumeAffinity,
    VolumeZone,
    Spread,
    SpreadLabel,
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
}

impl Reason {
    pub(crate) fn text(&self) -> String {
        let text = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::NodeName => "node(s) didn't match the requested node name",
            Self::Taints => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource) => return format!("Insufficient {resource}"),
            Self::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::VolumeZone => "node(s) had no available volume zone",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadLabel => "node(s) didn't match pod topology spread constraints (missing required label)",
            Self::Affinity => "node(s) didn't match pod affinity rules",
            Self::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        };
        text.to_owned()
    }

    /// True if the removal of pods from the node could help.
    fn resolvable(&self) -> bool {
        !matches!(
            self,
            Self::Unschedulable
                | Self::NodeName
                | Self::Taints
                | Self::NodeAffinity
                | Self::VolumeAffinity
                | Self::VolumeZone
                | Self::SpreadLabel
                | Self::Affinity
        )
    }

    /// The changes that may help.
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Unschedulable | Self::NodeName | Self::Taints | Self::NodeAffinity | Self::SpreadLabel => {
                Remedy::NODES
            }
            Self::VolumeAffinity | Self::VolumeZone => Remedy::NODES.or(Remedy::CLAIMS),
            Self::Ports
            | Self::TooManyPods
            | Self::Insufficient(_)
            | Self::AntiAffinity
            | Self::ExistingAntiAffinity => Remedy::NODES.or(Remedy::ROOM),
            Self::Spread | Self::Affinity => Remedy::NODES.or(Remedy::ROOM).or(Remedy::COMPANY),
        }
    }
}

/// The result of the first filter that excludes a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Objection {
    pub(super) reasons: Vec<Reason>,
    /// True if the removal of pods from the node could help.
    pub(super) resolvable: bool,
}

impl From<Reason> for Objection {
    fn from(reason: Reason) -> Self {
        Objection { resolvable: reason.resolvable(), reasons: vec![reason] }
    }
}

/// The reason that excludes this node; none if it is possible.
pub(super) fn objection(
    pod: &Pod,
    request: &Request,
    neighbours: &Neighbours,
    node: &NodeInfo,
    cluster: &Cluster,
) -> Option<Objection> {
    let spec = pod.spec.as_ref()?;
    if node.unschedulable && !tolerated(pod, &unschedulable_taint()) {
        return Some(Reason::Unschedulable.into());
    }
    if spec.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != &*node.name) {
        return Some(Reason::NodeName.into());
    }
    // SC-6
    let repels = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    if node.taints.iter().filter(repels).any(|taint| !tolerated(pod, taint)) {
        return Some(Reason::Taints.into());
    }
    if !affinity_allows(spec, &node.object) {
        return Some(Reason::NodeAffinity.into());
    }
    if !request.ports.is_empty() {
        let mut taken = node.pods.iter().filter_map(|key| cluster.placed(key)).flat_map(|placed| &placed.request.ports);
        if taken.any(|port| request.ports.iter().any(|wanted| wanted.collides(port))) {
            return Some(Reason::Ports.into());
        }
    }
    let of_volumes = || {
        let none = BTreeMap::new();
        let labels = node.object.metadata.labels.as_ref().unwrap_or(&none);
        request.volumes.iter().find_map(|volume| volume.objection(labels, &node.name))
    };
    shortage(request, node).or_else(|| of_volumes().or_else(|| neighbours.objection(node)).map(Objection::from))
}

fn shortage(request: &Request, node: &NodeInfo) -> Option<Objection> {
    let (mut reasons, mut resolvable) = (Vec::new(), true);
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= node.pods_max {
        reasons.push(Reason::TooManyPods);
    }
    let (wanted, has, taken) = (&request.amounts, &node.allocatable, &node.taken);
    let mut check = |name: &str, wanted: i64, has: i64, taken: i64| {
        if wanted > 0 && wanted > has - taken {
            reasons.push(Reason::Insufficient(name.to_owned()));
            // It would not fit even if the node were empty.
            resolvable &= wanted <= has;
        }
    };
    check("cpu", wanted.cpu, has.cpu, taken.cpu);
    check("memory", wanted.memory, has.memory, taken.memory);
    check("ephemeral-storage", wanted.storage, has.storage, taken.storage);
    for (name, wanted) in &wanted.others {
        let of = |amounts: &super::amounts::Amounts| amounts.others.get(name).copied().unwrap_or_default();
        check(name, *wanted, of(has), of(taken));
    }
    (!reasons.is_empty()).then_some(Objection { reasons, resolvable })
}

fn unschedulable_taint() -> Taint {
    Taint { key: "node.kubernetes.io/unschedulable".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() }
}
