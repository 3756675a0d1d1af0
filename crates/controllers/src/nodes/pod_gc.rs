//! Pods that no other controller removes: of deleted nodes, finished ones beyond a limit, and ones without a node (PG-1).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use client::Key;
use client::store::Store;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::condition;
use crate::context::Context;
use crate::requests::{Form, pod_path, seconds, send};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Removals at the same time.
const AT_ONCE: usize = 16;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    context.informers.start(&context.stop);
    let synced = async { nodes.wait_synced().await && pods.wait_synced().await };
    if context.stop.run_until_cancelled(synced).await != Some(true) {
        return;
    }
    let (pods, nodes) = (pods.store(), nodes.store());
    let mut missing: HashMap<String, Instant> = HashMap::new();
    let mut rounds = context.clock.interval(context.settings.timing.pod_gc);
    while context.stop.run_until_cancelled(rounds.tick()).await.is_some() {
        let work = round(&context, &pods, &nodes, &mut missing);
        if context.stop.run_until_cancelled(work).await.is_none() {
            return;
        }
    }
}

async fn round(context: &Context, pods: &Store<Pod>, nodes: &Store<Node>, missing: &mut HashMap<String, Instant>) {
    let pods: Vec<Arc<Pod>> = pods.snapshot().iter().cloned().collect();
    let mut remove: Vec<(Arc<Pod>, bool)> = surplus(&pods, context.settings.terminated_pods_max);
    remove.extend(pods.iter().filter(|pod| is_stuck(pod, nodes)).map(|pod| (pod.clone(), false)));
    let gone = gone_nodes(context, &pods, nodes, missing).await;
    let orphaned = pods.iter().filter(|pod| gone.contains(node_of(pod)));
    remove.extend(orphaned.map(|pod| (pod.clone(), true)));
    futures::stream::iter(remove)
        .for_each_concurrent(AT_ONCE, |(pod, orphaned)| remove_pod(context, pod, orphaned))
        .await;
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Finished pods beyond the limit: evicted ones first, then the oldest.
fn surplus(pods: &[Arc<Pod>], max: usize) -> Vec<(Arc<Pod>, bool)> {
    let mut ended: Vec<&Arc<Pod>> = pods.iter().filter(|pod| matches!(phase(pod), "Succeeded" | "Failed")).collect();
    let count = ended.len().saturating_sub(max);
    if count == 0 {
        return Vec::new();
    }
    let evicted = |pod: &Pod| {
        phase(pod) == "Failed" && pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted")
    };
    ended.sort_by_key(|pod| {
        let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!evicted(pod), made, pod.metadata.name.clone())
    });
    ended.into_iter().take(count).map(|pod| (pod.clone(), false)).collect()
}

/// Being deleted without a node that could end it: it has no node, or its node is out of service.
fn is_stuck(pod: &Pod, nodes: &Store<Node>) -> bool {
    if pod.metadata.deletion_timestamp.is_none() {
        return false;
    }
    if node_of(pod).is_empty() {
        return true;
    }
    let Some(node) = nodes.get(&Key::new(None, node_of(pod))) else { return false };
    let ready = condition(&node, "Ready").is_some_and(|ready| ready.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    !ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Nodes that pods name and that have been missing for long enough, confirmed by a live read.
async fn gone_nodes(
    context: &Context,
    pods: &[Arc<Pod>],
    nodes: &Store<Node>,
    missing: &mut HashMap<String, Instant>,
) -> BTreeSet<String> {
    let named: BTreeSet<&str> = pods.iter().map(|pod| node_of(pod)).filter(|name| !name.is_empty()).collect();
    let now = context.clock.instant();
    let absent = |name: &str| nodes.get(&Key::new(None, name)).is_none();
    missing.retain(|name, _| named.contains(name.as_str()) && absent(name));
    for name in named.into_iter().filter(|name| absent(name)) {
        missing.entry(name.to_owned()).or_insert(now);
    }
    let api: Api<Node> = Api::all(context.client.clone());
    let mut gone = BTreeSet::new();
    for (name, since) in missing.iter() {
        if now.saturating_duration_since(*since) >= context.settings.timing.pod_gc_quarantine
            && matches!(api.get_metadata_opt(name).await, Ok(None))
        {
            gone.insert(name.clone());
        }
    }
    gone
}

/// Sets the phase of a pod that has not ended to Failed before it deletes the pod.
async fn remove_pod(context: &Context, pod: Arc<Pod>, orphaned: bool) {
    let path = pod_path(&pod);
    let removed = async {
        if !matches!(phase(&pod), "Succeeded" | "Failed") {
            let mut status = json!({"phase": "Failed", "observedGeneration": pod.metadata.generation});
            if orphaned {
                status["conditions"] = json!([disrupted(&pod, context.clock.now())]);
            }
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
            send(&context.client, "PATCH", &format!("{path}/status"), Form::Strategic, &patch).await?;
        }
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}});
        send(&context.client, "DELETE", &path, Form::Json, &options).await
    };
    match removed.await {
        Ok(_) => {}
        Err(error) if error.is_not_found() || error.is_conflict() => {}
        Err(error) => tracing::debug!(path, %error, "a pod could not be removed"),
    }
}

fn disrupted(pod: &Pod, now: Timestamp) -> Value {
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "lastProbeTime": null,
        "lastTransitionTime": seconds(now), "observedGeneration": pod.metadata.generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg_1_evicted_pods_go_first_then_the_oldest() {
        let pod = |name: &str, phase: &str, reason: Option<&str>, second: i64| -> Arc<Pod> {
            let made = seconds(Timestamp::from_second(1_800_000_000 + second).unwrap());
            let value = json!({"metadata": {"name": name, "creationTimestamp": made},
                "status": {"phase": phase, "reason": reason}});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let pods = [
            pod("new", "Succeeded", None, 9),
            pod("old", "Failed", None, 1),
            pod("evicted", "Failed", Some("Evicted"), 8),
            pod("running", "Running", None, 0),
        ];
        let names = |max| -> Vec<String> {
            surplus(&pods, max).into_iter().map(|(pod, _)| pod.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names(3), Vec::<String>::new());
        assert_eq!(names(1), ["evicted", "old"]);
    }
}
