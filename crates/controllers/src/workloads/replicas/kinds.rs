//! What a ReplicaSet and a ReplicationController have in common.

use client::Object;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};

use super::status::{Failure, Tally, nonzero};
use crate::conditions::{self, Condition};
use crate::workloads::adoption::Selects;
use crate::writer::Namespaced;

/// So many pods of one template.
pub(crate) trait Replicated: Namespaced + Object {
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

/// Said once: while a failure lasts, its first reason stands (RS-9).
fn note_failure<C: Condition>(
    conditions: &mut Option<Vec<C>>,
    failure: Option<&Failure>,
    condition: impl FnOnce(&Failure) -> C,
) {
    match failure {
        None => drop(conditions::remove(conditions, FAILURE)),
        Some(failure) if conditions::find(conditions.as_ref(), FAILURE).is_none() => {
            conditions::set(conditions, condition(failure));
        }
        Some(_) => {}
    }
}

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
        note_failure(&mut conditions, failure, |failure| ReplicaSetCondition {
            type_: FAILURE.into(),
            status: "True".into(),
            reason: Some(failure.reason.into()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(failure.since.clone()),
        });
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
        note_failure(&mut conditions, failure, |failure| ReplicationControllerCondition {
            type_: FAILURE.into(),
            status: "True".into(),
            reason: Some(failure.reason.into()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(failure.since.clone()),
        });
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
