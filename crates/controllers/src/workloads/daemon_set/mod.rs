//! Daemon sets: one pod on every node that should have one.
//!
//! - `eligibility`: the nodes, and the pods made for them
//! - `plan`: the next step, decided from nodes and pods

mod eligibility;
mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Error;
use client::controller::{Action, OwnerMatch, Predicate, Run, RunError};
use client::events::EventType;
use client::informer::Event;
use client::store::Store;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplateSpec};
use kube::Resource;
use kube::api::DeleteParams;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::context::{Context, Tools};
use crate::owners::{Controlled, name, namespace, uid};
use crate::pods;
use crate::reconciling::{self, is_namespace_terminating, server_message};
use crate::selectors::Selects;
use crate::workloads::adoption::{Claims, adopters};
use crate::workloads::batches::slow_start;
use crate::workloads::history;
use crate::writer::Writer;
use eligibility::REVISION;
use plan::{Ended, Picture, Todo};

const WORKERS: usize = 2;
/// Most pods that one run creates or deletes.
const BURST: usize = 250;
/// Delay before a failed pod of a node is replaced: doubled with every failure.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let sets = context.informers.informer::<DaemonSet>();
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    let revisions = context.informers.informer::<ControllerRevision>();
    let tools = context.tools("daemonset-controller").follow(&sets).follow(&pods).follow(&revisions);
    let control = Arc::new(DaemonSets {
        tools: tools.clone(),
        sets: sets.store(),
        pods: Controlled::of(&pods),
        nodes: nodes.store(),
        revisions: Controlled::of(&revisions),
        failures: Mutex::default(),
    });
    let (all, selecting) = (sets.store(), sets.store());
    // Heartbeats change nodes all the time and mean nothing here.
    let placement_changed = Predicate::on_update(|old: &Node, new: &Node| {
        let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
        old.metadata.labels != new.metadata.labels || taints(old) != taints(new)
    });
    let not_deleted = Predicate::new(|event| !matches!(event, Event::Deleted { .. }));
    let controller = context
        .controller("daemonset-controller")
        .on(&sets, Predicate::version_changed())
        .owned(&pods, OwnerMatch::of::<DaemonSet>(&()).controller_only(), Predicate::version_changed())
        .mapped(&pods, move |pod| adopters(&selecting, &pod.metadata, selects), not_deleted)
        .mapped(&nodes, move |_| all.snapshot().keys().cloned().collect(), placement_changed)
        // A source only so that all revisions are known before the first run.
        .mapped(&revisions, |_| Vec::new(), Predicate::any())
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

fn selects(set: &DaemonSet) -> Selects {
    Selects::of_workload(set.spec.as_ref().map(|spec| &spec.selector))
}

struct DaemonSets {
    tools: Tools,
    sets: Store<DaemonSet>,
    pods: Controlled<Pod>,
    nodes: Store<Node>,
    revisions: Controlled<ControllerRevision>,
    /// The failures of pods, by set and node.
    failures: Mutex<HashMap<(String, String), Failures>>,
}

struct Failures {
    delay: Duration,
    last: Instant,
}

impl DaemonSets {
    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(set) = self.sets.get(&run.key) else {
            self.tools.writes.forget(&run.key);
            return Ok(Action::done());
        };
        match self.reconcile(&set).await {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::done()),
            other => Ok(other?),
        }
    }

    async fn reconcile(&self, set: &Arc<DaemonSet>) -> Result<Action, Error> {
        let selects = selects(set);
        if selects.is_empty() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.tools.recorder.record(&set.object_ref(&()), EventType::Warning, "SelectingAll", message);
            return Ok(Action::done());
        }
        if set.metadata.deletion_timestamp.is_some() {
            self.failures.lock().retain(|(known, _), _| known != uid(&**set));
            return Ok(Action::done());
        }
        let writer = self.tools.writer(&**set);
        let claims = Claims { client: &self.tools.client, owner: &**set, selects: &selects, finalizer: None };
        let mut revisions = claims.claim(self.revisions.candidates(&**set)).await?;
        history::sort(&mut revisions);
        let mut collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let wanted = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let revision = history::advance(&**set, &wanted, REVISION, &mut revisions, &mut collisions, &writer).await?;
        let hash =
            revision.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).cloned().unwrap_or_default();

        let owned = claims.claim(self.pods.candidates(&**set)).await?;
        let template = eligibility::template(set);
        let nodes = self.nodes.snapshot();
        let now = self.tools.clock.now();
        let picture = Picture::of(set, &hash, &template, nodes.iter(), &owned, now);
        let (todo, later) = picture.manage(|pod, node| self.ended(set, pod, node));
        let done = if todo == Todo::default() && picture.is_rolling() {
            self.carry_out(picture.update(), set, &template, &hash, &writer).await
        } else {
            self.carry_out(todo, set, &template, &hash, &writer).await
        };
        let status = picture.status(collisions);
        if set.status.as_ref() != Some(&status) {
            let changed = DaemonSet { status: Some(status.clone()), ..(**set).clone() };
            match writer.replace_status(changed).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        done?;
        let used = history::in_use(&owned, REVISION);
        let is_used = |revision: &ControllerRevision| {
            let labels = revision.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(REVISION)).is_some_and(|this| *this == hash || used.contains(this))
        };
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        history::forget(&revisions, is_used, usize::try_from(limit).unwrap_or(0), &writer).await?;

        let waits = owned.iter().filter_map(|pod| pods::available_in(pod, plan::min_ready(set), now));
        let next = waits.filter(|wait| !wait.is_zero()).chain(later).min();
        Ok(next.map_or(Action::done(), Action::after))
    }

    /// A pod that succeeded is replaced; one that failed too, but ever more slowly on the same node (DS-4).
    fn ended(&self, set: &DaemonSet, pod: &Pod, node: &str) -> Ended {
        let which = format!("daemon pod {}/{} on node {node}", namespace(pod), name(pod));
        let about = set.object_ref(&());
        if pods::phase(pod) == "Succeeded" {
            let message = format!("Found succeeded {which}, will try to delete it");
            self.tools.recorder.record(&about, EventType::Normal, "SucceededDaemonPod", &message);
            return Ended::Delete;
        }
        let mut failures = self.failures.lock();
        let now = self.tools.clock.instant();
        let key = (uid(set).to_owned(), node.to_owned());
        let known = failures.get(&key).filter(|known| now - known.last <= 2 * LONGEST_DELAY);
        let delay = match known {
            Some(known) if now - known.last < known.delay => return Ended::Later(known.delay),
            Some(known) => (known.delay * 2).min(LONGEST_DELAY),
            None => FIRST_DELAY,
        };
        failures.insert(key, Failures { delay, last: now });
        let message = format!("Found failed {which}, will try to kill it");
        self.tools.recorder.record(&about, EventType::Warning, "FailedDaemonPod", &message);
        Ended::Delete
    }

    async fn carry_out(
        &self,
        mut todo: Todo,
        set: &DaemonSet,
        template: &PodTemplateSpec,
        hash: &str,
        writer: &Writer,
    ) -> Result<(), Error> {
        todo.create.truncate(BURST);
        todo.delete.truncate(BURST);
        let about = set.object_ref(&());
        let tell = |kind, reason: &str, message: String| self.tools.recorder.record(&about, kind, reason, &message);
        let created = slow_start(todo.create.len(), async |index| {
            match writer.create(&eligibility::pod(set, template, hash, &todo.create[index])).await {
                Ok(pod) => {
                    tell(EventType::Normal, "SuccessfulCreate", format!("Created pod: {}", name(&pod)));
                    Ok(())
                }
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                Err(error) => {
                    tell(EventType::Warning, "FailedCreate", format!("Error creating: {}", server_message(&error)));
                    Err(error)
                }
            }
        })
        .await;
        let deletions = todo.delete.iter().map(async |victim| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(victim.clone());
            pod.metadata.namespace = set.metadata.namespace.clone();
            match writer.delete(&pod, &DeleteParams::default()).await {
                Ok(()) => {
                    tell(EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {victim}"));
                    Ok(())
                }
                Err(error) if error.is_not_found() => Ok(()),
                Err(error) => {
                    tell(EventType::Warning, "FailedDelete", format!("Error deleting: {}", server_message(&error)));
                    Err(error)
                }
            }
        });
        let deleted = join_all(deletions).await.into_iter().find(Result::is_err).unwrap_or(Ok(()));
        created.failure.map_or(deleted, Err)
    }
}
