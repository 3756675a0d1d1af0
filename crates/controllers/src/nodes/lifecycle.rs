//! Silent nodes: their conditions are set to Unknown, and taints follow the conditions (NL-1…NL-5).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::{EventRecorder, EventType};
use client::store::Store;
use client::{Error, Key};
use clock::WorldClock;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::zones::Zones;
use super::{condition, file_by_node, node_reference, pods_on};
use crate::context::Context;
use crate::reconciling;
use crate::requests::{Form, pod_path, pod_reference, seconds, send};
use crate::settings::Timing;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A condition, the status it must have, and the taint that follows.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let nodes = context.informers.informer::<Node>();
    let leases = context.informers.informer::<Lease>();
    let pods = context.informers.informer::<Pod>();
    file_by_node(&pods.store());
    let labels = context.controller("nodelifecycle").on(&nodes, Predicate::any());
    context.informers.start(&context.stop);
    let synced = async { nodes.wait_synced().await && leases.wait_synced().await && pods.wait_synced().await };
    if context.stop.run_until_cancelled(synced).await != Some(true) {
        return;
    }
    let (client, store, clock) = (context.client.clone(), nodes.store(), context.clock.clone());
    let follow = move |run: Run| follow_conditions(client.clone(), store.clone(), run.key, clock.now());
    let mut monitor = Monitor {
        client: context.client.clone(),
        clock: context.clock.clone(),
        recorder: context.recorder("node-controller"),
        timing: context.settings.timing,
        nodes: nodes.store(),
        leases: leases.store(),
        pods: pods.store(),
        health: HashMap::new(),
        zones: Zones::new(context.settings.timing.node_eviction_every),
    };
    let watching = async {
        let mut checks = context.clock.interval(context.settings.timing.node_check);
        loop {
            let due = monitor.zones.next_due();
            tokio::select! {
                () = checks.tick() => monitor.check().await,
                () = context.clock.sleep_until(due.unwrap_or_else(|| context.clock.instant())), if due.is_some() => monitor.taint_due_nodes().await,
            }
        }
    };
    tokio::join!(
        reconciling::run(context.clone(), labels, 1, follow),
        context.stop.run_until_cancelled(watching).map(|_| ())
    );
}

/// NL-3, NL-5: the `NoSchedule` taints of a node's conditions, and the old names of two labels.
async fn follow_conditions(client: Client, nodes: Store<Node>, key: Key, now: Timestamp) -> Result<Action, RunError> {
    let Some(node) = nodes.get(&key) else { return Ok(Action::done()) };
    let mut patch = json!({});
    if let Some(taints) = wanted_taints(&node, now) {
        patch["spec"] = json!({"taints": taints});
    }
    let twins = label_twins(&node);
    if !twins.is_empty() {
        patch["metadata"] = json!({"labels": twins});
    }
    if patch.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(Action::done());
    }
    match write_node(&client, &node, patch).await {
        Err(error) if error.is_not_found() => Ok(Action::done()),
        Err(error) => Err(RunError::retry(error)),
        Ok(()) => Ok(Action::done()),
    }
}

/// A merge patch with the version that was read: taints are one list, and another client may have changed it.
async fn write_node(client: &Client, node: &Node, mut patch: Value) -> Result<(), Error> {
    patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
    let path = format!("/api/v1/nodes/{}", name_of(node));
    send(client, "PATCH", &path, Form::Merge, &patch).await?;
    Ok(())
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn taint(key: &str, effect: &str, now: Timestamp) -> Taint {
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
    Taint { key: key.to_owned(), effect: effect.to_owned(), time_added: Some(time), ..Taint::default() }
}

/// All taints of a node with those `NoSchedule` ones that follow from its conditions; none if it has them.
fn wanted_taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let is = |kind: &str, status: &str| condition(node, kind).is_some_and(|condition| condition.status == status);
    let mut follow: Vec<&str> =
        TAINTS.iter().filter(|(kind, status, _)| is(kind, status)).map(|(_, _, taint)| *taint).collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        follow.push(UNSCHEDULABLE);
    }
    let ours = |taint: &Taint| {
        taint.effect == "NoSchedule"
            && (taint.key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, key)| *key == taint.key))
    };
    // A new node keeps its initial taint until it has a Ready condition (PR-6).
    let silent = condition(node, "Ready").is_none();
    let stays =
        |taint: &&Taint| !ours(taint) || follow.contains(&taint.key.as_str()) || (silent && taint.key == NOT_READY);
    let known = taints_of(node);
    let mut wanted: Vec<Taint> = known.iter().filter(stays).cloned().collect();
    for key in follow {
        if !known.iter().any(|taint| ours(taint) && taint.key == key) {
            wanted.push(taint(key, "NoSchedule", now));
        }
    }
    (wanted != known).then_some(wanted)
}

/// NL-5: the labels under their old names, where they differ.
fn label_twins(node: &Node) -> BTreeMap<String, String> {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let twins = ["os", "arch"].into_iter().filter_map(|key| {
        let (old, new) = (format!("beta.kubernetes.io/{key}"), format!("kubernetes.io/{key}"));
        let value = label(&new)?;
        (label(&old) != Some(value)).then(|| (old, value.clone()))
    });
    twins.collect()
}

/// The last sign of life of a node.
struct Health {
    uid: Option<String>,
    heard: Instant,
    heartbeat: Option<Timestamp>,
    renewed: Option<Timestamp>,
}

struct Monitor {
    client: Client,
    clock: WorldClock,
    recorder: EventRecorder,
    timing: Timing,
    nodes: Store<Node>,
    leases: Store<Lease>,
    pods: Store<Pod>,
    health: HashMap<String, Health>,
    zones: Zones,
}

impl Monitor {
    /// NL-1: checks every node.
    async fn check(&mut self) {
        let nodes: Vec<Arc<Node>> = self.nodes.snapshot().iter().cloned().collect();
        self.note_departures(&nodes);
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for node in &nodes {
            let ready = self.check_node(node).await;
            let count = counts.entry(Zones::key(node)).or_default();
            if ready.as_deref() == Some("True") {
                count.0 += 1;
            } else {
                count.1 += 1;
            }
        }
        if self.zones.counted(&counts, self.clock.instant()) {
            tracing::warn!("no node is ready; no pod is evicted until one is");
            for node in &nodes {
                self.set_no_execute(node, None).await;
            }
        }
    }

    fn note_departures(&mut self, nodes: &[Arc<Node>]) {
        let here = |name: &str, uid: &Option<String>| {
            nodes.iter().any(|node| name_of(node) == name && node.metadata.uid == *uid)
        };
        let gone: Vec<String> = self
            .health
            .iter()
            .filter(|(name, health)| !here(name, &health.uid))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            let health = self.health.remove(&name);
            self.zones.forget(&name);
            let uid = health.and_then(|health| health.uid);
            self.record_node_event(
                &name,
                uid.as_deref(),
                "RemovingNode",
                &format!("Removing Node {name} from Controller"),
            );
        }
    }

    fn record_node_event(&self, name: &str, uid: Option<&str>, reason: &str, what: &str) {
        let text = format!("Node {name} event: {what}");
        self.recorder.record(&node_reference(name, uid), EventType::Normal, reason, &text);
    }

    /// The status of the node's Ready condition as it is now.
    async fn check_node(&mut self, node: &Arc<Node>) -> Option<String> {
        let ready = condition(node, "Ready");
        let observed = ready.map(|ready| ready.status.clone());
        let grace = if ready.is_some() { self.timing.node_grace } else { self.timing.node_startup_grace };
        let mut current = observed.clone();
        if self.listen(node) > grace {
            match self.mark_unknown(node).await {
                Ok(()) => current = Some("Unknown".to_owned()),
                Err(error) => {
                    tracing::debug!(node = name_of(node), %error, "a node could not be marked");
                    return observed;
                }
            }
        }
        match current.as_deref() {
            Some("True") => {
                self.zones.forget(name_of(node));
                self.set_no_execute(node, None).await;
            }
            Some(status @ ("False" | "Unknown")) => {
                let (wanted, opposite) =
                    if status == "False" { (NOT_READY, UNREACHABLE) } else { (UNREACHABLE, NOT_READY) };
                let has = |key: &str| taints_of(node).iter().any(|t| t.key == key && t.effect == "NoExecute");
                if has(opposite) {
                    self.set_no_execute(node, Some(wanted)).await;
                } else if !has(wanted) {
                    self.zones.wait(Zones::key(node), name_of(node), self.clock.instant());
                }
            }
            _ => {}
        }
        if current.as_deref() != Some("True") && observed.as_deref() == Some("True") {
            let (name, uid) = (name_of(node), node.metadata.uid.as_deref());
            let text = format!("Node {name} status is now: NodeNotReady");
            self.recorder.record(&node_reference(name, uid), EventType::Normal, "NodeNotReady", &text);
            self.mark_pods_not_ready(name).await;
        }
        current
    }

    /// Time for which neither the lease nor the Ready condition of the node changed. Measured here, since clocks differ.
    fn listen(&mut self, node: &Node) -> Duration {
        let (name, now) = (name_of(node), self.clock.instant());
        let heartbeat =
            condition(node, "Ready").and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|time| time.0);
        let lease = self.leases.get(&Key::new(Some("kube-node-lease"), name));
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0));
        if let Some(health) = self.health.get_mut(name) {
            if health.heartbeat != heartbeat
                || renewed.is_some_and(|last| health.renewed.is_none_or(|then| then < last))
            {
                health.heard = now;
            }
            health.heartbeat = heartbeat;
            health.renewed = renewed.or(health.renewed);
            return now.saturating_duration_since(health.heard);
        }
        let uid = node.metadata.uid.clone();
        self.record_node_event(
            name,
            uid.as_deref(),
            "RegisteredNode",
            &format!("Registered Node {name} in Controller"),
        );
        self.health.insert(name.to_owned(), Health { uid, heard: now, heartbeat, renewed });
        Duration::ZERO
    }

    /// NL-2.
    async fn mark_unknown(&mut self, node: &Node) -> Result<(), Error> {
        let now = self.clock.now();
        let mut conditions = Vec::new();
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            match condition(node, kind) {
                None => conditions.push(json!({
                    "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node.metadata.creation_timestamp.as_ref().map(|time| seconds(time.0)),
                    "lastTransitionTime": seconds(now),
                })),
                Some(known) if known.status != "Unknown" => conditions.push(json!({
                    "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
                    "message": "Kubelet stopped posting node status.", "lastTransitionTime": seconds(now),
                })),
                Some(_) => {}
            }
        }
        if conditions.is_empty() {
            return Ok(());
        }
        // Without a heartbeat: this write must not look like a sign of life.
        let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
        let path = format!("/api/v1/nodes/{}/status", name_of(node));
        send(&self.client, "PATCH", &path, Form::Strategic, &patch).await?;
        Ok(())
    }

    async fn mark_pods_not_ready(&self, node: &str) {
        for pod in pods_on(&self.pods, node) {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            if !conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                continue;
            }
            let condition =
                json!({"type": "Ready", "status": "False", "lastTransitionTime": seconds(self.clock.now())});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            let path = format!("{}/status", pod_path(&pod));
            match send(&self.client, "PATCH", &path, Form::Strategic, &patch).await {
                Ok(_) => {
                    self.recorder.record(&pod_reference(&pod), EventType::Warning, "NodeNotReady", "Node is not ready");
                }
                Err(error) => tracing::debug!(%error, path, "a pod could not be marked as not ready"),
            }
        }
    }

    /// Sets the `NoExecute` taint on the nodes that are due.
    async fn taint_due_nodes(&mut self) {
        for name in self.zones.due(self.clock.instant()) {
            let Some(node) = self.nodes.get(&Key::new(None, &name)) else { continue };
            let wanted = match condition(&node, "Ready").map(|ready| ready.status.as_str()) {
                Some("False") => NOT_READY,
                Some("Unknown") => UNREACHABLE,
                _ => continue,
            };
            if !self.set_no_execute(&node, Some(wanted)).await {
                self.zones.wait(Zones::key(&node), &name, self.clock.instant());
            }
        }
    }

    /// Leaves this one of our two `NoExecute` taints, or none. False if it must be tried again.
    async fn set_no_execute(&self, node: &Node, wanted: Option<&str>) -> bool {
        let ours = |taint: &&Taint| taint.effect == "NoExecute" && (taint.key == NOT_READY || taint.key == UNREACHABLE);
        let known = taints_of(node);
        let has = known.iter().filter(ours).map(|taint| taint.key.as_str());
        if has.eq(wanted) {
            return true;
        }
        let mut taints: Vec<Taint> = known.iter().filter(|taint| !ours(taint)).cloned().collect();
        taints.extend(wanted.map(|key| taint(key, "NoExecute", self.clock.now())));
        match write_node(&self.client, node, json!({"spec": {"taints": taints}})).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(node = name_of(node), %error, "the taints of a node could not be changed");
                error.is_not_found()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: Value, spec: Value) -> Node {
        let value = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}, "spec": spec,
            "status": {"conditions": conditions}});
        serde_json::from_value(value).unwrap()
    }

    fn keys(node: &Node) -> Option<Vec<String>> {
        let wanted = wanted_taints(node, Timestamp::UNIX_EPOCH)?;
        Some(wanted.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
    }

    fn ready(status: &str) -> Value {
        json!([{"type": "Ready", "status": status}])
    }

    #[test]
    fn nl_3_conditions_become_taints_that_keep_pods_away() {
        let not_ready = json!({"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]});
        assert_eq!(
            keys(&node(json!([]), not_ready.clone())),
            None,
            "a node that has said nothing keeps its first taint"
        );
        assert_eq!(keys(&node(ready("True"), not_ready.clone())), Some(vec![]));
        assert_eq!(keys(&node(ready("False"), not_ready.clone())), None);
        assert_eq!(keys(&node(ready("Unknown"), not_ready)), Some(vec![format!("{UNREACHABLE}:NoSchedule")]));
        let pressure = json!([{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True"}]);
        let others = json!({"taints": [{"key": "mine", "effect": "NoSchedule"}], "unschedulable": true});
        assert_eq!(
            keys(&node(pressure, others)),
            Some(vec![
                "mine:NoSchedule".into(),
                "node.kubernetes.io/memory-pressure:NoSchedule".into(),
                "node.kubernetes.io/unschedulable:NoSchedule".into(),
            ])
        );
    }

    #[test]
    fn nl_5_old_names_of_labels_follow() {
        let twins = label_twins(&node(json!([]), json!({})));
        assert_eq!(twins.into_iter().collect::<Vec<_>>(), [("beta.kubernetes.io/os".to_owned(), "linux".to_owned())]);
    }
}
