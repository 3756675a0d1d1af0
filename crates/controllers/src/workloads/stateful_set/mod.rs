//! Stateful sets: pods with names and claims of their own, one after the other.
//!
//! - `identity`: name, ordinal, labels and volumes of a pod
//! - `retention`: owner references of its claims
//! - `plan`: the next step, decided from the pods
//! - `act`: doing it

mod act;
mod identity;
mod plan;
mod retention;

use std::sync::Arc;

use client::controller::{Action, OwnerMatch, Predicate, Run, RunError};
use client::informer::Event;
use client::store::Store;
use client::{Error, Key, Object};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::context::{Context, Tools};
use crate::owners::{Controlled, controller_of, name};
use crate::pods;
use crate::reconciling::{self, is_namespace_terminating};
use crate::selectors::Selects;
use crate::workloads::adoption::Claims;
use crate::workloads::history;
use act::Work;

const WORKERS: usize = 5;
/// The label of a ControllerRevision that carries its short name.
const HASH: &str = "controller.kubernetes.io/hash";

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let sets = context.informers.informer::<StatefulSet>();
    let pods = context.informers.informer::<Pod>();
    let claims = context.informers.informer::<PersistentVolumeClaim>();
    let revisions = context.informers.informer::<ControllerRevision>();
    let tools = context.tools("statefulset-controller").follow(&sets).follow(&pods).follow(&claims).follow(&revisions);
    let control = Arc::new(StatefulSets {
        tools: tools.clone(),
        sets: sets.store(),
        pods: Controlled::of(&pods),
        claims: claims.store(),
        revisions: Controlled::of(&revisions),
    });
    let (selecting, claiming) = (sets.store(), sets.store());
    let only_deleted = Predicate::new(|event| matches!(event, Event::Deleted { .. }));
    let not_deleted = Predicate::new(|event| !matches!(event, Event::Deleted { .. }));
    let controller = context
        .controller("statefulset-controller")
        .on(&sets, Predicate::version_changed())
        .owned(&pods, OwnerMatch::of::<StatefulSet>(&()).controller_only(), Predicate::version_changed())
        .mapped(&pods, move |pod| would_adopt(&selecting, pod), not_deleted)
        // A new pod waits until the claim of the earlier one is deleted (SS-7).
        .mapped(&claims, move |claim| with_claims(&claiming, claim), only_deleted)
        // A source only so that all revisions are known before the first run.
        .mapped(&revisions, |_| Vec::new(), Predicate::any())
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

/// The sets that would adopt this pod; none if it has a controller.
fn would_adopt(sets: &Store<StatefulSet>, pod: &Pod) -> Vec<Key> {
    if controller_of(&pod.metadata).is_some() {
        return Vec::new();
    }
    let Some((parent, _)) = identity::parse(name(pod)) else { return Vec::new() };
    let set = sets.get(&Key::new(pod.metadata.namespace.as_deref(), parent));
    let set = set.filter(|set| selects(set).matches(pod.metadata.labels.as_ref()));
    set.map(|set| set.object_key()).into_iter().collect()
}

/// The sets of the claim's namespace that make claims.
fn with_claims(sets: &Store<StatefulSet>, claim: &PersistentVolumeClaim) -> Vec<Key> {
    let makes_claims = |set: &StatefulSet| set.spec.as_ref().is_some_and(|spec| spec.volume_claim_templates.is_some());
    let snapshot = sets.snapshot();
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    snapshot.in_namespace(namespace).filter(|set| makes_claims(set)).map(|set| set.object_key()).collect()
}

fn selects(set: &StatefulSet) -> Selects {
    Selects::of_workload(set.spec.as_ref().map(|spec| &spec.selector))
}

struct StatefulSets {
    tools: Tools,
    sets: Store<StatefulSet>,
    pods: Controlled<Pod>,
    claims: Store<PersistentVolumeClaim>,
    revisions: Controlled<ControllerRevision>,
}

impl StatefulSets {
    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(set) = self.sets.get(&run.key) else {
            self.tools.writes.forget(&run.key);
            return Ok(Action::done());
        };
        match self.reconcile(set).await {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::done()),
            other => Ok(other?),
        }
    }

    async fn reconcile(&self, set: Arc<StatefulSet>) -> Result<Action, Error> {
        let selects = selects(&set);
        if selects.is_empty() {
            return Ok(Action::done());
        }
        let claims = Claims { client: &self.tools.client, owner: &*set, selects: &selects, finalizer: None };
        let members = self.pods.candidates(&*set).into_iter().filter(|pod| identity::ordinal(&set, pod).is_some());
        let members = claims.claim(members.collect()).await?;
        let mut revisions = claims.claim(self.revisions.candidates(&*set)).await?;
        history::sort(&mut revisions);

        let writer = self.tools.writer(&*set);
        let template = &set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let mut collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let update = history::advance(&*set, template, HASH, &mut revisions, &mut collisions, &writer).await?;
        let known = set.status.as_ref().and_then(|status| status.current_revision.clone()).unwrap_or_default();
        let current = revisions.iter().find(|revision| name(&***revision) == known).unwrap_or(&update).clone();

        let now = self.tools.clock.now();
        let mut work = Work { control: self, set: &set, writer: &writer, current: &current, update: &update, now };
        let acted = work.act(&members).await;
        let reported = work.report(&members, collisions, acted.as_ref().is_ok_and(|acted| acted.replaced)).await;
        acted?;
        let status = reported?;

        let used = history::in_use(&members, identity::REVISION);
        let is_used = |revision: &ControllerRevision| {
            let this = name(revision);
            this == name(&*current) || this == name(&*update) || used.contains(this)
        };
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        if let Ok(limit) = usize::try_from(limit) {
            history::forget(&revisions, is_used, limit, &writer).await?;
        }

        let min_ready = plan::min_ready(&set);
        let waits = members.iter().filter_map(|pod| pods::available_in(pod, min_ready, now));
        Ok(match waits.filter(|wait| !wait.is_zero()).min() {
            Some(wait) if status.ready_replicas != status.available_replicas => Action::after(wait),
            _ => Action::done(),
        })
    }
}
