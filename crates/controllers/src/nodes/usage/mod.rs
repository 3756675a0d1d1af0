//! What pods of simulated nodes use, for `metrics.k8s.io`.
//!
//! - [`curve`]: amounts over time, which annotations and rules prescribe
//! - [`expression`]: the expressions of KWOK's `ResourceUsage`
//! - this file: what applies to a container. In this order: annotations of its pod, rules of the stages file, objects of KWOK's
//!   kinds, half of its requests.

pub mod curve;
pub mod expression;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod};
use parking_lot::RwLock;

use super::behaviour::{Behaviour, PREFIX};
use super::kwok::Kwok;
use super::stages::Stages;
use curve::{Curve, Moment};

/// The share of its requests that a container uses unless something else is prescribed.
const SHARE_OF_REQUEST: f64 = 0.5;
/// What a container without requests uses: cores and bytes.
const WITHOUT_REQUEST: [f64; 2] = [0.001, 8.0 * 1024.0 * 1024.0];
/// What the programs of a node use besides its pods.
const OF_SYSTEM: [f64; 2] = [0.1, 512.0 * 1024.0 * 1024.0];

/// The resources that are measured.
pub const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Cores and bytes that are used.
pub type Used = [f64; 2];

/// What the containers of a running pod use.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsed {
    /// By name.
    pub containers: Vec<(String, Used)>,
}

/// What prescribes usage. The nodes write to it, the server reads from it.
#[derive(Debug, Default)]
pub struct Usages {
    prescribed: RwLock<Prescribed>,
}

#[derive(Debug, Clone, Default)]
struct Prescribed {
    stages: Arc<Stages>,
    kwok: Arc<Kwok>,
}

impl Usages {
    /// Sets the file of stages, and KWOK's objects from there and from the server.
    pub(super) fn set(&self, stages: Arc<Stages>, kwok: Arc<Kwok>) {
        *self.prescribed.write() = Prescribed { stages, kwok };
    }

    /// What each of these pods uses; none for those that do not run. Pods of one owner that share a load are given together.
    #[must_use]
    pub fn of_pods(&self, pods: &[Pod], now: Timestamp) -> Vec<Option<PodUsed>> {
        let prescribed = self.prescribed.read().clone();
        let groups = groups(pods);
        pods.iter().map(|pod| prescribed.of_pod(pod, &groups, now)).collect()
    }

    /// What a node uses whose pods use this.
    #[must_use]
    pub fn of_node(&self, node: &Node, pods: Used, now: Timestamp) -> Used {
        let annotations = node.metadata.annotations.iter().flatten();
        let since = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut used = [pods[0] + OF_SYSTEM[0], pods[1] + OF_SYSTEM[1]];
        for (name, value) in annotations {
            let of = RESOURCES.iter().position(|resource| name.strip_prefix(PREFIX) == Some(resource));
            if let (Some(of), Ok(curve)) = (of, Curve::parse(value)) {
                used[of] = curve.at(moment(now, since));
            }
        }
        used
    }
}

/// The running pods of one owner.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    pods: usize,
    /// The start of the oldest.
    since: Option<Timestamp>,
}

/// The UID of the controller that owns a pod.
fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

fn groups(pods: &[Pod]) -> HashMap<String, Group> {
    let mut groups: HashMap<String, Group> = HashMap::new();
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        let Some(owner) = owner(pod) else { continue };
        let group = groups.entry(owner.to_owned()).or_default();
        group.pods += 1;
        group.since = group.since.into_iter().chain(started(pod)).min();
    }
    groups
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

pub(super) fn started(pod: &Pod) -> Option<Timestamp> {
    pod.status.as_ref()?.start_time.as_ref().map(|time| time.0)
}

pub(super) fn moment(now: Timestamp, since: Option<Timestamp>) -> Moment {
    let seconds = |from: Timestamp| now.duration_since(from).as_secs_f64();
    Moment { wall: seconds(Timestamp::UNIX_EPOCH), age: since.map_or(0.0, seconds) }
}

impl Prescribed {
    fn of_pod(&self, pod: &Pod, groups: &HashMap<String, Group>, now: Timestamp) -> Option<PodUsed> {
        if !is_running(pod) {
            return None;
        }
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        let behaviour = self.stages.behaviour(pod);
        let group = owner(pod).and_then(|owner| groups.get(owner)).copied().unwrap_or_default();
        let runs = |statuses: &Option<Vec<ContainerStatus>>, name: &str| {
            let status = statuses.iter().flatten().find(|status| status.name == name);
            status.and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
        };
        let init = spec.init_containers.iter().flatten();
        let running = init
            .filter(|container| runs(&status.init_container_statuses, &container.name))
            .chain(spec.containers.iter().filter(|container| runs(&status.container_statuses, &container.name)));
        let containers: Vec<(String, Used)> = running
            .map(|container| {
                let used = [0, 1].map(|of| {
                    self.of_curves(pod, container, &behaviour, group, of, now)
                        .or_else(|| self.of_kwok(pod, container, of, now))
                        .unwrap_or_else(|| of_requests(container, of))
                });
                (container.name.clone(), used)
            })
            .collect();
        (!containers.is_empty()).then_some(PodUsed { containers })
    }

    fn of_curves(
        &self,
        pod: &Pod,
        container: &Container,
        behaviour: &Behaviour,
        group: Group,
        of: usize,
        now: Timestamp,
    ) -> Option<f64> {
        let named = format!("{}.{}", RESOURCES[of], container.name);
        let curve = behaviour.usage.get(&named).or_else(|| behaviour.usage.get(RESOURCES[of]))?;
        Some(if curve.is_shared && group.pods > 0 {
            curve.at(moment(now, group.since)) / group.pods as f64
        } else {
            curve.at(moment(now, started(pod)))
        })
    }

    /// The first object of KWOK's kinds that is about the container.
    fn of_kwok(&self, pod: &Pod, container: &Container, of: usize, now: Timestamp) -> Option<f64> {
        let usages =
            self.kwok.usages().iter().filter(|usage| usage.reach.includes(pod)).flat_map(|usage| &usage.usages);
        let has = |names: &[String]| names.is_empty() || names.contains(&container.name);
        let value = usages.filter(|usage| has(&usage.containers)).find_map(|usage| usage.usage.get(RESOURCES[of]))?;
        value.amount(pod, &container.name, now)
    }
}

fn of_requests(container: &Container, of: usize) -> f64 {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requested = requests.and_then(|requests| requests.get(RESOURCES[of]));
    requested.and_then(|amount| curve::amount(&amount.0).ok()).map_or(WITHOUT_REQUEST[of], |all| all * SHARE_OF_REQUEST)
}

#[cfg(test)]
mod tests;
