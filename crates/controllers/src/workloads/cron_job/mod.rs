//! Cron jobs: a job at each time of a schedule.
//!
//! - `schedule`: crontab fields, and the next time they match
//! - `due`: which time is due, and when to look again

mod due;
mod schedule;

use std::collections::HashSet;
use std::sync::Arc;

use client::Error;
use client::controller::{Action, OwnerMatch, Predicate, Run, RunError};
use client::events::EventType;
use client::store::Store;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::DeleteParams;

use super::job::shape::is_finished;
use crate::conditions;
use crate::context::{Context, Tools};
use crate::owners::{Controlled, is_controlled_by, name, namespace, reference, uid};
use crate::reconciling::{self, is_namespace_terminating, server_message};
use crate::writer::Writer;
use schedule::Schedule;

const WORKERS: usize = 5;
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let cron_jobs = context.informers.informer::<CronJob>();
    let jobs = context.informers.informer::<Job>();
    let tools = context.tools("cronjob-controller").follow(&cron_jobs).follow(&jobs);
    let control =
        Arc::new(CronJobs { tools: tools.clone(), cron_jobs: cron_jobs.store(), jobs: Controlled::of(&jobs) });
    let controller = context
        .controller("cronjob-controller")
        .on(&cron_jobs, Predicate::version_changed())
        .owned(&jobs, OwnerMatch::of::<CronJob>(&()).controller_only(), Predicate::version_changed())
        .read_your_writes(tools.writes.clone());
    let sync = move |run: Run| {
        let control = control.clone();
        async move { control.sync(run).await }
    };
    reconciling::run(context, controller, WORKERS, sync).await;
}

struct CronJobs {
    tools: Tools,
    cron_jobs: Store<CronJob>,
    jobs: Controlled<Job>,
}

impl CronJobs {
    async fn sync(&self, run: Run) -> Result<Action, RunError> {
        let Some(known) = self.cron_jobs.get(&run.key) else {
            self.tools.writes.forget(&run.key);
            return Ok(Action::done());
        };
        let writer = self.tools.writer(&*known);
        let mut work = Work { control: self, writer, job: (*known).clone() };
        let result = work.reconcile(self.jobs.by(uid(&*known))).await;
        let reported = if work.job.status == known.status { Ok(()) } else { work.report().await };
        match result {
            Err(error) if is_namespace_terminating(&error) => Ok(Action::done()),
            Err(error) => Err(error.into()),
            Ok(action) => {
                reported?;
                Ok(action)
            }
        }
    }
}

/// One run for one cron job; its status is changed here and written at the end.
struct Work<'a> {
    control: &'a CronJobs,
    writer: Writer,
    job: CronJob,
}

impl Work<'_> {
    fn status(&mut self) -> &mut CronJobStatus {
        self.job.status.get_or_insert_default()
    }

    fn active(&self) -> &[ObjectReference] {
        self.job.status.as_ref().and_then(|status| status.active.as_deref()).unwrap_or_default()
    }

    fn is_active(&self, wanted: &str) -> bool {
        self.active().iter().any(|reference| reference.uid.as_deref() == Some(wanted))
    }

    fn forget(&mut self, gone: &str) {
        let active = &mut self.status().active;
        if let Some(list) = active {
            list.retain(|reference| reference.uid.as_deref() != Some(gone));
        }
        *active = active.take().filter(|list| !list.is_empty());
    }

    fn event(&self, kind: EventType, reason: &str, message: &str) {
        self.control.tools.recorder.record(&self.job.object_ref(&()), kind, reason, message);
    }

    async fn report(&mut self) -> Result<(), Error> {
        match self.writer.replace_status(self.job.clone()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn reconcile(&mut self, jobs: Vec<Arc<Job>>) -> Result<Action, Error> {
        self.note_jobs(&jobs).await?;
        self.forget_history(&jobs).await?;
        let spec = self.job.spec.clone();
        if self.job.metadata.deletion_timestamp.is_some() || spec.suspend == Some(true) {
            return Ok(Action::done());
        }
        let zone = match spec.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(wanted) => match TimeZone::get(wanted) {
                Ok(zone) => zone,
                Err(error) => {
                    let message = format!("invalid timeZone: {wanted:?}: {error}");
                    self.event(EventType::Warning, "UnknownTimeZone", &message);
                    return Ok(Action::done());
                }
            },
        };
        let schedule = match Schedule::parse(&spec.schedule) {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                self.event(EventType::Warning, "UnparseableSchedule", &message);
                return Ok(Action::done());
            }
        };
        let now = self.control.tools.clock.now();
        let due = match due::due(&self.job, &schedule, &zone, now) {
            Ok(due) => due,
            Err(error) => {
                let message = format!("invalid schedule: {:?} : {error}", spec.schedule);
                self.event(EventType::Warning, "InvalidSchedule", &message);
                return Ok(Action::done());
            }
        };
        if due.many_missed {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.event(EventType::Warning, "TooManyMissedTimes", message);
        }
        if let Some(time) = due.time {
            self.start(time, now, spec.concurrency_policy.as_deref()).await?;
        }
        let wake = due::next_wake(&self.job, &schedule, &zone, now);
        Ok(wake.map_or(Action::done(), Action::after))
    }

    /// Brings the list of active jobs and the last success up to date.
    async fn note_jobs(&mut self, jobs: &[Arc<Job>]) -> Result<(), Error> {
        let mut there = HashSet::new();
        for job in jobs {
            let this = uid(&**job);
            there.insert(this.to_owned());
            match (self.is_active(this), is_finished(job)) {
                (false, false) => {
                    let message = format!("Saw a job that the controller did not create or forgot: {}", name(&**job));
                    self.event(EventType::Warning, "UnexpectedJob", &message);
                }
                (true, true) => {
                    self.forget(this);
                    let how = if succeeded(job) { "Complete" } else { "Failed" };
                    let message = format!("Saw completed job: {}, condition: {how}", name(&**job));
                    self.event(EventType::Normal, "SawCompletedJob", &message);
                }
                _ => {}
            }
            if succeeded(job) {
                let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
                let last = &mut self.status().last_successful_time;
                if completed.as_ref().map(|time| time.0) > last.as_ref().map(|time| time.0) {
                    *last = completed;
                }
            }
        }
        let missing: Vec<ObjectReference> = self
            .active()
            .iter()
            .filter(|active| !there.contains(active.uid.as_deref().unwrap_or_default()))
            .cloned()
            .collect();
        for active in missing {
            let mut wanted = Job::default();
            wanted.metadata.name = active.name.clone();
            wanted.metadata.namespace = Some(namespace(&self.job).to_owned());
            let live = self.writer.read(&wanted).await?;
            if live.is_none_or(|live| Some(uid(&live)) != active.uid.as_deref()) {
                self.forget(active.uid.as_deref().unwrap_or_default());
                let message = format!("Active job went missing: {}", active.name.unwrap_or_default());
                self.event(EventType::Normal, "MissingJob", &message);
            }
        }
        Ok(())
    }

    /// Deletes the oldest finished jobs beyond the limits (CJ-3).
    async fn forget_history(&mut self, jobs: &[Arc<Job>]) -> Result<(), Error> {
        let spec = self.job.spec.clone();
        for (success, limit) in [(true, spec.successful_jobs_history_limit), (false, spec.failed_jobs_history_limit)] {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let mut finished: Vec<&Arc<Job>> =
                jobs.iter().filter(|job| is_finished(job) && succeeded(job) == success).collect();
            finished.sort_by_key(|job| {
                let started = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
                (started, name(&***job).to_owned())
            });
            for job in finished.iter().take(finished.len().saturating_sub(limit)) {
                self.delete(job).await?;
            }
        }
        Ok(())
    }

    async fn delete(&mut self, job: &Job) -> Result<(), Error> {
        match self.writer.delete(job, &DeleteParams::background()).await {
            Err(error) if !error.is_not_found() => {
                let message = format!("Deleted job: {}", server_message(&error));
                self.event(EventType::Warning, "FailedDelete", &message);
                return Err(error);
            }
            _ => {}
        }
        self.forget(uid(job));
        self.event(EventType::Normal, "SuccessfulDelete", &format!("Deleted job {}", name(job)));
        Ok(())
    }

    /// Starts the job of a time, unless it is too late or another one is in the way (CJ-2).
    async fn start(&mut self, time: Timestamp, now: Timestamp, policy: Option<&str>) -> Result<(), Error> {
        if due::is_too_late(&self.job, time, now) {
            let when = time.to_zoned(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S %z").to_string();
            let message = format!("Missed scheduled time to start a job: {when}");
            self.event(EventType::Warning, "MissSchedule", &message);
            return Ok(());
        }
        let last = self.job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        let wanted = self.describe(time);
        let is_there = self.active().iter().any(|active| active.name == wanted.metadata.name);
        if is_there || last.is_some_and(|last| last.0 == time) {
            return Ok(());
        }
        if policy == Some("Forbid") && !self.active().is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.event(EventType::Normal, "JobAlreadyActive", message);
            return Ok(());
        }
        if policy == Some("Replace") {
            for active in self.active().to_vec() {
                let mut running = Job::default();
                running.metadata.name = active.name;
                running.metadata.namespace = Some(namespace(&self.job).to_owned());
                match self.writer.read(&running).await? {
                    Some(job) => self.delete(&job).await?,
                    None => self.forget(active.uid.as_deref().unwrap_or_default()),
                }
            }
        }
        let job = match self.writer.create(&wanted).await {
            Ok(job) => {
                self.event(EventType::Normal, "SuccessfulCreate", &format!("Created job {}", name(&job)));
                job
            }
            Err(error) if error.is_already_exists() => {
                // Created by a run that failed before it wrote the status.
                let there = self.writer.read(&wanted).await?;
                match there.filter(|there| is_controlled_by(&there.metadata, uid(&self.job))) {
                    Some(there) => there,
                    None => return Err(error),
                }
            }
            Err(error) if is_namespace_terminating(&error) => return Err(error),
            Err(error) => {
                let message = format!("Error creating job: {}", server_message(&error));
                self.event(EventType::Warning, "FailedCreate", &message);
                return Err(error);
            }
        };
        let reference =
            ObjectReference { resource_version: job.metadata.resource_version.clone(), ..job.object_ref(&()) };
        let status = self.status();
        status.last_schedule_time = Some(Time(time));
        if !is_finished(&job) {
            status.active.get_or_insert_default().push(reference);
        }
        Ok(())
    }

    /// The job of a time, named by its minute (CJ-1).
    fn describe(&self, time: Timestamp) -> Job {
        let template = self.job.spec.job_template.clone();
        let meta = template.metadata.unwrap_or_default();
        let mut job = Job { spec: template.spec, ..Job::default() };
        job.metadata.name = Some(format!("{}-{}", name(&self.job), time.as_second() / 60));
        job.metadata.namespace = Some(namespace(&self.job).to_owned());
        job.metadata.labels = meta.labels;
        job.metadata.annotations = meta.annotations;
        let zone = self.job.spec.time_zone.as_deref();
        let zone = zone.and_then(|zone| TimeZone::get(zone).ok()).unwrap_or(TimeZone::UTC);
        let stamp = if zone == TimeZone::UTC {
            time.to_string()
        } else {
            time.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        };
        job.metadata.annotations.get_or_insert_default().insert(SCHEDULED.into(), stamp);
        job.metadata.owner_references = Some(vec![reference(&self.job)]);
        job
    }
}

fn succeeded(job: &Job) -> bool {
    conditions::is_true(job.status.as_ref().and_then(|status| status.conditions.as_ref()), "Complete")
}
