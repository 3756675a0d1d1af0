//! What a ReplicaSet and a ReplicationController have in common.

use client::store::Store;
use client::{Key, Object};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    Pod, PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};

use super::status::{Failure, Tally, nonzero, now};
use crate::parts::claim::{Namespaced, Selects};
use crate::parts::conditions;
use crate::parts::owners::controller_of;

/// So many pods of one template.
pub(super) trait Replicated: Namespaced + Object {
    /// The source of its events.
    const COMPONENT: &'static str;

    fn replicas(&self) -> i32;
    fn min_ready(&self) -> i32;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn selects(&self) -> Selects;
    /// The same object with the status that follows from a tally of its pods; none if that is what it has.
    fn with_status(&self, tally: &Tally, failure: Option<&Failure>, observed: Option<i64>) -> Option<Self>;
}

const FAILURE: &str = "ReplicaFailure";

impl Replicated for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn selects(&self) -> Selects {
        Selects::of(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn with_status(&self, tally: &Tally, failure: Option<&Failure>, observed: Option<i64>) -> Option<Self> {
        let old = self.status.clone().unwrap_or_default();
        let mut conditions = old.conditions.clone();
        match failure {
            None => drop(conditions::remove(&mut conditions, FAILURE)),
            // Said once: while it lasts, the first reason stands (RS-9).
            Some(failure) if conditions::find(conditions.as_ref(), FAILURE).is_none() => {
                let condition = ReplicaSetCondition {
                    type_: FAILURE.into(),
                    status: "True".into(),
                    reason: Some(failure.reason.into()),
                    message: Some(failure.message.clone()),
                    last_transition_time: Some(now()),
                };
                conditions::set(&mut conditions, condition);
            }
            Some(_) => {}
        }
        let new = ReplicaSetStatus {
            replicas: tally.replicas,
            fully_labeled_replicas: nonzero(tally.fully_labeled),
            ready_replicas: nonzero(tally.ready),
            available_replicas: nonzero(tally.available),
            terminating_replicas: Some(tally.terminating),
            observed_generation: observed,
            conditions,
        };
        (new != old).then(|| Self { status: Some(new), ..self.clone() })
    }
}

impl Replicated for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn selects(&self) -> Selects {
        Selects::of_labels(self.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
    }

    fn with_status(&self, tally: &Tally, failure: Option<&Failure>, observed: Option<i64>) -> Option<Self> {
        let old = self.status.clone().unwrap_or_default();
        let mut conditions = old.conditions.clone();
        match failure {
            None => drop(conditions::remove(&mut conditions, FAILURE)),
            Some(failure) if conditions::find(conditions.as_ref(), FAILURE).is_none() => {
                let condition = ReplicationControllerCondition {
                    type_: FAILURE.into(),
                    status: "True".into(),
                    reason: Some(failure.reason.into()),
                    message: Some(failure.message.clone()),
                    last_transition_time: Some(now()),
                };
                conditions::set(&mut conditions, condition);
            }
            Some(_) => {}
        }
        let new = ReplicationControllerStatus {
            replicas: tally.replicas,
            fully_labeled_replicas: nonzero(tally.fully_labeled),
            ready_replicas: nonzero(tally.ready),
            available_replicas: nonzero(tally.available),
            observed_generation: observed,
            conditions,
        };
        (new != old).then(|| Self { status: Some(new), ..self.clone() })
    }
}

/// The keys of the sets that would adopt this pod; none if it has a controller.
pub(super) fn selecting<S: Replicated>(sets: &Store<S>, pod: &Pod) -> Vec<Key> {
    if controller_of(&pod.metadata).is_some() {
        return Vec::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let snapshot = sets.snapshot();
    let selecting = snapshot.in_namespace(namespace).filter(|set| set.selects().matches(pod.metadata.labels.as_ref()));
    selecting.map(|set| set.object_key()).collect()
}
