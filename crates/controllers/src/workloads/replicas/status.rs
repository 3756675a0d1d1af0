//! What is reported about the pods of a set.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kinds::Replicated;
use crate::pods;

/// The pods of a set in numbers. They are those of before this run's creations and deletions (RS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(super) replicas: i32,
    pub(super) fully_labeled: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    pub(super) terminating: i32,
}

/// Why pods could not be created or deleted.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) since: Time,
}

impl Tally {
    pub(super) fn of<S: Replicated>(set: &S, active: &[Arc<Pod>], terminating: usize, now: Timestamp) -> Self {
        let template = set.template().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
        let has_all = |pod: &Pod| {
            let has = |name: &String| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
            template.into_iter().flatten().all(|(name, value)| has(name) == Some(value))
        };
        let count = |holds: &dyn Fn(&Pod) -> bool| counted(active.iter().filter(|pod| holds(pod)).count());
        Self {
            replicas: counted(active.len()),
            fully_labeled: count(&has_all),
            ready: count(&pods::is_ready),
            available: count(&|pod| pods::is_available(pod, set.min_ready(), now)),
            terminating: counted(terminating),
        }
    }
}

fn counted(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A number that is left out of the status when it is zero.
pub(super) fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
