//! Pods that do not tolerate a `NoExecute` taint of their node, or not for longer: they are deleted (NL-4).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Key;
use client::events::{EventRecorder, EventType};
use client::informer::Event;
use client::store::Store;
use client::workqueue::Figures;
use clock::WorldClock;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::Client;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agenda::{Agenda, Place};
use super::{file_by_node, pods_on};
use crate::context::Context;
use crate::placement::tolerates;
use crate::requests::{Form, pod_path, pod_reference, seconds, send};

/// Deletions under way at the same time.
const DELETIONS_MAX: usize = 16;
const ATTEMPTS: u32 = 5;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    file_by_node(&pods.store());
    let Some((mut pod_events, mut node_events)) = context.subscribe_to_both(&pods, &nodes).await else { return };
    let published = context.settings.queues.publish(context.name);
    let mut evictions = Evictions {
        client: context.client.clone(),
        clock: context.clock.clone(),
        recorder: context.recorder("taint-eviction-controller"),
        pods: pods.store(),
        tainted: HashMap::new(),
        planned: HashMap::new(),
        agenda: Agenda::new(),
        deletions: JoinSet::new(),
    };
    loop {
        while evictions.deletions.len() < DELETIONS_MAX
            && let Some(key) = evictions.agenda.take_due(evictions.clock.instant())
        {
            evictions.evict(&key);
        }
        published.set(Figures {
            delayed: evictions.agenda.work().len(),
            working: evictions.deletions.len(),
            next_due: evictions.agenda.next_due(),
            ..Figures::default()
        });
        let due = if evictions.deletions.len() < DELETIONS_MAX { evictions.agenda.next_due() } else { None };
        tokio::select! {
            () = context.stop.cancelled() => break,
            Some(event) = node_events.next() => evictions.node_event(event),
            Some(event) = pod_events.next() => evictions.pod_event(event),
            Some(_) = evictions.deletions.join_next(), if !evictions.deletions.is_empty() => {}
            () = context.clock.sleep_until(due.unwrap_or_else(|| context.clock.instant())), if due.is_some() => {}
        }
    }
}

/// A deletion that is planned.
struct Planned {
    place: Place,
    since: Instant,
    at: Instant,
}

struct Evictions {
    client: Client,
    clock: WorldClock,
    recorder: EventRecorder,
    pods: Store<Pod>,
    /// Nodes that have such taints; most have none, and then a pod event costs one look.
    tainted: HashMap<String, Vec<Taint>>,
    planned: HashMap<Key, Planned>,
    agenda: Agenda<Key>,
    deletions: JoinSet<()>,
}

impl Evictions {
    fn node_event(&mut self, event: Event<Node>) {
        let (name, taints) = match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                let taints = object.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
                let taints: Vec<Taint> = taints.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect();
                (object.metadata.name.clone().unwrap_or_default(), taints)
            }
            Event::Deleted { object, .. } => (object.metadata.name.clone().unwrap_or_default(), Vec::new()),
            _ => return,
        };
        let before = if taints.is_empty() {
            self.tainted.remove(&name)
        } else {
            self.tainted.insert(name.clone(), taints.clone())
        };
        if before.unwrap_or_default() == taints {
            return;
        }
        for pod in pods_on(&self.pods, &name) {
            self.judge(&pod, &taints);
        }
    }

    fn pod_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                let node = object.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
                if let Some(taints) = self.tainted.get(node).cloned() {
                    self.judge(&object, &taints);
                }
            }
            Event::Deleted { object, .. } => {
                self.cancel(&Key::of(&*object));
            }
            _ => {}
        }
    }

    fn judge(&mut self, pod: &Arc<Pod>, taints: &[Taint]) {
        let key = Key::of(&**pod);
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let now = self.clock.instant();
        match time_until_eviction(tolerations, taints) {
            None => {
                if self.cancel(&key) {
                    let text = format!("Cancelling deletion of Pod {key}");
                    self.recorder.record(&pod_reference(pod), EventType::Normal, "TaintManagerEviction", &text);
                }
            }
            Some(_) if pod.metadata.deletion_timestamp.is_some() => {}
            Some(wait) => {
                let since = self.planned.get(&key).map_or(now, |planned| planned.since);
                let at = since + wait;
                // An earlier plan is kept; the wait is counted from its beginning.
                if self.planned.get(&key).is_some_and(|planned| planned.at <= at) {
                    return;
                }
                self.cancel(&key);
                let place = self.agenda.add(at, key.clone());
                self.planned.insert(key, Planned { place, since, at });
            }
        }
    }

    fn cancel(&mut self, key: &Key) -> bool {
        let Some(planned) = self.planned.remove(key) else { return false };
        self.agenda.remove(planned.place);
        true
    }

    fn evict(&mut self, key: &Key) {
        self.planned.remove(key);
        let Some(pod) = self.pods.get(key) else { return };
        let text = format!("Marking for deletion Pod {key}");
        self.recorder.record(&pod_reference(&pod), EventType::Normal, "TaintManagerEviction", &text);
        self.deletions.spawn(delete(self.client.clone(), pod, self.clock.clone()));
    }
}

/// Time until a pod is evicted; none if it is not.
fn time_until_eviction(tolerations: &[Toleration], taints: &[Taint]) -> Option<Duration> {
    if taints.is_empty() {
        return None;
    }
    let mut used = Vec::new();
    for taint in taints {
        let tolerating = tolerations.iter().find(|toleration| tolerates(toleration, taint));
        let Some(toleration) = tolerating else { return Some(Duration::ZERO) };
        used.push(toleration);
    }
    let least = used.iter().filter_map(|toleration| toleration.toleration_seconds).min()?;
    Some(Duration::from_secs(u64::try_from(least).unwrap_or_default()))
}

async fn delete(client: Client, pod: Arc<Pod>, clock: WorldClock) {
    let now = clock.now();
    let path = pod_path(&pod);
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastProbeTime": null, "lastTransitionTime": seconds(now),
        "observedGeneration": pod.metadata.generation,
    });
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    let options = json!({"preconditions": {"uid": pod.metadata.uid}});
    for attempt in 1..=ATTEMPTS {
        let done = async {
            send(&client, "PATCH", &format!("{path}/status"), Form::Strategic, &patch).await?;
            send(&client, "DELETE", &path, Form::Json, &options).await
        };
        match done.await {
            Ok(_) => return,
            Err(error) if error.is_not_found() || error.is_conflict() => return,
            Err(error) => {
                tracing::debug!(path, %error, attempt, "a pod could not be evicted");
                clock.sleep(Duration::from_millis(100) * attempt).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nl_4_the_least_patient_toleration_counts() {
        let taint =
            |key: &str| -> Taint { serde_json::from_value(json!({"key": key, "effect": "NoExecute"})).unwrap() };
        let toleration = |key: &str, seconds: Option<i64>| -> Toleration {
            serde_json::from_value(json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds})).unwrap()
        };
        let (a, b) = (taint("a"), taint("b"));
        for (tolerations, taints, expected) in [
            (vec![], vec![], None),
            (vec![], vec![a.clone()], Some(0)),
            (vec![toleration("a", None)], vec![a.clone()], None),
            (vec![toleration("a", Some(300))], vec![a.clone()], Some(300)),
            (vec![toleration("a", Some(300))], vec![a.clone(), b.clone()], Some(0)),
            (vec![toleration("a", Some(300)), toleration("b", Some(5))], vec![a.clone(), b.clone()], Some(5)),
            (vec![toleration("a", Some(-1))], vec![a.clone()], Some(0)),
        ] {
            assert_eq!(
                time_until_eviction(&tolerations, &taints),
                expected.map(Duration::from_secs),
                "{tolerations:?} {taints:?}"
            );
        }
    }
}
