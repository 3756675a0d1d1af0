//! The write of each step of a pod: the patch of its status, and the events.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use client::events::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::admission::Refusal;
use super::behaviour::{Behaviour, problems};
use super::processes::{Ended, Program, Sight, probes};
use super::restarts::{backoff, is_sidecar, starts_again};
use super::steps::{self, Change as ContainerChange, Step, is_initialized};
use crate::requests::seconds;

/// The inputs of a step.
pub(super) struct StepInputs<'a> {
    pub(super) behaviour: &'a Behaviour,
    pub(super) sight: &'a Sight,
    pub(super) node_address: Ipv4Addr,
    /// The pod's own address once it runs.
    pub(super) address: Option<Ipv4Addr>,
    pub(super) first_backoff: std::time::Duration,
    pub(super) now: Timestamp,
}

/// An event of a step: about the pod, or about one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepEvent {
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
    /// `spec.containers{name}`
    pub(super) field: Option<String>,
}

/// The patch of a step on the status, guarded by the pod's UID (NA-10), and its events. None for a step that writes no
/// status.
pub(super) fn write(pod: &Pod, step: &Step, with: &StepInputs<'_>) -> Option<(Value, Vec<StepEvent>)> {
    let none = PodStatus::default();
    let old = pod.status.as_ref().unwrap_or(&none);
    let mut new = old.clone();
    new.observed_generation = pod.metadata.generation;
    let events = change(pod, old, &mut new, step, with)?;
    let conditions = conditions(pod, old, &new, with.now);
    let mut status = Map::new();
    let mut put = |name: &str, value: Value| status.insert(name.to_owned(), value);
    put("observedGeneration", json!(new.observed_generation));
    if new.phase != old.phase {
        put("phase", json!(new.phase));
    }
    if new.reason != old.reason {
        put("reason", json!(new.reason));
        put("message", json!(new.message));
    }
    if new.start_time != old.start_time {
        put("startTime", json!(new.start_time.as_ref().map(|time| seconds(time.0))));
    }
    if new.host_ip != old.host_ip {
        put("hostIP", json!(new.host_ip));
        put("hostIPs", json!(new.host_ips));
    }
    if new.pod_ip != old.pod_ip {
        put("podIP", json!(new.pod_ip));
        put("podIPs", json!(new.pod_ips));
    }
    if new.container_statuses != old.container_statuses {
        put("containerStatuses", json!(new.container_statuses));
    }
    if new.init_container_statuses != old.init_container_statuses {
        put("initContainerStatuses", json!(new.init_container_statuses));
    }
    put("$setElementOrder/conditions", order(old));
    put("conditions", conditions);
    Some((json!({"metadata": {"uid": pod.metadata.uid}, "status": status}), events))
}

/// Ours in their order after those of others (NA-11).
fn order(old: &PodStatus) -> Value {
    let others = old.conditions.iter().flatten().map(|condition| condition.type_.as_str());
    let others = others.filter(|kind| !OURS.contains(kind));
    others.chain(OURS).map(|kind| json!({"type": kind})).collect()
}

const OURS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Changes the status as a step does, and returns the events of the step; none for the step that writes no status.
fn change(
    pod: &Pod,
    old: &PodStatus,
    new: &mut PodStatus,
    step: &Step,
    with: &StepInputs<'_>,
) -> Option<Vec<StepEvent>> {
    let spec = pod.spec.as_ref()?;
    let mut change = Change { pod, spec, old, new, with, events: Vec::new() };
    match step {
        Step::Accept => change.accept(),
        Step::Refuse(refusal) => change.refuse(refusal),
        Step::Init(at) => change.run_init(*at, true)?,
        Step::StartInit(at) => change.run_init(*at, false)?,
        Step::FailPull => change.fail_pull(),
        Step::BackOffPull => change.back_off_pull(),
        Step::Run => change.run(),
        Step::Refresh => change.refresh(),
        Step::Containers(changes) => change.containers(changes),
        Step::Stop(code, ends) => change.stop(*code, ends),
        Step::Remove | Step::Stage(_) => return None,
    }
    Some(change.events)
}

/// One change of a pod's status, with one method for each step.
struct Change<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    old: &'a PodStatus,
    new: &'a mut PodStatus,
    with: &'a StepInputs<'a>,
    events: Vec<StepEvent>,
}

impl<'a> Change<'a> {
    fn accept(&mut self) {
        accept(self.new, self.with);
        self.new.phase = Some("Pending".to_owned());
        let init = self.init_containers();
        let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        self.set_containers(|container, _| waiting(container, reason, None));
        if !init.is_empty() {
            let statuses = init.iter().map(|container| waiting(container, "PodInitializing", None));
            self.new.init_container_statuses = Some(statuses.collect());
        }
        for container in if init.is_empty() { &self.spec.containers[..] } else { &init[..1] } {
            self.event(container, EventType::Normal, "Pulling", format!("Pulling image {:?}", image(container)));
        }
        for why in problems(self.pod) {
            let message = format!("An annotation is ignored: nodes.dogwatch/{why}");
            self.events.push(StepEvent {
                kind: EventType::Warning,
                reason: "InvalidAnnotation".into(),
                message,
                field: None,
            });
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.new.phase = Some("Failed".to_owned());
        self.new.reason = Some(refusal.reason.clone());
        self.new.message = Some(format!("Pod was rejected: {}", refusal.message));
        self.events.push(StepEvent {
            kind: EventType::Warning,
            reason: refusal.reason.clone().into(),
            message: refusal.message.clone(),
            field: None,
        });
    }

    /// Runs an init container: to its end, as a sidecar, or until its command ends.
    fn run_init(&mut self, at: usize, ends: bool) -> Option<()> {
        let init = self.init_containers();
        let container = init.get(at)?;
        let known = |container: &Container| {
            let known = status_of(&self.old.init_container_statuses, container);
            known.unwrap_or_else(|| waiting(container, "PodInitializing", None))
        };
        let mut statuses: Vec<ContainerStatus> = init.iter().map(known).collect();
        statuses[at] = if ends { self.init_done(container) } else { self.started(container, 0) };
        if !ends {
            statuses[at].ready = false;
        }
        self.new.init_container_statuses = Some(statuses);
        self.started_events(container, pulled(container));
        Some(())
    }

    fn fail_pull(&mut self) {
        self.set_containers(|container, _| {
            waiting(container, "ErrImagePull", Some(format!("failed to pull image {:?}", image(container))))
        });
        for container in &self.spec.containers {
            let why = format!("Failed to pull image {:?}: the image cannot be had", image(container));
            self.event(container, EventType::Warning, "Failed", why);
            self.event(container, EventType::Warning, "Failed", "Error: ErrImagePull".to_owned());
        }
    }

    fn back_off_pull(&mut self) {
        let text = |container: &Container| format!("Back-off pulling image {:?}", image(container));
        self.set_containers(|container, _| waiting(container, "ImagePullBackOff", Some(text(container))));
        for container in &self.spec.containers {
            self.event(container, EventType::Normal, "BackOff", text(container));
            self.event(container, EventType::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
        }
    }

    fn run(&mut self) {
        accept(self.new, self.with);
        self.new.phase = Some("Running".to_owned());
        if self.new.pod_ip.is_none()
            && let Some(address) = self.with.address
        {
            self.new.pod_ip = Some(address.to_string());
            self.new.pod_ips = Some(vec![k8s_openapi::api::core::v1::PodIP { ip: address.to_string() }]);
        }
        let running = self.spec.containers.iter().map(|container| self.started(container, 0)).collect();
        self.new.container_statuses = Some(running);
        let pod = self.pod;
        let init = self.init_containers();
        if !init.is_empty() && steps::unfinished_init(pod, self.old).is_some() {
            self.new.init_container_statuses = Some(init.iter().map(|container| self.init_done(container)).collect());
        }
        for container in &self.spec.containers {
            self.started_events(container, pulled(container));
        }
    }

    /// Containers that run become ready, or stay unready.
    fn refresh(&mut self) {
        let with = self.with;
        let regular = self.spec.containers.iter().map(|container| container.name.as_str()).collect::<Vec<_>>();
        let sidecars: Vec<&str> =
            self.init_containers().iter().filter(|init| is_sidecar(init)).map(|init| init.name.as_str()).collect();
        let statuses = self.new.init_container_statuses.iter_mut().chain(&mut self.new.container_statuses).flatten();
        for status in statuses.filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some())) {
            let seen = with.sight.get(&status.name);
            status.started = Some(seen.is_none_or(|seen| seen.started));
            if let Some(ready) = seen.and_then(|seen| seen.ready) {
                status.ready = ready;
            } else if regular.contains(&status.name.as_str()) {
                status.ready = !with.behaviour.never_ready;
            } else if sidecars.contains(&status.name.as_str()) {
                status.ready = true;
            }
        }
    }

    /// Containers end, wait for their next start, or start again, each for itself.
    fn containers(&mut self, changes: &[(String, ContainerChange)]) {
        for (name, change) in changes {
            let is_init = self.init_containers().iter().any(|container| container.name == *name);
            let list = if is_init { self.init_containers() } else { &self.spec.containers };
            let Some(container) = list.iter().find(|container| container.name == *name) else { continue };
            let statuses = if is_init { &self.new.init_container_statuses } else { &self.new.container_statuses };
            let Some(old) = status_of(statuses, container) else { continue };
            let status = match change {
                ContainerChange::Exit(ended) => self.exited(old, ended),
                ContainerChange::BackOff => self.backing_off(container, old),
                ContainerChange::Restart => self.restarted(container, old),
            };
            let statuses =
                if is_init { &mut self.new.init_container_statuses } else { &mut self.new.container_statuses };
            if let Some(place) = statuses.iter_mut().flatten().find(|status| status.name == *name) {
                *place = status;
            }
        }
        self.settle_phase();
    }

    fn exited(&self, old: ContainerStatus, ended: &Ended) -> ContainerStatus {
        let mut status = old;
        end(&mut status, ended.code, self.with.now.min(second(ended.at)));
        if let Some(terminated) = status.state.as_mut().and_then(|state| state.terminated.as_mut()) {
            terminated.message.clone_from(&ended.message);
        }
        let is_init = self.init_containers().iter().any(|container| container.name == status.name);
        status.ready = is_init && ended.code == 0;
        status
    }

    fn backing_off(&mut self, container: &Container, mut status: ContainerStatus) -> ContainerStatus {
        let name = format_pod(self.pod);
        let wait = backoff(self.with.first_backoff, status.restart_count);
        let text = format!("back-off {}s restarting failed container={} pod={name}", wait.as_secs(), container.name);
        let ended = status.state.take();
        let reason = Some("CrashLoopBackOff".to_owned());
        status.state = Some(ContainerState {
            waiting: Some(ContainerStateWaiting { reason, message: Some(text) }),
            ..ContainerState::default()
        });
        status.last_state = ended;
        let text = format!("Back-off restarting failed container {} in pod {name}", container.name);
        self.event(container, EventType::Warning, "BackOff", text);
        status
    }

    fn restarted(&mut self, container: &Container, old: ContainerStatus) -> ContainerStatus {
        let mut status = self.started(container, old.restart_count + 1);
        if self.init_containers().iter().any(|init| init.name == container.name) && !is_sidecar(container) {
            status.ready = false;
        }
        let ended = old.state.filter(|state| state.terminated.is_some());
        status.last_state = ended.or(old.last_state);
        let present =
            format!("Container image {:?} already present on machine and can be accessed by the pod", image(container));
        self.started_events(container, present);
        status
    }

    /// The phase after containers have ended: a pod of which nothing is started again has ended too.
    fn settle_phase(&mut self) {
        let code = |status: &ContainerStatus| Some(status.state.as_ref()?.terminated.as_ref()?.exit_code);
        let (pod, now) = (self.pod, self.with.now);
        let failed_init = self.init_containers().iter().any(|container| {
            let code = status_of(&self.new.init_container_statuses, container).and_then(|status| code(&status));
            code.is_some_and(|code| code != 0 && !is_sidecar(container) && !starts_again(pod, container, true, code))
        });
        if failed_init {
            end_sidecars(self.new, now);
            self.new.phase = Some("Failed".to_owned());
            return;
        }
        let mut failed = false;
        for container in &self.spec.containers {
            match status_of(&self.new.container_statuses, container).and_then(|status| code(&status)) {
                Some(code) if !starts_again(pod, container, false, code) => failed |= code != 0,
                _ => return,
            }
        }
        end_sidecars(self.new, now);
        self.new.phase = Some(if failed { "Failed" } else { "Succeeded" }.to_owned());
    }

    fn stop(&mut self, code: i32, ends: &std::collections::BTreeMap<String, Ended>) {
        let now = self.with.now;
        self.set_containers(|container, status| {
            let mut status = status.unwrap_or_else(|| waiting(container, "ContainerCreating", None));
            match ends.get(&container.name) {
                Some(ended) => {
                    end(&mut status, ended.code, now.min(second(ended.at)));
                    if let Some(terminated) = status.state.as_mut().and_then(|state| state.terminated.as_mut()) {
                        terminated.message.clone_from(&ended.message);
                    }
                }
                None => end(&mut status, code, now),
            }
            status
        });
        end_sidecars(self.new, now);
        let statuses = self.new.container_statuses.iter().flatten();
        let mut codes = statuses.filter_map(|status| status.state.as_ref()?.terminated.as_ref());
        let failed = codes.any(|ended| ended.exit_code != 0);
        self.new.phase = Some(if failed { "Failed" } else { "Succeeded" }.to_owned());
        for container in &self.spec.containers {
            let state = status_of(&self.old.container_statuses, container).and_then(|status| status.state);
            if state.is_some_and(|state| state.running.is_some()) {
                self.event(container, EventType::Normal, "Killing", format!("Stopping container {}", container.name));
            }
        }
    }

    fn init_containers(&self) -> &'a [Container] {
        self.spec.init_containers.as_deref().unwrap_or_default()
    }

    /// The status of a container that has just started.
    fn started(&self, container: &Container, restarts: i32) -> ContainerStatus {
        let (ready, started) = probes::at_start(container, self.with.behaviour);
        let mut status = runs(self.pod, container, restarts, ready, self.with.now);
        status.started = Some(started);
        status
    }

    /// The status of an init container after its turn: ended, or running if it is a sidecar.
    fn init_done(&self, container: &Container) -> ContainerStatus {
        if is_sidecar(container) {
            return self.started(container, 0);
        }
        let mut done = runs(self.pod, container, 0, true, self.with.now);
        end(&mut done, 0, self.with.now);
        done.ready = true;
        done
    }

    /// Sets the status of every regular container to the result of `make` for its old one.
    fn set_containers(&mut self, make: impl Fn(&Container, Option<ContainerStatus>) -> ContainerStatus) {
        let make = |container: &Container| make(container, status_of(&self.old.container_statuses, container));
        self.new.container_statuses = Some(self.spec.containers.iter().map(make).collect());
    }

    fn event(&mut self, container: &Container, kind: EventType, reason: &'static str, message: String) {
        let is_init = self.init_containers().iter().any(|init| init.name == container.name);
        let list = if is_init { "initContainers" } else { "containers" };
        let field = Some(format!("spec.{list}{{{}}}", container.name));
        self.events.push(StepEvent { kind, reason: reason.into(), message, field });
    }

    fn started_events(&mut self, container: &Container, pulled: String) {
        let texts =
            [("Pulled", pulled), ("Created", "Container created".into()), ("Started", "Container started".into())];
        for (reason, message) in texts {
            self.event(container, EventType::Normal, reason, message);
        }
        if self.with.behaviour.exit_after.is_none()
            && let Program::NotSimulated(why) = Program::of(self.pod, container)
        {
            let text = format!(
                "The command of container {} is not simulated, because it has {why}; the container does what one without \
                 a command does",
                container.name
            );
            self.event(container, EventType::Warning, "CommandNotSimulated", text);
        }
    }
}

fn status_of(statuses: &Option<Vec<ContainerStatus>>, container: &Container) -> Option<ContainerStatus> {
    statuses.iter().flatten().find(|status| status.name == container.name).cloned()
}

fn accept(new: &mut PodStatus, with: &StepInputs<'_>) {
    if new.start_time.is_none() {
        new.start_time = Some(Time(with.now));
    }
    if new.host_ip.is_none() {
        new.host_ip = Some(with.node_address.to_string());
        new.host_ips = Some(vec![k8s_openapi::api::core::v1::HostIP { ip: with.node_address.to_string() }]);
    }
}

fn image(container: &Container) -> &str {
    container.image.as_deref().unwrap_or_default()
}

fn pulled(container: &Container) -> String {
    format!("Successfully pulled image {:?} in 0s (0s including waiting). Image size: 0 bytes.", image(container))
}

/// `name_namespace(uid)`
fn format_pod(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let text = |said: &Option<String>| said.clone().unwrap_or_default();
    format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
}

fn waiting(container: &Container, reason: &str, message: Option<String>) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: image(container).to_owned(),
        ready: false,
        started: Some(false),
        state: Some(ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
            ..ContainerState::default()
        }),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    }
}

fn runs(pod: &Pod, container: &Container, restarts: i32, ready: bool, now: Timestamp) -> ContainerStatus {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image: image(container).to_owned(),
        image_id: format!(
            "{}@sha256:{}",
            image(container).split([':', '@']).next().unwrap_or_default(),
            digest(&[image(container)])
        ),
        container_id: Some(format!("containerd://{}", digest(&[uid, &container.name, &restarts.to_string()]))),
        ready,
        started: Some(true),
        restart_count: restarts,
        state: Some(ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(now)) }),
            ..ContainerState::default()
        }),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    }
}

/// The start of the second that a time is in, as statuses count.
fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The container ends with this code. One that never ran ends as killed.
fn end(status: &mut ContainerStatus, code: i32, now: Timestamp) {
    let state = status.state.take().unwrap_or_default();
    if state.terminated.is_some() {
        status.state = Some(state);
        return;
    }
    // One that waits for its next start keeps its last end.
    if state.running.is_none()
        && let Some(last) = status.last_state.take_if(|last| last.terminated.is_some())
    {
        status.state = Some(last);
        return;
    }
    let ran = state.running;
    let (code, reason) = match (&ran, code) {
        (None, _) => (137, "ContainerStatusUnknown"),
        (_, 0) => (0, "Completed"),
        (_, code) => (code, "Error"),
    };
    status.ready = false;
    status.started = Some(false);
    status.state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: code,
            reason: Some(reason.to_owned()),
            started_at: ran.and_then(|ran| ran.started_at),
            finished_at: Some(Time(now)),
            container_id: status.container_id.clone(),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
}

/// Ends the sidecars of a pod that has ended.
fn end_sidecars(new: &mut PodStatus, now: Timestamp) {
    for status in new.init_container_statuses.iter_mut().flatten() {
        if status.state.as_ref().is_some_and(|state| state.running.is_some()) {
            end(status, 0, now);
        }
    }
}

/// 64 hexadecimal digits that depend on these words only.
fn digest(words: &[&str]) -> String {
    let mut text = String::with_capacity(64);
    for round in 0..4u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in words.iter().flat_map(|word| word.bytes().chain([0])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        text.push_str(&format!("{:016x}", hash ^ (hash >> 29)));
    }
    text
}

/// A condition as it should be: its type, status, reason and message.
type Wanted = (&'static str, bool, Option<&'static str>, Option<String>);

fn wanted(pod: &Pod, new: &PodStatus) -> Vec<Wanted> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let find = |list: &Option<Vec<ContainerStatus>>, name: &str| -> Option<ContainerStatus> {
        list.iter().flatten().find(|status| status.name == name).cloned()
    };
    let phase = new.phase.as_deref().unwrap_or_default();
    let done = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let incomplete: Vec<&str> = init
        .iter()
        .filter(|c| !find(&new.init_container_statuses, &c.name).is_some_and(|status| is_initialized(c, &status)))
        .map(|c| c.name.as_str())
        .collect();
    let sidecars = init.iter().filter(|container| is_sidecar(container));
    let unready_sidecars = sidecars.filter(|c| !find(&new.init_container_statuses, &c.name).is_some_and(|s| s.ready));
    let unready = containers.iter().filter(|c| !find(&new.container_statuses, &c.name).is_some_and(|s| s.ready));
    let unready: Vec<&str> = unready_sidecars.chain(unready).map(|container| container.name.as_str()).collect();
    let started = phase == "Running" || done.is_some();
    let initialized: Wanted = if incomplete.is_empty() || started {
        ("Initialized", true, done.filter(|reason| *reason == "PodCompleted"), None)
    } else {
        let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
        ("Initialized", false, Some("ContainersNotInitialized"), Some(message))
    };
    let containers_ready: Wanted = match done {
        Some(reason) => ("ContainersReady", false, Some(reason), None),
        None if unready.is_empty() => ("ContainersReady", true, None, None),
        None => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            ("ContainersReady", false, Some("ContainersNotReady"), Some(message))
        }
    };
    let ready: Wanted = if containers_ready.1 {
        match closed_gates(pod, new) {
            gates if gates.is_empty() => ("Ready", true, None, None),
            gates => ("Ready", false, Some("ReadinessGatesNotReady"), Some(gates.join(", "))),
        }
    } else {
        ("Ready", false, containers_ready.2, containers_ready.3.clone())
    };
    let sandbox: Wanted = (
        "PodReadyToStartContainers",
        phase == "Running" || !init.is_empty() && phase == "Pending" && incomplete.len() < init.len(),
        None,
        None,
    );
    vec![sandbox, initialized, ready, containers_ready, ("PodScheduled", true, None, None)]
}

/// Gates that others have not opened.
fn closed_gates(pod: &Pod, status: &PodStatus) -> Vec<String> {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let closed = |gate: &str| match conditions.iter().find(|condition| condition.type_ == gate) {
        None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
        Some(condition) if condition.status != "True" => {
            Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {}", condition.status))
        }
        Some(_) => None,
    };
    gates.iter().filter_map(|gate| closed(&gate.condition_type)).collect()
}

fn conditions(pod: &Pod, old: &PodStatus, new: &PodStatus, now: Timestamp) -> Value {
    let known = old.conditions.as_deref().unwrap_or_default();
    let entry = |(kind, status, reason, message): Wanted| {
        let status = if status { "True" } else { "False" };
        let same: Option<&PodCondition> = known.iter().find(|known| known.type_ == kind && known.status == status);
        // NA-16
        let since = same.and_then(|known| known.last_transition_time.as_ref()).map_or(now, |time| time.0);
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": null,
            "lastTransitionTime": seconds(since), "observedGeneration": pod.metadata.generation})
    };
    wanted(pod, new).into_iter().map(entry).collect()
}

/// True if the conditions of a running pod do not agree with its containers.
pub(super) fn conditions_differ(pod: &Pod, status: &PodStatus) -> bool {
    let known = status.conditions.as_deref().unwrap_or_default();
    wanted(pod, status).into_iter().any(|(kind, wanted, ..)| {
        let is = known.iter().find(|known| known.type_ == kind).map(|known| known.status == "True");
        is != Some(wanted)
    })
}
