//! ReplicaSet and ReplicationController: so many pods of one template.
//!
//! - `kinds`: what the two kinds have in common
//! - `victims`: which pods go first
//! - `status`: what is reported

mod kinds;
mod status;
pub(crate) mod victims;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use client::Error;
use client::controller::{Action, Controller, Predicate, Run, RunError, Writes};
use client::events::{EventRecorder, EventType};
use client::informer::Event;
use client::store::Store;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::Client;
use kube::api::DeleteParams;

use crate::context::Context;
use crate::parts::batches::{BURST, slow_start};
use crate::parts::claim::{Claims, Selects, adopters};
use crate::parts::owners::{Controlled, controller_key, controller_of, name, namespace, reference, uid};
use crate::parts::running::{message_of, namespace_is_going, run};
use crate::parts::writer::{Writer, follow};
use crate::parts::{batches, pods};
use kinds::Replicated;
use status::{Failure, Tally};

const WORKERS: usize = 5;
/// A set of so many is large.
const LARGE: i32 = 1000;
const GATHERING: Duration = Duration::from_millis(50);

/// Runs the controller of ReplicaSets.
pub(crate) fn replica_sets(context: Context) -> BoxFuture<'static, ()> {
    start::<ReplicaSet>(context).boxed()
}

/// Runs the controller of ReplicationControllers.
pub(crate) fn replication_controllers(context: Context) -> BoxFuture<'static, ()> {
    start::<ReplicationController>(context).boxed()
}

async fn start<S: Replicated>(context: Context) {
    let sets = context.informers.informer::<S>();
    let pods = context.informers.informer::<Pod>();
    let writes = Arc::new(Writes::new());
    follow(&writes, &sets);
    follow(&writes, &pods);
    let replicas = Arc::new(Replicas {
        client: context.client.clone(),
        recorder: context.recorder(S::COMPONENT),
        siblings: Controlled::of(&sets),
        pods: Controlled::of(&pods),
        writes: writes.clone(),
    });
    let controller = Controller::new(S::COMPONENT);
    let (selecting, known, later) = (sets.store(), sets.store(), controller.queue());
    let gather = move |pod: &Pod| {
        let Some(key) = controller_key::<S>(&pod.metadata) else { return Vec::new() };
        match known.get(&key).and_then(|set| patience(&*set)) {
            None => vec![key],
            Some(wait) => {
                later.add_after(key, wait);
                Vec::new()
            }
        }
    };
    let controller = controller
        .on(&sets, Predicate::version_changed())
        .mapped(&pods, gather, Predicate::version_changed())
        .mapped(&pods, move |pod| adopters(&selecting, &pod.metadata, S::selects), may_be_adopted())
        .read_your_writes(writes);
    let sync = move |run: Run| {
        let replicas = replicas.clone();
        async move { replicas.sync(run).await }
    };
    run(context, controller, WORKERS, sync).await;
}

/// How long events of the pods of a large set are gathered. A run looks at every pod: without this a set of 10 000 would keep a
/// core busy for as long as its pods change.
fn patience<S: Replicated>(set: &S) -> Option<Duration> {
    (set.replicas() >= LARGE).then_some(GATHERING)
}

/// An orphan that is new, or whose labels or owners changed.
fn may_be_adopted() -> Predicate<Pod> {
    let changed = Predicate::on_update(|old: &Pod, new: &Pod| {
        old.metadata.labels != new.metadata.labels || old.metadata.owner_references != new.metadata.owner_references
    });
    changed.and(Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
}

struct Replicas<S> {
    client: Client,
    recorder: EventRecorder,
    siblings: Controlled<S>,
    pods: Controlled<Pod>,
    writes: Arc<Writes>,
}

impl<S: Replicated> Replicas<S> {
    fn sets(&self) -> &Store<S> {
        self.siblings.store()
    }

    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(set) = self.sets().get(&run.key) else {
            self.writes.forget(&run.key);
            return Ok(Action::done());
        };
        let selects = set.selects();
        let candidates = self.pods.candidates(&*set);
        let terminating = candidates.iter().filter(|pod| is_leaving(pod, &*set, &selects)).count();
        let active = candidates.into_iter().filter(|pod| pods::is_active(pod)).collect();
        let claims = Claims { client: &self.client, owner: &*set, selects: &selects, finalizer: None };
        let active = claims.claim(active).await?;

        let writer = Writer::new(&self.client, &self.writes, &*set);
        let deleting = set.meta().deletion_timestamp.is_some();
        let managed = if deleting { Ok(()) } else { self.manage(&set, &active, &writer).await };

        let now = Timestamp::now();
        let missing = i64::from(set.replicas()) - i64::try_from(active.len()).unwrap_or(i64::MAX);
        let failure = managed.as_ref().err().map(|error| Failure {
            reason: if missing > 0 { "FailedCreate" } else { "FailedDelete" },
            message: message_of(error),
        });
        let tally = Tally::of(&*set, &active, terminating, now);
        self.report(set.clone(), &tally, failure, &writer).await?;
        managed?;

        Ok(match next_availability(&active, set.min_ready(), now) {
            Some(after) if tally.ready != tally.available => Action::after(after),
            _ => Action::done(),
        })
    }

    /// Creates what is missing or deletes what is too much; never both, and not more than a burst.
    async fn manage(&self, set: &S, active: &[Arc<Pod>], writer: &Writer) -> Result<(), Error> {
        let wanted = usize::try_from(set.replicas()).unwrap_or(0);
        match active.len().cmp(&wanted) {
            Ordering::Less => self.create((wanted - active.len()).min(BURST), set, writer).await,
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let excess = (active.len() - wanted).min(BURST);
                let chosen = victims::choose(active, &self.related(set), excess, Timestamp::now());
                self.delete(chosen, set, writer).await
            }
        }
    }

    async fn create(&self, count: usize, set: &S, writer: &Writer) -> Result<(), Error> {
        let Some(template) = set.template().filter(|_| count > 0) else { return Ok(()) };
        let pod = pods::of_template(template, reference(set), namespace(set));
        let event_of = set.object_ref(&());
        let outcome: batches::Outcome<Error> = slow_start(count, async |_| match writer.create(&pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", name(&created));
                self.recorder.record(&event_of, EventType::Normal, "SuccessfulCreate", &message);
                Ok(())
            }
            Err(error) if namespace_is_going(&error) => Ok(()),
            Err(error) => {
                let message = format!("Error creating: {}", message_of(&error));
                self.recorder.record(&event_of, EventType::Warning, "FailedCreate", &message);
                Err(error)
            }
        })
        .await;
        outcome.failure.map_or(Ok(()), Err)
    }

    async fn delete(&self, victims: Vec<Arc<Pod>>, set: &S, writer: &Writer) -> Result<(), Error> {
        let event_of = set.object_ref(&());
        let deletions = victims.iter().map(async |pod| match writer.delete(&**pod, &DeleteParams::default()).await {
            Ok(()) => {
                let message = format!("Deleted pod: {}", name(&**pod));
                self.recorder.record(&event_of, EventType::Normal, "SuccessfulDelete", &message);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                let message = format!("Error deleting: {}", message_of(&error));
                self.recorder.record(&event_of, EventType::Warning, "FailedDelete", &message);
                Err(error)
            }
        });
        join_all(deletions).await.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    /// The pods of all sets with the same controller: a rollout leaves a node that has many of them first.
    fn related(&self, set: &S) -> Vec<Arc<Pod>> {
        let Some(owner) = controller_of(set.meta()) else { return Vec::new() };
        let siblings = self.siblings.by(&owner.uid);
        siblings.iter().flat_map(|sibling| self.pods.by(uid(&**sibling))).collect()
    }

    /// Writes the status if it changed. A conflict is tried once more on what is there now.
    async fn report(&self, set: Arc<S>, tally: &Tally, failure: Option<Failure>, writer: &Writer) -> Result<(), Error> {
        let Some(changed) = set.with_status(tally, failure.as_ref(), set.meta().generation) else { return Ok(()) };
        match writer.replace_status(changed).await {
            Err(error) if error.is_conflict() => {}
            // Deleted meanwhile: nobody is left to be told.
            Err(error) if error.is_not_found() => return Ok(()),
            other => return other.map(|_| ()),
        }
        let Some(live) = writer.read(&*set).await?.filter(|live| uid(live) == uid(&*set)) else { return Ok(()) };
        let Some(changed) = live.with_status(tally, failure.as_ref(), set.meta().generation) else { return Ok(()) };
        writer.replace_status(changed).await.map(|_| ())
    }
}

/// Whether a pod of this set is on its way out.
fn is_leaving<S: Replicated>(pod: &Pod, set: &S, selects: &Selects) -> bool {
    pods::is_terminating(pod)
        && controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid(set))
        && selects.matches(pod.metadata.labels.as_ref())
}

/// When the next ready pod will have been so for long enough (RS-10).
fn next_availability(active: &[Arc<Pod>], min_ready: i32, now: Timestamp) -> Option<Duration> {
    let waits = active.iter().filter_map(|pod| pods::available_in(pod, min_ready, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(version: &str, labels: Value, owners: Value) -> Arc<Pod> {
        let metadata = json!({"name": "p", "resourceVersion": version, "labels": labels, "ownerReferences": owners});
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).expect("a pod"))
    }

    #[test]
    fn rs_12_an_update_that_is_none_wakes_nobody() {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
        let before = pod("1", json!({"app": "web"}), json!([]));
        let wakes = |new: &Arc<Pod>| {
            let event = Event::Updated { old: before.clone(), new: new.clone() };
            (Predicate::version_changed().accepts(&event), may_be_adopted().accepts(&event))
        };
        assert_eq!(wakes(&before), (false, false), "told again, with the same version");
        assert_eq!(wakes(&pod("2", json!({"app": "web"}), json!([]))), (true, false), "its owner, nobody else");
        assert_eq!(wakes(&pod("2", json!({"app": "db"}), json!([]))), (true, true), "another label");
        assert_eq!(wakes(&pod("2", json!({"app": "web"}), owner)), (true, true), "another owner");
    }
}
