//! The outcome of a job, decided from its pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::backoff::finished_at;
use super::indexes::Indexes;
use super::policies::{self, Failure};
use super::shape;
use crate::owners::uid;
use crate::pods;

/// The outcome of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// The status has this outcome already; some pods still run.
    pub(super) announced: bool,
}

/// The pods of a job as one run sees them.
pub(super) struct View {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) active: Vec<Arc<Pod>>,
    pub(super) active_count: i32,
    pub(super) ready: i32,
    pub(super) terminating: i32,
    pub(super) uncounted_succeeded: BTreeSet<String>,
    pub(super) uncounted_failed: BTreeSet<String>,
    /// Finished pods that the status does not know yet.
    pub(super) new_succeeded: Vec<Arc<Pod>>,
    pub(super) new_failed: Vec<Arc<Pod>>,
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// The counts of the status, and the counts that it should have.
    pub(super) indexes_before: Indexes,
    pub(super) indexes: Indexes,
    pub(super) failed_indexes: Option<Indexes>,
    /// The failed pod of an index that is kept until another takes its place.
    pub(super) kept: HashMap<i32, Arc<Pod>>,
    pub(super) finish: Option<Finish>,
}

impl View {
    pub(super) fn of(job: &Job, all: Vec<Arc<Pod>>) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
        let set = |list: Option<Vec<String>>| list.into_iter().flatten().collect::<BTreeSet<String>>();
        let (uncounted_succeeded, uncounted_failed) = (set(uncounted.succeeded), set(uncounted.failed));
        let active: Vec<Arc<Pod>> = all.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let indexed = shape::is_indexed(job);
        let new = |known: &BTreeSet<String>, ended: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
            let is_new = |pod: &&Arc<Pod>| {
                let valid = !indexed || shape::valid_index(job, pod).is_some();
                shape::is_tracked(pod) && !known.contains(uid(&***pod)) && valid && ended(pod)
            };
            all.iter().filter(is_new).cloned().collect()
        };
        let new_succeeded = new(&uncounted_succeeded, &shape::has_succeeded);
        let new_failed = new(&uncounted_failed, &|pod| shape::has_failed(job, pod));
        let counted = new_failed.iter().filter(|pod| policies::failure(job, pod) != Failure::Ignored).count();
        let total = |known: Option<i32>, new: usize, uncounted: usize| {
            known.unwrap_or(0).saturating_add(i32::try_from(new + uncounted).unwrap_or(i32::MAX))
        };
        let mut view = Self {
            active_count: number(active.len()),
            ready: number(active.iter().filter(|pod| pods::is_ready(pod)).count()),
            terminating: number(all.iter().filter(|pod| pods::is_terminating(pod)).count()),
            succeeded: total(status.succeeded, new_succeeded.len(), uncounted_succeeded.len()),
            failed: total(status.failed, counted, uncounted_failed.len()),
            pods: all,
            active,
            uncounted_succeeded,
            uncounted_failed,
            new_succeeded,
            new_failed,
            indexes_before: Indexes::default(),
            indexes: Indexes::default(),
            failed_indexes: None,
            kept: HashMap::new(),
            finish: None,
        };
        if indexed {
            view.look_at_indexes(job, status.completed_indexes.as_deref(), status.failed_indexes.as_deref());
        }
        view
    }

    fn look_at_indexes(&mut self, job: &Job, completed: Option<&str>, failed: Option<&str>) {
        let completions = shape::completions(job).unwrap_or(0);
        let of = |holds: &dyn Fn(&Pod) -> bool| -> Vec<i32> {
            let pods = self.pods.iter().filter(|pod| shape::is_tracked(pod) && holds(pod));
            pods.filter_map(|pod| shape::valid_index(job, pod)).collect()
        };
        self.indexes_before = Indexes::parse(completed.unwrap_or_default(), completions);
        let indexes = self.indexes_before.with(of(&shape::has_succeeded));
        let failed_indexes = shape::limit_per_index(job).map(|limit| {
            let given_up = |pod: &Pod| shape::has_failed(job, pod) && gives_up(job, pod, limit);
            Indexes::parse(failed.unwrap_or_default(), completions).with(of(&given_up))
        });
        self.succeeded = indexes.total();
        self.indexes = indexes;
        self.failed_indexes = failed_indexes;
        if self.failed_indexes.is_some() {
            self.keep_failed_pods(job);
        }
    }

    /// Of an index that will be tried again, the pod that failed last stays: it has the number of failures.
    fn keep_failed_pods(&mut self, job: &Job) {
        let active: BTreeSet<i32> = self.active.iter().filter_map(|pod| shape::index(pod)).collect();
        for pod in self.pods.iter().filter(|pod| shape::is_tracked(pod) && shape::has_failed(job, pod)) {
            let Some(index) = shape::valid_index(job, pod) else { continue };
            let given_up = self.failed_indexes.as_ref().is_some_and(|failed| failed.has(index));
            if self.indexes.has(index) || given_up || active.contains(&index) {
                continue;
            }
            let tries = |pod: &Pod| {
                let (counted, ignored) = shape::failures_before(pod);
                (counted + ignored, finished_at(pod))
            };
            let known = self.kept.get(&index);
            if known.is_none_or(|known| tries(known) <= tries(pod)) {
                self.kept.insert(index, pod.clone());
            }
        }
    }
}

pub(super) fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn gives_up(job: &Job, pod: &Pod, limit: i32) -> bool {
    match policies::failure(job, pod) {
        Failure::FailsIndex => true,
        Failure::Ignored => false,
        _ => shape::failures_before(pod).0 >= limit,
    }
}

pub(super) fn success() -> Finish {
    failing(true, "CompletionsReached", "Reached expected number of succeeded pods")
}

fn failing(success: bool, reason: &str, message: &str) -> Finish {
    Finish { success, reason: reason.into(), message: message.into(), announced: false }
}

/// The outcome of a job whose pods may still run (JB-5).
pub(super) fn finish(job: &Job, view: &View, now: Timestamp) -> Option<Finish> {
    for (kind, success) in [("SuccessCriteriaMet", true), ("FailureTarget", false)] {
        if let Some(said) = shape::condition(job, kind) {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            return Some(Finish { success, reason: text(&said.reason), message: text(&said.message), announced: true });
        }
    }
    let failed = view.pods.iter().filter(|pod| shape::has_failed(job, pod));
    let fatal = failed.filter_map(|pod| match policies::failure(job, pod) {
        Failure::FailsJob(message) => Some(message),
        _ => None,
    });
    if let Some(message) = fatal.into_iter().next() {
        return Some(failing(false, "PodFailurePolicy", &message));
    }
    let spec = job.spec.as_ref()?;
    if view.failed > spec.backoff_limit.unwrap_or(6) || restarts_exceed(job, view) {
        return Some(failing(false, "BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if deadline_at(job).is_some_and(|deadline| deadline <= now) {
        return Some(failing(false, "DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    if let Some(failed) = &view.failed_indexes {
        if spec.max_failed_indexes.is_some_and(|most| failed.total() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(failing(false, "MaxFailedIndexesExceeded", message));
        }
        if failed.total() > 0 && failed.total() + view.indexes.total() >= shape::completions(job).unwrap_or(0) {
            return Some(failing(false, "FailedIndexes", "Job has failed indexes"));
        }
    }
    if shape::is_indexed(job) {
        let completions = shape::completions(job).unwrap_or(0);
        let message = policies::success(spec.success_policy.as_ref(), completions, &view.indexes)?;
        return Some(failing(true, "SuccessPolicy", &message));
    }
    None
}

/// Containers that are restarted in place count too.
fn restarts_exceed(job: &Job, view: &View) -> bool {
    let Some(spec) = &job.spec else { return false };
    let policy = spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let running = view.pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
    let statuses = running.filter_map(|pod| pod.status.as_ref());
    let containers = statuses.flat_map(|s| s.init_container_statuses.iter().chain(&s.container_statuses).flatten());
    let restarts: i32 = containers.map(|container| container.restart_count).sum();
    match spec.backoff_limit.unwrap_or(6) {
        0 => restarts > 0,
        limit => restarts >= limit,
    }
}

fn deadline_at(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.active_deadline_seconds.filter(|_| !shape::is_suspended(job))?;
    let started = job.status.as_ref()?.start_time.as_ref()?.0;
    started.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The time until the deadline.
pub(super) fn deadline(job: &Job, now: Timestamp) -> Option<Duration> {
    deadline_at(job).map(|deadline| super::until(deadline, now))
}

/// True if enough pods have succeeded and none is active.
pub(super) fn is_complete(job: &Job, view: &View) -> bool {
    let enough = match shape::completions(job) {
        None => view.succeeded > 0,
        Some(completions) => view.succeeded >= completions,
    };
    enough && view.active_count == 0
}

/// The number of pods that should be active (JB-3).
pub(super) fn wanted(job: &Job, view: &View) -> i32 {
    if shape::is_suspended(job) {
        return 0;
    }
    match shape::completions(job) {
        // Without `completions`, no pod is added after the first success; the others finish.
        None if view.succeeded > 0 => view.active_count,
        None => shape::parallelism(job),
        Some(completions) => shape::parallelism(job).min(completions - view.succeeded).max(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(spec: Value, status: Value) -> Job {
        let mut spec = spec;
        spec["template"] =
            json!({"spec": {"containers": [], "restartPolicy": spec["restart"].as_str().unwrap_or("Never")}});
        serde_json::from_value(json!({"metadata": {"name": "j"}, "spec": spec, "status": status})).unwrap()
    }

    fn pods(texts: &[&str]) -> Vec<Arc<Pod>> {
        let pod = |(position, text): (usize, &&str)| {
            let (phase, index) = text.split_once('/').unwrap_or((text, ""));
            let mut value = json!({
                "metadata": {"name": format!("p{position}"), "uid": format!("u{position}"), "finalizers": [shape::TRACKING]},
                "status": {"phase": phase},
            });
            if !index.is_empty() {
                value["metadata"]["annotations"] = json!({shape::INDEX: index});
            }
            Arc::new(serde_json::from_value(value).unwrap())
        };
        texts.iter().enumerate().map(pod).collect()
    }

    fn outcome(job: &Job, texts: &[&str]) -> Option<String> {
        let view = View::of(job, pods(texts));
        finish(job, &view, Timestamp::from_second(1000).unwrap()).map(|finish| finish.reason)
    }

    #[test]
    fn jb_3_how_many_pods_are_wanted() {
        let rows = [
            (json!({"parallelism": 3}), vec![], 3),
            (json!({"parallelism": 3}), vec!["Succeeded", "Running"], 1),
            (json!({"parallelism": 3, "completions": 5}), vec!["Succeeded"], 3),
            (json!({"parallelism": 3, "completions": 5}), vec!["Succeeded"; 4], 1),
            (json!({"parallelism": 3, "completions": 5}), vec!["Succeeded"; 6], 0),
            (json!({"parallelism": 3, "completions": 5, "suspend": true}), vec!["Running"], 0),
        ];
        for (spec, texts, expected) in rows {
            let job = job(spec.clone(), json!({}));
            assert_eq!(wanted(&job, &View::of(&job, pods(&texts))), expected, "{spec} {texts:?}");
        }
    }

    #[test]
    fn jb_5_reasons_to_end() {
        let plain = json!({"completions": 2, "backoffLimit": 1});
        assert_eq!(outcome(&job(plain.clone(), json!({})), &["Failed"]), None);
        assert_eq!(
            outcome(&job(plain.clone(), json!({})), &["Failed", "Failed"]).as_deref(),
            Some("BackoffLimitExceeded")
        );
        assert_eq!(outcome(&job(plain, json!({"failed": 1})), &["Failed"]).as_deref(), Some("BackoffLimitExceeded"));
        let late = json!({"activeDeadlineSeconds": 100, "backoffLimit": 6});
        let started = |second: i64| json!({"startTime": Timestamp::from_second(second).unwrap().to_string()});
        assert_eq!(outcome(&job(late.clone(), started(900)), &[]).as_deref(), Some("DeadlineExceeded"));
        assert_eq!(outcome(&job(late, started(901)), &[]), None);
        let said = json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "R", "message": "m"}]});
        assert_eq!(outcome(&job(json!({}), said), &[]).as_deref(), Some("R"));
    }

    #[test]
    fn jb_5_failures_that_the_policy_ignores_are_not_counted() {
        let rules = json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]);
        let job = job(json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}}), json!({}));
        let mut evicted = pods(&["Failed"]);
        let conditions = json!([{"type": "DisruptionTarget", "status": "True"}]);
        Arc::make_mut(&mut evicted[0]).status.as_mut().unwrap().conditions =
            Some(serde_json::from_value(conditions).unwrap());
        assert_eq!(View::of(&job, evicted).failed, 0);
        assert_eq!(View::of(&job, pods(&["Failed"])).failed, 1);
    }

    #[test]
    fn jb_5_failed_indexes() {
        let per_index = |extra: Value| {
            let mut spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 2147483647, "backoffLimitPerIndex": 0});
            spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            job(spec, json!({}))
        };
        assert_eq!(outcome(&per_index(json!({})), &["Failed/0", "Running/1"]), None);
        assert_eq!(
            outcome(&per_index(json!({})), &["Failed/0", "Succeeded/1", "Succeeded/2"]).as_deref(),
            Some("FailedIndexes")
        );
        let most = per_index(json!({"maxFailedIndexes": 1}));
        assert_eq!(outcome(&most, &["Failed/0", "Failed/1", "Running/2"]).as_deref(), Some("MaxFailedIndexesExceeded"));
        let policy = per_index(json!({"successPolicy": {"rules": [{"succeededIndexes": "1"}]}}));
        assert_eq!(outcome(&policy, &["Running/0", "Succeeded/1"]).as_deref(), Some("SuccessPolicy"));
    }

    #[test]
    fn jb_7_of_an_index_that_is_tried_again_the_last_failed_pod_is_kept() {
        let spec = json!({"completionMode": "Indexed", "completions": 3, "backoffLimit": 2147483647, "backoffLimitPerIndex": 2});
        let job = job(spec, json!({}));
        let view = View::of(&job, pods(&["Failed/0", "Running/1", "Failed/1", "Succeeded/2"]));
        assert_eq!(view.kept.keys().copied().collect::<Vec<_>>(), [0]);
        assert_eq!((view.indexes.to_string().as_str(), view.succeeded), ("2", 1));
    }
}
