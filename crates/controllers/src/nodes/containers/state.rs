//! The state of a container as its pod reports it, and what a kubelet refuses because of it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

/// Why a request cannot be served, in the words of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The log of a container is not there yet.
    NotYet(String),
    /// The container or the pod does not run.
    NotRunning(String),
}

/// An instance of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// The `restartCount` that it had.
    pub restarts: i32,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub exit_code: Option<i32>,
}

impl Instance {
    /// Whether it may still write.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.ended.is_none() && self.exit_code.is_none()
    }
}

/// The status of a container, of whichever kind it is.
#[must_use]
pub fn status_of<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == container)
}

/// The instance whose log is wanted.
pub fn instance(pod: &Pod, container: &str, previous: bool) -> Result<Instance, Refusal> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let refuse = |why: String| Err(Refusal::NotYet(why));
    let Some(status) = status_of(pod, container) else {
        return refuse(format!("container {container:?} in pod {name:?} is not available"));
    };
    let ended = |state: Option<&ContainerState>, restarts: i32| {
        let ended = state?.terminated.as_ref()?;
        Some(Instance {
            restarts,
            started: ended.started_at.as_ref().map(|time| time.0),
            ended: ended.finished_at.as_ref().map(|time| time.0),
            exit_code: Some(ended.exit_code),
        })
    };
    let (state, last) = (status.state.as_ref(), status.last_state.as_ref());
    // A container that waits for its next start counts that start only once it is made.
    let waits = state.is_some_and(|state| state.waiting.is_some());
    let before = if waits { status.restart_count } else { status.restart_count - 1 };
    if previous {
        let missing =
            || Refusal::NotYet(format!("previous terminated container {container:?} in pod {name:?} not found"));
        return ended(last, before.max(0)).ok_or_else(missing);
    }
    if let Some(running) = state.and_then(|state| state.running.as_ref()) {
        let started = running.started_at.as_ref().map(|time| time.0);
        return Ok(Instance { restarts: status.restart_count, started, ended: None, exit_code: None });
    }
    if let Some(found) = ended(state, status.restart_count).or_else(|| ended(last, before.max(0))) {
        return Ok(found);
    }
    let reason = state.and_then(|state| state.waiting.as_ref()).map(|waiting| waiting.reason.as_deref());
    match reason {
        Some(Some("ErrImagePull")) => {
            refuse(format!("container {container:?} in pod {name:?} is waiting to start: image can't be pulled"))
        }
        Some(Some("ImagePullBackOff")) => refuse(format!(
            "container {container:?} in pod {name:?} is waiting to start: trying and failing to pull image"
        )),
        Some(reason) => {
            let reason = reason.unwrap_or_default();
            refuse(format!("container {container:?} in pod {name:?} is waiting to start: {reason}"))
        }
        None => refuse(format!("container {container:?} in pod {name:?} is waiting to start - no logs yet")),
    }
}

/// Checks that a command can run in a container, or its own process be joined.
pub fn check_running(pod: &Pod, container: &str, is_attach: bool) -> Result<(), Refusal> {
    let runs = status_of(pod, container).and_then(|status| status.state.as_ref()).is_some_and(|s| s.running.is_some());
    if runs {
        return Ok(());
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Err(Refusal::NotRunning(if is_attach {
        format!("container {container} not found in pod {name}_{namespace}")
    } else {
        format!("container not found ({container:?})")
    }))
}

/// Checks that ports of a pod can be reached.
pub fn check_reachable(pod: &Pod) -> Result<(), Refusal> {
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
        return Ok(());
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Err(Refusal::NotRunning(format!("pod not found (\"{name}_{namespace}\")")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        let mut status = status;
        for (name, value) in
            [("name", json!("c")), ("image", json!("")), ("imageID", json!("")), ("ready", json!(true))]
        {
            status[name] = value;
        }
        if status["restartCount"].is_null() {
            status["restartCount"] = json!(0);
        }
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "d"},
            "status": {"phase": "Running", "containerStatuses": [status]}}))
        .unwrap()
    }

    fn refusal(status: Value, previous: bool) -> String {
        let Err(Refusal::NotYet(why)) = instance(&pod(status), "c", previous) else { panic!("it has a log") };
        why
    }

    #[test]
    fn lg_3_containers_that_have_not_started_have_no_log() {
        let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
        let starts = "container \"c\" in pod \"p\" is waiting to start";
        assert_eq!(refusal(waiting("ContainerCreating"), false), format!("{starts}: ContainerCreating"));
        assert_eq!(refusal(waiting("ErrImagePull"), false), format!("{starts}: image can't be pulled"));
        assert_eq!(refusal(waiting("ImagePullBackOff"), false), format!("{starts}: trying and failing to pull image"));
        assert_eq!(refusal(json!({}), false), format!("{starts} - no logs yet"));
        let Err(Refusal::NotYet(why)) = instance(&pod(json!({})), "other", false) else { panic!("it has a log") };
        assert_eq!(why, "container \"other\" in pod \"p\" is not available");
    }

    #[test]
    fn lg_4_the_previous_instance_is_the_one_that_ended() {
        let running = json!({"state": {"running": {}}});
        let missing = "previous terminated container \"c\" in pod \"p\" not found";
        assert_eq!(refusal(running, true), missing);
        let ended = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}});
        let restarted = pod(json!({"restartCount": 2, "state": {"running": {}}, "lastState": ended}));
        assert_eq!(instance(&restarted, "c", true).unwrap().restarts, 1);
        assert_eq!(instance(&restarted, "c", false).unwrap().restarts, 2);
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let backing_off = pod(json!({"restartCount": 2, "state": waiting, "lastState": ended}));
        let found = instance(&backing_off, "c", false).unwrap();
        assert_eq!((found.restarts, found.exit_code), (2, Some(1)), "the log of the one that ended");
    }

    #[test]
    fn cs_1_commands_need_a_container_that_runs() {
        let running = pod(json!({"state": {"running": {}}}));
        assert_eq!((check_running(&running, "c", false), check_reachable(&running)), (Ok(()), Ok(())));
        let ended = pod(json!({"state": {"terminated": {"exitCode": 0}}}));
        let refused = |is_attach| match check_running(&ended, "c", is_attach) {
            Err(Refusal::NotRunning(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(false), "container not found (\"c\")");
        assert_eq!(refused(true), "container c not found in pod p_d");
    }
}
