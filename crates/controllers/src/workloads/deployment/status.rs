//! What is reported about a deployment: the numbers of its replica sets, whether enough is available, whether it moves.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetStatus};

use super::arithmetic::Budget;
use super::shape::{has_deadline, progress_deadline, size};
use crate::conditions;
use crate::owners::name;

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";

const COMPLETE: &str = "NewReplicaSetAvailable";
const MOVING: &str = "ReplicaSetUpdated";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// A condition that changes now.
pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> DeploymentCondition {
    let now = Some(conditions::whole_second(now));
    DeploymentCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: now.clone(),
        last_transition_time: now,
    }
}

/// The numbers, and whether enough is available (DP-30, DP-31).
pub(super) fn of(
    deployment: &Deployment,
    budget: Budget,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let all = || old.iter().chain(new);
    let sum = |count: &dyn Fn(&ReplicaSetStatus) -> i32| -> i32 {
        all().filter_map(|set| set.status.as_ref()).map(count).sum()
    };
    let available = sum(&|status| status.available_replicas.unwrap_or(0));
    let wanted: i32 = all().map(|set| size(set)).sum();
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: nonzero(sum(&|status| status.replicas)),
        updated_replicas: nonzero(new.and_then(|set| set.status.as_ref()).map_or(0, |status| status.replicas)),
        ready_replicas: nonzero(sum(&|status| status.ready_replicas.unwrap_or(0))),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((wanted - available).max(0)),
        terminating_replicas: terminating(all()),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let enough = if available >= budget.fewest_available() {
        condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
    } else {
        condition(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
            now,
        )
    };
    conditions::set(&mut status.conditions, enough);
    status
}

fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

/// How many pods are on their way out; unknown if a set that was looked at does not say.
fn terminating<'a>(sets: impl Iterator<Item = &'a Arc<ReplicaSet>>) -> Option<i32> {
    let mut sum = 0;
    for status in sets.filter_map(|set| set.status.as_ref()) {
        match status.terminating_replicas {
            Some(count) => sum += count,
            None if status.observed_generation.unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// Whether the rollout is done (DP-24).
pub(super) fn is_complete(deployment: &Deployment, replicas: i32, status: &DeploymentStatus) -> bool {
    let all = Some(replicas);
    let count = |field: Option<i32>| Some(field.unwrap_or(0));
    count(status.updated_replicas) == all
        && count(status.replicas) == all
        && count(status.available_replicas) == all
        && status.observed_generation >= deployment.metadata.generation
}

/// Adds to a status whether the rollout is complete, moves or is stuck, and what keeps pods from being made (DP-32, DP-34).
pub(super) fn judge(
    status: &mut DeploymentStatus,
    deployment: &Deployment,
    replicas: i32,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) {
    let before = deployment.status.clone().unwrap_or_default();
    if has_deadline(deployment) {
        let known = conditions::find(before.conditions.as_ref(), PROGRESSING);
        let settled = status.replicas == status.updated_replicas
            && known.is_some_and(|condition| condition.reason.as_deref() == Some(COMPLETE));
        if !settled {
            progress(status, deployment, &before, replicas, new, now);
        }
    } else {
        conditions::remove(&mut status.conditions, PROGRESSING);
    }
    match new.into_iter().chain(old).find_map(|set| failure(set)) {
        Some(failure) => drop(conditions::set(&mut status.conditions, failure)),
        None => drop(conditions::remove(&mut status.conditions, FAILURE)),
    }
}

fn progress(
    status: &mut DeploymentStatus,
    deployment: &Deployment,
    before: &DeploymentStatus,
    replicas: i32,
    new: Option<&Arc<ReplicaSet>>,
    now: Timestamp,
) {
    let who = match new {
        Some(set) => format!("ReplicaSet {:?}", name(&**set)),
        None => format!("Deployment {:?}", name(deployment)),
    };
    if is_complete(deployment, replicas, status) {
        let message = format!("{who} has successfully progressed.");
        conditions::set(&mut status.conditions, condition(PROGRESSING, "True", COMPLETE, &message, now));
    } else if moved(before, status) {
        let mut moving = condition(PROGRESSING, "True", MOVING, &format!("{who} is progressing."), now);
        // Each step forward renews the time from which the deadline counts, but it is no transition.
        if let Some(known) = conditions::find(before.conditions.as_ref(), PROGRESSING) {
            if known.status == "True" {
                moving.last_transition_time = known.last_transition_time.clone();
            }
            conditions::remove(&mut status.conditions, PROGRESSING);
        }
        conditions::set(&mut status.conditions, moving);
    } else if is_late(deployment, status, now) {
        let message = format!("{who} has timed out progressing.");
        conditions::set(&mut status.conditions, condition(PROGRESSING, "False", TIMED_OUT, &message, now));
    }
}

fn moved(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let count = |field: Option<i32>| field.unwrap_or(0);
    let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(now.updated_replicas) > count(before.updated_replicas)
        || old(now) < old(before)
        || count(now.ready_replicas) > count(before.ready_replicas)
        || count(now.available_replicas) > count(before.available_replicas)
}

fn is_late(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(known) = conditions::find(status.conditions.as_ref(), PROGRESSING) else { return false };
    match known.reason.as_deref() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => deadline(deployment, known).is_some_and(|deadline| deadline < now),
    }
}

fn deadline(deployment: &Deployment, progressing: &DeploymentCondition) -> Option<Timestamp> {
    let seconds = progress_deadline(deployment)?;
    let from = progressing.last_update_time.as_ref()?.0;
    from.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()
}

/// When to look again at a rollout that does not move (DP-33).
pub(super) fn next_look(
    deployment: &Deployment,
    replicas: i32,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let before = deployment.status.as_ref()?;
    let progressing = conditions::find(before.conditions.as_ref(), PROGRESSING)?;
    if is_complete(deployment, replicas, status) || progressing.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let left = deadline(deployment, progressing)?.duration_since(now);
    // One second more: a look that comes a moment early would find nothing.
    Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
}

fn failure(set: &ReplicaSet) -> Option<DeploymentCondition> {
    let failure = conditions::find(set.status.as_ref()?.conditions.as_ref(), FAILURE)?;
    Some(DeploymentCondition {
        type_: FAILURE.into(),
        status: failure.status.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        last_transition_time: failure.last_transition_time.clone(),
        last_update_time: failure.last_transition_time.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    use serde_json::{Value, json};

    fn set(spec: i32, status: Value) -> Arc<ReplicaSet> {
        let value =
            json!({"metadata": {"name": "web-1"}, "spec": {"replicas": spec, "selector": {}}, "status": status});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn deployment(replicas: i32, status: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "generation": 2},
            "spec": {"replicas": replicas, "selector": {}, "template": {}, "progressDeadlineSeconds": 600},
            "status": status,
        }))
        .unwrap()
    }

    fn budget(replicas: i32, unavailable: i32) -> Budget {
        Budget { replicas, surge: 1, unavailable }
    }

    fn progressing(reason: &str, at: i64) -> Value {
        let time = Timestamp::from_second(at).unwrap().to_string();
        json!([{"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": time, "lastTransitionTime": time}])
    }

    #[test]
    fn dp_30_the_numbers_are_sums_over_the_replica_sets() {
        let new = set(
            2,
            json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "terminatingReplicas": 1, "observedGeneration": 1}),
        );
        let old = [set(
            3,
            json!({"replicas": 4, "readyReplicas": 3, "availableReplicas": 2, "terminatingReplicas": 2, "observedGeneration": 1}),
        )];
        let status = of(&deployment(4, json!({"collisionCount": 3})), budget(4, 1), Some(&new), &old, NOW);
        let value = serde_json::to_value(&status).unwrap();
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        assert_eq!(counts.map(|name| value[name].as_i64().unwrap()), [2, 6, 2, 4, 3, 2, 3, 3]);
    }

    #[test]
    fn dp_30_terminating_is_unknown_when_a_set_does_not_say() {
        let silent = set(1, json!({"replicas": 1, "observedGeneration": 1}));
        let fresh = set(1, json!({"replicas": 0}));
        assert_eq!(of(&deployment(1, json!({})), budget(1, 0), Some(&silent), &[]).terminating_replicas, None);
        assert_eq!(of(&deployment(1, json!({})), budget(1, 0), Some(&fresh), &[]).terminating_replicas, Some(0));
    }

    #[test]
    fn dp_31_available_is_as_many_as_the_rollout_must_leave() {
        for (available, expected) in [(2, "False"), (3, "True")] {
            let new = set(4, json!({"replicas": 4, "availableReplicas": available}));
            let status = of(&deployment(4, json!({})), budget(4, 1), Some(&new), &[], NOW);
            assert_eq!(conditions::find(status.conditions.as_ref(), AVAILABLE).unwrap().status, expected);
        }
    }

    #[test]
    fn dp_32_complete_moving_late_or_as_before() {
        let now = Timestamp::from_second(10_000).unwrap();
        let at = |set: Arc<ReplicaSet>, before: Value| {
            let deployment = deployment(3, before);
            let mut status = of(&deployment, budget(3, 0), Some(&set), &[], NOW);
            judge(&mut status, &deployment, 3, Some(&set), &[], now);
            conditions::find(status.conditions.as_ref(), PROGRESSING).cloned()
        };
        let all = || set(3, json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}));
        let some = || set(3, json!({"replicas": 3, "readyReplicas": 1, "availableReplicas": 1}));
        let complete = at(all(), json!({"conditions": progressing("ReplicaSetUpdated", 9_000)})).unwrap();
        assert_eq!(complete.reason.as_deref(), Some(COMPLETE));
        assert_eq!(complete.message.as_deref(), Some(r#"ReplicaSet "web-1" has successfully progressed."#));

        let moving = at(some(), json!({"conditions": progressing("NewReplicaSetCreated", 9_900)})).unwrap();
        assert_eq!(moving.reason.as_deref(), Some(MOVING));
        assert_eq!(moving.last_transition_time.unwrap().0.as_second(), 9_900);
        assert!(moving.last_update_time.unwrap().0.as_second() > 10_000);

        let same = json!({"replicas": 3, "updatedReplicas": 3, "readyReplicas": 1, "availableReplicas": 1});
        let with = |reason: &str, at: i64| {
            let mut status = same.clone();
            status["conditions"] = progressing(reason, at);
            status
        };
        assert_eq!(at(some(), with(MOVING, 9_401)).unwrap().reason.as_deref(), Some(MOVING), "599 s of 600");
        let late = at(some(), with(MOVING, 9_399)).unwrap();
        assert_eq!((late.status.as_str(), late.reason.as_deref()), ("False", Some(TIMED_OUT)));
        assert_eq!(
            at(some(), with(COMPLETE, 1)).unwrap().reason.as_deref(),
            Some(COMPLETE),
            "a finished rollout is not late"
        );
        assert_eq!(at(some(), same), None, "without a beginning there is no deadline");
    }

    #[test]
    fn dp_33_a_stuck_rollout_is_looked_at_a_second_after_its_deadline() {
        let now = Timestamp::from_second(9_500).unwrap();
        let stuck = deployment(3, json!({"conditions": progressing(MOVING, 9_000)}));
        let status = DeploymentStatus::default();
        assert_eq!(next_look(&stuck, 3, &status, now), Some(Duration::from_secs(101)));
        let late = deployment(3, json!({"conditions": progressing(TIMED_OUT, 9_000)}));
        assert_eq!(next_look(&late, 3, &status, now), None);
    }

    #[test]
    fn dp_34_what_keeps_pods_from_being_made_is_copied_and_removed() {
        let now = NOW;
        let broken = set(
            3,
            json!({"replicas": 0, "conditions": [{"type": FAILURE, "status": "True", "reason": "FailedCreate", "message": "quota"}]}),
        );
        let fine = set(3, json!({"replicas": 0}));
        let before = deployment(3, json!({}));
        let mut status = of(&before, budget(3, 0), Some(&fine), std::slice::from_ref(&broken), NOW);
        judge(&mut status, &before, 3, Some(&fine), &[broken], now);
        assert_eq!(conditions::find(status.conditions.as_ref(), FAILURE).unwrap().message.as_deref(), Some("quota"));
        judge(&mut status, &before, 3, Some(&fine), &[], now);
        assert!(conditions::find(status.conditions.as_ref(), FAILURE).is_none());
    }
}
