//! Defaults of workloads: deployments, sets, jobs, autoscalers.

use machinery::json::{Value, json};

use super::{core, pod, spec};
use crate::walk::{Fields, Fill as _, is_empty};

pub(super) fn apply(kind: &str, object: &mut Fields) {
    match kind {
        "Deployment" => deployment(object),
        "ReplicaSet" => {
            if let Some(spec) = spec(object) {
                template(spec);
                spec.fill("replicas", 1);
            }
        }
        "StatefulSet" => stateful_set(object),
        "DaemonSet" => daemon_set(object),
        "Job" => job(object),
        "CronJob" => cron_job(object),
        _ => {}
    }
}

fn template(spec: &mut Fields) {
    if let Some(template) = spec.child("template") {
        pod::template(template);
    }
}

pub(super) fn replication_controller(object: &mut Fields) {
    let labels = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    if let Some(labels) = labels.filter(|labels| !is_empty(Some(labels))) {
        if let Some(metadata) = object.child("metadata") {
            metadata.fill_empty("labels", labels.clone());
        }
        if let Some(spec) = spec(object) {
            spec.fill_empty("selector", labels);
        }
    }
    if let Some(spec) = spec(object) {
        spec.fill("replicas", 1);
        template(spec);
    }
}

fn deployment(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    spec.fill("replicas", 1);
    if let Some(strategy) = spec.child_or_new("strategy") {
        strategy.fill_empty("type", "RollingUpdate");
        if strategy.word("type") == "RollingUpdate"
            && let Some(update) = strategy.child_or_new("rollingUpdate")
        {
            update.fill("maxUnavailable", "25%");
            update.fill("maxSurge", "25%");
        }
    }
    spec.fill("revisionHistoryLimit", 10);
    spec.fill("progressDeadlineSeconds", 600);
    template(spec);
}

fn daemon_set(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    if let Some(strategy) = spec.child_or_new("updateStrategy") {
        strategy.fill_empty("type", "RollingUpdate");
        if strategy.word("type") == "RollingUpdate"
            && let Some(update) = strategy.child_or_new("rollingUpdate")
        {
            update.fill("maxUnavailable", 1);
            update.fill("maxSurge", 0);
        }
    }
    spec.fill("revisionHistoryLimit", 10);
    template(spec);
}

fn stateful_set(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    spec.fill_empty("podManagementPolicy", "OrderedReady");
    if let Some(strategy) = spec.child_or_new("updateStrategy") {
        if strategy.word("type").is_empty() {
            strategy.insert("type", "RollingUpdate".into());
            strategy.fill("rollingUpdate", json!({}));
        }
        if strategy.word("type") == "RollingUpdate"
            && let Some(update) = strategy.child("rollingUpdate")
        {
            update.fill("partition", 0);
        }
    }
    if let Some(policy) = spec.child_or_new("persistentVolumeClaimRetentionPolicy") {
        policy.fill_empty("whenDeleted", "Retain");
        policy.fill_empty("whenScaled", "Retain");
    }
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    for claim in spec.items("volumeClaimTemplates") {
        claim.fill_empty("apiVersion", "v1");
        claim.fill_empty("kind", "PersistentVolumeClaim");
        core::claim(claim);
    }
    template(spec);
}

fn job(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    if !spec.given("completions") && !spec.given("parallelism") {
        spec.insert("completions", 1.into());
    }
    spec.fill("parallelism", 1);
    spec.fill("backoffLimit", if spec.given("backoffLimitPerIndex") { i32::MAX } else { 6 });
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    let replacement = if spec.given("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.fill("podReplacementPolicy", replacement);
    spec.fill("manualSelector", false);
    job_spec(spec);
}

/// Sets defaults of a job's spec, also in the template of a cron job.
fn job_spec(spec: &mut Fields) {
    template(spec);
    if let Some(policy) = spec.child("podFailurePolicy") {
        for rule in policy.items("rules") {
            for pattern in rule.items("onPodConditions") {
                pattern.fill_empty("status", "True");
            }
        }
    }
}

fn cron_job(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    spec.fill_empty("concurrencyPolicy", "Allow");
    spec.fill("suspend", false);
    spec.fill("successfulJobsHistoryLimit", 3);
    spec.fill("failedJobsHistoryLimit", 1);
    if let Some(spec) = spec.child("jobTemplate").and_then(|template| template.child("spec")) {
        job_spec(spec);
    }
}

pub(super) fn autoscaler(version: &str, object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    spec.fill("minReplicas", 1);
    if version == "v1" {
        return;
    }
    spec.fill_empty(
        "metrics",
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
    );
    if let Some(behavior) = spec.child("behavior") {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        scaling_rules(behavior, "scaleUp", Some(0), vec![policy("Pods", 4), policy("Percent", 100)]);
        scaling_rules(behavior, "scaleDown", None, vec![policy("Percent", 100)]);
    }
}

fn scaling_rules(behavior: &mut Fields, direction: &str, window: Option<i64>, policies: Vec<Value>) {
    let Some(rules) = behavior.child_or_new(direction) else { return };
    if let Some(window) = window {
        rules.fill("stabilizationWindowSeconds", window);
    }
    rules.fill("selectPolicy", "Max");
    rules.fill("policies", policies);
}
