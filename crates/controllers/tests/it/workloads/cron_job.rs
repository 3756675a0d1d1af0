//! CronJobs (CJ-*). No test waits for a minute to pass: schedules are missed on purpose, or every second.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::stage::{Stage, until};

fn cron_job(extra: Value) -> Value {
    let mut value = json!({
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "@every 1s",
            "jobTemplate": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
            },
        },
    });
    for (name, field) in extra.as_object().unwrap() {
        value["spec"][name] = field.clone();
    }
    value
}

fn active(cron: &CronJob) -> Vec<String> {
    let active = cron.status.as_ref().and_then(|status| status.active.clone()).unwrap_or_default();
    active.into_iter().filter_map(|reference| reference.name).collect()
}

async fn first_job(stage: &Stage) -> Job {
    until("a job", async || stage.all::<Job>().await.into_iter().next()).await
}

/// The job is over.
async fn complete(stage: &Stage, name: &str) {
    let now = machinery::clock::Clock::system().now().to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let api = stage.api::<Job>();
    api.patch_status(name, &Default::default(), &kube::api::Patch::Merge(status)).await.expect("the job is complete");
}

#[tokio::test]
async fn cj_1_a_job_at_its_time_with_its_name() {
    let stage = Stage::with("cronjob").await;
    stage.create::<CronJob>(cron_job(json!({"concurrencyPolicy": "Forbid", "timeZone": "Etc/UTC"}))).await;
    let job = first_job(&stage).await;
    let scheduled = &job.annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    let time: k8s_openapi::jiff::Timestamp = scheduled.parse().expect("a time");
    assert_eq!(job.name_any(), format!("tick-{}", time.as_second() / 60));
    assert_eq!((job.labels()["a"].as_str(), job.owner_references()[0].kind.as_str()), ("b", "CronJob"));
    let cron = stage.until::<CronJob>("tick", "noted", |cron| !active(cron).is_empty()).await;
    assert_eq!(active(&cron), [job.name_any()]);
    assert_eq!(cron.status.unwrap().last_schedule_time.unwrap().0, time);
    assert_eq!(stage.until_events("tick", "SuccessfulCreate", 1).await, [format!("Created job {}", job.name_any())]);
}

/// A suspended cron job with an active job of another time.
async fn with_an_earlier_job(stage: &Stage, policy: &str) -> Job {
    let cron: CronJob = stage.create(cron_job(json!({"suspend": true, "concurrencyPolicy": policy}))).await;
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": cron.uid(), "controller": true});
    let mut earlier = cron_job(json!({}))["spec"]["jobTemplate"].clone();
    earlier["metadata"] = json!({"name": "earlier", "ownerReferences": [owner]});
    let job: Job = stage.create(earlier).await;
    let told = stage.until_events("tick", "UnexpectedJob", 1).await;
    assert_eq!(told, ["Saw a job that the controller did not create or forgot: earlier"]);
    let reference =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "earlier", "namespace": "default", "uid": job.uid()});
    let status = kube::api::Patch::Merge(json!({"status": {"active": [reference]}}));
    stage.api::<CronJob>().patch_status("tick", &Default::default(), &status).await.expect("the status is taken");
    stage.patch::<CronJob>("tick", json!({"spec": {"suspend": false}})).await;
    job
}

#[tokio::test]
async fn cj_2_forbid_waits_for_the_job_that_runs() {
    let stage = Stage::with("cronjob").await;
    with_an_earlier_job(&stage, "Forbid").await;
    let told = stage.until_events("tick", "JobAlreadyActive", 1).await;
    assert_eq!(told, ["Not starting job because prior execution is running and concurrency policy is Forbid"]);
    assert_eq!(stage.all::<Job>().await.len(), 1);
}

#[tokio::test]
async fn cj_2_replace_deletes_the_job_that_runs() {
    let stage = Stage::with("cronjob").await;
    with_an_earlier_job(&stage, "Replace").await;
    crate::world::until_gone(&stage.api::<Job>(), "earlier").await;
    let job = first_job(&stage).await;
    stage.until::<CronJob>("tick", "noted", |cron| active(cron) == [job.name_any()]).await;
    assert_eq!(stage.until_events("tick", "SuccessfulDelete", 1).await, ["Deleted job earlier"]);
}

#[tokio::test]
async fn cj_3_finished_jobs_are_noted_and_forgotten() {
    let stage = Stage::with("cronjob").await;
    stage.create::<CronJob>(cron_job(json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0}))).await;
    let job = first_job(&stage).await;
    stage.until::<CronJob>("tick", "noted", |cron| !active(cron).is_empty()).await;
    stage.patch::<CronJob>("tick", json!({"spec": {"suspend": true}})).await;
    complete(&stage, &job.name_any()).await;
    let cron = stage.until::<CronJob>("tick", "idle", |cron| active(cron).is_empty()).await;
    assert!(cron.status.unwrap().last_successful_time.is_some());
    assert_eq!(
        stage.until_events("tick", "SawCompletedJob", 1).await,
        [format!("Saw completed job: {}, condition: Complete", job.name_any())]
    );
    crate::world::until_gone(&stage.api::<Job>(), &job.name_any()).await;
    assert_eq!(stage.until_events("tick", "SuccessfulDelete", 1).await, [format!("Deleted job {}", job.name_any())]);
}

#[tokio::test]
async fn cj_3_a_job_that_vanished_is_no_longer_active() {
    let stage = Stage::with("cronjob").await;
    stage.create::<CronJob>(cron_job(json!({"concurrencyPolicy": "Forbid"}))).await;
    let job = first_job(&stage).await;
    stage.until::<CronJob>("tick", "noted", |cron| !active(cron).is_empty()).await;
    stage.patch::<CronJob>("tick", json!({"spec": {"suspend": true}})).await;
    stage.delete::<Job>(&job.name_any(), &DeleteParams::background()).await;
    stage.until::<CronJob>("tick", "idle", |cron| active(cron).is_empty()).await;
    assert_eq!(
        stage.until_events("tick", "MissingJob", 1).await,
        [format!("Active job went missing: {}", job.name_any())]
    );
}

#[tokio::test]
async fn cj_2_a_suspended_cron_job_starts_nothing() {
    let stage = Stage::with("cronjob").await;
    let crons = stage.record::<CronJob>().await;
    stage.create::<CronJob>(cron_job(json!({"suspend": true}))).await;
    // Another one with the same schedule shows that its time has passed.
    let mut other = cron_job(json!({}));
    other["metadata"]["name"] = json!("other");
    stage.create::<CronJob>(other).await;
    let job = first_job(&stage).await;
    assert!(job.name_any().starts_with("other-"), "{}", job.name_any());
    assert_eq!(crons.about("tick").len(), 1, "and writes nothing");
}
