//! Jobs that are removed some time after they have finished (TT-1).

use std::sync::Arc;
use std::time::Duration;

use client::controller::{Action, Predicate, Run, RunError};
use client::store::Store;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Preconditions};

use super::job::shape::is_finished;
use crate::context::{Context, Tools};
use crate::owners::uid;
use crate::reconciling;

const WORKERS: usize = 5;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let jobs = context.informers.informer::<Job>();
    let name = "ttl-after-finished-controller";
    let control = Arc::new(Ttl { tools: context.tools(name), jobs: jobs.store() });
    let controller = context.controller(name).on(&jobs, Predicate::version_changed());
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

struct Ttl {
    tools: Tools,
    jobs: Store<Job>,
}

impl Ttl {
    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(job) = self.jobs.get(&run.key) else { return Ok(Action::done()) };
        let Some(left) = time_left(&job, self.tools.clock.now()) else { return Ok(Action::done()) };
        if !left.is_zero() {
            return Ok(Action::after(left));
        }
        // The store may be behind: the time to live may just have been changed.
        let writer = self.tools.writer(&*job);
        let live = writer.read(&*job).await?.filter(|live| uid(live) == uid(&*job));
        let Some(live) = live else { return Ok(Action::done()) };
        match time_left(&live, self.tools.clock.now()) {
            None => return Ok(Action::done()),
            Some(left) if !left.is_zero() => return Ok(Action::after(left)),
            Some(_) => {}
        }
        let this = Preconditions { uid: live.metadata.uid.clone(), resource_version: None };
        match writer.delete(&live, &DeleteParams::foreground().preconditions(this)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::done()),
        }
    }
}

/// Time until a finished job is deleted; none if it has not finished, has no time to live, or is being deleted.
fn time_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if !is_finished(job) || job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    let end = conditions.iter().find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")?;
    let finished = end.last_transition_time.as_ref()?.0;
    let expires = finished.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()?;
    Some(Duration::try_from(expires.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tt_1_a_finished_job_goes_after_its_time() {
        let job = |ttl: Option<i32>, kind: &str| -> Job {
            serde_json::from_value(json!({
                "metadata": {},
                "spec": {"template": {}, "ttlSecondsAfterFinished": ttl},
                "status": {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap()
        };
        let now: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
        assert_eq!(time_left(&job(Some(60), "Complete"), now), Some(Duration::from_secs(30)));
        assert_eq!(time_left(&job(Some(10), "Failed"), now), Some(Duration::ZERO));
        assert_eq!(time_left(&job(Some(10), "Suspended"), now), None);
        assert_eq!(time_left(&job(None, "Complete"), now), None);
    }
}
