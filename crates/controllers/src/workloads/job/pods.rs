//! How many pods a job has, and making it so.

use std::sync::Arc;
use std::time::Duration;

use client::Error;
use client::events::EventType;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::DeleteParams;

use super::backoff::{self, Record};
use super::verdict::{View, number, wanted};
use super::{Jobs, shape, tracking};
use crate::owners::name;
use crate::pods;
use crate::reconciling::{is_namespace_terminating, server_message};
use crate::workloads::batches::{BURST, slow_start};
use crate::workloads::replicas::victims;
use crate::writer::Writer;

impl Jobs {
    /// Deletes what is too much or creates what is missing, never both (JB-3). Also says when to look again if it has to wait
    /// after failures.
    pub(super) async fn manage(
        &self,
        job: &Job,
        view: &mut View,
        record: Record,
        now: Timestamp,
        writer: &Writer,
    ) -> (Result<(), Error>, Option<Duration>) {
        let wanted = wanted(job, view);
        let excess = usize::try_from(view.active_count - wanted).unwrap_or(0);
        let mut leaving = superfluous(job, view, excess, now);
        if !leaving.is_empty() {
            if !shape::is_suspended(job) {
                leaving.truncate(BURST);
            }
            return (self.remove(job, view, &leaving, writer).await, None);
        }
        let waiting = if shape::waits_for_the_end(job) { view.terminating } else { 0 };
        let missing = usize::try_from(wanted - waiting - view.active_count).unwrap_or(0).min(BURST);
        if missing == 0 {
            return (Ok(()), None);
        }
        let per_index = shape::limit_per_index(job).is_some();
        let wait = record.remaining(now);
        if !per_index && !wait.is_zero() {
            return (Ok(()), Some(wait));
        }
        let places: Vec<Option<i32>> = if shape::is_indexed(job) {
            let (indexes, wait) = due(free_indexes(job, view, missing), view, now);
            if indexes.is_empty() {
                return (Ok(()), wait);
            }
            indexes.into_iter().map(Some).collect()
        } else {
            vec![None; missing]
        };
        (self.create(job, view, &places, writer).await, None)
    }

    async fn create(&self, job: &Job, view: &mut View, places: &[Option<i32>], writer: &Writer) -> Result<(), Error> {
        let about = job.object_ref(&());
        let kept = &view.kept;
        let outcome = slow_start(places.len(), async |position| {
            let index = places[position];
            let replaced = index.and_then(|index| kept.get(&index)).map(|pod| &**pod);
            match writer.create(&shape::pod(job, index, replaced)).await {
                Ok(pod) => {
                    let message = format!("Created pod: {}", name(&pod));
                    self.tools.recorder.record(&about, EventType::Normal, "SuccessfulCreate", &message);
                    Ok(())
                }
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                Err(error) => {
                    let message = format!("Error creating: {}", server_message(&error));
                    self.tools.recorder.record(&about, EventType::Warning, "FailedCreate", &message);
                    Err(error)
                }
            }
        })
        .await;
        view.active_count += number(outcome.succeeded);
        outcome.failure.map_or(Ok(()), Err)
    }

    /// Deletes pods that are not needed; they are not counted.
    async fn remove(&self, job: &Job, view: &mut View, leaving: &[Arc<Pod>], writer: &Writer) -> Result<(), Error> {
        let removals = leaving.iter().map(async |pod| {
            tracking::let_go(writer, pod).await?;
            self.delete(job, pod, writer).await
        });
        let results = join_all(removals).await;
        self.note_removed(view, leaving, results)
    }

    /// Deletes the pods of a job that is over. Their end is counted before they may go.
    pub(super) async fn end_active(&self, job: &Job, view: &mut View, writer: &Writer) -> Result<(), Error> {
        let active = view.active.clone();
        let results = join_all(active.iter().map(|pod| self.delete(job, pod, writer))).await;
        let all = results.iter().all(Result::is_ok);
        if !all {
            // It is over when nothing runs.
            view.finish = None;
        }
        self.note_removed(view, &active, results)
    }

    fn note_removed(&self, view: &mut View, pods: &[Arc<Pod>], results: Vec<Result<(), Error>>) -> Result<(), Error> {
        let mut failure = Ok(());
        for (pod, result) in pods.iter().zip(results) {
            match result {
                Ok(()) => {
                    view.active_count -= 1;
                    view.terminating += 1;
                    view.ready -= i32::from(pods::is_ready(pod));
                }
                Err(error) => failure = Err(error),
            }
        }
        failure
    }

    async fn delete(&self, job: &Job, pod: &Pod, writer: &Writer) -> Result<(), Error> {
        let about = job.object_ref(&());
        match writer.delete(pod, &DeleteParams::default()).await {
            Ok(()) => {
                let message = format!("Deleted pod: {}", name(pod));
                self.tools.recorder.record(&about, EventType::Normal, "SuccessfulDelete", &message);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                let message = format!("Error deleting: {}", server_message(&error));
                self.tools.recorder.record(&about, EventType::Warning, "FailedDelete", &message);
                Err(error)
            }
        }
    }
}

/// The active pods that have to go: at least `excess`, and of an index all but one, and those without a valid index.
fn superfluous(job: &Job, view: &View, excess: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    if !shape::is_indexed(job) {
        return victims::choose(&view.active, &[], excess, now);
    }
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    let mut by_index: std::collections::BTreeMap<i32, Vec<Arc<Pod>>> = std::collections::BTreeMap::new();
    for pod in &view.active {
        match shape::valid_index(job, pod) {
            Some(index) => by_index.entry(index).or_default().push(pod.clone()),
            None => leaving.push(pod.clone()),
        }
    }
    for (_, pods) in by_index {
        let doubles = victims::choose(&pods, &[], pods.len() - 1, now);
        let is_double = |pod: &Arc<Pod>| doubles.iter().any(|double| Arc::ptr_eq(double, pod));
        staying.extend(pods.iter().filter(|pod| !is_double(pod)).cloned());
        leaving.extend(doubles);
    }
    let more = excess.saturating_sub(leaving.len());
    leaving.extend(victims::choose(&staying, &[], more, now));
    leaving
}

fn free_indexes(job: &Job, view: &View, count: usize) -> Vec<i32> {
    let mut taken = view.indexes.with(view.active.iter().filter_map(|pod| shape::index(pod)));
    if shape::waits_for_the_end(job) {
        let leaving = view.pods.iter().filter(|pod| pods::is_terminating(pod));
        taken = taken.with(leaving.filter_map(|pod| shape::index(pod)));
    }
    if let Some(failed) = &view.failed_indexes {
        taken = taken.merge(failed);
    }
    taken.missing(count, shape::completions(job).unwrap_or(0))
}

/// The indexes that may be tried now; if none, how long until one may.
fn due(indexes: Vec<i32>, view: &View, now: Timestamp) -> (Vec<i32>, Option<Duration>) {
    let wait = |index: i32| {
        let Some(pod) = view.kept.get(&index) else { return Duration::ZERO };
        let (counted, ignored) = shape::failures_before(pod);
        let failures = u32::try_from(counted + ignored + 1).unwrap_or(u32::MAX);
        backoff::finished_at(pod).map_or(Duration::ZERO, |last| backoff::wait(failures, last, now))
    };
    let (now, later): (Vec<i32>, Vec<i32>) = indexes.into_iter().partition(|index| wait(*index).is_zero());
    (now, later.into_iter().map(wait).min())
}
