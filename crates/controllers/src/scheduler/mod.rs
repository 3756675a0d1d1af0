//! The scheduler: takes pods without a node, finds the best node for each, and writes the binding (SC-1…SC-19).
//!
//! - `queue`: the pods without a node
//! - `cluster`: the nodes and the resources in use on each
//! - `decision`: the node of a pod, by `filters`, then `scores`; with `neighbours`, `claims`, `volumes` and `images`
//! - `preemption`: the pods of lower priority that are removed for a pod without a node
//! - `nominations`: the pods that wait for such a removal
//! - `binding`: the write of a decision
//! - `amounts`, `selectors`: the arithmetic and the matching they share
//!
//! One task decides, one pod at a time; a decision counts at once (`assume`), and the bindings are
//! written concurrently.

pub(crate) mod amounts;
mod binding;
mod claims;
mod cluster;
mod decision;
pub(crate) mod filters;
mod images;
mod neighbours;
mod nominations;
mod preemption;
mod queue;
mod scores;
mod selectors;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use client::Key;
use client::events::{ApiEvents, EventType, NewEvent, SeriesRecorder};
use client::informer::{Event, SubscriptionOptions};
use client::store::Store;
use client::workqueue::Figures;
use clock::WorldClock;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::context::Context;
use crate::requests::{Form, pod_path, pod_reference, seconds, send};
use amounts::Request;
use binding::{Binding, Bound};
use claims::{Claims, Verdict};
use cluster::Cluster;
use decision::Refusal;
use preemption::eviction::{Evicted, Eviction};
use preemption::{Candidate, Outcome};
use queue::{Queue, Remedy, priority};

const NAME: &str = "default-scheduler";
/// Bindings under way at the same time.
const BINDINGS_MAX: usize = 64;
/// Time for bindings once the scheduler is stopped.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Decisions after which the scheduler yields while it has pods to place.
const TURN: u32 = 32;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    let claims = context.informers.informer::<PersistentVolumeClaim>();
    let classes = context.informers.informer::<StorageClass>();
    let volumes = context.informers.informer::<PersistentVolume>();
    let namespaces = context.informers.informer::<Namespace>();
    let budgets = context.informers.informer::<PodDisruptionBudget>();
    let options = SubscriptionOptions::default;
    let (Ok(mut pod_events), Ok(mut node_events), Ok(mut claim_events)) =
        (pods.subscribe(options()), nodes.subscribe(options()), claims.subscribe(options()))
    else {
        return;
    };
    context.informers.start(&context.stop);
    let synced = async {
        pods.wait_synced().await
            && nodes.wait_synced().await
            && claims.wait_synced().await
            && classes.wait_synced().await
            && volumes.wait_synced().await
            && namespaces.wait_synced().await
            && budgets.wait_synced().await
    };
    if context.stop.run_until_cancelled(synced).await != Some(true) {
        return;
    }
    let sink = Arc::new(ApiEvents::new(context.client.clone()));
    let (recorder, writer) = SeriesRecorder::new(sink, NAME, &format!("{NAME}-{}", context.settings.identity));
    context.tasks.spawn(writer.run(context.stop.clone()).boxed());
    let mut scheduler = Scheduler {
        client: context.client.clone(),
        clock: context.clock.clone(),
        recorder: recorder.with_clock(context.clock.reading()),
        pods: pods.store(),
        namespaces: namespaces.store(),
        budgets: budgets.store(),
        claims: Claims { claims: claims.store(), classes: classes.store(), volumes: volumes.store() },
        cluster: Cluster::default(),
        queue: Queue::default(),
        start: 0,
        bindings: JoinSet::new(),
        settling: 0,
        evictions: JoinSet::new(),
        writes: JoinSet::new(),
    };
    let published = context.settings.queues.publish(context.name);
    let mut turn = 0;
    loop {
        // All events are applied before the next decision; nodes first, so that pods find theirs.
        while let Some(Some(event)) = node_events.next().now_or_never() {
            scheduler.node_event(event);
        }
        while let Some(Some(event)) = pod_events.next().now_or_never() {
            scheduler.pod_event(event);
        }
        while let Some(Some(_)) = claim_events.next().now_or_never() {
            scheduler.queue.changed(Remedy::CLAIMS, context.clock.instant());
        }
        while let Some(Ok(bound)) = scheduler.bindings.try_join_next() {
            scheduler.bound(bound);
        }
        while let Some(Ok(evicted)) = scheduler.evictions.try_join_next() {
            scheduler.evicted(evicted);
        }
        while scheduler.writes.try_join_next().is_some() {}
        if context.stop.is_cancelled() {
            break;
        }
        if scheduler.has_room()
            && let Some((key, pod)) = scheduler.queue.pop(context.clock.instant())
        {
            scheduler.place(&key, pod);
            turn += 1;
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
            continue;
        }
        published.set(scheduler.figures());
        let due = if scheduler.has_room() { scheduler.queue.next_due() } else { None };
        tokio::select! {
            () = context.stop.cancelled() => break,
            Some(event) = node_events.next() => scheduler.node_event(event),
            Some(event) = pod_events.next() => scheduler.pod_event(event),
            Some(_) = claim_events.next() => scheduler.queue.changed(Remedy::CLAIMS, context.clock.instant()),
            Some(Ok(bound)) = scheduler.bindings.join_next(), if !scheduler.bindings.is_empty() => scheduler.bound(bound),
            Some(Ok(evicted)) = scheduler.evictions.join_next(), if !scheduler.evictions.is_empty() => scheduler.evicted(evicted),
            () = context.clock.sleep_until(due.unwrap_or_else(|| context.clock.instant())), if due.is_some() => {}
        }
    }
    scheduler.finish().await;
}

struct Scheduler {
    client: Client,
    clock: WorldClock,
    recorder: SeriesRecorder,
    pods: Store<Pod>,
    namespaces: Store<Namespace>,
    budgets: Store<PodDisruptionBudget>,
    claims: Claims,
    cluster: Cluster,
    queue: Queue,
    /// The node at which the next search starts.
    start: usize,
    bindings: JoinSet<Bound>,
    /// Number of bindings that wait for claims.
    settling: usize,
    /// Preemptions under way.
    evictions: JoinSet<Evicted>,
    /// Conditions of pods that found no node.
    writes: JoinSet<()>,
}

/// The change of a pod's nomination after a failure.
enum Nomination {
    Kept,
    Cleared,
    Node(Arc<str>),
}

impl Scheduler {
    /// Waits a moment for bindings under way; the next leader repeats those that are lost.
    #[expect(clippy::disallowed_methods, reason = "a program that stops does not wait for the clock of its world")]
    async fn finish(&mut self) {
        let written = async { while self.bindings.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP_WITHIN, written).await;
    }

    /// True if another binding may start. Those that wait for claims may take long and are not counted.
    fn has_room(&self) -> bool {
        self.bindings.len() - self.settling.min(self.bindings.len()) < BINDINGS_MAX
    }

    /// The pods in the queue, and the writes under way. Bindings that wait for claims are not work: others write the claims.
    fn figures(&self) -> Figures {
        let bindings = self.bindings.len().saturating_sub(self.settling);
        let working = bindings + self.evictions.len() + self.writes.len();
        Figures { working, ..self.queue.figures() }
    }

    fn node_event(&mut self, event: Event<Node>) {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                if self.cluster.put_node(object) {
                    self.queue.changed(Remedy::NODES, self.clock.instant());
                }
            }
            Event::Deleted { object, .. } | Event::Undecodable { previous: Some(object), .. } => {
                self.cluster.remove_node(object.metadata.name.as_deref().unwrap_or_default());
            }
            Event::Undecodable { .. } | Event::HistoryReset { .. } | Event::Lagged { .. } => {}
        }
    }

    fn pod_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => self.pod_is(object),
            Event::Deleted { object, .. } | Event::Undecodable { previous: Some(object), .. } => {
                self.pod_takes_nothing(&Key::of(&*object));
            }
            Event::Undecodable { .. } | Event::HistoryReset { .. } | Event::Lagged { .. } => {}
        }
    }

    fn pod_is(&mut self, pod: Arc<Pod>) {
        let key = Key::of(&*pod);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            return self.pod_takes_nothing(&key);
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty());
        if let Some(node) = node {
            self.queue.remove(&key);
            let node = node.to_owned();
            if self.cluster.put_pod(&key, pod.clone(), &node, || amounts::request_of(&pod)) {
                self.queue.changed(Remedy::COMPANY, self.clock.instant());
            }
        } else if needs_node(&pod) {
            if self.cluster.nominations.read(&key, &pod) {
                self.queue.changed(Remedy::ROOM, self.clock.instant());
            }
            self.queue.put(&key, pod, self.clock.instant());
        } else {
            self.queue.remove(&key);
            if self.cluster.nominations.remove(&key) {
                self.queue.changed(Remedy::ROOM, self.clock.instant());
            }
        }
    }

    fn pod_takes_nothing(&mut self, key: &Key) {
        self.queue.remove(key);
        let nominated = self.cluster.nominations.remove(key);
        if self.cluster.remove_pod(key) || nominated {
            self.queue.changed(Remedy::ROOM, self.clock.instant());
        }
    }

    /// Finds a node and starts the binding.
    fn place(&mut self, key: &Key, pod: Arc<Pod>) {
        let mut request = amounts::request_of(&pod);
        request.volumes = self.claims.places(&pod);
        let nodes = self.cluster.nodes().len();
        let verdict = if nodes == 0 { Verdict::Ready } else { self.claims.judge(&pod) };
        let decision = match &verdict {
            Verdict::Unusable(why) => Err(decision::nowhere(nodes, why, Remedy::CLAIMS)),
            _ => decision::decide(&pod, &request, &mut self.cluster, &self.namespaces, &mut self.start),
        };
        match decision {
            Err(refusal) => self.give_up(key, &pod, &request, &refusal),
            Ok(node) => {
                self.cluster.assume(key, pod.clone(), &node, request);
                let waiting = if let Verdict::Waiting(claims) = verdict { claims } else { Vec::new() };
                self.settling += usize::from(!waiting.is_empty());
                let (client, claims, clock) = (self.client.clone(), self.claims.clone(), self.clock.clone());
                let binding = Binding { client, claims, clock, pod, node, waiting };
                self.bindings.spawn(binding.write(key.clone()));
            }
        }
    }

    /// Preempts other pods for a pod without a node, or parks it until a change helps.
    fn give_up(&mut self, key: &Key, pod: &Arc<Pod>, request: &Request, refusal: &Refusal) {
        let budgets: Vec<Arc<PodDisruptionBudget>> = self.budgets.snapshot().iter().cloned().collect();
        let outcome = preemption::search(pod, request, refusal, &mut self.cluster, &self.namespaces, &budgets);
        let message = preemption::message(refusal, &outcome);
        let nomination = match outcome {
            Outcome::NotEligible(_) if refusal.nodes > 0 => Nomination::Kept,
            Outcome::NotEligible(_) | Outcome::NoCandidate(_) => Nomination::Cleared,
            Outcome::Found(candidate) => {
                let node = candidate.node.clone();
                self.preempt(pod, candidate);
                Nomination::Node(node)
            }
        };
        self.queue.park(key, refusal.remedy, self.clock.instant());
        self.failed(key, pod, "Unschedulable", &message, &nomination);
    }

    /// SC-17: starts the removal of victims.
    fn preempt(&mut self, pod: &Arc<Pod>, candidate: Candidate) {
        let Candidate { node, victims, .. } = candidate;
        let outranked = self.cluster.nominations.below(&node, priority(pod));
        for (key, _) in &outranked {
            self.cluster.nominations.remove(key);
        }
        if !outranked.is_empty() {
            self.queue.changed(Remedy::ROOM, self.clock.instant());
        }
        let here = victims.into_iter().filter(|victim| victim.metadata.deletion_timestamp.is_none());
        let victims: Vec<Arc<Pod>> = here.collect();
        for victim in &victims {
            self.cluster.set_preempted(&Key::of(&**victim), true);
        }
        let outranked = outranked.into_iter().map(|(_, pod)| pod).collect();
        let (client, preemptor, now) = (self.client.clone(), pod.clone(), self.clock.now());
        self.evictions.spawn(Eviction { client, preemptor, node, victims, outranked, now }.write());
    }

    fn evicted(&mut self, evicted: Evicted) {
        let Evicted { preemptor, node, deleted, failed } = evicted;
        let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
        let (note, related) = (format!("Preempted by pod {uid} on node {node}"), pod_reference(&preemptor));
        for victim in deleted {
            let (regarding, kind) = (pod_reference(&victim), EventType::Normal);
            let (related, reason, action) = (Some(&related), "Preempted", "Preempting");
            let event = NewEvent { regarding: &regarding, related, kind, reason, action, note: &note };
            let _ = self.recorder.record(&event);
        }
        for key in &failed {
            self.cluster.set_preempted(key, false);
        }
        let key = Key::of(&*preemptor);
        if !failed.is_empty() && self.pods.get(&key).is_some_and(|now| needs_node(&now)) {
            self.queue.retry(&key, self.clock.instant());
        }
    }

    fn bound(&mut self, bound: Bound) {
        let Bound { key, pod, node, settled, result } = bound;
        self.settling -= usize::from(settled);
        let Err(error) = result else {
            let message = format!("Successfully assigned {key} to {node}");
            return self.record_event(&pod, EventType::Normal, "Scheduled", "Binding", &message);
        };
        self.cluster.unassume(&key);
        let now = self.pods.get(&key).filter(|now| now.metadata.uid == pod.metadata.uid);
        // Deleted, being deleted, or bound by another scheduler: nothing is left to do.
        if error.is_not_found() || now.is_none_or(|now| !needs_node(&now)) {
            return;
        }
        tracing::debug!(%key, %node, %error, "a binding failed");
        self.queue.retry(&key, self.clock.instant());
        self.failed(&key, &pod, "SchedulerError", &format!("binding rejected: {error}"), &Nomination::Cleared);
    }

    /// SC-12: an event each time, the condition only if it changed. SC-18: the nomination with it.
    fn failed(&mut self, key: &Key, pod: &Arc<Pod>, reason: &str, message: &str, nomination: &Nomination) {
        self.record_event(pod, EventType::Warning, "FailedScheduling", "Scheduling", message);
        let nominated = self.nominate(key, pod, nomination);
        if let Some(patch) = status_patch(pod, reason, message, nominated, self.clock.now()) {
            let path = format!("{}/status", pod_path(pod));
            let client = self.client.clone();
            self.writes.spawn(async move {
                if let Err(error) = send(&client, "PATCH", &path, Form::Strategic, &patch).await {
                    tracing::debug!(%error, path, "the condition of a pod could not be written");
                }
            });
        }
    }

    /// Returns the value of `nominatedNodeName` to write, if it changes.
    fn nominate(&mut self, key: &Key, pod: &Arc<Pod>, nomination: &Nomination) -> Option<Value> {
        let node = match nomination {
            Nomination::Kept => return None,
            Nomination::Cleared => None,
            Nomination::Node(node) => Some(&**node),
        };
        // A nomination that was decided and is not in the pod's status yet counts as well.
        let nominations = &mut self.cluster.nominations;
        let same =
            nominations::written_node(pod) == node && nominations.node_of(key).is_none_or(|old| Some(&**old) == node);
        match node {
            Some(node) => nominations.set(key, pod.clone(), node),
            None => {
                nominations.remove(key);
            }
        }
        (!same).then(|| json!(node))
    }

    fn record_event(&self, pod: &Pod, kind: EventType, reason: &str, action: &str, note: &str) {
        let regarding = pod_reference(pod);
        let _ = self.recorder.record(&NewEvent { regarding: &regarding, related: None, kind, reason, action, note });
    }
}

/// SC-1.
fn needs_node(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    pod.metadata.deletion_timestamp.is_none()
        && spec.node_name.as_deref().unwrap_or_default().is_empty()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == NAME || name.is_empty())
        && spec.scheduling_gates.as_deref().unwrap_or_default().is_empty()
}

/// The condition with the reason that a pod has no node, and its nomination; none if the pod has both already.
fn status_patch(pod: &Pod, reason: &str, message: &str, nominated: Option<Value>, now: Timestamp) -> Option<Value> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let old = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    let same = old.is_some_and(|old| {
        old.status == "False" && old.reason.as_deref() == Some(reason) && old.message.as_deref() == Some(message)
    });
    let mut status = serde_json::Map::new();
    if !same {
        let since = old.filter(|old| old.status == "False").and_then(|old| old.last_transition_time.as_ref());
        let since = since.map_or(now, |time| time.0);
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastProbeTime": null, "lastTransitionTime": seconds(since),
            "observedGeneration": pod.metadata.generation,
        });
        status.insert("conditions".to_owned(), json!([condition]));
    }
    if let Some(node) = nominated {
        status.insert("nominatedNodeName".to_owned(), node);
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": pod.metadata.uid}, "status": status}))
}
