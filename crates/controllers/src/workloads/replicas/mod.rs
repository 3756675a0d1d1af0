//! ReplicaSet and ReplicationController: a number of pods of one template.
//!
//! - `kinds`: the common interface of the two kinds
//! - `victims`: the order of deletion
//! - `status`: the reported status

mod kinds;
mod status;
pub(crate) mod victims;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use client::Error;
use client::controller::{Action, Predicate, Run, RunError};
use client::events::EventType;
use client::informer::Event;
use client::store::Store;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::context::{Context, Tools};
use crate::owners::{Controlled, controller_key, controller_of, name, namespace, reference, uid};
use crate::reconciling::{self, is_namespace_terminating, server_message};
use crate::selectors::Selects;
use crate::workloads::adoption::{Claims, adopters};
use crate::workloads::batches;
use crate::workloads::batches::{BURST, slow_start};
use crate::writer::Writer;
use crate::{conditions, pods};
use kinds::Replicated;
use status::{Failure, Tally};

const WORKERS: usize = 5;
/// Size from which a set is large.
const LARGE_SET: i32 = 1000;
const GATHER_DELAY: Duration = Duration::from_millis(50);

/// Runs the controller of one of the two kinds until the context's stop.
pub(crate) async fn run<S: Replicated>(context: Context) {
    let sets = context.informers.informer::<S>();
    let pods = context.informers.informer::<Pod>();
    let tools = context.tools(S::COMPONENT).follow(&sets).follow(&pods);
    let replicas =
        Arc::new(Replicas { tools: tools.clone(), siblings: Controlled::of(&sets), pods: Controlled::of(&pods) });
    let controller = context.controller(S::COMPONENT);
    let (selecting, known, later) = (sets.store(), sets.store(), controller.queue());
    let gather = move |pod: &Pod| {
        let Some(key) = controller_key::<S>(&pod.metadata) else { return Vec::new() };
        match known.get(&key).and_then(|set| gather_delay(&*set)) {
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
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let replicas = replicas.clone();
        async move { replicas.sync(run).await }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

/// The delay that gathers the events of a large set's pods. A run visits every pod: without this a set of 10 000 would keep a
/// core busy for as long as its pods change.
fn gather_delay<S: Replicated>(set: &S) -> Option<Duration> {
    (set.replicas() >= LARGE_SET).then_some(GATHER_DELAY)
}

/// An orphan that is new, or whose labels or owners changed.
fn may_be_adopted() -> Predicate<Pod> {
    let changed = Predicate::on_update(|old: &Pod, new: &Pod| {
        old.metadata.labels != new.metadata.labels || old.metadata.owner_references != new.metadata.owner_references
    });
    changed.and(Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
}

struct Replicas<S> {
    tools: Tools,
    siblings: Controlled<S>,
    pods: Controlled<Pod>,
}

impl<S: Replicated> Replicas<S> {
    fn sets(&self) -> &Store<S> {
        self.siblings.store()
    }

    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(set) = self.sets().get(&run.key) else {
            self.tools.writes.forget(&run.key);
            return Ok(Action::done());
        };
        let selects = set.selects();
        let candidates = self.pods.candidates(&*set);
        let terminating = candidates.iter().filter(|pod| is_leaving(pod, &*set, &selects)).count();
        let active = candidates.into_iter().filter(|pod| pods::is_active(pod)).collect();
        let claims = Claims { client: &self.tools.client, owner: &*set, selects: &selects, finalizer: None };
        let active = claims.claim(active).await?;

        let writer = self.tools.writer(&*set);
        let deleting = set.meta().deletion_timestamp.is_some();
        let managed = if deleting { Ok(()) } else { self.manage(&set, &active, &writer).await };

        let now = self.tools.clock.now();
        let missing = i64::from(set.replicas()) - i64::try_from(active.len()).unwrap_or(i64::MAX);
        let failure = managed.as_ref().err().map(|error| Failure {
            reason: if missing > 0 { "FailedCreate" } else { "FailedDelete" },
            message: server_message(error),
            since: conditions::whole_second(now),
        });
        let tally = Tally::of(&*set, &active, terminating, now);
        self.report(set.clone(), &tally, failure, &writer).await?;
        managed?;

        Ok(match next_availability(&active, set.min_ready(), now) {
            Some(after) if tally.ready != tally.available => Action::after(after),
            _ => Action::done(),
        })
    }

    /// Creates missing pods or deletes excess ones; never both, and not more than a burst.
    async fn manage(&self, set: &S, active: &[Arc<Pod>], writer: &Writer) -> Result<(), Error> {
        let wanted = usize::try_from(set.replicas()).unwrap_or(0);
        match active.len().cmp(&wanted) {
            Ordering::Less => self.create((wanted - active.len()).min(BURST), set, writer).await,
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                let excess = (active.len() - wanted).min(BURST);
                let chosen = victims::choose(active, &self.related(set), excess, self.tools.clock.now());
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
                self.tools.recorder.record(&event_of, EventType::Normal, "SuccessfulCreate", &message);
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let message = format!("Error creating: {}", server_message(&error));
                self.tools.recorder.record(&event_of, EventType::Warning, "FailedCreate", &message);
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
                self.tools.recorder.record(&event_of, EventType::Normal, "SuccessfulDelete", &message);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                let message = format!("Error deleting: {}", server_message(&error));
                self.tools.recorder.record(&event_of, EventType::Warning, "FailedDelete", &message);
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

    /// Writes the status if it changed. After a conflict it is tried once more on the live object.
    async fn report(&self, set: Arc<S>, tally: &Tally, failure: Option<Failure>, writer: &Writer) -> Result<(), Error> {
        let Some(changed) = set.with_status(tally, failure.as_ref(), set.meta().generation) else { return Ok(()) };
        match writer.replace_status(changed).await {
            Err(error) if error.is_conflict() => {}
            // Deleted meanwhile: there is no status to write.
            Err(error) if error.is_not_found() => return Ok(()),
            other => return other.map(|_| ()),
        }
        let Some(live) = writer.read(&*set).await?.filter(|live| uid(live) == uid(&*set)) else { return Ok(()) };
        let Some(changed) = live.with_status(tally, failure.as_ref(), set.meta().generation) else { return Ok(()) };
        writer.replace_status(changed).await.map(|_| ())
    }
}

/// True if a pod of this set is being deleted.
fn is_leaving<S: Replicated>(pod: &Pod, set: &S, selects: &Selects) -> bool {
    pods::is_terminating(pod)
        && controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid(set))
        && selects.matches(pod.metadata.labels.as_ref())
}

/// Time until the next ready pod is available (RS-10).
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
