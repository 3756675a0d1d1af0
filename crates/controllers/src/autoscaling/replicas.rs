//! The number of replicas that a metric asks for: from what pods use, and which of them count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pods;

/// What one pod uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Thousandths.
    pub(super) value: i64,
    /// The end of the measured time, and its length.
    pub(super) at: Timestamp,
    pub(super) window: Duration,
}

/// By the name of the pod.
pub(super) type Samples = BTreeMap<String, Sample>;

/// HPA-6: a ratio of usage to target within these is no reason to scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) up: f64,
    pub(super) down: f64,
}

impl Tolerances {
    fn admit(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// HPA-8: when a pod that has just started counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Readiness {
    pub(super) now: Timestamp,
    /// For so long after its start, a pod counts only if it is ready and was measured since then.
    pub(super) initialization: Duration,
    /// After that, a pod that was never ready later than this after its start does not count.
    pub(super) initial_delay: Duration,
}

/// What is wanted of the pods of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Percent of the requests.
    Utilization(i32),
    /// Thousandths for each pod.
    Average(i64),
}

/// The pods of a target and what they use.
pub(super) struct Measured<'a> {
    pub(super) resource: &'a str,
    /// Only this container counts.
    pub(super) container: Option<&'a str>,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) samples: Samples,
}

/// The proposal of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// Percent of the requests, if that is what is wanted.
    pub(super) utilization: Option<i32>,
    /// Thousandths, for each pod that counts.
    pub(super) average: i64,
}

/// How pods take part in a calculation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

/// HPA-5 to HPA-9: the replicas that usage asks for, with `current` of them at the moment.
pub(super) fn propose(
    current: i32,
    wanted: Wanted,
    measured: Measured<'_>,
    tolerances: Tolerances,
    readiness: Readiness,
) -> Result<Proposal, String> {
    let Measured { resource, container, pods, mut samples } = measured;
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(pods, &samples, resource, readiness);
    samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let requests = match wanted {
        Wanted::Utilization(_) => requests(pods, container, resource)?,
        Wanted::Average(_) => BTreeMap::new(),
    };
    let first = ratio(wanted, &samples, &requests)?;
    let proposal = |replicas| Proposal { replicas, utilization: first.utilization, average: first.average };
    let scales_up = first.ratio > 1.0;
    let with_unready = scales_up && !groups.unready.is_empty();
    if !with_unready && groups.missing.is_empty() {
        let stays = tolerances.admit(first.ratio);
        return Ok(proposal(if stays { current } else { ceiling(first.ratio, groups.ready) }));
    }
    // HPA-9: what is not known is assumed so that the change becomes smaller.
    for name in &groups.missing {
        let value = match wanted {
            _ if scales_up => 0,
            Wanted::Utilization(target) => {
                requests.get(name).copied().unwrap_or_default().saturating_mul(i64::from(target.max(100))) / 100
            }
            Wanted::Average(target) => target,
        };
        if first.ratio != 1.0 {
            samples.insert(name.clone(), assumed(value, readiness.now));
        }
    }
    if with_unready {
        for name in &groups.unready {
            samples.insert(name.clone(), assumed(0, readiness.now));
        }
    }
    let second = ratio(wanted, &samples, &requests)?.ratio;
    let turns = first.ratio < 1.0 && second > 1.0 || first.ratio > 1.0 && second < 1.0;
    if tolerances.admit(second) || turns {
        return Ok(proposal(current));
    }
    let replicas = ceiling(second, samples.len());
    let turns = second < 1.0 && replicas > current || second > 1.0 && replicas < current;
    Ok(proposal(if turns { current } else { replicas }))
}

fn assumed(value: i64, at: Timestamp) -> Sample {
    Sample { value, at, window: Duration::ZERO }
}

/// A cast saturates.
fn ceiling(ratio: f64, pods: usize) -> i32 {
    (ratio * pods as f64).ceil() as i32
}

struct Ratio {
    ratio: f64,
    utilization: Option<i32>,
    average: i64,
}

fn ratio(wanted: Wanted, samples: &Samples, requests: &BTreeMap<String, i64>) -> Result<Ratio, String> {
    match wanted {
        Wanted::Average(target) => {
            let total = samples.values().fold(0i64, |sum, sample| sum.saturating_add(sample.value));
            let average = total / i64::try_from(samples.len().max(1)).unwrap_or(i64::MAX);
            Ok(Ratio { ratio: average as f64 / target as f64, utilization: None, average })
        }
        Wanted::Utilization(target) => {
            let known: Vec<(i64, i64)> =
                samples.iter().filter_map(|(name, sample)| Some((sample.value, *requests.get(name)?))).collect();
            let used = known.iter().fold(0i64, |sum, (used, _)| sum.saturating_add(*used));
            let requested = known.iter().fold(0i64, |sum, (_, requested)| sum.saturating_add(*requested));
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let percent = i32::try_from(used.saturating_mul(100) / requested).unwrap_or(i32::MAX);
            let average = used / i64::try_from(known.len()).unwrap_or(i64::MAX);
            let ratio = f64::from(percent) / f64::from(target);
            Ok(Ratio { ratio, utilization: Some(percent), average })
        }
    }
}

/// HPA-7, HPA-8: which pods count.
fn group(pods: &[Arc<Pod>], samples: &Samples, resource: &str, readiness: Readiness) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let phase = pods::phase(pod);
        if pod.metadata.deletion_timestamp.is_some() || phase == "Failed" {
            groups.ignored.insert(name);
        } else if phase == "Pending" {
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(&name) {
            if resource == "cpu" && is_unready(pod, sample, readiness) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

fn is_unready(pod: &Pod, sample: &Sample, readiness: Readiness) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let (Some(started), Some(ready)) = (started, pods::condition(pod, "Ready")) else { return true };
    let changed = ready.last_transition_time.as_ref().map_or(started, |time| time.0);
    let is_false = ready.status == "False";
    let after = |time: Timestamp, by: Duration| {
        time.checked_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
    };
    if after(started, readiness.initialization) > readiness.now {
        is_false || sample.at < after(changed, sample.window)
    } else {
        is_false && after(started, readiness.initial_delay) > changed
    }
}

/// What each pod requests of a resource, in thousandths.
fn requests(pods: &[Arc<Pod>], container: Option<&str>, resource: &str) -> Result<BTreeMap<String, i64>, String> {
    let each = pods.iter().map(|pod| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let requested = request_of(pod, &name, container, resource)?;
        Ok((name, requested))
    });
    each.collect()
}

fn request_of(pod: &Pod, name: &str, container: Option<&str>, resource: &str) -> Result<i64, String> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    let of_pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    if let (None, Some(requests)) = (container, of_pod.filter(|requests| !requests.is_empty())) {
        let requested = requests.get(resource).map(thousandths);
        return requested.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let counted: Vec<&Container> = spec
        .containers
        .iter()
        .chain(sidecars)
        .filter(|candidate| container.is_none_or(|name| candidate.name == name))
        .collect();
    if let (Some(container), true) = (container, counted.is_empty()) {
        return Err(format!("container {container} not found in Pod {name}"));
    }
    counted.into_iter().try_fold(0i64, |sum, container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let requested = requests.and_then(|requests| requests.get(resource)).map(thousandths);
        let missing = || format!("missing request for {resource} in container {} of Pod {name}", container.name);
        Ok(sum.saturating_add(requested.ok_or_else(missing)?))
    })
}

/// The server has validated it; a quantity that cannot be read is zero.
pub(super) fn thousandths(quantity: &Quantity) -> i64 {
    quantity.0.parse::<machinery::quantity::Quantity>().unwrap_or_default().milli_value()
}
