//! All simulated nodes as one program: one watch of pods, one agenda, bounded writes.
//!
//! A thousand kubelets would be a thousand watches and timers. Here every pod event leads to at most one entry in the agenda
//! (the next step of that pod, and its time), and due steps are written by at most [`WRITES_MAX`] tasks at a time. A pod has
//! at most one step under way (NA-15), and the next one is planned on a state that shows the last (`seen`).

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use client::events::EventRecorder;
use client::informer::Event;
use client::store::Store;
use client::workqueue::{Figures, KeyState};
use client::{Key, ResourceVersion};
use clock::WorldClock;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::addresses::Pool;
use super::admission::{self, Refusal};
use super::agenda::{Agenda, Place};
use super::containers::Containers;
use super::events::NodeEvents;
use super::fleet_stages::{self, StageInputs};
use super::kwok::{self, Kwok};
use super::machines;
use super::pace::Pace;
use super::processes::{PodProcesses, World};
use super::register;
use super::stages::Stages;
use super::status::{self, StepEvent, StepInputs};
use super::steps::{self, Change, Known, Step};
use super::usage::Usages;
use crate::context::Context;
use crate::identities::Identity;
use crate::requests::{Form, microseconds, pod_path, pod_reference, send_as};
use crate::settings::Timing;

/// What is begun before events are looked at again.
const BEGUN_MAX: usize = 64;
/// Writes under way at the same time, for all nodes.
const WRITES_MAX: usize = 64;
/// NA-4: a lease is kept for four renewals.
const LEASE_PERIODS: u32 = 4;
/// NA-4: a renewal is delayed by up to this share of its interval, so that nodes do not all renew at once.
const LEASE_JITTER: f64 = 0.04;
/// The first wait after a write that failed, and the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Delay before the next attempt to allocate an address on a node without free ones.
const ADDRESS_RETRY: Duration = Duration::from_secs(5);
/// Containers are looked at no sooner than this after the last time.
const WAKE_MIN: Duration = Duration::from_millis(5);
/// Keys that are shown to those who look at the work of the nodes.
const KEYS_SHOWN: usize = 5;
/// NA-12: the range of nodes that have none.
const DEFAULT_RANGE: &str = "10.0.0.0/24";

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    let Some((mut pod_events, mut node_events)) = context.subscribe_to_both(&pods, &nodes).await else { return };
    let registering = tokio::spawn(register::register(context.clone(), nodes.store()));
    super::file_by_node(&pods.store());
    let published = context.settings.queues.publish(context.name);
    let mut fleet = Fleet::new(&context, pods.store());
    let (found, mut resources) = tokio::sync::watch::channel(Arc::new(Kwok::default()));
    context.tasks.spawn(kwok::resources::follow(context.reader.clone(), context.stop.clone(), found));
    // Nodes first: a pod is planned only once its node is known.
    while let Some(Some(event)) = node_events.next().now_or_never() {
        fleet.node_event(event);
    }
    loop {
        // Not all at once: pods that always have something due must not keep events and the stop waiting.
        for _ in 0..BEGUN_MAX {
            if fleet.writes.len() >= WRITES_MAX {
                break;
            }
            let Some(due) = fleet.agenda.take_due(fleet.clock.instant()) else { break };
            fleet.begin(due);
        }
        published.set(fleet.figures());
        let due = if fleet.writes.len() < WRITES_MAX { fleet.agenda.next_due() } else { None };
        tokio::select! {
            () = context.stop.cancelled() => break,
            Some(done) = fleet.writes.join_next(), if !fleet.writes.is_empty() => {
                if let Ok(done) = done {
                    fleet.done(done);
                }
            }
            Ok(()) = resources.changed() => {
                let found = resources.borrow_and_update().clone();
                fleet.follow_files(&found);
            }
            Some(event) = node_events.next() => fleet.node_event(event),
            Some(event) = pod_events.next() => fleet.pod_event(event),
            () = context.clock.sleep_until(due.unwrap_or_else(|| context.clock.instant())), if due.is_some() => {}
        }
    }
    registering.abort();
    fleet.writes.shutdown().await;
}

/// An entry of the agenda.
#[derive(Debug, Clone)]
enum Due {
    Pod(Key),
    Lease(Arc<str>),
    Status(Arc<str>),
    NodeStage(Arc<str>),
}

/// The result of a write.
enum Done {
    Pod {
        key: Key,
        uid: String,
        step: Step,
        at: Timestamp,
        events: Vec<StepEvent>,
        result: Result<Option<String>, client::Error>,
    },
    Lease {
        node: Arc<str>,
        result: Result<(), client::Error>,
    },
    Status {
        node: Arc<str>,
        result: Result<(), client::Error>,
    },
    NodeStage {
        node: Arc<str>,
        events: Vec<StepEvent>,
        result: Result<(), client::Error>,
    },
}

struct Served {
    object: Arc<Node>,
    address: Ipv4Addr,
    /// None where the node has no range of its own.
    pool: Option<Pool>,
    silenced: bool,
    status_due: Option<Place>,
    lease_due: Option<Place>,
    /// The next stage of KWOK's files.
    stage_due: Option<(Place, String)>,
    pace: Pace,
}

/// The next thing that happens to a pod.
#[derive(Debug)]
enum Next {
    Step(Step),
    /// Something in one of its containers, which may lead to a step.
    Wake,
}

struct Tracked {
    pod: Arc<Pod>,
    planned: Option<(Place, Next)>,
    under_way: bool,
    /// The state that shows the last write; before it is seen nothing is planned.
    seen: Option<ResourceVersion>,
    /// The version that the last step began with.
    begun: Option<String>,
    address: Option<Ipv4Addr>,
    /// When containers were started.
    starts: BTreeMap<String, Timestamp>,
    processes: PodProcesses,
    failures: u32,
    pace: Pace,
}

impl Tracked {
    fn new(pod: Arc<Pod>, address: Option<Ipv4Addr>) -> Self {
        Tracked {
            pod,
            planned: None,
            under_way: false,
            seen: None,
            begun: None,
            address,
            starts: BTreeMap::new(),
            processes: PodProcesses::default(),
            failures: 0,
            pace: Pace::default(),
        }
    }

    /// Notes the start of containers, which statuses give in seconds only.
    fn note_starts(&mut self, step: &Step, at: Timestamp) {
        let mut note = |name: &str| {
            self.starts.insert(name.to_owned(), at);
        };
        match step {
            Step::Run => steps::containers_of(&self.pod).iter().for_each(|container| note(&container.name)),
            Step::Init(number) | Step::StartInit(number) => {
                steps::init_containers(&self.pod).iter().skip(*number).take(1).for_each(|init| note(&init.name));
            }
            Step::Containers(changes) => {
                changes.iter().filter(|(_, change)| *change == Change::Restart).for_each(|(name, _)| note(name));
            }
            _ => {}
        }
    }
}

struct Fleet {
    client: Client,
    clock: WorldClock,
    recorder: EventRecorder,
    stages: Arc<Stages>,
    /// The objects of KWOK's kinds: those of the file, then those of the server.
    kwok: Arc<Kwok>,
    /// Writes what a node may not.
    server: Client,
    timing: Timing,
    nodes: HashMap<Arc<str>, Served>,
    /// All pods, by node.
    store: Store<Pod>,
    pods: HashMap<Key, Tracked>,
    /// Of nodes without a range.
    shared_pool: Option<Pool>,
    agenda: Agenda<Due>,
    writes: JoinSet<Done>,
    containers: Arc<Containers>,
    usages: Arc<Usages>,
}

impl Fleet {
    fn new(context: &Context, store: Store<Pod>) -> Self {
        let mut stages = context.settings.stages.clone();
        stages.seed.get_or_insert_with(rand::random);
        let (kwok, containers) = (Arc::new(stages.kwok.clone()), context.settings.containers.clone());
        containers.set_rules(kwok.clone());
        let (stages, usages) = (Arc::new(stages), context.settings.usages.clone());
        usages.set(stages.clone(), kwok.clone());
        Self {
            client: context.client.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder_through(Arc::new(NodeEvents::new(context.client.clone())), "kubelet"),
            kwok,
            server: context.clients.get(Identity::Server),
            stages,
            timing: context.settings.timing,
            nodes: HashMap::new(),
            store,
            pods: HashMap::new(),
            shared_pool: Pool::of(DEFAULT_RANGE),
            agenda: Agenda::new(),
            writes: JoinSet::new(),
            containers,
            usages,
        }
    }

    /// What the nodes have to do, without leases.
    fn figures(&self) -> Figures {
        let shown = |(at, due): (Instant, Option<&Due>)| {
            let key = match due? {
                Due::Pod(key) => key.to_string(),
                Due::Lease(node) | Due::Status(node) | Due::NodeStage(node) => node.to_string(),
            };
            Some((key, KeyState::Delayed(at)))
        };
        Figures {
            delayed: self.agenda.work().len(),
            working: self.writes.len(),
            next_due: self.agenda.work().next().map(|(at, _)| at),
            keys: self.agenda.work().take(KEYS_SHOWN).filter_map(shown).collect(),
            ..Figures::default()
        }
    }

    fn node_event(&mut self, event: Event<Node>) {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => self.node_changed(object),
            Event::Deleted { object, .. } | Event::Undecodable { previous: Some(object), .. } => {
                self.node_removed(object.metadata.name.as_deref().unwrap_or_default());
            }
            Event::Undecodable { .. } | Event::HistoryReset { .. } | Event::Lagged { .. } => {}
        }
    }

    fn node_changed(&mut self, object: Arc<Node>) {
        let name: Arc<str> = object.metadata.name.as_deref().unwrap_or_default().into();
        if !machines::is_simulated(&object) {
            return self.node_removed(&name);
        }
        let silenced = machines::is_silenced(&object);
        let before = self.nodes.get(&name).filter(|known| known.object.metadata.uid == object.metadata.uid);
        let (new, woken) = (before.is_none(), before.is_some_and(|known| known.silenced && !silenced));
        let needs_status =
            !silenced && machines::needs_status(&object, self.timing.node_status_every, self.clock.now());
        if new {
            self.node_removed(&name);
            let range = object.spec.as_ref().and_then(|spec| spec.pod_cidr.as_deref()).and_then(Pool::of);
            let address = machines::address_of(&object);
            let served = Served {
                object,
                address,
                pool: range,
                silenced,
                status_due: None,
                lease_due: None,
                stage_due: None,
                pace: Pace::default(),
            };
            self.nodes.insert(name.clone(), served);
            // The first renewals of many nodes are spread over a period.
            let spread = self.timing.node_lease_renew.mul_f64(rand::random());
            let first = if self.nodes.len() > 16 { spread } else { Duration::ZERO };
            self.plan_lease(&name, first);
            self.adopt_addresses(&name);
        } else if let Some(known) = self.nodes.get_mut(&name) {
            known.object = object;
            known.silenced = silenced;
            if woken {
                self.plan_lease(&name, Duration::ZERO);
            }
        }
        if self.kwok.of_nodes().next().is_some() {
            self.plan_node_stage(&name, WAKE_MIN);
        } else {
            self.plan_status(&name, if needs_status { Duration::ZERO } else { self.timing.node_status_every });
        }
        if new || woken {
            let here: Vec<Key> =
                self.pods.iter().filter(|(_, p)| node_of(&p.pod) == Some(&*name)).map(|(key, _)| key.clone()).collect();
            here.iter().for_each(|key| self.plan(key));
        }
    }

    /// Addresses that pods of a node have already (NA-12).
    fn adopt_addresses(&mut self, name: &str) {
        let Some(pool) = self.nodes.get_mut(name).and_then(|served| served.pool.as_mut()) else { return };
        for tracked in self.pods.values().filter(|tracked| node_of(&tracked.pod) == Some(name)) {
            if let Some(address) = tracked.address {
                pool.reserve(address);
            }
        }
    }

    /// NA-14: pods of a node that is not served are left alone.
    fn node_removed(&mut self, name: &str) {
        if let Some(served) = self.nodes.remove(name) {
            let stage = served.stage_due.map(|(place, _)| place);
            served
                .status_due
                .into_iter()
                .chain(served.lease_due)
                .chain(stage)
                .for_each(|place| self.agenda.remove(place));
        }
    }

    fn plan_lease(&mut self, name: &Arc<str>, after: Duration) {
        let Some(served) = self.nodes.get_mut(name) else { return };
        if let Some(place) = served.lease_due.take() {
            self.agenda.remove(place);
        }
        served.lease_due = Some(self.agenda.add_routine(self.clock.instant() + after, Due::Lease(name.clone())));
    }

    fn plan_status(&mut self, name: &Arc<str>, after: Duration) {
        let Some(served) = self.nodes.get_mut(name) else { return };
        if let Some(place) = served.status_due.take() {
            self.agenda.remove(place);
        }
        served.status_due = Some(self.agenda.add(self.clock.instant() + after, Due::Status(name.clone())));
    }

    fn pod_event(&mut self, event: Event<Pod>) {
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => self.pod_changed(object),
            Event::Deleted { object, .. } | Event::Undecodable { previous: Some(object), .. } => {
                self.pod_removed(&Key::of(&*object));
            }
            Event::Undecodable { .. } | Event::HistoryReset { .. } | Event::Lagged { .. } => {}
        }
    }

    fn pod_changed(&mut self, pod: Arc<Pod>) {
        let key = Key::of(&*pod);
        if node_of(&pod).is_none() {
            return self.pod_removed(&key);
        }
        if self.pods.get(&key).is_some_and(|known| known.pod.metadata.uid != pod.metadata.uid) {
            self.pod_removed(&key);
        }
        match self.pods.get_mut(&key) {
            Some(known) => known.pod = pod,
            None => {
                let said = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
                let address = said.and_then(|address| address.parse().ok());
                let address = address.filter(|_| !uses_host_network(&pod) && !has_ended(&pod));
                if let Some(address) = address
                    && let Some(pool) = self.pool_of(node_of(&pod).unwrap_or_default())
                {
                    pool.reserve(address);
                }
                self.pods.insert(key.clone(), Tracked::new(pod, address));
            }
        }
        self.release_ended(&key);
        self.plan(&key);
    }

    /// Releases the address of a pod that has ended, which its status still shows: another pod may get it.
    fn release_ended(&mut self, key: &Key) {
        let Some(tracked) = self.pods.get_mut(key).filter(|tracked| has_ended(&tracked.pod)) else { return };
        let (address, pod) = (tracked.address.take(), Arc::clone(&tracked.pod));
        if let Some(address) = address
            && let Some(pool) = self.pool_of(node_of(&pod).unwrap_or_default())
        {
            pool.give_back(address);
        }
    }

    fn pod_removed(&mut self, key: &Key) {
        let Some(tracked) = self.pods.remove(key) else { return };
        self.containers.places().remove(tracked.pod.metadata.uid.as_deref().unwrap_or_default());
        self.containers.logs().remove(tracked.pod.metadata.uid.as_deref().unwrap_or_default());
        if let Some((place, _)) = tracked.planned {
            self.agenda.remove(place);
        }
        if let Some(address) = tracked.address
            && let Some(pool) = self.pool_of(node_of(&tracked.pod).unwrap_or_default())
        {
            pool.give_back(address);
        }
    }

    /// The pool of a served node.
    fn pool_of(&mut self, node: &str) -> Option<&mut Pool> {
        let served = self.nodes.get_mut(node)?;
        served.pool.as_mut().or(self.shared_pool.as_mut())
    }

    /// Plans the next step of a pod.
    fn plan(&mut self, key: &Key) {
        let Some(tracked) = self.pods.get_mut(key) else { return };
        if tracked.under_way {
            return;
        }
        if let Some((place, _)) = tracked.planned.take() {
            self.agenda.remove(place);
        }
        if let Some(seen) = &tracked.seen {
            let version: ResourceVersion = tracked.pod.metadata.resource_version.as_deref().unwrap_or_default().into();
            if !version.reaches(seen) {
                return;
            }
            tracked.seen = None;
        }
        if self.nodes.get(node_of(&tracked.pod).unwrap_or_default()).is_none_or(|node| node.silenced) {
            return;
        }
        if self.kwok.of_pods().next().is_some() {
            let plan = fleet_stages::next(&tracked.pod, &self.kwok, &self.stages, self.clock.now());
            if let Some(plan) = plan {
                let after = tracked.pace.wait(self.clock.instant(), plan.after.max(retry_wait(tracked.failures)));
                let place = self.agenda.add(self.clock.instant() + after, Due::Pod(key.clone()));
                tracked.planned = Some((place, Next::Step(plan.step)));
            }
            return;
        }
        let (behaviour, now) = (self.stages.behaviour(&tracked.pod), self.clock.now());
        let world =
            World { containers: &self.containers, places: self.containers.places(), starts: &tracked.starts, now };
        let events = tracked.processes.follow(&tracked.pod, &behaviour, &world);
        let sight = tracked.processes.sight();
        let known = Known { sight: Some(&sight), starts: Some(&tracked.starts) };
        let step = steps::next(&tracked.pod, &behaviour, &self.stages, &known, now)
            .map(|plan| (Next::Step(plan.step), plan.after.max(retry_wait(tracked.failures))));
        let wake = tracked.processes.wakes_at().map(|at| (Next::Wake, steps::until(at, now).max(WAKE_MIN)));
        let next = step.into_iter().chain(wake).min_by_key(|(_, after)| *after);
        if let Some((next, after)) = next {
            let (at, due) = (self.clock.instant() + after, Due::Pod(key.clone()));
            // A container that wakes up again and again may never lead to a step.
            let is_routine = matches!(next, Next::Wake);
            let place = if is_routine { self.agenda.add_routine(at, due) } else { self.agenda.add(at, due) };
            tracked.planned = Some((place, next));
        }
        let pod = tracked.pod.clone();
        self.record_events(&pod, events);
    }

    fn begin(&mut self, due: Due) {
        match due {
            Due::Pod(key) => self.begin_step(&key),
            Due::Lease(node) => self.begin_lease(node),
            Due::Status(node) => self.begin_status(node),
            Due::NodeStage(node) => self.begin_node_stage(node),
        }
    }

    fn begin_step(&mut self, key: &Key) {
        let Some(tracked) = self.pods.get_mut(key) else { return };
        let step = match tracked.planned.take() {
            Some((_, Next::Step(step))) => step,
            Some((_, Next::Wake)) => return self.plan(key),
            None => return,
        };
        let (pod, sight) = (tracked.pod.clone(), tracked.processes.sight());
        let step = match self.refusal(&pod, &step) {
            Some(refusal) => Step::Refuse(refusal),
            None => step,
        };
        let Some(tracked) = self.pods.get_mut(key) else { return };
        let Some((name, served)) = self.nodes.get_key_value(node_of(&pod).unwrap_or_default()) else { return };
        let name = Arc::clone(name);
        let (node_address, mut address) = (served.address, tracked.address);
        if matches!(step, Step::Run | Step::Stage(_)) && address.is_none() {
            address =
                if uses_host_network(&pod) { Some(node_address) } else { self.pool_of(&name).and_then(Pool::take) };
            let Some(found) = address else {
                return self.no_address(key, &pod, &name, step);
            };
            if let Some(tracked) = self.pods.get_mut(key).filter(|_| !uses_host_network(&pod)) {
                tracked.address = Some(found);
            }
        }
        let Some(tracked) = self.pods.get_mut(key) else { return };
        tracked.under_way = true;
        tracked.begun = pod.metadata.resource_version.clone();
        let (client, stages, key) = (self.client.clone(), self.stages.clone(), key.clone());
        let clock = self.clock.clone();
        if let Step::Stage(stage) = &step {
            let with = self.stage_inputs(fleet_stages::value_of(&*pod, "Pod"), name, node_address, address);
            let (stage, at) = (stage.clone(), clock.now());
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            self.writes.spawn(async move {
                let (result, events) = fleet_stages::apply(&stage, &with, &pod_path(&pod)).await;
                Done::Pod { key, uid, step, at, events, result }
            });
            return;
        }
        self.writes.spawn(async move {
            let now = clock.now();
            let behaviour = stages.behaviour(&pod);
            let with = StepInputs {
                behaviour: &behaviour,
                sight: &sight,
                node_address,
                address,
                first_backoff: stages.restart,
                now: Timestamp::from_second(now.as_second()).unwrap_or(now),
            };
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let (result, events) = match status::write(&pod, &step, &with) {
                Some((patch, events)) => {
                    let path = format!("{}/status", pod_path(&pod));
                    (send_as(&name, &client, "PATCH", &path, Form::Strategic, &patch).await, events)
                }
                None => {
                    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
                    let deleted = send_as(&name, &client, "DELETE", &pod_path(&pod), Form::Json, &options).await;
                    (deleted.map(|_| None), Vec::new())
                }
            };
            Done::Pod { key, uid, step, at: now, events, result }
        });
    }

    /// NA-17: why the node of a pod does not take it, if this is its first step there.
    fn refusal(&self, pod: &Pod, step: &Step) -> Option<Refusal> {
        if !matches!(step, Step::Accept | Step::Run) || has_begun(pod) || admission::was_scheduled(pod) {
            return None;
        }
        let node = node_of(pod)?;
        let is_taken = |other: &Pod| {
            let under_way = || self.pods.get(&Key::of(other)).is_some_and(|tracked| tracked.under_way);
            other.metadata.uid != pod.metadata.uid && !has_ended(other) && (has_begun(other) || under_way())
        };
        let mut others = super::pods_on(&self.store, node);
        others.retain(|other| is_taken(other));
        admission::refusal(pod, &self.nodes.get(node)?.object, &others)
    }

    /// All addresses of the node are taken: the pod stays as it is until one is free.
    fn no_address(&mut self, key: &Key, pod: &Pod, node: &str, step: Step) {
        let text = "Failed to create pod sandbox: no address is left in the range of the node";
        let recorder = self.recorder.on_host(node);
        recorder.record(&pod_reference(pod), client::events::EventType::Warning, "FailedCreatePodSandBox", text);
        let place = self.agenda.add(self.clock.instant() + ADDRESS_RETRY, Due::Pod(key.clone()));
        if let Some(tracked) = self.pods.get_mut(key) {
            tracked.planned = Some((place, Next::Step(step)));
        }
    }

    fn begin_lease(&mut self, node: Arc<str>) {
        let Some(served) = self.nodes.get_mut(&node) else { return };
        served.lease_due = None;
        if served.silenced {
            return;
        }
        let uid = served.object.metadata.uid.clone().unwrap_or_default();
        let seconds = (self.timing.node_lease_renew * LEASE_PERIODS).as_secs().max(1);
        let (client, clock) = (self.client.clone(), self.clock.clone());
        self.writes.spawn(async move {
            let now = clock.now();
            let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
            let renewal = json!({"spec": {"holderIdentity": &*node, "renewTime": microseconds(now)}});
            let path = format!("{leases}/{node}");
            let renewed = send_as(&node, &client, "PATCH", &path, Form::Merge, &renewal).await;
            let result = match renewed {
                Err(error) if error.is_not_found() => {
                    let lease = machines::new_lease(&node, &uid, seconds, now);
                    send_as(&node, &client, "POST", leases, Form::Json, &lease).await
                }
                other => other,
            };
            Done::Lease { node, result: result.map(|_| ()) }
        });
    }

    fn begin_status(&mut self, node: Arc<str>) {
        let Some(served) = self.nodes.get_mut(&node) else { return };
        served.status_due = None;
        if served.silenced {
            return;
        }
        let (client, stages, clock) = (self.client.clone(), self.stages.clone(), self.clock.clone());
        let (object, address) = (served.object.clone(), served.address);
        self.writes.spawn(async move {
            let status = machines::status(&node, Some(&object), &stages.nodes, address, clock.now());
            let patch = json!({"metadata": {"uid": object.metadata.uid}, "status": status});
            let path = format!("/api/v1/nodes/{node}/status");
            let result = send_as(&node, &client, "PATCH", &path, Form::Strategic, &patch).await;
            Done::Status { node, result: result.map(|_| ()) }
        });
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Lease { node, result } => {
                let every = self.timing.node_lease_renew;
                let wait = match result {
                    Ok(()) => every.mul_f64(1.0 + LEASE_JITTER * rand::random::<f64>()),
                    Err(error) => {
                        tracing::debug!(%node, %error, "a lease was not renewed");
                        every / 5
                    }
                };
                if self.nodes.get(&node).is_some_and(|served| served.lease_due.is_none()) {
                    self.plan_lease(&node, wait);
                }
            }
            Done::Status { node, result } => {
                if let Err(error) = result {
                    tracing::debug!(%node, %error, "the status of a node was not written");
                    self.plan_status(&node, RETRY_FIRST);
                } else if self.nodes.get(&node).is_some_and(|served| served.status_due.is_none()) {
                    self.plan_status(&node, self.timing.node_status_every);
                }
            }
            Done::NodeStage { node, events, result } => self.node_stage_done(&node, events, result),
            Done::Pod { key, uid, step, at, events, result } => self.step_done(&key, &uid, &step, at, events, result),
        }
    }

    fn step_done(
        &mut self,
        key: &Key,
        uid: &str,
        step: &Step,
        at: Timestamp,
        events: Vec<StepEvent>,
        result: Result<Option<String>, client::Error>,
    ) {
        let Some(tracked) = self.pods.get_mut(key).filter(|t| t.pod.metadata.uid.as_deref() == Some(uid)) else {
            return;
        };
        tracked.under_way = false;
        match result {
            Ok(version) => {
                tracked.failures = 0;
                let begun = tracked.begun.take();
                // A stage that changed nothing would be due again at once: it waits for the next change of the pod.
                let waits = matches!(step, Step::Stage(_))
                    && fleet_stages::changed_nothing(
                        begun.as_deref(),
                        version.as_deref(),
                        tracked.pod.metadata.resource_version.as_deref(),
                    );
                tracked.seen = version.map(|version| version.as_str().into());
                tracked.note_starts(step, at);
                let pod = tracked.pod.clone();
                self.record_events(&pod, events);
                // A removal is seen as the end of the pod, or it is held by a finalizer.
                if *step == Step::Remove || waits {
                    return;
                }
            }
            // Deleted, or replaced by another pod of that name: the watch will show it.
            Err(error) if error.is_not_found() || error.is_conflict() => return,
            Err(error) => {
                tracing::debug!(%key, ?step, %error, "a step of a pod failed");
                tracked.failures = tracked.failures.saturating_add(1);
            }
        }
        self.plan(key);
    }

    /// Takes the objects of the server together with those of the file, and plans everything again.
    fn follow_files(&mut self, found: &Kwok) {
        self.kwok = Arc::new(self.stages.kwok.with(found));
        self.containers.set_rules(self.kwok.clone());
        self.usages.set(self.stages.clone(), self.kwok.clone());
        let nodes: Vec<Arc<Node>> = self.nodes.values().map(|served| served.object.clone()).collect();
        nodes.into_iter().for_each(|node| self.node_changed(node));
        // Steps under way are of the stages before: the next ones are planned in any case.
        self.pods.values_mut().for_each(|tracked| tracked.begun = None);
        let pods: Vec<Key> = self.pods.keys().cloned().collect();
        pods.iter().for_each(|key| self.plan(key));
    }

    fn stage_inputs(
        &self,
        object: serde_json::Value,
        node: Arc<str>,
        node_address: Ipv4Addr,
        address: Option<Ipv4Addr>,
    ) -> StageInputs {
        StageInputs {
            object,
            kwok: self.kwok.clone(),
            node,
            node_address,
            address,
            clock: self.clock.clone(),
            client: self.client.clone(),
            server: self.server.clone(),
        }
    }

    fn plan_node_stage(&mut self, name: &Arc<str>, at_least: Duration) {
        let Some(served) = self.nodes.get_mut(name) else { return };
        for place in served.status_due.take().into_iter().chain(served.stage_due.take().map(|(place, _)| place)) {
            self.agenda.remove(place);
        }
        if served.silenced {
            return;
        }
        let next = fleet_stages::next_of_node(&served.object, &self.kwok, &self.stages, self.clock.now());
        served.stage_due = next.map(|(stage, after)| {
            let after = served.pace.wait(self.clock.instant(), after.max(at_least));
            let place = self.agenda.add(self.clock.instant() + after, Due::NodeStage(name.clone()));
            (place, stage)
        });
    }

    fn begin_node_stage(&mut self, node: Arc<str>) {
        let Some(served) = self.nodes.get_mut(&node) else { return };
        let Some((_, stage)) = served.stage_due.take() else { return };
        let (object, address) = (fleet_stages::value_of(&*served.object, "Node"), served.address);
        let with = self.stage_inputs(object, node.clone(), address, None);
        self.writes.spawn(async move {
            let (result, events) = fleet_stages::apply(&stage, &with, &format!("/api/v1/nodes/{node}")).await;
            Done::NodeStage { node, events, result: result.map(|_| ()) }
        });
    }

    fn node_stage_done(&mut self, node: &Arc<str>, events: Vec<StepEvent>, result: Result<(), client::Error>) {
        let Some(served) = self.nodes.get(node) else { return };
        if self.stages.events {
            let reference = super::node_reference(node, served.object.metadata.uid.as_deref());
            let recorder = self.recorder.on_host(node);
            for event in events {
                recorder.record(&reference, event.kind, &event.reason, &event.message);
            }
        }
        // A success is seen as a change of the node.
        if let Err(error) = result {
            tracing::debug!(%node, %error, "a stage of a node was not written");
            self.plan_node_stage(node, RETRY_FIRST);
        }
    }

    fn record_events(&self, pod: &Pod, events: Vec<StepEvent>) {
        if !self.stages.events {
            return;
        }
        let recorder = self.recorder.on_host(node_of(pod).unwrap_or_default());
        let mut reference = pod_reference(pod);
        for event in events {
            reference.field_path = event.field;
            recorder.record(&reference, event.kind, &event.reason, &event.message);
        }
    }
}

/// The wait after a step that failed so often.
fn retry_wait(failures: u32) -> Duration {
    if failures == 0 { Duration::ZERO } else { (RETRY_FIRST * (1 << failures.min(6))).min(RETRY_MAX) }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn uses_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default()
}

/// True if its node has taken notice of it.
fn has_begun(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.start_time.is_some())
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
