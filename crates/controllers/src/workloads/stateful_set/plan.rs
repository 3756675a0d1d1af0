//! What a stateful set does next, decided from the pods that are there. Nothing here writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::identity::{ordinal, ordinals, revision};
use crate::owners::uid;
use crate::pods;

pub(super) fn min_ready(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// Whether pods come and go one at a time (SS-2).
pub(super) fn is_ordered(set: &StatefulSet) -> bool {
    let policy = set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref());
    policy != Some("Parallel")
}

fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The lowest position that is updated; none if pods are updated only when somebody deletes them.
fn partition(set: &StatefulSet) -> Option<i64> {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return None;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    Some(i64::from(rolling.and_then(|rolling| rolling.partition).unwrap_or(0)))
}

/// Whether a new pod of this ordinal is made of the current revision instead of the one that is rolled out (SS-6).
pub(super) fn keeps_current(set: &StatefulSet, ordinal: i64) -> bool {
    let position = ordinal - ordinals(set).start;
    partition(set).is_some_and(|partition| position < partition)
}

/// One place of a set.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) ordinal: i64,
    pub(super) pod: Option<Arc<Pod>>,
}

/// The pods of a set by what is meant to happen to them.
pub(super) struct Places {
    /// Those that should be, ascending.
    pub(super) wanted: Vec<Place>,
    /// Those that should not, descending.
    pub(super) condemned: Vec<Place>,
    /// The first of all that is not available: the one that others may be waiting for.
    first_unavailable: Option<String>,
}

impl Places {
    pub(super) fn of(set: &StatefulSet, members: &[Arc<Pod>], now: Timestamp) -> Self {
        let mut known: BTreeMap<i64, Arc<Pod>> =
            members.iter().filter_map(|pod| Some((ordinal(set, pod)?, pod.clone()))).collect();
        let place = |ordinal| Place { ordinal, pod: known.remove(&ordinal) };
        let wanted: Vec<Place> = ordinals(set).map(place).collect();
        let condemned: Vec<Place> =
            known.into_iter().rev().map(|(ordinal, pod)| Place { ordinal, pod: Some(pod) }).collect();
        let mut all = wanted.iter().chain(condemned.iter().rev());
        let first = all.find(|place| place.pod.as_deref().is_none_or(|pod| is_unavailable(set, pod, now)));
        let first_unavailable = first.and_then(|place| place.pod.as_deref()).map(|pod| uid(pod).to_owned());
        Self { wanted, condemned, first_unavailable }
    }
}

fn is_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

fn is_unavailable(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    pod.metadata.deletion_timestamp.is_some() || !pods::is_available(pod, min_ready(set), now)
}

/// What to do with one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is no pod: make one, and its claims.
    Create,
    /// It has ended: delete it; it is made again once it is gone (SS-3).
    Replace,
    /// It should not be there.
    Remove,
    /// See to its claims and its identity.
    Maintain,
    /// Nothing, and nothing for those after it either.
    Wait,
    /// Nothing.
    Pass,
}

/// What to do with a place that should have a pod, and whether the next one has to wait.
pub(super) fn step_wanted(set: &StatefulSet, place: &Place, now: Timestamp) -> (Step, bool) {
    let ordered = is_ordered(set);
    let Some(pod) = &place.pod else { return (Step::Create, ordered) };
    if pods::is_terminal(pod) {
        let step = if pod.metadata.deletion_timestamp.is_none() { Step::Replace } else { Step::Wait };
        return (step, true);
    }
    let settled = is_ready(pod) && !is_unavailable(set, pod, now);
    (Step::Maintain, ordered && !settled)
}

/// What to do with a pod that should not be, and whether the next one has to wait.
pub(super) fn step_condemned(set: &StatefulSet, places: &Places, place: &Place, now: Timestamp) -> (Step, bool) {
    let ordered = is_ordered(set);
    let Some(pod) = &place.pod else { return (Step::Pass, false) };
    if pod.metadata.deletion_timestamp.is_some() {
        return (Step::Pass, ordered);
    }
    let healthy = is_ready(pod) && pods::is_available(pod, min_ready(set), now);
    let blocks = places.first_unavailable.as_deref() == Some(uid(&**pod));
    if ordered && !healthy && !blocks {
        return (Step::Wait, true);
    }
    (Step::Remove, ordered)
}

/// The pod to replace next so that the update goes on, from the highest ordinal down (SS-5).
///
/// A pod that is available waits until those that may be updated are all available, also the ones below it: an update that
/// begins while another is on its way finds one of them missing. An old pod that is not available serves nobody and goes first.
pub(super) fn next_to_update(set: &StatefulSet, wanted: &[Place], update: &str, now: Timestamp) -> Option<Arc<Pod>> {
    let lowest = usize::try_from(partition(set)?).unwrap_or(usize::MAX);
    let mut next = None;
    for place in wanted.iter().skip(lowest).rev() {
        let pod = place.pod.as_ref()?;
        let old = revision(pod) != update && pod.metadata.deletion_timestamp.is_none();
        match (old, is_unavailable(set, pod, now)) {
            (true, true) => return Some(pod.clone()),
            (true, false) => next = next.or(Some(pod)),
            (false, true) => return None,
            (false, false) => {}
        }
    }
    next.cloned()
}

/// The status that follows from the pods.
pub(super) fn status(
    set: &StatefulSet,
    members: &[Arc<Pod>],
    current: &str,
    update: &str,
    collisions: i32,
    now: Timestamp,
) -> StatefulSetStatus {
    let count = |holds: &dyn Fn(&Pod) -> bool| {
        i32::try_from(members.iter().filter(|pod| holds(pod)).count()).unwrap_or(i32::MAX)
    };
    let of = |wanted: &str| count(&|pod| pod.metadata.deletion_timestamp.is_none() && revision(pod) == wanted);
    let ready = count(&is_ready);
    let available = count(&|pod| is_ready(pod) && pods::is_available(pod, min_ready(set), now));
    let before = set.status.clone().unwrap_or_default();
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: nonzero(ready),
        available_replicas: Some(available),
        current_replicas: nonzero(of(current)),
        updated_replicas: nonzero(of(update)),
        current_revision: Some(current.to_owned()),
        update_revision: Some(update.to_owned()),
        collision_count: Some(collisions),
        conditions: before.conditions,
    }
}

/// An update is complete when every pod has it and is ready: what was the update is then the current revision (SS-4).
pub(super) fn complete(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let all = replicas(set);
    let everywhere = status.updated_replicas.unwrap_or(0) == all
        && status.ready_replicas.unwrap_or(0) == all
        && status.replicas == all;
    if partition(set).is_some() && everywhere {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
}

pub(super) fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(replicas: i32, extra: Value) -> StatefulSet {
        let mut value = json!({
            "metadata": {"name": "db"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        });
        for (name, field) in extra.as_object().unwrap() {
            value["spec"][name] = field.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn pod(ordinal: i64, state: &str, revision: &str) -> Arc<Pod> {
        let mut value = json!({
            "metadata": {"name": format!("db-{ordinal}"), "uid": format!("u{ordinal}"), "labels": {"controller-revision-hash": revision}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        match state {
            "ready" => {}
            "pending" => value["status"] = json!({"phase": "Pending"}),
            "failed" => value["status"] = json!({"phase": "Failed"}),
            "leaving" => value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            other => panic!("{other}"),
        }
        Arc::new(serde_json::from_value(value).unwrap())
    }

    /// The steps of one run, as far as it gets.
    fn steps(set: &StatefulSet, pods: &[Arc<Pod>]) -> Vec<(i64, Step)> {
        let now = Timestamp::now();
        let places = Places::of(set, pods, now);
        let mut steps = Vec::new();
        for place in &places.wanted {
            let (step, stop) = step_wanted(set, place, now);
            steps.push((place.ordinal, step));
            if stop && (is_ordered(set)) {
                return steps;
            }
        }
        for place in &places.condemned {
            let (step, stop) = step_condemned(set, &places, place, now);
            steps.push((place.ordinal, step));
            if stop {
                return steps;
            }
        }
        steps
    }

    #[test]
    fn ss_2_ordered_pods_come_one_at_a_time_and_go_the_other_way() {
        use Step::*;
        let three = set(3, json!({}));
        let r = |ordinal| pod(ordinal, "ready", "a");
        assert_eq!(steps(&three, &[]), [(0, Create)]);
        assert_eq!(steps(&three, &[pod(0, "pending", "a")]), [(0, Maintain)]);
        assert_eq!(steps(&three, &[r(0)]), [(0, Maintain), (1, Create)]);
        assert_eq!(steps(&three, &[r(0), pod(1, "leaving", "a")]), [(0, Maintain), (1, Maintain)]);
        assert_eq!(steps(&three, &[r(0), r(2)]), [(0, Maintain), (1, Create)]);
        let one = set(1, json!({}));
        assert_eq!(steps(&one, &[r(0), r(1), r(2)]), [(0, Maintain), (2, Remove)]);
        assert_eq!(steps(&one, &[r(0), r(1), pod(2, "leaving", "a")]), [(0, Maintain), (2, Pass)]);
        // The one that is not healthy may go if it is the first that is not; otherwise it waits for the other.
        assert_eq!(steps(&one, &[r(0), r(1), pod(2, "pending", "a")]), [(0, Maintain), (2, Remove)]);
        assert_eq!(steps(&one, &[r(0), pod(1, "pending", "a"), pod(2, "pending", "a")]), [(0, Maintain), (2, Wait)]);
    }

    #[test]
    fn ss_2_parallel_pods_do_not_wait() {
        use Step::*;
        let parallel = set(3, json!({"podManagementPolicy": "Parallel"}));
        assert_eq!(steps(&parallel, &[]), [(0, Create), (1, Create), (2, Create)]);
        let one = set(1, json!({"podManagementPolicy": "Parallel"}));
        let pods = [pod(0, "pending", "a"), pod(1, "pending", "a"), pod(2, "ready", "a")];
        assert_eq!(steps(&one, &pods), [(0, Maintain), (2, Remove), (1, Remove)]);
    }

    #[test]
    fn ss_3_a_pod_that_ended_is_replaced() {
        assert_eq!(steps(&set(2, json!({})), &[pod(0, "failed", "a")]), [(0, Step::Replace)]);
    }

    #[test]
    fn ss_5_updates_go_down_from_the_highest_ordinal() {
        let now = Timestamp::now();
        let next = |set: &StatefulSet, pods: &[Arc<Pod>]| {
            next_to_update(set, &Places::of(set, pods, now).wanted, "b", now)
                .map(|pod| pod.metadata.name.clone().unwrap())
        };
        let three = set(3, json!({}));
        let p = |ordinal, revision| pod(ordinal, "ready", revision);
        assert_eq!(next(&three, &[p(0, "a"), p(1, "a"), p(2, "a")]).as_deref(), Some("db-2"));
        assert_eq!(next(&three, &[p(0, "a"), p(1, "a"), pod(2, "leaving", "a")]), None);
        assert_eq!(next(&three, &[p(0, "a"), p(1, "a"), pod(2, "pending", "b")]), None);
        assert_eq!(next(&three, &[p(0, "a"), p(1, "a"), p(2, "b")]).as_deref(), Some("db-1"));
        // Another update was on its way.
        assert_eq!(next(&three, &[p(0, "a"), p(2, "a")]), None);
        assert_eq!(next(&three, &[p(0, "a"), pod(1, "leaving", "a"), p(2, "a")]), None);
        assert_eq!(next(&three, &[p(0, "a"), pod(1, "pending", "b"), p(2, "a")]), None);
        assert_eq!(next(&three, &[p(0, "a"), pod(1, "pending", "a"), p(2, "a")]).as_deref(), Some("db-1"));
        assert_eq!(next(&three, &[p(0, "a"), pod(1, "pending", "a"), pod(2, "pending", "b")]), None);
        let partitioned =
            set(3, json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}));
        assert_eq!(next(&partitioned, &[p(0, "a"), p(1, "a"), p(2, "b")]), None);
        let by_hand = set(3, json!({"updateStrategy": {"type": "OnDelete"}}));
        assert_eq!(next(&by_hand, &[p(0, "a"), p(1, "a"), p(2, "a")]), None);
    }

    #[test]
    fn ss_6_pods_below_the_partition_are_made_of_the_current_revision() {
        let set = set(3, json!({"ordinals": {"start": 5}, "updateStrategy": {"rollingUpdate": {"partition": 2}}}));
        assert_eq!([5, 6, 7].map(|ordinal| keeps_current(&set, ordinal)), [true, true, false]);
    }

    #[test]
    fn ss_4_a_complete_update_is_the_current_revision() {
        let two = set(2, json!({}));
        let now = Timestamp::now();
        let mut done = status(&two, &[pod(0, "ready", "b"), pod(1, "ready", "b")], "a", "b", 0, now);
        complete(&two, &mut done);
        assert_eq!((done.current_revision.as_deref(), done.current_replicas), (Some("b"), Some(2)));
        let mut half = status(&two, &[pod(0, "ready", "a"), pod(1, "ready", "b")], "a", "b", 0, now);
        complete(&two, &mut half);
        assert_eq!(
            (half.current_revision.as_deref(), half.current_replicas, half.updated_replicas),
            (Some("a"), Some(1), Some(1))
        );
        assert_eq!((half.replicas, half.ready_replicas, half.available_replicas), (2, Some(2), Some(2)));
    }
}
