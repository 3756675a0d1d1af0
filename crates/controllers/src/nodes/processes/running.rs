//! The processes and probes of one pod. The status of the pod decides what runs; this decides when it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::events::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, LifecycleHandler, Pod};

use super::Program;
use super::places::Places;
use super::probes::{self, Finding, Kind, Probed, Probes};
use crate::nodes::behaviour::Behaviour;
use crate::nodes::containers::Containers;
use crate::nodes::containers::logs::Line;
use crate::nodes::restarts::is_sidecar;
use crate::nodes::shell::{self, Environment, Files, Process};
use crate::nodes::status::StepEvent;

/// A container that was found running after this time was started by an earlier run of the program.
const RESUMED_AFTER: Duration = Duration::from_secs(5);
/// The exit code of a container that is killed.
pub(in crate::nodes) const KILLED: i32 = 137;
/// Longest termination message.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nodes) struct Ended {
    pub(in crate::nodes) code: i32,
    pub(in crate::nodes) at: Timestamp,
    pub(in crate::nodes) message: Option<String>,
}

/// What is known about a running container beyond the status of its pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::nodes) struct Seen {
    pub(in crate::nodes) ended: Option<Ended>,
    /// None where no probe decides.
    pub(in crate::nodes) ready: Option<bool>,
    pub(in crate::nodes) started: bool,
    /// True if a process of its own decides when it ends.
    pub(in crate::nodes) has_process: bool,
}

/// Containers by name.
pub(in crate::nodes) type Sight = BTreeMap<String, Seen>;

/// What processes are part of.
pub(in crate::nodes) struct World<'a> {
    pub(in crate::nodes) containers: &'a Containers,
    pub(in crate::nodes) places: &'a Places,
    /// When containers were started, where this process knows it better than the status, which counts in seconds.
    pub(in crate::nodes) starts: &'a BTreeMap<String, Timestamp>,
    pub(in crate::nodes) now: Timestamp,
}

/// One running instance of a container.
struct Running {
    restarts: i32,
    process: Option<Process>,
    probes: Probes,
    files: Files,
    environment: Arc<Environment>,
    ended: Option<Ended>,
    stopping: Option<Stopping>,
}

/// A container that is being stopped.
struct Stopping {
    /// After the `preStop` hook.
    term_at: Timestamp,
    kill_at: Timestamp,
    signalled: bool,
}

/// The processes and probes of one pod; empty for most.
#[derive(Default)]
pub(in crate::nodes) struct PodProcesses {
    running: BTreeMap<String, Running>,
}

impl PodProcesses {
    /// Follows the status of the pod: starts what it shows as running, forgets what it does not, and runs everything that
    /// is due. Returns events.
    pub(in crate::nodes) fn follow(&mut self, pod: &Pod, behaviour: &Behaviour, world: &World<'_>) -> Vec<StepEvent> {
        let mut events = Vec::new();
        let found: Vec<(&Container, &ContainerStatus, Timestamp)> = running_containers(pod)
            .map(|(container, status, since)| {
                let known = world.starts.get(&container.name).filter(|known| known.as_second() == since.as_second());
                (container, status, known.copied().unwrap_or(since))
            })
            .collect();
        self.running.retain(|name, running| {
            found.iter().any(|(_, status, _)| status.name == *name && status.restart_count == running.restarts)
        });
        for (container, status, since) in &found {
            if !self.running.contains_key(&container.name)
                && let Some(running) = Running::start(pod, container, status, *since, behaviour, world)
            {
                self.running.insert(container.name.clone(), running);
            }
        }
        if let Some(deadline) = &pod.metadata.deletion_timestamp {
            for (container, _, _) in &found {
                if let Some(running) = self.running.get_mut(&container.name) {
                    running.stop(container, world.now, deadline.0);
                }
            }
        }
        for (container, _, _) in &found {
            if let Some(running) = self.running.get_mut(&container.name) {
                running.advance(pod, container, world, &mut events);
            }
        }
        events
    }

    /// The next time at which something happens.
    pub(in crate::nodes) fn wakes_at(&self) -> Option<Timestamp> {
        self.running.values().filter_map(Running::wakes_at).min()
    }

    pub(in crate::nodes) fn sight(&self) -> Sight {
        self.running.iter().map(|(name, running)| (name.clone(), running.seen())).collect()
    }
}

/// The containers that the status shows as running, with the time of their start.
fn running_containers(pod: &Pod) -> impl Iterator<Item = (&Container, &ContainerStatus, Timestamp)> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init_statuses = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    init.iter().chain(regular).filter_map(move |container| {
        let status = init_statuses.iter().chain(statuses).find(|status| status.name == container.name)?;
        let since = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        Some((container, status, since))
    })
}

impl Running {
    /// None where nothing is to be followed.
    fn start(
        pod: &Pod,
        container: &Container,
        status: &ContainerStatus,
        since: Timestamp,
        behaviour: &Behaviour,
        world: &World<'_>,
    ) -> Option<Self> {
        let overruled = behaviour.exit_after.is_some();
        let program = if overruled { Program::OfImage } else { Program::of(pod, container) };
        // What is prescribed about readiness is not about containers that come before.
        let is_init = !is_regular(pod, container) && !is_sidecar(container);
        let nothing = Behaviour::default();
        let mut probes = Probes::new(container, if is_init { &nothing } else { behaviour }, since);
        let lifecycle = container.lifecycle.as_ref();
        let hooks = lifecycle.is_some_and(|hooks| hooks.pre_stop.is_some() || hooks.post_start.is_some());
        if !matches!(program, Program::Script(_)) && probes.are_trivial(container) && !hooks {
            return None;
        }
        if Duration::try_from(world.now.duration_since(since)).is_ok_and(|age| age > RESUMED_AFTER) {
            probes.resume(status.ready, status.started == Some(true));
        }
        let (files, environment) = world.places.of(pod, &container.name)?;
        let process = match program {
            Program::Script(script) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                let logs = world.containers.logs();
                logs.start(uid, &container.name, status.restart_count);
                // A process that writes nothing has an empty log.
                logs.mark_silent(uid, &container.name);
                Some(script.start(&environment, &files, since))
            }
            _ => None,
        };
        if let Some(hook) = lifecycle.and_then(|hooks| hooks.post_start.as_ref()) {
            hook_time(hook, &environment, &files, since);
        }
        Some(Running {
            restarts: status.restart_count,
            process,
            probes,
            files,
            environment,
            ended: None,
            stopping: None,
        })
    }

    fn stop(&mut self, container: &Container, now: Timestamp, kill_at: Timestamp) {
        if let Some(stopping) = &mut self.stopping {
            // A second deletion may be sooner.
            stopping.kill_at = stopping.kill_at.min(kill_at);
            return;
        }
        let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.as_ref());
        let time = hook.map_or(Some(Duration::ZERO), |hook| hook_time(hook, &self.environment, &self.files, now));
        let term_at = time.and_then(|time| now.checked_add(time).ok()).unwrap_or(kill_at).min(kill_at).max(now);
        self.stopping = Some(Stopping { term_at, kill_at, signalled: false });
    }

    fn wakes_at(&self) -> Option<Timestamp> {
        if self.ended.is_some() {
            return None;
        }
        let process = self.process.as_ref().and_then(Process::wakes_at);
        process.into_iter().chain(self.signal_or_probe_at()).min()
    }

    /// The next time of a signal or a probe. A container that is being stopped is not probed.
    fn signal_or_probe_at(&self) -> Option<Timestamp> {
        match &self.stopping {
            Some(stopping) => Some(if stopping.signalled { stopping.kill_at } else { stopping.term_at }),
            None => self.probes.wakes_at(),
        }
    }

    fn advance(&mut self, pod: &Pod, container: &Container, world: &World<'_>, events: &mut Vec<StepEvent>) {
        while self.ended.is_none() {
            let due = self.signal_or_probe_at().filter(|due| *due <= world.now);
            if let Some(process) = &mut self.process {
                process.advance(due.unwrap_or(world.now));
                if let Some((code, at)) = process.ended() {
                    self.end(container, code, at);
                    break;
                }
            }
            let Some(due) = due else { break };
            if self.stopping.is_some() {
                self.signal(pod, container, due);
            } else {
                self.probe(pod, container, due, events);
            }
        }
        self.write_lines(pod, container, world);
    }

    /// SIGTERM first, then the end by force.
    fn signal(&mut self, pod: &Pod, container: &Container, due: Timestamp) {
        let Some(stopping) = &mut self.stopping else { return };
        if stopping.signalled {
            return self.end(container, KILLED, due);
        }
        stopping.signalled = true;
        match &mut self.process {
            Some(process) => {
                process.terminate(due);
                process.advance(due);
            }
            // A container that its liveness probe kills does not answer; others end by themselves.
            None if pod.metadata.deletion_timestamp.is_none() => self.end(container, KILLED, due),
            None => self.end(container, 0, due),
        }
    }

    fn probe(&mut self, pod: &Pod, container: &Container, due: Timestamp, events: &mut Vec<StepEvent>) {
        let probed = Probed { container, files: &self.files, environment: &self.environment };
        for finding in self.probes.advance(&probed, due) {
            let (kind, reason, message) = match &finding {
                Finding::Failed(kind, why) => {
                    (EventType::Warning, "Unhealthy", format!("{} probe failed: {why}", kind.title()))
                }
                Finding::Kill(kind) => (
                    EventType::Normal,
                    "Killing",
                    format!(
                        "Container {} failed {} probe, will be restarted",
                        container.name,
                        kind.title().to_lowercase()
                    ),
                ),
            };
            events.push(StepEvent { kind, reason: reason.into(), message, field: Some(field_of(pod, container)) });
            if let Finding::Kill(kind) = finding {
                self.kill(pod, container, kind, due);
            }
        }
    }

    fn kill(&mut self, pod: &Pod, container: &Container, kind: Kind, now: Timestamp) {
        let grace = probes::grace(pod, container, kind);
        self.stop(container, now, now.checked_add(grace).unwrap_or(now));
    }

    fn end(&mut self, container: &Container, code: i32, at: Timestamp) {
        let path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        let written = self.files.read(path).ok().filter(|bytes| !bytes.is_empty());
        let message =
            written.map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE_BYTES_MAX)]).into_owned());
        self.ended = Some(Ended { code, at, message });
    }

    fn write_lines(&mut self, pod: &Pod, container: &Container, world: &World<'_>) {
        let Some(process) = &mut self.process else { return };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for line in process.take_lines() {
            let line = Line { at: line.at, is_error: line.is_error, text: line.text.into() };
            world.containers.logs().append(uid, &container.name, line);
        }
    }

    fn seen(&self) -> Seen {
        Seen {
            ended: self.ended.clone(),
            ready: self.probes.is_ready(),
            started: self.probes.is_started(),
            has_process: self.process.is_some(),
        }
    }
}

fn is_regular(pod: &Pod, container: &Container) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.containers.iter().any(|known| known.name == container.name))
}

fn field_of(pod: &Pod, container: &Container) -> String {
    let list = if is_regular(pod, container) { "containers" } else { "initContainers" };
    format!("spec.{list}{{{}}}", container.name)
}

/// The time that a hook takes; none if it never ends. What it writes to files stays.
fn hook_time(hook: &LifecycleHandler, environment: &Environment, files: &Files, now: Timestamp) -> Option<Duration> {
    if let Some(sleep) = &hook.sleep {
        return Some(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default()));
    }
    let Some(words) = hook.exec.as_ref().and_then(|exec| exec.command.as_deref()) else {
        return Some(Duration::ZERO);
    };
    match shell::run_briefly(words, environment, files, now) {
        Ok(ran) if ran.status.is_none() => None,
        Ok(ran) => Duration::try_from(ran.ends_at.duration_since(now)).ok(),
        Err(_) => Some(Duration::ZERO),
    }
}
