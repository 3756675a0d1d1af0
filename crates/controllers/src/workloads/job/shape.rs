//! Reading jobs and their pods: fields with what they mean when they are absent, and pods made for a job.

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::policies::{self, Failure};
use crate::owners::{name, namespace, reference};
use crate::{conditions, pods};

pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// A name made up by the server is not longer than this before its random end.
const LONGEST_PREFIX: usize = 58;

pub(super) fn spec(job: &Job) -> JobSpec {
    job.spec.clone().unwrap_or_default()
}

pub(super) fn parallelism(job: &Job) -> i32 {
    job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1)
}

pub(super) fn completions(job: &Job) -> Option<i32> {
    job.spec.as_ref().and_then(|spec| spec.completions)
}

pub(super) fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
}

pub(super) fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

pub(super) fn limit_per_index(job: &Job) -> Option<i32> {
    job.spec.as_ref().and_then(|spec| spec.backoff_limit_per_index)
}

/// Whether some other controller looks after this job.
pub(super) fn is_foreign(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != "kubernetes.io/job-controller")
}

/// A pod that was asked to end is replaced only when it has failed.
pub(super) fn waits_for_the_end(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    let policy = spec.and_then(|spec| spec.pod_replacement_policy.as_deref());
    policy == Some("Failed") || spec.is_some_and(|spec| spec.pod_failure_policy.is_some())
}

pub(super) fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref();
    conditions::find(conditions, kind).filter(|condition| condition.status == "True")
}

/// Whether it is over, one way or the other.
pub(crate) fn is_finished(job: &Job) -> bool {
    condition(job, "Complete").or(condition(job, "Failed")).is_some()
}

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

/// The completion index of a pod.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    let text = pod.metadata.annotations.as_ref()?.get(INDEX)?;
    text.parse().ok().filter(|index| *index >= 0)
}

/// The completion index of a pod, if the job has such an index.
pub(super) fn valid_index(job: &Job, pod: &Pod) -> Option<i32> {
    index(pod).filter(|index| completions(job).is_some_and(|completions| *index < completions))
}

pub(super) fn has_succeeded(pod: &Pod) -> bool {
    pods::phase(pod) == "Succeeded"
}

pub(super) fn has_failed(job: &Job, pod: &Pod) -> bool {
    let leaving = pod.metadata.deletion_timestamp.is_some() && !has_succeeded(pod);
    pods::phase(pod) == "Failed" || (leaving && !waits_for_the_end(job))
}

fn count(pod: &Pod, annotation: &str) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation));
    text.and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

/// How often its index had failed when this pod was made: what counts, and what was ignored.
pub(super) fn failures_before(pod: &Pod) -> (i32, i32) {
    (count(pod, FAILURES), count(pod, IGNORED))
}

/// The pod for a completion index, or for none. `replaced` is the failed pod before it.
pub(super) fn pod(job: &Job, index: Option<i32>, replaced: Option<&Pod>) -> Pod {
    let template = spec(job).template;
    let mut pod = pods::of_template(&template, reference(job), namespace(job));
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.into());
    }
    let Some(index) = index else { return pod };
    let end = format!("-{index}-");
    let room = LONGEST_PREFIX - end.len();
    let prefix = name(job).get(..room).unwrap_or(name(job));
    pod.metadata.generate_name = Some(format!("{prefix}{end}"));
    pod.metadata.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.into(), index.to_string());
    if limit_per_index(job).is_some() {
        let (counted, ignored) = replaced.map_or((0, 0), |replaced| {
            let (counted, ignored) = failures_before(replaced);
            match policies::failure(job, replaced) {
                Failure::Ignored => (counted, ignored + 1),
                _ => (counted + 1, ignored),
            }
        });
        annotations.insert(FAILURES.into(), counted.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED.into(), ignored.to_string());
        }
    }
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{}-{index}", name(job)));
    spec.containers.iter_mut().for_each(tell_index);
    spec.init_containers.iter_mut().flatten().for_each(tell_index);
    pod
}

fn tell_index(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), api_version: None };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: NAME.into(), value: None, value_from: Some(source) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jb_7_a_pod_of_an_index_knows_it() {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "sum", "namespace": "n", "uid": "u"},
            "spec": {"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 2, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}},
        }))
        .unwrap();
        let first = pod(&job, Some(2), None);
        let value = serde_json::to_value(&first).unwrap();
        assert_eq!(value["metadata"]["generateName"], "sum-2-");
        assert_eq!(value["metadata"]["labels"], json!({"a": "b", INDEX: "2"}));
        assert_eq!(value["metadata"]["annotations"], json!({INDEX: "2", FAILURES: "0"}));
        assert_eq!(value["metadata"]["finalizers"], json!([TRACKING]));
        assert_eq!(value["spec"]["hostname"], "sum-2");
        let field = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        assert_eq!(
            value["spec"]["containers"][0]["env"],
            json!([{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}}])
        );
        assert_eq!((valid_index(&job, &first), failures_before(&pod(&job, Some(2), Some(&first)))), (Some(2), (1, 0)));
        let long: Job =
            serde_json::from_value(json!({"metadata": {"name": "x".repeat(63)}, "spec": {"template": {}}})).unwrap();
        assert_eq!(pod(&long, Some(12), None).metadata.generate_name.unwrap().len(), 58);
    }
}
