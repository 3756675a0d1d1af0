//! What a node writes about a pod at each step: the status as a patch, and the events that go with it.

use std::net::Ipv4Addr;

use client::events::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::behaviour::Behaviour;
use super::steps::{self, Step, backoff, is_initialized, restartable, restarts};
use crate::requests::seconds;

/// What a step is done with.
pub(super) struct Circumstances<'a> {
    pub(super) behaviour: &'a Behaviour,
    pub(super) node_address: Ipv4Addr,
    /// The pod's own address once it runs.
    pub(super) address: Option<Ipv4Addr>,
    pub(super) first_backoff: std::time::Duration,
    pub(super) now: Timestamp,
}

/// An event of a step: about the pod, or about one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// `spec.containers{name}`
    pub(super) field: Option<String>,
}

/// The patch of a step on the status, guarded by the pod's UID (NA-10), and what is told. None for a step that writes no
/// status.
pub(super) fn write(pod: &Pod, step: &Step, with: &Circumstances<'_>) -> Option<(Value, Vec<Told>)> {
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

fn change(pod: &Pod, old: &PodStatus, new: &mut PodStatus, step: &Step, with: &Circumstances<'_>) -> Option<Vec<Told>> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let known = |list: &Option<Vec<ContainerStatus>>, name: &str| -> Option<ContainerStatus> {
        list.iter().flatten().find(|status| status.name == name).cloned()
    };
    let regular =
        |make: &dyn Fn(&Container, Option<ContainerStatus>) -> ContainerStatus| -> Option<Vec<ContainerStatus>> {
            let make = |container: &Container| make(container, known(&old.container_statuses, &container.name));
            Some(spec.containers.iter().map(make).collect())
        };
    let mut events = Vec::new();
    let mut tell = |kind, reason, message: String, field: Option<String>| {
        events.push(Told { kind, reason, message, field });
    };
    let field = |container: &Container| Some(format!("spec.containers{{{}}}", container.name));
    match step {
        Step::Accept => {
            accept(new, with);
            let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
            new.phase = Some("Pending".to_owned());
            new.container_statuses = regular(&|container, _| waiting(container, reason, None));
            if !init.is_empty() {
                new.init_container_statuses =
                    Some(init.iter().map(|container| waiting(container, "PodInitializing", None)).collect());
            }
            for container in if init.is_empty() { &spec.containers[..] } else { &init[..1] } {
                tell(EventType::Normal, "Pulling", format!("Pulling image {:?}", image(container)), field(container));
            }
        }
        Step::Init(at) => {
            let container = init.get(*at)?;
            let mut statuses: Vec<ContainerStatus> = init
                .iter()
                .map(|c| {
                    known(&old.init_container_statuses, &c.name).unwrap_or_else(|| waiting(c, "PodInitializing", None))
                })
                .collect();
            statuses[*at] = if restartable(container) {
                runs(pod, container, 0, true, with.now)
            } else {
                let mut done = runs(pod, container, 0, true, with.now);
                end(&mut done, 0, with.now);
                done.ready = true;
                done
            };
            new.init_container_statuses = Some(statuses);
            let field = Some(format!("spec.initContainers{{{}}}", container.name));
            tell(EventType::Normal, "Pulled", pulled(container), field.clone());
            tell(EventType::Normal, "Created", "Container created".to_owned(), field.clone());
            tell(EventType::Normal, "Started", "Container started".to_owned(), field);
        }
        Step::FailPull => {
            new.container_statuses = regular(&|container, _| {
                waiting(container, "ErrImagePull", Some(format!("failed to pull image {:?}", image(container))))
            });
            for container in &spec.containers {
                let why = format!("Failed to pull image {:?}: the image cannot be had", image(container));
                tell(EventType::Warning, "Failed", why, field(container));
                tell(EventType::Warning, "Failed", "Error: ErrImagePull".to_owned(), field(container));
            }
        }
        Step::BackOffPull => {
            let text = |container: &Container| format!("Back-off pulling image {:?}", image(container));
            new.container_statuses =
                regular(&|container, _| waiting(container, "ImagePullBackOff", Some(text(container))));
            for container in &spec.containers {
                tell(EventType::Normal, "BackOff", text(container), field(container));
                tell(EventType::Warning, "Failed", "Error: ImagePullBackOff".to_owned(), field(container));
            }
        }
        Step::Run => {
            accept(new, with);
            new.phase = Some("Running".to_owned());
            if new.pod_ip.is_none()
                && let Some(address) = with.address
            {
                new.pod_ip = Some(address.to_string());
                new.pod_ips = Some(vec![k8s_openapi::api::core::v1::PodIP { ip: address.to_string() }]);
            }
            let ready = !with.behaviour.never_ready && with.behaviour.ready_after.is_zero();
            new.container_statuses = regular(&|container, _| runs(pod, container, 0, ready, with.now));
            if !init.is_empty() && steps::unfinished_init(pod, old).is_some() {
                let done = init.iter().map(|container| {
                    let mut done = runs(pod, container, 0, true, with.now);
                    if !restartable(container) {
                        end(&mut done, 0, with.now);
                        done.ready = true;
                    }
                    done
                });
                new.init_container_statuses = Some(done.collect());
            }
            for container in &spec.containers {
                tell(EventType::Normal, "Pulled", pulled(container), field(container));
                tell(EventType::Normal, "Created", "Container created".to_owned(), field(container));
                tell(EventType::Normal, "Started", "Container started".to_owned(), field(container));
            }
        }
        Step::Refresh => {
            new.container_statuses = regular(&|container, status| {
                let mut status = status.unwrap_or_else(|| runs(pod, container, 0, false, with.now));
                let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
                status.ready = is_running && !with.behaviour.never_ready;
                status
            });
        }
        Step::Exit(code) => {
            let restarted = match spec.restart_policy.as_deref() {
                Some("Never") => false,
                Some("OnFailure") => *code != 0,
                _ => true,
            };
            new.container_statuses = regular(&|container, status| {
                let mut status = status.unwrap_or_else(|| runs(pod, container, 0, false, with.now));
                end(&mut status, *code, with.now);
                status
            });
            if !restarted {
                end_sidecars(new, with.now);
                new.phase = Some(if *code == 0 { "Succeeded" } else { "Failed" }.to_owned());
            }
        }
        Step::BackOff => {
            let wait = backoff(with.first_backoff, restarts(old));
            let name = format_pod(pod);
            new.container_statuses = regular(&|container, status| {
                let mut status = status.unwrap_or_else(|| runs(pod, container, 0, false, with.now));
                let text =
                    format!("back-off {}s restarting failed container={} pod={name}", wait.as_secs(), container.name);
                let ended = status.state.take();
                let reason = Some("CrashLoopBackOff".to_owned());
                status.state = Some(ContainerState {
                    waiting: Some(ContainerStateWaiting { reason, message: Some(text) }),
                    ..ContainerState::default()
                });
                status.last_state = ended;
                status
            });
            for container in &spec.containers {
                let text = format!("Back-off restarting failed container {} in pod {name}", container.name);
                tell(EventType::Warning, "BackOff", text, field(container));
            }
        }
        Step::Restart => {
            let ready = !with.behaviour.never_ready && with.behaviour.ready_after.is_zero();
            new.container_statuses = regular(&|container, status| {
                let old = status.unwrap_or_default();
                let mut status = runs(pod, container, old.restart_count + 1, ready, with.now);
                let ended = old.state.filter(|state| state.terminated.is_some());
                status.last_state = ended.or(old.last_state);
                status
            });
            for container in &spec.containers {
                let present = format!(
                    "Container image {:?} already present on machine and can be accessed by the pod",
                    image(container)
                );
                tell(EventType::Normal, "Pulled", present, field(container));
                tell(EventType::Normal, "Created", "Container created".to_owned(), field(container));
                tell(EventType::Normal, "Started", "Container started".to_owned(), field(container));
            }
        }
        Step::Stop(code) => {
            let mut running = Vec::new();
            new.container_statuses = regular(&|container, status| {
                let mut status = status.unwrap_or_else(|| waiting(container, "ContainerCreating", None));
                end(&mut status, *code, with.now);
                status
            });
            for container in &spec.containers {
                let status = known(&old.container_statuses, &container.name);
                if status.is_some_and(|status| status.state.is_some_and(|state| state.running.is_some())) {
                    running.push(container);
                }
            }
            end_sidecars(new, with.now);
            let codes =
                new.container_statuses.iter().flatten().filter_map(|status| status.state.as_ref()?.terminated.as_ref());
            let failed = codes.into_iter().any(|ended| ended.exit_code != 0);
            new.phase = Some(if failed { "Failed" } else { "Succeeded" }.to_owned());
            for container in running {
                tell(EventType::Normal, "Killing", format!("Stopping container {}", container.name), field(container));
            }
        }
        Step::Remove => return None,
    }
    Some(events)
}

fn accept(new: &mut PodStatus, with: &Circumstances<'_>) {
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

/// The container ends with this code. One that never ran ends as killed.
fn end(status: &mut ContainerStatus, code: i32, now: Timestamp) {
    let state = status.state.take().unwrap_or_default();
    if state.terminated.is_some() {
        status.state = Some(state);
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

/// With the pod, init containers that were to run beside it end too.
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
    let sidecars = init.iter().filter(|container| restartable(container));
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

/// Whether somebody, or time, made the conditions of a running pod other than its containers say.
pub(super) fn conditions_differ(pod: &Pod, status: &PodStatus) -> bool {
    let known = status.conditions.as_deref().unwrap_or_default();
    wanted(pod, status).into_iter().any(|(kind, wanted, ..)| {
        let is = known.iter().find(|known| known.type_ == kind).map(|known| known.status == "True");
        is != Some(wanted)
    })
}
