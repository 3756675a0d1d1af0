//! Counting pods that have ended, letting them go, and the status of a job.
//!
//! A pod's end is counted in three steps, each of which may be the last for a while: its UID goes into
//! `uncountedTerminatedPods`; its finalizer is removed; the UID becomes part of the count. Whoever goes on finds out from
//! the finalizer where it stopped (JB-2).

use std::collections::BTreeSet;
use std::sync::Arc;

use client::events::EventType;
use client::{Error, Key};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde_json::json;

use super::backoff::Record;
use super::policies::{self, Failure};
use super::verdict::{Finish, View, number};
use super::{Jobs, shape};
use crate::conditions;
use crate::owners::uid;
use crate::writer::Writer;

/// How many UIDs a status holds at most.
const MOST_UNCOUNTED: usize = 500;

/// The end of a run.
pub(super) struct Tracking<'a> {
    pub(super) control: &'a Jobs,
    pub(super) writer: &'a Writer,
    pub(super) key: &'a Key,
    pub(super) record: Record,
    pub(super) view: View,
}

/// What one pass over the pods found.
#[derive(Default)]
struct Pass {
    letting_go: Vec<Arc<Pod>>,
    new_indexes: Vec<i32>,
    /// There are more than fit.
    full: bool,
}

impl Tracking<'_> {
    /// Brings status and finalizers up to date.
    pub(super) async fn settle(mut self, mut job: Job, suspension_changed: bool, now: Timestamp) -> Result<(), Error> {
        let view = &self.view;
        let status = job.status.get_or_insert_default();
        let numbers = (nonzero(view.active_count), Some(view.ready), Some(view.terminating));
        let mut changed = suspension_changed || (status.active, status.ready, status.terminating) != numbers;
        (status.active, status.ready, status.terminating) = numbers;
        let tracked = |pod: &&Arc<Pod>| shape::is_tracked(pod);
        let mut held: BTreeSet<String> = view.pods.iter().filter(tracked).map(|pod| uid(&**pod).to_owned()).collect();
        changed |= count_released(&mut job, &held);
        let pass = self.gather(&mut job, &mut changed);
        self.note_indexes(&mut job, &pass, &mut changed);
        let finish = self.view.finish.take();
        if let Some(finish) = finish.as_ref().filter(|finish| !finish.announced) {
            let kind = if finish.success { "SuccessCriteriaMet" } else { "FailureTarget" };
            let conditions = job.status.get_or_insert_default().conditions.get_or_insert_default();
            conditions.push(condition(kind, "True", &finish.reason, &finish.message, now));
            changed = true;
        }

        if changed {
            job = self.writer.replace_status(job).await?;
            self.control.backoff.lock().insert(self.key.clone(), self.record);
        }
        let results = join_all(pass.letting_go.iter().map(|pod| let_go(self.writer, pod))).await;
        for (pod, _) in pass.letting_go.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            held.remove(uid(&**pod));
        }
        let mut changed = count_released(&mut job, &held);
        let failure = results.into_iter().find_map(Result::err);
        let over = finish.filter(|_| failure.is_none() && !pass.full && self.nothing_is_left(&job));
        if let Some(finish) = &over {
            end(&mut job, finish, now);
            changed = true;
        }
        if changed {
            job = self.writer.replace_status(job).await?;
        }
        if let Some(finish) = over {
            self.tell(&job, &finish);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Goes over the pods that have ended: notes those that are not counted, and which may go.
    fn gather(&self, job: &mut Job, changed: &mut bool) -> Pass {
        let view = &self.view;
        let mut pass = Pass::default();
        let indexed = shape::is_indexed(job);
        let gives_up = view.finish.as_ref().is_some_and(|finish| !finish.success);
        let mut pods: Vec<&Arc<Pod>> = view.pods.iter().filter(|pod| shape::is_tracked(pod)).collect();
        if indexed {
            pods.sort_by_key(|pod| shape::index(pod));
        }
        let uncounted = job.status.clone().unwrap_or_default().uncounted_terminated_pods.unwrap_or_default();
        let (mut succeeded, mut failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        for pod in pods {
            let has_failed = shape::has_failed(job, pod);
            if !self.may_go(job, pod, has_failed) {
                continue;
            }
            pass.letting_go.push(pod.clone());
            let this = uid(&**pod).to_owned();
            let known_failed = view.uncounted_failed.contains(&this);
            if shape::has_succeeded(pod) && !known_failed {
                if indexed {
                    let new = shape::valid_index(job, pod).filter(|index| !view.indexes_before.has(*index));
                    *changed |= new.is_some();
                    pass.new_indexes.extend(new);
                } else if !view.uncounted_succeeded.contains(&this) {
                    *changed = true;
                    succeeded.push(this);
                }
            } else if (has_failed || gives_up)
                && !known_failed
                && (!indexed || shape::valid_index(job, pod).is_some())
                && policies::failure(job, pod) != Failure::Ignored
            {
                *changed = true;
                failed.push(this);
            }
            if pass.new_indexes.len() + succeeded.len() + failed.len() >= MOST_UNCOUNTED {
                pass.full = true;
                break;
            }
        }
        let status = job.status.get_or_insert_default().uncounted_terminated_pods.get_or_insert_default();
        status.succeeded = Some(succeeded).filter(|list| !list.is_empty());
        status.failed = Some(failed).filter(|list| !list.is_empty());
        pass
    }

    fn may_go(&self, job: &Job, pod: &Pod, has_failed: bool) -> bool {
        let over = job.metadata.deletion_timestamp.is_some() || self.view.finish.is_some();
        if over || shape::has_succeeded(pod) {
            return true;
        }
        let kept = shape::index(pod).and_then(|index| self.view.kept.get(&index));
        has_failed && kept.is_none_or(|kept| uid(&**kept) != uid(pod))
    }

    fn note_indexes(&self, job: &mut Job, pass: &Pass, changed: &mut bool) {
        if !shape::is_indexed(job) {
            return;
        }
        let indexes = self.view.indexes.with(pass.new_indexes.iter().copied());
        let status = job.status.get_or_insert_default();
        let text = Some(indexes.to_string()).filter(|text| !text.is_empty());
        let failed = self.view.failed_indexes.as_ref().map(ToString::to_string);
        *changed |= status.completed_indexes != text || status.failed_indexes != failed;
        status.succeeded = nonzero(indexes.total());
        status.completed_indexes = text;
        status.failed_indexes = failed;
    }

    fn nothing_is_left(&self, job: &Job) -> bool {
        let uncounted = job.status.as_ref().and_then(|status| status.uncounted_terminated_pods.as_ref());
        let all = uncounted.is_none_or(|uncounted| uncounted.succeeded.is_none() && uncounted.failed.is_none());
        all && self.view.terminating <= 0
    }

    fn tell(&self, job: &Job, finish: &Finish) {
        let about = job.object_ref(&());
        let recorder = &self.control.tools.recorder;
        if !finish.success {
            return recorder.record(&about, EventType::Warning, &finish.reason, &finish.message);
        }
        let succeeded = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0);
        if shape::completions(job).is_some_and(|completions| succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            recorder.record(&about, EventType::Warning, "TooManySucceededPods", message);
        }
        recorder.record(&about, EventType::Normal, "Completed", "Job completed");
    }
}

/// Moves what is no longer held from the list of UIDs into the count; true if there was any.
fn count_released(job: &mut Job, held: &BTreeSet<String>) -> bool {
    let indexed = shape::is_indexed(job);
    let status = job.status.get_or_insert_default();
    let Some(uncounted) = &mut status.uncounted_terminated_pods else { return false };
    let release = |list: &mut Option<Vec<String>>| {
        let before = list.as_ref().map_or(0, Vec::len);
        let kept: Vec<String> = list.take().into_iter().flatten().filter(|uid| held.contains(uid)).collect();
        let released = before - kept.len();
        *list = Some(kept).filter(|kept| !kept.is_empty());
        number(released)
    };
    let (succeeded, failed) = (release(&mut uncounted.succeeded), release(&mut uncounted.failed));
    if !indexed {
        status.succeeded = nonzero(status.succeeded.unwrap_or(0) + succeeded);
    }
    status.failed = nonzero(status.failed.unwrap_or(0) + failed);
    succeeded + failed > 0
}

fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

/// Removes the finalizer from a pod; one that is gone has none.
pub(super) async fn let_go(writer: &Writer, pod: &Pod) -> Result<(), Error> {
    if !shape::is_tracked(pod) {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": uid(pod), "$deleteFromPrimitiveList/finalizers": [shape::TRACKING]}});
    match writer.patch(pod, patch).await {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(conditions::whole_second(now)),
        last_transition_time: Some(conditions::whole_second(now)),
    }
}

/// The last word: complete or failed.
fn end(job: &mut Job, finish: &Finish, now: Timestamp) {
    let kind = if finish.success { "Complete" } else { "Failed" };
    let status = job.status.get_or_insert_default();
    set(&mut status.conditions, condition(kind, "True", &finish.reason, &finish.message, now));
    if finish.success {
        status.completion_time = Some(conditions::whole_second(now));
    }
}

/// Sets a condition where it stands; true if it was another.
fn set(conditions: &mut Option<Vec<JobCondition>>, new: JobCondition) -> bool {
    let list = conditions.get_or_insert_default();
    let known = list.iter_mut().find(|condition| condition.type_ == new.type_);
    match known {
        Some(known) if known.status == new.status && known.reason == new.reason && known.message == new.message => {
            false
        }
        Some(known) => {
            *known = new;
            true
        }
        None => {
            list.push(new);
            true
        }
    }
}

impl Jobs {
    /// Says that a job was suspended or goes on; true if that is news (JB-6).
    pub(super) fn note_suspension(&self, job: &mut Job, now: Timestamp) -> bool {
        let about = job.object_ref(&());
        let suspended = shape::is_suspended(job);
        let status = job.status.get_or_insert_default();
        let said = conditions::find(status.conditions.as_ref(), "Suspended").is_some();
        if suspended {
            let news =
                set(&mut status.conditions, condition("Suspended", "True", "JobSuspended", "Job suspended", now));
            if news {
                self.tools.recorder.record(&about, EventType::Normal, "Suspended", "Job suspended");
                status.start_time = None;
            }
            return news;
        }
        let resumed = condition("Suspended", "False", "JobResumed", "Job resumed", now);
        let news = said && set(&mut status.conditions, resumed);
        if news {
            self.tools.recorder.record(&about, EventType::Normal, "Resumed", "Job resumed");
            status.start_time = Some(conditions::whole_second(now));
        }
        news
    }
}
