//! Pods of jobs that are gone or over: nobody will count them, so their finalizer is removed and they may go.

use std::sync::Arc;

use client::controller::{Action, Controller, Predicate, Run, RunError, Writes};
use client::store::Store;
use client::{Key, Object};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use super::{shape, tracking};
use crate::context::Context;
use crate::parts::owners::{Controlled, controller_of, is_of_kind, uid};
use crate::parts::running::run;
use crate::parts::writer::{Writer, follow};

pub(super) async fn start(context: Context) {
    let jobs = context.informers.informer::<Job>();
    let pods = context.informers.informer::<Pod>();
    let writes = Arc::new(Writes::new());
    follow(&writes, &pods);
    let control = Arc::new(Orphans {
        client: context.client.clone(),
        jobs: jobs.store(),
        pods: Controlled::of(&pods),
        writes: writes.clone(),
    });
    let (of_job, of_pod) = (control.clone(), control.clone());
    let controller = Controller::new("job-orphans")
        .mapped(&jobs, move |job| of_job.left_by(job), Predicate::version_changed())
        .mapped(&pods, move |pod| of_pod.is_left(pod).then(|| pod.object_key()).into_iter().collect(), Predicate::any())
        .read_your_writes(writes);
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    run(context, controller, 1, sync).await;
}

struct Orphans {
    client: Client,
    jobs: Store<Job>,
    pods: Controlled<Pod>,
    writes: Arc<Writes>,
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
            self.writes.forget(&run.key);
            return Ok(Action::done());
        };
        tracking::let_go(&Writer::new(&self.client, &self.writes, &*pod), &pod).await?;
        Ok(Action::done())
    }
}
