//! The next step of a pod on its node, and its time: a pure function of the pod.
//!
//! ```text
//!   bound ─accept─► ContainerCreating ─init…─► ─run─► Running ─exit─► Succeeded, Failed, or ─restart─► Running
//!   deleted ─stop─► containers ended ─remove─► gone
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

use super::admission::Refusal;
use super::behaviour::{Behaviour, controller_kind};
use super::processes::program::image_exists;
use super::processes::{Ended, Program, Sight};
use super::restarts::{backoff, is_sidecar, starts_again};
use super::stages::{Delay, Profile, Stages};
use super::status;

/// One write of a node about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The node takes notice.
    Accept,
    /// The node does not take the pod.
    Refuse(Refusal),
    /// An init container does its work, or a sidecar starts.
    Init(usize),
    /// An init container starts whose command says what it does.
    StartInit(usize),
    /// An image cannot be pulled: first `ErrImagePull`, then `ImagePullBackOff`.
    FailPull,
    BackOffPull,
    /// The containers run.
    Run,
    /// The conditions of the pod do not agree with its containers.
    Refresh,
    /// Containers end, wait for their next start, or start again.
    Containers(Vec<(String, Change)>),
    /// The containers are ended with this code, except those whose own end is given.
    Stop(i32, BTreeMap<String, Ended>),
    /// The pod is removed.
    Remove,
    /// A stage of KWOK's files.
    Stage(String),
}

/// A change of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Exit(Ended),
    BackOff,
    Restart,
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

/// What is known about a pod beyond its object.
#[derive(Default)]
pub(super) struct Known<'a> {
    pub(super) sight: Option<&'a Sight>,
    /// When containers were started, where that is known better than from the status, which counts in seconds.
    pub(super) starts: Option<&'a BTreeMap<String, Timestamp>>,
}

impl Known<'_> {
    fn seen(&self, name: &str) -> Option<&super::processes::Seen> {
        self.sight?.get(name)
    }

    fn started_at(&self, status: &ContainerStatus) -> Option<Timestamp> {
        let said = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        let known = self.starts.and_then(|starts| starts.get(&status.name));
        Some(known.copied().filter(|known| known.as_second() == said.as_second()).unwrap_or(said))
    }
}

/// The next step for a pod on a node that is served; none if there is nothing to do.
pub(super) fn next(
    pod: &Pod,
    behaviour: &Behaviour,
    stages: &Stages,
    known: &Known<'_>,
    now: Timestamp,
) -> Option<Plan> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let key = client::Key::of(pod);
    let restarts = restarts(status);
    let draw = |delay: Delay, step: &str| {
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
            let stop = Step::Stop(KILLED, BTreeMap::new());
            return if stops { plan(stop, draw(stages.stop, "stop").max(HELD)) } else { None };
        }
        if fast || ended || !started {
            return plan(Step::Remove, draw(stages.remove, "remove"));
        }
        let left = until(deleted.0, now);
        let mut ends = BTreeMap::new();
        if behaviour.stop_delay.is_none() {
            for (name, seen) in known.sight.into_iter().flatten() {
                // Its process decides, or the end of the grace period.
                ends.insert(name.clone(), seen.ended.clone()?);
            }
        }
        let wanted = behaviour.stop_delay.unwrap_or_else(|| draw(stages.stop, "stop"));
        let code = if wanted > left { KILLED } else { 0 };
        return plan(Step::Stop(code, ends), wanted.min(left));
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
    let watch = Watch { pod, status, behaviour, stages, known, now };
    if phase != "Running" {
        if let Some(at) = unfinished_init(pod, status) {
            return watch.init(at, draw(stages.init, &format!("init{at}")));
        }
        if behaviour.pull_fails || containers_of(pod).iter().any(|container| !image_exists(container)) {
            return match waiting_reason(status) {
                Some("ErrImagePull") => plan(Step::BackOffPull, Duration::from_secs(1)),
                Some("ImagePullBackOff") => None,
                _ => plan(Step::FailPull, draw(stages.run, "run")),
            };
        }
        return plan(Step::Run, draw(stages.run, "run") + behaviour.start_delay);
    }
    watch.running(&draw)
}

/// A pod whose containers have started, or are about to.
struct Watch<'a> {
    pod: &'a Pod,
    status: &'a PodStatus,
    behaviour: &'a Behaviour,
    stages: &'a Stages,
    known: &'a Known<'a>,
    now: Timestamp,
}

impl<'a> Watch<'a> {
    /// Before the containers: the init container whose turn it is.
    fn init(&self, at: usize, delay: Duration) -> Option<Plan> {
        let container = init_containers(self.pod).get(at)?;
        let changes = self.changes(&|_| None);
        if !changes.is_empty() {
            return earliest(changes, Vec::new());
        }
        let status = find(&self.status.init_container_statuses, &container.name);
        let waits = |status: &ContainerStatus| status.state.as_ref().is_none_or(|state| state.waiting.is_some());
        if status.is_some_and(|status| !waits(status)) {
            // It runs, or it failed for good.
            let refresh = self.refresh();
            return refresh.map(|after| Plan { step: Step::Refresh, after });
        }
        let has_own = !is_sidecar(container)
            && self.behaviour.exit_after.is_none()
            && matches!(Program::of(self.pod, container), Program::Script(_));
        let step = if has_own { Step::StartInit(at) } else { Step::Init(at) };
        Some(Plan { step, after: delay })
    }

    fn running(&self, draw: &dyn Fn(Delay, &str) -> Duration) -> Option<Plan> {
        let job = controller_kind(self.pod) == Some("Job");
        let completes = draw(self.stages.complete, "complete");
        let exit_after = |container: &Container| match self.behaviour.exit_after {
            Some(after) => Some((after, self.behaviour.exit_code)),
            None if job && !Program::of(self.pod, container).runs_on() => Some((completes, 0)),
            None => None,
        };
        let changes = self.changes(&exit_after);
        let refresh = self.refresh().map(|after| (Step::Refresh, after));
        earliest(changes, refresh.into_iter().collect())
    }

    /// The changes of all containers, each with the time until it is due.
    fn changes(&self, exit_after: &dyn Fn(&Container) -> Option<(Duration, i32)>) -> Vec<((String, Change), Duration)> {
        let init = init_containers(self.pod).iter().map(|container| (container, true));
        let regular = containers_of(self.pod).iter().map(|container| (container, false));
        init.chain(regular).filter_map(|(container, is_init)| self.change(container, is_init, exit_after)).collect()
    }

    fn change(
        &self,
        container: &Container,
        is_init: bool,
        exit_after: &dyn Fn(&Container) -> Option<(Duration, i32)>,
    ) -> Option<((String, Change), Duration)> {
        let list = if is_init { &self.status.init_container_statuses } else { &self.status.container_statuses };
        let status = find(list, &container.name)?;
        let state = status.state.as_ref()?;
        let change = |change, after| Some(((container.name.clone(), change), after));
        if state.running.is_some() {
            if let Some(ended) = self.known.seen(&container.name).and_then(|seen| seen.ended.clone()) {
                return change(Change::Exit(ended), Duration::ZERO);
            }
            if is_init {
                return None;
            }
            let (after, code) = exit_after(container)?;
            let at = later(self.known.started_at(status).unwrap_or(self.now), after);
            return change(Change::Exit(Ended { code, at, message: None }), until(at, self.now));
        }
        let ended = state.terminated.as_ref().or_else(|| status.last_state.as_ref()?.terminated.as_ref())?;
        if !starts_again(self.pod, container, is_init, ended.exit_code) {
            return None;
        }
        // The first restart is immediate, and so is the back-off status after a later exit.
        if status.restart_count == 0 {
            return change(Change::Restart, Duration::ZERO);
        }
        if state.terminated.is_some() {
            return change(Change::BackOff, Duration::ZERO);
        }
        let finished = ended.finished_at.as_ref().map_or(self.now, |time| time.0);
        let wait = backoff(self.stages.restart, status.restart_count);
        change(Change::Restart, until(later(finished, wait), self.now))
    }

    /// The time until readiness has to be written; none if it is as it should be.
    fn refresh(&self) -> Option<Duration> {
        let statuses = self.status.init_container_statuses.iter().chain(&self.status.container_statuses).flatten();
        let mut due: Option<Duration> = None;
        for status in statuses.filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some())) {
            let seen = self.known.seen(&status.name);
            let started = seen.is_none_or(|seen| seen.started);
            let probed = seen.and_then(|seen| seen.ready);
            let regular = containers_of(self.pod).iter().any(|container| container.name == status.name);
            let sidecar = init_containers(self.pod).iter().any(|init| init.name == status.name && is_sidecar(init));
            let wanted = match probed {
                Some(ready) => Some((ready, Duration::ZERO)),
                None if regular && !self.behaviour.never_ready => {
                    let since = self.known.started_at(status).unwrap_or(self.now);
                    Some((true, until(later(since, self.behaviour.ready_after), self.now)))
                }
                None => sidecar.then_some((true, Duration::ZERO)),
            };
            let differs = wanted.filter(|(ready, _)| *ready != status.ready).map(|(_, after)| after);
            let starts = (status.started != Some(started)).then_some(Duration::ZERO);
            due = due.into_iter().chain(differs).chain(starts).min();
        }
        due.or_else(|| status::conditions_differ(self.pod, self.status).then_some(Duration::ZERO))
    }
}

/// The changes that are due first, in one step, or another step that is due earlier.
fn earliest(changes: Vec<((String, Change), Duration)>, others: Vec<(Step, Duration)>) -> Option<Plan> {
    let first = changes.iter().map(|(_, after)| *after).min();
    let together = |after: Duration| {
        let due = changes.iter().filter(|(_, due)| *due <= after).map(|(change, _)| change.clone());
        Step::Containers(due.collect())
    };
    let changes = first.map(|after| (together(after), after));
    let (step, after) = changes.into_iter().chain(others).min_by_key(|(_, after)| *after)?;
    Some(Plan { step, after })
}

pub(super) fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

pub(super) fn containers_of(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

fn find<'a>(statuses: &'a Option<Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().flatten().find(|status| status.name == name)
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
    if is_sidecar(container) {
        return status.started == Some(true);
    }
    state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0)
}

fn containers(status: &PodStatus) -> &[ContainerStatus] {
    status.container_statuses.as_deref().unwrap_or_default()
}

fn waiting_reason(status: &PodStatus) -> Option<&str> {
    containers(status).iter().find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref())
}

/// Number of restarts of the containers.
pub(super) fn restarts(status: &PodStatus) -> i32 {
    containers(status).iter().map(|container| container.restart_count).max().unwrap_or_default()
}

/// The time so much later; the last one there is if that is beyond it. A status may have any time in it.
fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// From now until then; nothing if that has passed.
pub(super) fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now).max(SignedDuration::ZERO)).unwrap_or_default()
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
