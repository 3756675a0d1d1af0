//! Deployments: one template after another, each by a replica set.
//!
//! - `arithmetic`: the number of replicas of each replica set
//! - `shape`: reading deployments and replica sets
//! - `revisions`: the annotations that connect them
//! - `rollout`: from the old template to the new one, and scaling
//! - `rollback`: back to an old template by annotation
//! - `status`: the reported status

pub(crate) mod arithmetic;
mod revisions;
mod rollback;
mod rollout;
mod shape;
mod status;

use std::sync::Arc;

use client::controller::{Action, OwnerMatch, Predicate, Run, RunError};
use client::events::EventType;
use client::informer::Event;
use client::store::Store;
use client::{Error, Key};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;

use crate::context::{Context, Tools};
use crate::owners::{Controlled, controller_key, uid};
use crate::pods;
use crate::reconciling::{self, give_up_after, is_namespace_terminating};
use crate::selectors::Selects;
use crate::workloads::adoption::{Claims, adopters};
use crate::writer::Writer;
use rollout::Rollout;

const WORKERS: usize = 5;
/// Failures in a row after which a deployment waits for the next change.
const TRIES: u32 = 15;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let deployments = context.informers.informer::<Deployment>();
    let sets = context.informers.informer::<ReplicaSet>();
    let pods = context.informers.informer::<Pod>();
    let tools = context.tools("deployment-controller").follow(&deployments).follow(&sets);
    let control = Arc::new(Deployments {
        tools: tools.clone(),
        deployments: deployments.store(),
        sets: Controlled::of(&sets),
        pods: Controlled::of(&pods),
    });
    let (selecting, waiting) = (deployments.store(), control.clone());
    let controller = context
        .controller("deployment-controller")
        .on(&deployments, Predicate::version_changed())
        .owned(&sets, OwnerMatch::of::<Deployment>(&()).controller_only(), Predicate::version_changed())
        .mapped(&sets, move |set| adopters(&selecting, &set.metadata, selects), Predicate::version_changed())
        .mapped(
            &pods,
            move |pod| waiting.deployment_waiting_for(pod).into_iter().collect(),
            Predicate::new(|event| matches!(event, Event::Deleted { .. })),
        )
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let control = control.clone();
        async move {
            let result = control.sync(&run).await;
            give_up_after(TRIES, &run, result)
        }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

fn selects(deployment: &Deployment) -> Selects {
    Selects::of_workload(deployment.spec.as_ref().map(|spec| &spec.selector))
}

struct Deployments {
    tools: Tools,
    deployments: Store<Deployment>,
    sets: Controlled<ReplicaSet>,
    pods: Controlled<Pod>,
}

impl Deployments {
    /// The deployment that can start its new template once its last old pod is deleted (DP-25).
    fn deployment_waiting_for(&self, pod: &Pod) -> Option<Key> {
        let set = self.sets.store().get(&controller_key::<ReplicaSet>(&pod.metadata)?)?;
        let key = controller_key::<Deployment>(&set.metadata)?;
        self.deployments.get(&key).filter(|deployment| shape::is_recreate(deployment)).map(|_| key)
    }

    /// The number of available pods of a replica set.
    fn available_pods(&self, set: &ReplicaSet) -> i32 {
        let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
        let now = self.tools.clock.now();
        let counts = |pod: &Pod| pods::is_active(pod) && pods::is_available(pod, min_ready, now);
        let count = self.pods.by(uid(set)).iter().filter(|pod| counts(pod)).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    async fn sync(&self, run: &Run) -> Result<Action, RunError> {
        let Some(deployment) = self.deployments.get(&run.key) else {
            self.tools.writes.forget(&run.key);
            return Ok(Action::done());
        };
        let writer = self.tools.writer(&*deployment);
        match self.reconcile(&deployment, writer).await {
            // Whatever it still wanted to do, it will not be let.
            Err(error) if is_namespace_terminating(&error) => Ok(Action::done()),
            Err(error) if error.is_not_found() && self.is_gone(&deployment).await => Ok(Action::done()),
            other => Ok(other?),
        }
    }

    async fn is_gone(&self, deployment: &Deployment) -> bool {
        let writer = self.tools.writer(deployment);
        matches!(writer.read(deployment).await, Ok(None))
    }

    /// The order of decisions (DP-1 to DP-8).
    async fn reconcile(&self, deployment: &Arc<Deployment>, writer: Writer) -> Result<Action, Error> {
        let selects = selects(deployment);
        if selects.is_empty() {
            return self.report_empty_selector(deployment, &writer).await;
        }
        let claims = Claims { client: &self.tools.client, owner: &**deployment, selects: &selects, finalizer: None };
        let sets = claims.claim(self.sets.candidates(&**deployment)).await?;
        let mut rollout = Rollout::new(self, writer, deployment, sets);
        if deployment.meta().deletion_timestamp.is_some() {
            rollout.note_revision().await?;
            return rollout.report_numbers().await;
        }
        rollout.note_pause().await?;
        rollout.note_revision().await?;
        if shape::is_paused(deployment) {
            return rollout.scale_while_paused().await;
        }
        if let Some(revision) = shape::rollback_to(deployment) {
            return rollout.roll_back(revision).await;
        }
        if rollout.was_scaled() {
            return rollout.scale().await;
        }
        if shape::is_recreate(deployment) { rollout.recreate().await } else { rollout.roll().await }
    }

    async fn report_empty_selector(&self, deployment: &Deployment, writer: &Writer) -> Result<Action, Error> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.tools.recorder.record(&deployment.object_ref(&()), EventType::Warning, "SelectingAll", message);
        let mut status = deployment.status.clone().unwrap_or_default();
        if status.observed_generation < deployment.metadata.generation {
            status.observed_generation = deployment.metadata.generation;
            writer.replace_status(Deployment { status: Some(status), ..deployment.clone() }).await?;
        }
        Ok(Action::done())
    }
}
