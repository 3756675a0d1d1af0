//! The list of conditions in a status: find, set and remove, whatever the kind.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSetCondition, DeploymentCondition, ReplicaSetCondition, StatefulSetCondition};
use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::api::core::v1::{NamespaceCondition, NodeCondition, PodCondition, ReplicationControllerCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};

/// What all kinds of conditions have.
pub(crate) trait Condition {
    fn kind(&self) -> &str;
    fn status(&self) -> &str;
    fn reason(&self) -> &str;
    fn transition(&self) -> Option<Time>;
    fn set_transition(&mut self, at: Option<Time>);
}

macro_rules! conditions {
    ($($kind:ty),+ $(,)?) => {$(
        impl Condition for $kind {
            fn kind(&self) -> &str {
                &self.type_
            }
            fn status(&self) -> &str {
                &self.status
            }
            fn reason(&self) -> &str {
                self.reason.as_deref().unwrap_or_default()
            }
            fn transition(&self) -> Option<Time> {
                self.last_transition_time.clone()
            }
            fn set_transition(&mut self, at: Option<Time>) {
                self.last_transition_time = at;
            }
        }
    )+};
}

conditions!(
    DaemonSetCondition,
    DeploymentCondition,
    JobCondition,
    NamespaceCondition,
    NodeCondition,
    PodCondition,
    ReplicaSetCondition,
    ReplicationControllerCondition,
    StatefulSetCondition,
);

impl Condition for MetaCondition {
    fn kind(&self) -> &str {
        &self.type_
    }
    fn status(&self) -> &str {
        &self.status
    }
    fn reason(&self) -> &str {
        &self.reason
    }
    fn transition(&self) -> Option<Time> {
        Some(self.last_transition_time.clone())
    }
    fn set_transition(&mut self, at: Option<Time>) {
        if let Some(at) = at {
            self.last_transition_time = at;
        }
    }
}

/// A time as the wire carries it in conditions: to the second.
pub(crate) fn whole_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The condition of this type.
pub(crate) fn find<'a, C: Condition>(conditions: Option<&'a Vec<C>>, kind: &str) -> Option<&'a C> {
    conditions?.iter().find(|condition| condition.kind() == kind)
}

/// Whether there is a condition of this type with status `True`.
pub(crate) fn is_true<C: Condition>(conditions: Option<&Vec<C>>, kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status() == "True")
}

/// Sets a condition; false if one with the same status and reason is there already, which then stays as it is. While the
/// status stays, so does the time of the last transition. What is replaced moves to the end (DP-35).
pub(crate) fn set<C: Condition>(conditions: &mut Option<Vec<C>>, mut new: C) -> bool {
    let list = conditions.get_or_insert_default();
    if let Some(at) = list.iter().position(|old| old.kind() == new.kind()) {
        if list[at].status() == new.status() && list[at].reason() == new.reason() {
            return false;
        }
        let old = list.remove(at);
        if old.status() == new.status() {
            new.set_transition(old.transition());
        }
    }
    list.push(new);
    true
}

/// Removes the condition of this type; true if it was there. An empty list becomes none, as it is on the wire.
pub(crate) fn remove<C: Condition>(conditions: &mut Option<Vec<C>>, kind: &str) -> bool {
    let Some(list) = conditions else { return false };
    let before = list.len();
    list.retain(|condition| condition.kind() != kind);
    let removed = list.len() != before;
    if list.is_empty() {
        *conditions = None;
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn at(second: i64) -> Option<Time> {
        Timestamp::from_second(second).ok().map(Time)
    }

    fn condition(kind: &str, status: &str, reason: &str, second: i64) -> DeploymentCondition {
        DeploymentCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            last_transition_time: at(second),
            last_update_time: at(second),
            message: None,
        }
    }

    #[test]
    fn dp_35_an_equal_condition_is_left_alone() {
        let mut list = Some(vec![condition("A", "True", "r", 1)]);
        assert!(!set(&mut list, condition("A", "True", "r", 9)));
        assert_eq!(list.as_ref().unwrap()[0].last_update_time, at(1));
    }

    #[test]
    fn dp_35_an_equal_status_keeps_its_transition_and_the_condition_moves_to_the_end() {
        let mut list = Some(vec![condition("A", "True", "r", 1), condition("B", "True", "r", 1)]);
        assert!(set(&mut list, condition("A", "True", "other", 9)));
        let list = list.unwrap();
        assert_eq!(list.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["B", "A"]);
        assert_eq!((list[1].last_transition_time.clone(), list[1].last_update_time.clone()), (at(1), at(9)));
        let mut list = Some(list);
        assert!(set(&mut list, condition("A", "False", "other", 12)));
        assert_eq!(find(list.as_ref(), "A").unwrap().last_transition_time, at(12));
    }

    #[test]
    fn the_last_condition_removed_leaves_no_list() {
        let mut list = Some(vec![condition("A", "True", "r", 1)]);
        assert!(is_true(list.as_ref(), "A"));
        assert!(!remove(&mut list, "B"));
        assert!(remove(&mut list, "A"));
        assert_eq!(list, None);
    }
}
