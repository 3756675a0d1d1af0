//! Jobs (JB-*) and their end (TT-1).

use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::stage::{Stage, until};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn job(extra: Value) -> Value {
    let mut value = json!({
        "metadata": {"name": "sum"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    for (name, field) in extra.as_object().unwrap() {
        value["spec"][name] = field.clone();
    }
    value
}

/// The pod's containers end with this code.
async fn finish(stage: &Stage, pod: &Pod, code: i32) {
    let now = machinery::clock::Clock::system().now().to_string();
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let terminated = json!({"exitCode": code, "finishedAt": now, "startedAt": now, "reason": "x"});
    let container = json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}});
    stage.set_status(&pod.name_any(), json!({"phase": phase, "containerStatuses": [container]})).await;
}

fn conditions(job: &Job) -> Vec<JobCondition> {
    job.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
}

fn names(job: &Job) -> Vec<String> {
    conditions(job).into_iter().map(|c| format!("{}/{}", c.type_, c.reason.unwrap_or_default())).collect()
}

fn is(job: &Job, kind: &str) -> bool {
    conditions(job).iter().any(|c| c.type_ == kind && c.status == "True")
}

/// active, succeeded, failed
fn counts(job: &Job) -> [i32; 3] {
    let status = job.status.clone().unwrap_or_default();
    [status.active, status.succeeded, status.failed].map(|count| count.unwrap_or(0))
}

#[tokio::test]
async fn jb_1_jb_2_jb_5_one_pod_to_completion() {
    let stage = Stage::with("job").await;
    let recording = stage.record::<Job>().await;
    stage.create::<Job>(job(json!({}))).await;
    let pod = stage.until_active(1).await.remove(0);
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("sum-"));
    assert_eq!(pod.finalizers(), [TRACKING]);
    assert_eq!(pod.labels()["batch.kubernetes.io/job-name"], "sum");
    stage.run(&pod.name_any()).await;
    let running =
        stage.until::<Job>("sum", "running", |job| job.status.as_ref().is_some_and(|s| s.ready == Some(1))).await;
    assert_eq!(counts(&running), [1, 0, 0]);
    assert!(running.status.unwrap().start_time.is_some());
    finish(&stage, &pod, 0).await;
    let done = stage.until::<Job>("sum", "complete", |job| is(job, "Complete")).await;
    assert_eq!(names(&done), ["SuccessCriteriaMet/CompletionsReached", "Complete/CompletionsReached"]);
    assert_eq!((counts(&done), done.status.as_ref().unwrap().terminating), ([0, 1, 0], Some(0)));
    assert!(done.status.as_ref().unwrap().completion_time.is_some());
    stage.until::<Pod>(&pod.name_any(), "let go", |pod| pod.finalizers().is_empty()).await;
    assert_eq!(stage.until_events("sum", "Completed", 1).await, ["Job completed"]);
    // Between the two its UID stood in the status, and it was counted once.
    let seen = recording.about("sum");
    let uncounted =
        |job: &Job| job.status.as_ref().and_then(|s| s.uncounted_terminated_pods.as_ref()?.succeeded.clone());
    let at = seen
        .iter()
        .position(|(_, job)| uncounted(job) == Some(vec![pod.uid().unwrap()]))
        .expect("noted before it is counted");
    assert_eq!(counts(&seen[at].1)[1], 0);
    assert!(seen.iter().all(|(_, job)| counts(job)[1] <= 1));
}

#[tokio::test]
async fn jb_3_so_many_at_a_time_until_all_are_done() {
    let stage = Stage::with("job").await;
    let pods = stage.record::<Pod>().await;
    stage.create::<Job>(job(json!({"parallelism": 2, "completions": 5}))).await;
    for done in 0..5 {
        let wanted = 2.min(5 - done);
        let active = stage.until_active(wanted).await;
        finish(&stage, &active[0], 0).await;
        stage.until::<Job>("sum", "counted", |job| counts(job)[1] == done as i32 + 1).await;
    }
    stage.until::<Job>("sum", "complete", |job| is(job, "Complete") && counts(job) == [0, 5, 0]).await;
    assert_eq!(pods.count("ADDED"), 5);
}

#[tokio::test]
async fn jb_4_jb_5_failures_are_counted_until_the_limit() {
    let stage = Stage::with("job").await;
    stage.create::<Job>(job(json!({"backoffLimit": 0, "parallelism": 2, "completions": 2}))).await;
    let pods = stage.until_active(2).await;
    stage.run(&pods[1].name_any()).await;
    finish(&stage, &pods[0], 1).await;
    // The other one is deleted; the job has failed when it has ended.
    stage.until::<Pod>(&pods[1].name_any(), "leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let failing = stage.until::<Job>("sum", "failing", |job| is(job, "FailureTarget")).await;
    assert!(!is(&failing, "Failed"), "a pod is still terminating");
    finish(&stage, &pods[1], 137).await;
    stage.end(&pods[1].name_any()).await;
    let failed = stage.until::<Job>("sum", "failed", |job| is(job, "Failed")).await;
    assert_eq!(names(&failed), ["FailureTarget/BackoffLimitExceeded", "Failed/BackoffLimitExceeded"]);
    assert_eq!(counts(&failed), [0, 0, 2]);
    let told = stage.until_events("sum", "BackoffLimitExceeded", 1).await;
    assert_eq!(told, ["Job has reached the specified backoff limit"]);
    crate::world::until_gone(&stage.api::<Pod>(), &pods[1].name_any()).await;
}

#[tokio::test]
async fn jb_4_after_a_failure_the_next_pod_comes_later() {
    let stage = Stage::with("job").await;
    stage.create::<Job>(job(json!({}))).await;
    let pod = stage.until_active(1).await.remove(0);
    let recording = stage.record::<Job>().await;
    finish(&stage, &pod, 1).await;
    stage.until::<Job>("sum", "counted", |job| counts(job) == [0, 0, 1]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.active().await.is_empty(), "ten seconds have not passed");
    assert!(recording.seen().len() <= 4, "{} writes while it waits", recording.seen().len());
}

#[tokio::test]
async fn jb_5_a_deadline_ends_a_job() {
    let stage = Stage::with("job").await;
    stage.create::<Job>(job(json!({"activeDeadlineSeconds": 1}))).await;
    let pod = stage.until_active(1).await.remove(0).name_any();
    // Pods without a node need no grace.
    let failed = stage.until::<Job>("sum", "late", |job| is(job, "Failed")).await;
    assert_eq!(names(&failed), ["FailureTarget/DeadlineExceeded", "Failed/DeadlineExceeded"]);
    crate::world::until_gone(&stage.api::<Pod>(), &pod).await;
}

#[tokio::test]
async fn jb_5_a_failure_policy_ends_a_job() {
    let stage = Stage::with("job").await;
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    stage.create::<Job>(job(json!({"podFailurePolicy": policy}))).await;
    let pod = stage.until_active(1).await.remove(0);
    finish(&stage, &pod, 42).await;
    let failed = stage.until::<Job>("sum", "failed", |job| is(job, "Failed")).await;
    let message = conditions(&failed)[1].message.clone().unwrap();
    let expected = format!(
        "Container c for pod default/{} failed with exit code 42 matching FailJob rule at index 0",
        pod.name_any()
    );
    assert_eq!((names(&failed)[1].as_str(), message), ("Failed/PodFailurePolicy", expected));
}

#[tokio::test]
async fn jb_6_a_suspended_job_has_no_pods() {
    let stage = Stage::with("job").await;
    stage.create::<Job>(job(json!({"suspend": true}))).await;
    let waiting = stage.until::<Job>("sum", "suspended", |job| is(job, "Suspended")).await;
    assert!(waiting.status.unwrap().start_time.is_none());
    assert!(stage.all::<Pod>().await.is_empty());
    stage.patch::<Job>("sum", json!({"spec": {"suspend": false}})).await;
    let pod = stage.until_active(1).await.remove(0);
    let resumed = stage.until::<Job>("sum", "resumed", |job| !is(job, "Suspended") && counts(job)[0] == 1).await;
    assert!(resumed.status.as_ref().unwrap().start_time.is_some());
    assert_eq!(names(&resumed), ["Suspended/JobResumed"]);
    stage.patch::<Job>("sum", json!({"spec": {"suspend": true}})).await;
    crate::world::until_gone(&stage.api::<Pod>(), &pod.name_any()).await;
    let again = stage.until::<Job>("sum", "suspended", |job| is(job, "Suspended")).await;
    assert_eq!(counts(&again)[2], 0, "a pod that was taken away did not fail");
    for reason in ["Suspended", "Resumed"] {
        stage.until_events("sum", reason, 1).await;
    }
}

#[tokio::test]
async fn jb_7_an_indexed_job_completes_every_index() {
    let stage = Stage::with("job").await;
    stage.create::<Job>(job(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4}))).await;
    let pods = stage.until_active(4).await;
    const INDEX: &str = "batch.kubernetes.io/job-completion-index";
    let of = |index: &str| pods.iter().find(|pod| pod.labels()[INDEX] == index).expect("a pod for every index");
    let second = of("2");
    assert_eq!((second.metadata.generate_name.as_deref(), second.annotations()[INDEX].as_str()), (Some("sum-2-"), "2"));
    let spec = second.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("sum-2"));
    assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    let completed = |job: &Job| job.status.as_ref().and_then(|s| s.completed_indexes.clone()).unwrap_or_default();
    for (index, expected) in [("0", "0"), ("2", "0,2"), ("3", "0,2,3"), ("1", "0-3")] {
        finish(&stage, of(index), 0).await;
        stage.until::<Job>("sum", expected, |job| completed(job) == expected).await;
    }
    let done = stage.until::<Job>("sum", "complete", |job| is(job, "Complete")).await;
    assert_eq!(counts(&done), [0, 4, 0]);
}

#[tokio::test]
async fn jb_7_an_index_that_fails_too_often_fails_the_job_in_the_end() {
    let stage = Stage::with("job").await;
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0, "backoffLimit": 100});
    stage.create::<Job>(job(spec)).await;
    let pods = stage.until_active(2).await;
    finish(&stage, &pods[0], 1).await;
    let half = stage
        .until::<Job>("sum", "half failed", |job| {
            job.status.as_ref().is_some_and(|s| s.failed_indexes.as_deref() == Some("0"))
        })
        .await;
    assert!(!is(&half, "FailureTarget"), "the other index goes on");
    finish(&stage, &pods[1], 0).await;
    let failed = stage.until::<Job>("sum", "failed", |job| is(job, "Failed")).await;
    assert_eq!(names(&failed)[1], "Failed/FailedIndexes");
    assert_eq!(counts(&failed), [0, 1, 1]);
}

#[tokio::test]
async fn jb_2_pods_of_a_deleted_job_are_let_go() {
    let stage = Stage::with("job,garbagecollector").await;
    stage.create::<Job>(job(json!({"parallelism": 3, "completions": 3}))).await;
    stage.until_active(3).await;
    stage.delete::<Job>("sum", &DeleteParams::background()).await;
    stage.until_count::<Pod>("no pods", 0, |_| true).await;
}

#[tokio::test]
async fn jb_8_the_status_counts_pods_by_what_becomes_of_them() {
    let stage = Stage::with("job").await;
    let policy = json!({"podReplacementPolicy": "Failed", "parallelism": 3, "completions": 4, "backoffLimit": 6});
    stage.create::<Job>(job(policy)).await;
    let pods = stage.until_active(3).await;
    // terminating, succeeded, failed, active, ready
    let numbers = |job: &Job| {
        let status = job.status.clone().unwrap_or_default();
        [status.terminating, status.succeeded, status.failed, status.active, status.ready].map(|n| n.unwrap_or(0))
    };
    let until = async |expected: &[i32]| {
        stage.until::<Job>("sum", &format!("{expected:?}"), |job| numbers(job).starts_with(expected)).await
    };
    let started = until(&[0, 0, 0, 3, 0]).await.status.unwrap().start_time.expect("a start");
    for pod in &pods {
        stage.run(&pod.name_any()).await;
    }
    until(&[0, 0, 0, 3, 3]).await;
    stage.delete::<Pod>(&pods[0].name_any(), &DeleteParams::default()).await;
    until(&[1, 0, 0, 2, 2]).await;
    finish(&stage, &pods[1], 0).await;
    until(&[1, 1, 0, 2, 1]).await;
    finish(&stage, &pods[2], 1).await;
    // Ten seconds after a failure another pod may be created, so only these are certain from here on.
    let failed = until(&[1, 1, 1]).await;
    assert_eq!(failed.status.unwrap().start_time, Some(started), "it began once");
    finish(&stage, &pods[0], 137).await;
    stage.end(&pods[0].name_any()).await;
    until(&[0, 1, 2]).await;
}

#[tokio::test]
async fn tt_1_a_finished_job_is_deleted_after_its_time() {
    let stage = Stage::with("job,ttl-after-finished,garbagecollector").await;
    stage.create::<Job>(job(json!({"ttlSecondsAfterFinished": 1}))).await;
    let pod = stage.until_active(1).await.remove(0);
    let jobs = stage.record::<Job>().await;
    finish(&stage, &pod, 0).await;
    crate::world::until_gone(&stage.api::<Job>(), "sum").await;
    let seen = until("the deletion", async || {
        let seen = jobs.about("sum");
        (seen.last()?.0 == "DELETED").then_some(seen)
    })
    .await;
    let last = &seen.last().unwrap().1;
    assert_eq!(last.finalizers(), ["foregroundDeletion"], "deleted in the foreground");
    crate::world::until_gone(&stage.api::<Pod>(), &pod.name_any()).await;
}
