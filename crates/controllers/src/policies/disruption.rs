//! The number of pods of a disruption budget that may be evicted now.
//!
//! Evictions take from `status.disruptionsAllowed`; here it is counted anew whenever a pod of the budget changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::EventType;
use client::informer::Event;
use client::store::Store;
use client::{Error, Key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::DynamicObject;
use kube::{Resource as _, ResourceExt as _};

use crate::context::{Context, Tools};
use crate::discovery::Resources;
use crate::owners::{controller_of, is_of_kind, namespace};
use crate::pods::{is_ready, is_terminal, is_terminating};
use crate::reconciling::{self, server_message};
use crate::selectors::Selects;

/// An evicted pod without a deletion timestamp after this time was not evicted.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);
/// Delay that gathers changes of pods.
const BATCH: Duration = Duration::from_millis(20);

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let budgets = context.informers.informer::<PodDisruptionBudget>();
    let pods = context.informers.informer::<Pod>();
    let deployments = context.informers.informer::<Deployment>();
    let replica_sets = context.informers.informer::<ReplicaSet>();
    let stateful_sets = context.informers.informer::<StatefulSet>();
    let controllers = context.informers.informer::<ReplicationController>();
    let tools = context.tools("controllermanager").follow(&budgets);
    let controller = context.controller("disruption").read_your_writes(tools.writes.clone());
    let queue = controller.queue();
    let known = budgets.store();
    let wakes = Predicate::new(move |event: &Event<Pod>| {
        let states: Vec<&Arc<Pod>> = match event {
            Event::Updated { old, new } if counted(old) == counted(new) => return false,
            Event::Updated { old, new } => vec![old, new],
            Event::Added { object, .. } | Event::Deleted { object, .. } => vec![object],
            _ => return false,
        };
        for budget in known.snapshot().in_namespace(namespace(&**states[0])) {
            if states.iter().any(|pod| covers(budget, pod)) {
                queue.add_after(Key::of(&**budget), BATCH);
            }
        }
        false
    });
    // The sizes of workloads count too, but no event of theirs: their pods change with them.
    let none = || Predicate::new(|_: &Event<_>| false);
    let controller = controller
        .on(&budgets, Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
        .on(&pods, wakes)
        .on(&deployments, none())
        .on(&replica_sets, Predicate::new(|_: &Event<ReplicaSet>| false))
        .on(&stateful_sets, Predicate::new(|_: &Event<StatefulSet>| false))
        .on(&controllers, Predicate::new(|_: &Event<ReplicationController>| false));
    let reconciler = Arc::new(Reconciler {
        tools: tools.clone(),
        budgets: budgets.store(),
        pods: pods.store(),
        sizes: Sizes {
            deployments: deployments.store(),
            replica_sets: replica_sets.store(),
            stateful_sets: stateful_sets.store(),
            controllers: controllers.store(),
        },
    });
    let reconcile = move |run: Run| {
        let reconciler = reconciler.clone();
        async move { reconciler.reconcile(&run.key).await }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

/// The fields of a pod that the count depends on.
#[derive(PartialEq)]
struct Counted<'a> {
    ready: bool,
    terminating: bool,
    terminal: bool,
    labels: Option<&'a BTreeMap<String, String>>,
    controller: Option<&'a OwnerReference>,
}

fn counted(pod: &Pod) -> Counted<'_> {
    Counted {
        ready: is_ready(pod),
        terminating: is_terminating(pod),
        terminal: is_terminal(pod),
        labels: pod.metadata.labels.as_ref(),
        controller: controller_of(&pod.metadata),
    }
}

/// True if a budget selects a pod. Without a selector it selects none, with an empty selector all.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    Selects::new(selector).matches(pod.metadata.labels.as_ref())
}

struct Reconciler {
    tools: Tools,
    budgets: Store<PodDisruptionBudget>,
    pods: Store<Pod>,
    sizes: Sizes,
}

impl Reconciler {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(budget) = self.budgets.get(key) else {
            self.tools.writes.forget(key);
            return Ok(Action::done());
        };
        let snapshot = self.pods.snapshot();
        let all = snapshot.in_namespace(namespace(&*budget));
        let pods: Vec<Arc<Pod>> = all.filter(|pod| covers(&budget, pod)).cloned().collect();
        let event =
            |kind, reason, message: &str| self.tools.recorder.record(&budget.object_ref(&()), kind, reason, message);
        if pods.is_empty() {
            event(EventType::Normal, "NoPods", "No matching pods found");
        }
        let now = self.tools.clock.now();
        let expected = self.expected(&budget, &pods).await;
        let (status, recheck) = match &expected {
            Ok(expected) => status(&budget, &pods, *expected, now),
            Err(why) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                event(EventType::Warning, "CalculateExpectedPodCountFailed", &message);
                (failed(&budget, why, now), None)
            }
        };
        if budget.status.as_ref() != Some(&status) {
            let written = PodDisruptionBudget { status: Some(status), ..(*budget).clone() };
            let writer = self.tools.writer(&*budget);
            match writer.replace_status(written).await {
                Err(error) if error.is_not_found() => {}
                other => {
                    other?;
                }
            }
        }
        match expected {
            Err(why) => Err(RunError::retry(why)),
            Ok(_) => Ok(recheck.map_or_else(Action::done, Action::after)),
        }
    }

    /// The expected number of pods, and the number of them that must be healthy.
    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Expected, String> {
        let spec = budget.spec.clone().unwrap_or_default();
        let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        match (spec.max_unavailable, spec.min_available) {
            (Some(unavailable), _) => {
                let count = self.scale(budget, pods).await?;
                let unavailable = scaled(&unavailable, count)?;
                Ok(Expected { pods: count, healthy: (count - unavailable).max(0) })
            }
            (None, Some(IntOrString::Int(healthy))) => Ok(Expected { pods: count, healthy }),
            (None, Some(percent)) => {
                let count = self.scale(budget, pods).await?;
                Ok(Expected { pods: count, healthy: scaled(&percent, count)? })
            }
            (None, None) => Ok(Expected { pods: 0, healthy: 0 }),
        }
    }

    /// The sizes that the controllers of these pods should have, together.
    async fn scale(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let mut by_controller: HashMap<String, i32> = HashMap::new();
        let mut unmanaged = false;
        for pod in pods {
            let Some(owner) = controller_of(&pod.metadata) else {
                unmanaged = true;
                continue;
            };
            let (uid, size) = match self.sizes.of(owner, namespace(&**pod)) {
                Some(known) => known,
                None if by_controller.contains_key(&owner.uid) => continue,
                None => match self.live_scale(owner, namespace(&**pod)).await? {
                    Some(size) => (owner.uid.clone(), size),
                    None => return Err(format!("found no controllers for pod {:?}", pod.name_any())),
                },
            };
            by_controller.insert(uid, size);
        }
        if unmanaged {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
            let selector = serde_json::to_string(&selector).unwrap_or_default();
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, \
                 the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
                 for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            self.tools.recorder.record(&budget.object_ref(&()), EventType::Warning, "UnmanagedPods", &message);
        }
        Ok(by_controller.values().fold(0, |sum: i32, size| sum.saturating_add(*size)))
    }

    /// The size of a controller of any other kind, through its scale.
    async fn live_scale(&self, owner: &OwnerReference, namespace: &str) -> Result<Option<i32>, String> {
        let resources = Resources::read(&self.tools.client).await.map_err(|error| server_message(&error))?;
        let Some(served) = resources.of_kind(&owner.api_version, &owner.kind) else { return Ok(None) };
        let scale: Result<DynamicObject, Error> =
            served.api(&self.tools.client, namespace).get_subresource("scale", &owner.name).await.map_err(Error::from);
        match scale {
            Ok(scale) => {
                let replicas = scale.data["spec"]["replicas"].as_i64().unwrap_or_default();
                Ok(Some(i32::try_from(replicas).unwrap_or(i32::MAX)))
            }
            Err(error) if error.is_not_found() => {
                let resource = match served.resource.group.as_str() {
                    "" => served.resource.plural.clone(),
                    group => format!("{}.{group}", served.resource.plural),
                };
                Err(format!("{resource} does not implement the scale subresource"))
            }
            Err(error) => Err(server_message(&error)),
        }
    }
}

/// The workloads whose sizes are in stores.
struct Sizes {
    deployments: Store<Deployment>,
    replica_sets: Store<ReplicaSet>,
    stateful_sets: Store<StatefulSet>,
    controllers: Store<ReplicationController>,
}

impl Sizes {
    /// The UID and the size of a controller; of the Deployment, if it is one of its ReplicaSets.
    fn of(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i32)> {
        let key = Key::new(Some(namespace), &owner.name);
        let same = |uid: Option<&String>| uid == Some(&owner.uid);
        if is_of_kind::<ReplicaSet>(owner) {
            let set = self.replica_sets.get(&key).filter(|set| same(set.metadata.uid.as_ref()))?;
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            let deployment = controller_of(&set.metadata).filter(|owner| is_of_kind::<Deployment>(owner));
            let Some(above) = deployment else { return Some((owner.uid.clone(), replicas)) };
            let deployment = self.deployments.get(&Key::new(Some(namespace), &above.name));
            let deployment = deployment.filter(|one| one.metadata.uid.as_ref() == Some(&above.uid))?;
            return Some((above.uid.clone(), deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)));
        }
        if is_of_kind::<StatefulSet>(owner) {
            let set = self.stateful_sets.get(&key).filter(|set| same(set.metadata.uid.as_ref()))?;
            return Some((owner.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)));
        }
        if is_of_kind::<ReplicationController>(owner) {
            let one = self.controllers.get(&key).filter(|one| same(one.metadata.uid.as_ref()))?;
            return Some((owner.uid.clone(), one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)));
        }
        None
    }
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    pods: i32,
    healthy: i32,
}

/// A number, or a percentage of `total`, rounded up.
fn scaled(value: &IntOrString, of: i32) -> Result<i32, String> {
    match value {
        IntOrString::Int(number) => Ok(*number),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse::<i64>().ok());
            let percent = percent.ok_or_else(|| format!("invalid value for IntOrString: invalid type: {text:?}"))?;
            Ok(i32::try_from((percent * i64::from(of) + 99).div_euclid(100)).unwrap_or(i32::MAX))
        }
    }
}

/// The status that follows from the pods, and when to look again.
fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: Expected,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let before = budget.status.clone().unwrap_or_default();
    let evicted = before.disrupted_pods.clone().unwrap_or_default();
    let mut disrupted: BTreeMap<String, Time> = BTreeMap::new();
    let mut recheck: Option<Duration> = None;
    for pod in pods.iter().filter(|pod| !is_terminating(pod)) {
        let Some(since) = evicted.get(&pod.name_any()) else { continue };
        let until = since.0.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX);
        if until >= now {
            let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            recheck = Some(recheck.map_or(wait, |known| known.min(wait)));
            disrupted.insert(pod.name_any(), since.clone());
        }
    }
    let healthy = pods
        .iter()
        .filter(|pod| !is_terminating(pod) && !disrupted.contains_key(&pod.name_any()) && is_ready(pod))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let allowed = if expected.pods <= 0 { 0 } else { (healthy - expected.healthy).max(0) };
    let generation = budget.metadata.generation;
    let (flag, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(expected.healthy),
        expected_pods: Some(expected.pods),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: generation,
        conditions: Some(with_condition(before.conditions, flag, reason, "", generation, now)),
    };
    (status, recheck)
}

/// Nothing may be evicted while it cannot be counted.
fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let before = budget.status.clone().unwrap_or_default();
    let observed = before.observed_generation;
    let conditions = with_condition(before.conditions, "False", "SyncFailed", why, observed, now);
    PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        conditions: Some(conditions),
        ..budget.status.clone().unwrap_or_default()
    }
}

fn with_condition(
    conditions: Option<Vec<Condition>>,
    status: &str,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    const TYPE: &str = "DisruptionAllowed";
    let mut conditions = conditions.unwrap_or_default();
    let mut wanted = Condition {
        type_: TYPE.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation,
        last_transition_time: Time(now),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == TYPE) {
        Some(known) => {
            if known.status == wanted.status {
                wanted.last_transition_time = known.last_transition_time.clone();
            }
            *known = wanted;
        }
        None => conditions.push(wanted),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, ready: bool) -> Arc<Pod> {
        let status = if ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn shares_are_rounded_up() {
        let percent = |text: &str, of: i32| scaled(&IntOrString::String(text.into()), of);
        assert_eq!((percent("50%", 3), percent("0%", 3), percent("100%", 3)), (Ok(2), Ok(0), Ok(3)));
        assert!(percent("half", 3).is_err());
    }

    #[test]
    fn what_is_allowed_is_what_is_healthy_beyond_what_must_be() {
        let budget = |evicted: serde_json::Value| -> PodDisruptionBudget {
            let budget = json!({"metadata": {"name": "b", "generation": 3}, "status": {
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0, "disruptedPods": evicted,
            }});
            serde_json::from_value(budget).unwrap()
        };
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let pods = [pod("a", true), pod("b", true), pod("c", false)];
        let (counted, recheck) = status(&budget(json!({})), &pods, Expected { pods: 3, healthy: 1 }, now);
        assert_eq!((counted.current_healthy, counted.disruptions_allowed), (Some(2), Some(1)));
        assert_eq!((counted.observed_generation, recheck), (Some(3), None));
        assert_eq!(counted.conditions.unwrap()[0].reason, "SufficientPods");
        // One was just evicted; one was evicted too long ago and counts again.
        let evicted = json!({"a": "2026-01-01T00:09:00Z", "b": "2026-01-01T00:00:00Z"});
        let (counted, recheck) = status(&budget(evicted), &pods, Expected { pods: 3, healthy: 1 }, now);
        assert_eq!((counted.current_healthy, counted.disruptions_allowed), (Some(1), Some(0)));
        assert_eq!(counted.disrupted_pods.unwrap().into_keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(recheck, Some(Duration::from_secs(60)));
        let (nothing, _) = status(&budget(json!({})), &[], Expected { pods: 0, healthy: 0 }, now);
        assert_eq!(nothing.disruptions_allowed, Some(0));
    }
}
