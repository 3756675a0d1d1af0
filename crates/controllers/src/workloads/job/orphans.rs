//! Pods of deleted or finished jobs: they will not be counted, so their finalizer is removed.

use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::store::Store;
use client::{Key, Object};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::{shape, tracking};
use crate::context::{Context, Tools};
use crate::owners::{Controlled, controller_of, is_of_kind, uid};
use crate::reconciling;

/// Runs until the context's stop.
pub(super) async fn run(context: Context) {
    let jobs = context.informers.informer::<Job>();
    let pods = context.informers.informer::<Pod>();
    let tools = context.tools("job-controller").follow(&pods);
    let control = Arc::new(Orphans { tools: tools.clone(), jobs: jobs.store(), pods: Controlled::of(&pods) });
    let (of_job, of_pod) = (control.clone(), control.clone());
    let controller = context
        .controller("job-orphans")
        .mapped(&jobs, move |job| of_job.left_by(job), Predicate::version_changed())
        .mapped(&pods, move |pod| of_pod.is_left(pod).then(|| pod.object_key()).into_iter().collect(), Predicate::any())
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    reconciling::run(context, controller, 1, sync).await;
}

struct Orphans {
    tools: Tools,
    jobs: Store<Job>,
    pods: Controlled<Pod>,
}

impl Orphans {
    /// The pods that a job has left behind.
    fn left_by(&self, job: &Job) -> Vec<Key> {
        let pods = self.pods.by(uid(job));
        pods.iter().filter(|pod| self.is_left(pod)).map(|pod| pod.object_key()).collect()
    }

    fn is_left(&self, pod: &Pod) -> bool {
        if !shape::is_tracked(pod) {
            return false;
        }
        let Some(owner) = controller_of(&pod.metadata) else { return true };
        if !is_of_kind::<Job>(owner) {
            return false;
        }
        let job = self.jobs.get(&Key::new(pod.metadata.namespace.as_deref(), &owner.name));
        let job = job.filter(|job| uid(&**job) == owner.uid);
        job.is_none_or(|job| shape::is_finished(&job) && !shape::is_foreign(&job))
    }

    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(pod) = self.pods.store().get(&run.key).filter(|pod| self.is_left(pod)) else {
            self.tools.writes.forget(&run.key);
            return Ok(Action::done());
        };
        tracking::remove_tracking_finalizer(&self.tools.writer(&*pod), &pod).await?;
        Ok(Action::done())
    }
}
