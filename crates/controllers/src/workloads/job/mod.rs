//! Jobs: pods until enough of them have succeeded.
//!
//! Every pod has a finalizer until its end is counted, and its UID is in the status between the two: so each pod is
//! counted exactly once, whatever is interrupted (JB-2).
//!
//! - `shape`: reading jobs and their pods
//! - `indexes`: sets of completion indexes
//! - `policies`: pod failure and success policies
//! - `backoff`: the wait after failures
//! - `verdict`: the outcome of the job
//! - `pods`: creating and deleting pods
//! - `tracking`: counting, finalizers and the status
//! - `orphans`: pods of deleted jobs

mod backoff;
mod indexes;
mod orphans;
mod pods;
mod policies;
pub(crate) mod shape;
mod tracking;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::controller::{Action, Predicate, Run, RunError};
use client::informer::Event;
use client::store::Store;
use client::{Error, Key, Object};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::conditions;
use crate::context::{Context, Tools};
use crate::owners::{Controlled, controller_key, controller_of};
use crate::reconciling::{self, is_namespace_terminating};
use crate::selectors::Selects;
use crate::workloads::adoption::{Claims, adopters};
use backoff::Record;
use tracking::Tracking;
use verdict::View;

const WORKERS: usize = 5;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    tokio::join!(run_jobs(context.clone()), orphans::run(context));
}

async fn run_jobs(context: Context) {
    let jobs = context.informers.informer::<Job>();
    let pods = context.informers.informer::<Pod>();
    let tools = context.tools("job-controller").follow(&jobs).follow(&pods);
    let control = Arc::new(Jobs {
        tools: tools.clone(),
        jobs: jobs.store(),
        pods: Controlled::of(&pods),
        backoff: Mutex::default(),
    });
    let batch = context.settings.timing.job_batch;
    let controller = context.controller("job-controller");
    let (later, selecting) = (controller.queue(), jobs.store());
    // Pods of a job finish together: their events are gathered for a while, so that one run counts many (JB-4). The keys
    // are not returned but queued with that delay.
    let gather = move |pod: &Pod| {
        for key in concerned(&selecting, pod) {
            later.add_after(key, batch);
        }
        Vec::new()
    };
    let (own, again) = (controller.queue(), Predicate::version_changed());
    let delayed = move |job: &Job| {
        own.add_after(job.object_key(), batch);
        Vec::new()
    };
    // A new or changed spec is reconciled at once, a status only after the delay.
    let described = Predicate::generation_changed();
    let status_only = Predicate::new(|event: &Event<Job>| match event {
        Event::Updated { old, new } => old.metadata.generation == new.metadata.generation,
        _ => false,
    });
    let controller = controller
        .on(&jobs, described)
        .mapped(&jobs, delayed, status_only.and(again))
        .mapped(&pods, gather, Predicate::version_changed())
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

/// The job of a pod, or those that would adopt it.
fn concerned(jobs: &Store<Job>, pod: &Pod) -> Vec<Key> {
    if controller_of(&pod.metadata).is_some() {
        return controller_key::<Job>(&pod.metadata).into_iter().collect();
    }
    adopters(jobs, &pod.metadata, selects)
}

fn selects(job: &Job) -> Selects {
    Selects::of_workload(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

struct Jobs {
    tools: Tools,
    jobs: Store<Job>,
    pods: Controlled<Pod>,
    backoff: Mutex<HashMap<Key, Record>>,
}

impl Jobs {
    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let job = self.jobs.get(&run.key);
        let Some(job) = job.filter(|job| !shape::is_finished(job) && !shape::is_foreign(job)) else {
            self.tools.writes.forget(&run.key);
            self.backoff.lock().remove(&run.key);
            return Ok(Action::done());
        };
        match self.reconcile(&run.key, &job).await {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::done()),
            other => Ok(other?),
        }
    }

    async fn reconcile(&self, key: &Key, known: &Arc<Job>) -> Result<Action, Error> {
        let writer = self.tools.writer(&**known);
        let selects = selects(known);
        let claims =
            Claims { client: &self.tools.client, owner: &**known, selects: &selects, finalizer: Some(shape::TRACKING) };
        let pods = claims.claim(self.pods.candidates(&**known)).await?;

        let now = self.tools.clock.now();
        let mut job = (**known).clone();
        let status = job.status.get_or_insert_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !shape::is_suspended(known) {
            job.status.get_or_insert_default().start_time = Some(conditions::whole_second(now));
        }
        let mut view = View::of(&job, pods);
        let record = self.backoff.lock().get(key).copied().unwrap_or_default();
        let record = record.after(&view.new_succeeded, &view.new_failed);
        view.finish = verdict::finish(&job, &view, now);
        let mut next = verdict::deadline(&job, now).filter(|_| view.finish.is_none());
        let mut suspension_changed = false;
        let managed = if view.finish.is_some() {
            self.end_active(&job, &mut view, &writer).await
        } else if job.metadata.deletion_timestamp.is_none() {
            let (managed, wait) = self.manage(&job, &mut view, record, now, &writer).await;
            next = next.into_iter().chain(wait).min();
            if verdict::is_complete(&job, &view) {
                view.finish = Some(verdict::success());
            } else {
                suspension_changed = self.note_suspension(&mut job, now);
            }
            managed
        } else {
            Ok(())
        };
        let tracking = Tracking { control: self, writer: &writer, key, record, view };
        tracking.settle(job, suspension_changed, now).await?;
        managed?;
        Ok(next.map_or(Action::done(), Action::after))
    }
}

/// At least a moment: a run that is too early finds nothing to do.
fn until(deadline: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(deadline.duration_since(now)).unwrap_or_default() + Duration::from_millis(10)
}
