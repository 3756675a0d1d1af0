//! What a pod's status means to its owners, and pods made from templates.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::conditions;

/// `status.phase`; a pod without one is pending.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether all its containers have ended for good.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is asked to end and has not.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !is_terminal(pod)
}

/// Whether it counts as a replica: neither ended nor asked to (RS-1).
pub(crate) fn is_active(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !is_terminal(pod)
}

/// A condition by its type.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    conditions::find(pod.status.as_ref()?.conditions.as_ref(), kind)
}

/// Whether it is ready to serve.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when it is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// How long until a ready pod has been so for `min_ready` seconds: zero if it has, none if it is not ready.
pub(crate) fn available_in(pod: &Pod, min_ready: i32, now: Timestamp) -> Option<Duration> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready <= 0 {
        return Some(Duration::ZERO);
    }
    let passed = now.duration_since(ready_since(pod)?);
    let missing = jiff::SignedDuration::from_secs(i64::from(min_ready)) - passed;
    Some(Duration::try_from(missing).unwrap_or_default())
}

/// Whether it has been ready for `min_ready` seconds.
pub(crate) fn is_available(pod: &Pod, min_ready: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready, now) == Some(Duration::ZERO)
}

/// The highest restart count of its containers.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    statuses.unwrap_or_default().iter().map(|container| container.restart_count).max().unwrap_or(0)
}

/// The node it is bound to.
pub(crate) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The pod that a template describes, for this owner; the server makes up the end of its name (RS-6).
pub(crate) fn of_template(template: &PodTemplateSpec, owner: OwnerReference, namespace: &str) -> Pod {
    let meta = template.metadata.as_ref();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name)),
            namespace: Some(namespace.to_owned()),
            labels: meta.and_then(|meta| meta.labels.clone()),
            annotations: meta.and_then(|meta| meta.annotations.clone()),
            finalizers: meta.and_then(|meta| meta.finalizers.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn pod(phase: &str, ready_since: Option<i64>, deleting: bool) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        pod.status = Some(PodStatus {
            phase: Some(phase.into()),
            conditions: ready_since.map(|second| {
                vec![PodCondition {
                    type_: "Ready".into(),
                    status: "True".into(),
                    last_transition_time: Timestamp::from_second(second).ok().map(Time),
                    ..PodCondition::default()
                }]
            }),
            ..PodStatus::default()
        });
        pod
    }

    #[test]
    fn rs_1_active_is_neither_ended_nor_asked_to_end() {
        assert!(is_active(&Pod::default()));
        for (phase, deleting, active, terminating) in [
            ("Pending", false, true, false),
            ("Running", false, true, false),
            ("Unknown", false, true, false),
            ("Running", true, false, true),
            ("Succeeded", false, false, false),
            ("Failed", false, false, false),
            ("Failed", true, false, false),
        ] {
            let pod = pod(phase, None, deleting);
            assert_eq!((is_active(&pod), is_terminating(&pod)), (active, terminating), "{phase} {deleting}");
        }
    }

    #[test]
    fn rs_8_available_is_ready_for_long_enough() {
        let now = Timestamp::from_second(100).unwrap();
        let ready = pod("Running", Some(95), false);
        assert!(is_available(&ready, 0, now));
        assert!(is_available(&ready, 5, now));
        assert_eq!(available_in(&ready, 6, now), Some(Duration::from_secs(1)));
        assert_eq!(available_in(&pod("Running", None, false), 0, now), None);
    }
}
