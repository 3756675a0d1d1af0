//! The writes of a preemption: conditions and deletions of victims, and the end of nominations (SC-17, SC-18).

use std::sync::Arc;

use client::Key;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use serde_json::{Value, json};

use super::super::NAME;
use crate::requests::{Api, Form, pod_path, seconds, send};

pub(super) const DISRUPTION_TARGET: &str = "DisruptionTarget";
pub(super) const PREEMPTED_REASON: &str = "PreemptionByScheduler";

/// A preemption under way.
pub(in crate::scheduler) struct Eviction {
    pub(in crate::scheduler) client: Client,
    /// The pod that needs the room.
    pub(in crate::scheduler) preemptor: Arc<Pod>,
    pub(in crate::scheduler) node: Arc<str>,
    /// Pods that are not being deleted yet.
    pub(in crate::scheduler) victims: Vec<Arc<Pod>>,
    /// Pods of lower priority that lose their nomination for the node.
    pub(in crate::scheduler) outranked: Vec<Arc<Pod>>,
    pub(in crate::scheduler) now: Timestamp,
}

/// The result of a preemption.
pub(in crate::scheduler) struct Evicted {
    pub(in crate::scheduler) preemptor: Arc<Pod>,
    pub(in crate::scheduler) node: Arc<str>,
    /// Victims that were deleted now.
    pub(in crate::scheduler) deleted: Vec<Arc<Pod>>,
    /// Victims that could not be deleted.
    pub(in crate::scheduler) failed: Vec<Key>,
}

impl Eviction {
    pub(in crate::scheduler) async fn write(self) -> Evicted {
        for pod in &self.outranked {
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": null}});
            let path = format!("{}/status", pod_path(pod));
            if let Err(error) = send(&self.client, "PATCH", &path, Form::Strategic, &patch).await {
                tracing::debug!(%error, path, "the nomination of a pod could not be cleared");
            }
        }
        let results = join_all(self.victims.iter().map(|victim| self.evict(victim))).await;
        let (mut deleted, mut failed) = (Vec::new(), Vec::new());
        for (victim, result) in self.victims.into_iter().zip(results) {
            match result {
                Ok(true) => deleted.push(victim),
                Ok(false) => {}
                Err(error) => {
                    let key = Key::of(&*victim);
                    tracing::debug!(%error, %key, "a pod could not be preempted");
                    failed.push(key);
                }
            }
        }
        Evicted { preemptor: self.preemptor, node: self.node, deleted, failed }
    }

    /// True if the pod was deleted now, false if it did not exist any more.
    async fn evict(&self, victim: &Pod) -> Result<bool, client::Error> {
        let path = format!("{}/status", pod_path(victim));
        let patch = condition_patch(victim, &self.preemptor, self.now);
        let meta = &victim.metadata;
        let preconditions = Some(Preconditions { uid: meta.uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let pods = Api::<Pod>::namespaced(&self.client, meta.namespace.as_deref().unwrap_or_default());
        let written = async {
            send(&self.client, "PATCH", &path, Form::Strategic, &patch).await?;
            pods.delete(meta.name.as_deref().unwrap_or_default(), &params).await
        };
        match written.await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The condition that says why a pod is deleted.
fn condition_patch(victim: &Pod, preemptor: &Pod, now: Timestamp) -> Value {
    let scheduler = preemptor.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME);
    json!({"metadata": {"uid": victim.metadata.uid}, "status": {"conditions": [{
        "type": DISRUPTION_TARGET, "status": "True", "reason": PREEMPTED_REASON,
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastProbeTime": null, "lastTransitionTime": seconds(now),
        "observedGeneration": victim.metadata.generation,
    }]}})
}
