//! Since when what is said of a service is so: the annotation `endpoints.kubernetes.io/last-change-trigger-time`.
//!
//! It is the earliest change that a write answers: of a pod's readiness, or the making of the service. What was
//! answered before does not count again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use client::Key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;

use crate::pods;

const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What was answered, by service.
#[derive(Default)]
pub(super) struct Triggers(Mutex<HashMap<Key, Answered>>);

#[derive(Default)]
struct Answered {
    service: Option<Timestamp>,
    pods: HashMap<String, Timestamp>,
}

impl Triggers {
    /// The earliest change since the last call for this service.
    pub(super) fn since(&self, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let mut all = self.0.lock();
        let answered = all.entry(Key::of(service)).or_default();
        let made = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut earliest = if answered.service == made { None } else { made };
        answered.service = made;
        let mut now = HashMap::with_capacity(pods.len());
        for pod in pods {
            let condition = pods::condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
            let (Some(name), Some(changed)) = (pod.metadata.name.clone(), condition) else { continue };
            if answered.pods.get(&name).is_none_or(|known| *known < changed.0) {
                earliest = Some(earliest.map_or(changed.0, |earliest| earliest.min(changed.0)));
            }
            now.insert(name, changed.0);
        }
        answered.pods = now;
        earliest
    }

    /// The service is gone.
    pub(super) fn forget(&self, service: &Key) {
        self.0.lock().remove(service);
    }
}

/// Sets the annotation, or removes it if nothing is new.
pub(super) fn annotate(annotations: &mut Option<BTreeMap<String, String>>, since: Option<Timestamp>) {
    match since {
        Some(since) => {
            annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), since.to_string());
        }
        None => {
            if let Some(annotations) = annotations {
                annotations.remove(ANNOTATION);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, second: i64) -> Arc<Pod> {
        let at = Timestamp::from_second(second).unwrap().to_string();
        let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
        let pod = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn ep_6_the_earliest_change_that_was_not_answered_counts() {
        let triggers = Triggers::default();
        let made = json!({"metadata": {"name": "s", "namespace": "n", "creationTimestamp": "1970-01-01T00:00:10Z"}});
        let service: Service = serde_json::from_value(made).unwrap();
        let seconds = |pods: &[Arc<Pod>]| triggers.since(&service, pods).map(Timestamp::as_second);
        assert_eq!(seconds(&[pod("a", 20)]), Some(10));
        assert_eq!(seconds(&[pod("a", 20)]), None);
        assert_eq!(seconds(&[pod("a", 40), pod("b", 30)]), Some(30));
        assert_eq!(seconds(&[pod("b", 30)]), None, "nothing says when a pod went");
        triggers.forget(&Key::new(Some("n"), "s"));
        assert_eq!(seconds(&[]), Some(10));
    }
}
