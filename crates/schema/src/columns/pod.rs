//! The row of a pod, above all its status: one word that summarises its containers.

use machinery::json::{Value, json};

use super::cells::{Cells, NONE, condition, seconds, since};
use crate::walk::Walk as _;

/// Fills the cells; returns the row's conditions.
pub(super) fn row(cells: &mut Cells<'_>) -> Vec<Value> {
    let pod = cells.object;
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, since(time, cells.now())),
        _ => summary.restarts.to_string(),
    };
    let address = pod.list("status.podIPs").first().map_or("", |ip| ip.text("ip"));
    cells
        .name()
        .push(format!("{}/{}", summary.ready, summary.containers))
        .push(summary.reason)
        .push(restarts)
        .age()
        .push(if address.is_empty() { NONE } else { address })
        .text_or("spec.nodeName", NONE)
        .text_or("status.nominatedNodeName", NONE)
        .push(readiness_gates(pod));
    let (reason, message) = match pod.text("status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.list("spec.readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let conditions = pod.list("status.conditions");
    let open = gates.iter().filter(|gate| is_true(conditions, gate.text("conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn is_true(conditions: &[Value], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|condition| condition.text("status") == "True")
}

struct Summary<'a> {
    reason: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<&'a str>,
}

/// Returns the later of two times, either of which may be absent.
fn later<'a>(a: Option<&'a str>, b: &'a str) -> Option<&'a str> {
    if seconds(b) > a.and_then(seconds) { Some(b) } else { a }
}

/// Returns whether a container starts before the others and keeps running.
fn is_sidecar(pod: &Value, name: &str) -> bool {
    pod.list("spec.initContainers").iter().any(|c| c.text("name") == name && c.text("restartPolicy") == "Always")
}

impl<'a> Summary<'a> {
    fn of(pod: &'a Value) -> Self {
        let conditions = pod.list("status.conditions");
        let phase = pod.text("status.phase");
        let mut reason = Some(pod.text("status.reason")).filter(|r| !r.is_empty()).unwrap_or(phase).to_owned();
        if condition(conditions, "PodScheduled").is_some_and(|c| c.text("reason") == "SchedulingGated") {
            reason = "SchedulingGated".to_owned();
        }
        let init_containers = pod.list("spec.initContainers");
        let sidecars = init_containers.iter().filter(|c| c.text("restartPolicy") == "Always").count();
        let mut summary = Summary {
            reason,
            ready: 0,
            containers: pod.list("spec.containers").len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        let (initializing, sidecar_restarts, sidecar_restart) = summary.init_containers(pod);
        if !initializing || is_true(conditions, "Initialized") {
            summary.restarts = sidecar_restarts;
            summary.last_restart = sidecar_restart;
            summary.main_containers(pod);
        }
        if !pod.text("metadata.deletionTimestamp").is_empty() {
            if pod.text("status.reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Returns whether an init container is unfinished, the restarts of sidecars, and the time of the last one.
    fn init_containers(&mut self, pod: &'a Value) -> (bool, i64, Option<&'a str>) {
        let (mut restarts, mut restart) = (0, None);
        for (index, status) in pod.list("status.initContainerStatuses").iter().enumerate() {
            let sidecar = is_sidecar(pod, status.text("name"));
            let count = status.int("restartCount").unwrap_or(0);
            let finished = status.text("lastState.terminated.finishedAt");
            self.restarts += count;
            self.last_restart = later(self.last_restart, finished);
            if sidecar {
                restarts += count;
                restart = later(restart, finished);
            }
            let terminated = status.at("state.terminated");
            let waiting = status.text("state.waiting.reason");
            if terminated.is_object() && terminated.int("exitCode").unwrap_or(0) == 0 {
                continue;
            }
            if sidecar && status.flag("started") == Some(true) {
                self.ready += usize::from(status.flag("ready") == Some(true));
                continue;
            }
            self.reason = if terminated.is_object() {
                format!("Init:{}", termination_reason(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", pod.list("spec.initContainers").len())
            };
            return (true, restarts, restart);
        }
        (false, restarts, restart)
    }

    fn main_containers(&mut self, pod: &'a Value) {
        let (mut running, mut failure) = (false, None);
        for status in pod.list("status.containerStatuses").iter().rev() {
            self.restarts += status.int("restartCount").unwrap_or(0);
            self.last_restart = later(self.last_restart, status.text("lastState.terminated.finishedAt"));
            let waiting = status.text("state.waiting.reason");
            let terminated = status.at("state.terminated");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if terminated.is_object() {
                self.reason = termination_reason(terminated);
                if terminated.int("exitCode").unwrap_or(0) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if status.flag("ready") == Some(true) && status.has("state.running") {
                running = true;
                self.ready += 1;
            }
        }
        // A pod is not completed while other containers run.
        if self.reason == "Completed" {
            if running && is_true(pod.list("status.conditions"), "Ready") {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

/// Returns why a container terminated: its reason, else its signal, else its exit code.
fn termination_reason(terminated: &Value) -> String {
    let reason = terminated.text("reason");
    let signal = terminated.int("signal").unwrap_or(0);
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", terminated.int("exitCode").unwrap_or(0))
    }
}
