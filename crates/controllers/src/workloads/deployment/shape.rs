//! Reading deployments and replica sets, with the defaults of absent fields.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::arithmetic::Budget;
use super::revisions::{ROLLBACK, annotation};

/// The number for "no limit" in a field that has a default.
const UNLIMITED: i32 = i32::MAX;

pub(super) fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub(super) fn min_ready(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

pub(super) fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false)
}

pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// The deadline for progress, if there is one.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != UNLIMITED)
}

pub(super) fn has_deadline(deployment: &Deployment) -> bool {
    progress_deadline(deployment).is_some()
}

/// Most old replica sets that are kept; none without a limit.
pub(super) fn history_limit(deployment: &Deployment) -> Option<usize> {
    let limit = deployment.spec.as_ref()?.revision_history_limit.filter(|limit| *limit != UNLIMITED)?;
    Some(usize::try_from(limit).unwrap_or(0))
}

/// The revision of a requested rollback; 0 is the previous one.
pub(super) fn rollback_to(deployment: &Deployment) -> Option<i64> {
    annotation(&deployment.metadata, ROLLBACK)?.parse().ok()
}

pub(super) fn budget(deployment: &Deployment) -> Budget {
    let replicas = replicas(deployment);
    if is_recreate(deployment) {
        return Budget::recreate(replicas);
    }
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    Budget::rolling(replicas, surge, rolling.and_then(|rolling| rolling.max_unavailable.as_ref()))
}

/// The number of pods that a replica set should have.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The number of its available pods, by its status.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

/// The number of its pods, by its status.
pub(super) fn actual(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

/// True if its controller has observed its latest generation.
pub(super) fn is_observed(set: &ReplicaSet) -> bool {
    set.metadata.generation <= set.status.as_ref().and_then(|status| status.observed_generation)
}
