//! The next step of a pod on its node, and its time: a pure function of the pod.
//!
//! ```text
//!   bound ─accept─► ContainerCreating ─init…─► ─run─► Running ─exit─► Succeeded, Failed, or ─restart─► Running
//!   deleted ─stop─► containers ended ─remove─► gone
//! ```

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

use super::behaviour::{Behaviour, controller_kind};
use super::stages::{Profile, Stages};
use super::status;

/// One write of a node about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The node takes notice.
    Accept,
    /// An init container does its work.
    Init(usize),
    /// An image cannot be pulled: first `ErrImagePull`, then `ImagePullBackOff`.
    FailPull,
    BackOffPull,
    /// The containers run.
    Run,
    /// The conditions of the pod do not agree with its containers.
    Refresh,
    /// The containers end by themselves.
    Exit(i32),
    /// Containers that ended wait for their next start.
    BackOff,
    Restart,
    /// The containers are ended.
    Stop(i32),
    /// The pod is removed.
    Remove,
}

/// A step, and the wait before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) step: Step,
    pub(super) after: Duration,
}

/// The exit code of a container that is killed because it does not end in time.
const KILLED: i32 = 137;
/// So long after a removal by force a pod that is still there is held by a finalizer.
const HELD: Duration = Duration::from_millis(200);
/// So long after a removal by force a pod that nothing holds is still there because its removal was interrupted.
const INTERRUPTED: Duration = Duration::from_secs(2);

/// The next step for a pod on a node that is served; none if there is nothing to do. `ran` is when its containers were last
/// started, if this process knows that better than the status, which counts in seconds.
pub(super) fn next(
    pod: &Pod,
    behaviour: &Behaviour,
    stages: &Stages,
    ran: Option<Timestamp>,
    now: Timestamp,
) -> Option<Plan> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let key = client::Key::of(pod);
    let restarts = restarts(status);
    let draw = |delay: super::stages::Delay, step: &str| {
        delay
            .at(stages
                .fraction(key.as_str(), &if restarts == 0 { step.to_owned() } else { format!("{step}{restarts}") }))
    };
    let plan = |step, after| Some(Plan { step, after });
    let phase = status.phase.as_deref().unwrap_or_default();
    let ended = matches!(phase, "Succeeded" | "Failed");
    let fast = stages.profile == Profile::Fast;
    let started = status.start_time.is_some();

    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        if behaviour.never_stops {
            return None;
        }
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            // Removed already, held by a finalizer, or left by a removal that was interrupted.
            if pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
                return plan(Step::Remove, draw(stages.remove, "remove").max(INTERRUPTED));
            }
            let stops = started && !ended && !fast;
            return if stops { plan(Step::Stop(KILLED), draw(stages.stop, "stop").max(HELD)) } else { None };
        }
        if fast || ended || !started {
            return plan(Step::Remove, draw(stages.remove, "remove"));
        }
        let left = until(deleted.0, now);
        let wanted = behaviour.stop_delay.unwrap_or_else(|| draw(stages.stop, "stop"));
        let code = if wanted > left { KILLED } else { 0 };
        return plan(Step::Stop(code), wanted.min(left));
    }
    if ended {
        return None;
    }
    if fast && phase != "Running" {
        return plan(Step::Run, draw(stages.run, "run") + behaviour.start_delay);
    }
    if !started {
        return plan(Step::Accept, draw(stages.accept, "accept"));
    }
    if phase != "Running" {
        if let Some(at) = unfinished_init(pod, status) {
            return plan(Step::Init(at), draw(stages.init, &format!("init{at}")));
        }
        if behaviour.pull_fails {
            return match waiting_reason(status) {
                Some("ErrImagePull") => plan(Step::BackOffPull, Duration::from_secs(1)),
                Some("ImagePullBackOff") => None,
                _ => plan(Step::FailPull, draw(stages.run, "run")),
            };
        }
        return plan(Step::Run, draw(stages.run, "run") + behaviour.start_delay);
    }
    let since = ran.or_else(|| containers(status).iter().filter_map(started_at).max()).unwrap_or(now);
    running(pod, status, behaviour, stages, (since, now), draw(stages.complete, "complete"))
}

fn running(
    pod: &Pod,
    status: &PodStatus,
    behaviour: &Behaviour,
    stages: &Stages,
    (since, now): (Timestamp, Timestamp),
    completes: Duration,
) -> Option<Plan> {
    let containers = containers(status);
    let plan = |step, after| Some(Plan { step, after });
    if let Some(ended_at) = containers.iter().filter_map(ended_at).max() {
        let failures = restarts(status);
        // The first restart is immediate, and so is the back-off status after a later exit.
        if failures == 0 {
            return plan(Step::Restart, Duration::ZERO);
        }
        if waiting_reason(status) != Some("CrashLoopBackOff") {
            return plan(Step::BackOff, Duration::ZERO);
        }
        return plan(Step::Restart, until(ended_at + backoff(stages.restart, failures), now));
    }
    let job = (controller_kind(pod) == Some("Job")).then_some(completes);
    let exit = behaviour.exit_after.or(job).map(|after| (Step::Exit(behaviour.exit_code), until(since + after, now)));
    let unready = containers.iter().any(|container| !container.ready) && !behaviour.never_ready;
    let refresh = if unready {
        Some((Step::Refresh, until(since + behaviour.ready_after, now)))
    } else {
        status::conditions_differ(pod, status).then_some((Step::Refresh, Duration::ZERO))
    };
    let (step, after) = exit.into_iter().chain(refresh).min_by_key(|(_, after)| *after)?;
    plan(step, after)
}

/// The next init container.
pub(super) fn unfinished_init(pod: &Pod, status: &PodStatus) -> Option<usize> {
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let known = status.init_container_statuses.as_deref().unwrap_or_default();
    init.iter().position(|container| {
        let status = known.iter().find(|status| status.name == container.name);
        !status.is_some_and(|status| is_initialized(container, status))
    })
}

/// True if an init container allows the next one to start.
pub(super) fn is_initialized(container: &Container, status: &ContainerStatus) -> bool {
    let Some(state) = &status.state else { return false };
    if restartable(container) {
        return status.started == Some(true);
    }
    state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0)
}

pub(super) fn restartable(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn containers(status: &PodStatus) -> &[ContainerStatus] {
    status.container_statuses.as_deref().unwrap_or_default()
}

fn waiting_reason(status: &PodStatus) -> Option<&str> {
    containers(status).iter().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
}

/// The time at which a container that does not run ended.
fn ended_at(container: &ContainerStatus) -> Option<Timestamp> {
    let ended =
        |state: Option<&k8s_openapi::api::core::v1::ContainerState>| state?.terminated.as_ref()?.finished_at.clone();
    let state = container.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        return None;
    }
    ended(state).or_else(|| ended(container.last_state.as_ref())).map(|time| time.0)
}

fn started_at(container: &ContainerStatus) -> Option<Timestamp> {
    container.state.as_ref()?.running.as_ref()?.started_at.as_ref().map(|time| time.0)
}

/// Number of restarts of the containers.
pub(super) fn restarts(status: &PodStatus) -> i32 {
    containers(status).iter().map(|container| container.restart_count).max().unwrap_or_default()
}

/// 10 s, 20 s, … five minutes, for the usual first wait.
pub(super) fn backoff(first: Duration, failures: i32) -> Duration {
    let doubled = u32::try_from(failures.saturating_sub(1).clamp(0, 16)).unwrap_or_default();
    first.saturating_mul(1 << doubled).min(first.saturating_mul(30))
}

/// From now until then; nothing if that has passed.
fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now).max(SignedDuration::ZERO)).unwrap_or_default()
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
