//! Rows of workloads: deployments, sets, jobs, autoscalers, budgets.

use machinery::json::Value;

use super::cells::{Cells, NONE, UNSET, condition, duration, first_few, labels, seconds, selector};
use crate::walk::Walk as _;

const CONTAINERS: &str = "spec.template.spec.containers";

pub(super) fn row(group: &str, kind: &str, cells: &mut Cells<'_>) -> bool {
    let object = cells.object;
    match (group, kind) {
        ("", "PodTemplate") => {
            cells.name().containers("template.spec.containers").push(labels(object.map("template.metadata.labels")));
        }
        ("", "ReplicationController") => {
            replicas(cells).containers(CONTAINERS).push(labels(object.map("spec.selector")));
        }
        ("apps", "ReplicaSet") => {
            replicas(cells).containers(CONTAINERS).push(some_selector(object.at("spec.selector")));
        }
        ("apps", "Deployment") => {
            cells
                .name()
                .push(ready_of_wanted(object))
                .number("status.updatedReplicas")
                .number("status.availableReplicas")
                .age()
                .containers(CONTAINERS)
                .push(selector(object.at("spec.selector")));
        }
        ("apps", "StatefulSet") => {
            cells.name().push(ready_of_wanted(object)).age().containers(CONTAINERS);
        }
        ("apps", "DaemonSet") => {
            cells
                .name()
                .number("status.desiredNumberScheduled")
                .number("status.currentNumberScheduled")
                .number("status.numberReady")
                .number("status.updatedNumberScheduled")
                .number("status.numberAvailable")
                .push(labels(object.map("spec.template.spec.nodeSelector")))
                .age()
                .containers(CONTAINERS)
                .push(some_selector(object.at("spec.selector")));
        }
        ("apps", "ControllerRevision") => {
            cells.name().push(controller(object)).number("revision").age();
        }
        ("batch", "Job") => {
            let took = job_duration(cells);
            cells
                .name()
                .push(job_status(object))
                .push(completions(object))
                .push(took)
                .age()
                .containers(CONTAINERS)
                .push(some_selector(object.at("spec.selector")));
        }
        ("batch", "CronJob") => {
            let suspended = match object.flag("spec.suspend") {
                Some(true) => "True",
                Some(false) => "False",
                None => UNSET,
            };
            let last = if object.has("status.lastScheduleTime") {
                cells.since("status.lastScheduleTime")
            } else {
                NONE.to_owned()
            };
            cells
                .name()
                .text("spec.schedule")
                .text_or("spec.timeZone", NONE)
                .push(suspended)
                .count("status.active")
                .push(last)
                .age()
                .containers("spec.jobTemplate.spec.template.spec.containers")
                .push(some_selector(object.at("spec.jobTemplate.spec.selector")));
        }
        ("autoscaling", "HorizontalPodAutoscaler") => {
            let min = object.int("spec.minReplicas").map_or(UNSET.to_owned(), |min| min.to_string());
            cells
                .name()
                .push(format!(
                    "{}/{}",
                    object.text("spec.scaleTargetRef.kind"),
                    object.text("spec.scaleTargetRef.name")
                ))
                .push(metrics(object))
                .push(min)
                .number("spec.maxReplicas")
                .number("status.currentReplicas")
                .age();
        }
        ("policy", "PodDisruptionBudget") => {
            let bound = |path| match object.at(path) {
                Value::String(text) => text.to_string(),
                Value::Number(number) => number.to_string(),
                _ => "N/A".to_owned(),
            };
            cells
                .name()
                .push(bound("spec.minAvailable"))
                .push(bound("spec.maxUnavailable"))
                .number("status.disruptionsAllowed")
                .age();
        }
        _ => return false,
    }
    true
}

fn replicas<'c, 'a>(cells: &'c mut Cells<'a>) -> &'c mut Cells<'a> {
    cells.name().number("spec.replicas").number("status.replicas").number("status.readyReplicas").age()
}

fn some_selector(value: &Value) -> String {
    let text = selector(value);
    if text.is_empty() { NONE.to_owned() } else { text }
}

fn ready_of_wanted(object: &Value) -> String {
    format!("{}/{}", object.int("status.readyReplicas").unwrap_or(0), object.int("spec.replicas").unwrap_or(0))
}

/// Formats the controlling owner as `daemonset.apps/name`.
fn controller(object: &Value) -> String {
    let owner = object.list("metadata.ownerReferences").iter().find(|owner| owner.flag("controller") == Some(true));
    let Some(owner) = owner else { return NONE.to_owned() };
    let kind = owner.text("kind").to_lowercase();
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.text("name")),
        None => format!("{kind}/{}", owner.text("name")),
    }
}

fn job_status(job: &Value) -> &'static str {
    let conditions = job.list("status.conditions");
    let holds = |kind| condition(conditions, kind).is_some_and(|condition| condition.text("status") == "True");
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if job.has("metadata.deletionTimestamp") {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = job.int("status.succeeded").unwrap_or(0);
    match (job.int("spec.completions"), job.int("spec.parallelism").unwrap_or(0)) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn job_duration(cells: &Cells<'_>) -> String {
    let Some(start) = seconds(cells.object.text("status.startTime")) else { return String::new() };
    let end = seconds(cells.object.text("status.completionTime")).unwrap_or(cells.now());
    duration(end.saturating_sub(start))
}

/// Formats current and target metrics of an autoscaler: `cpu: 41%/50%, 3/10 (avg) + 1 more...`
fn metrics(scaler: &Value) -> String {
    let specs = scaler.list("spec.metrics");
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let statuses = scaler.list("status.currentMetrics");
    let texts = specs.iter().enumerate().map(|(at, spec)| metric(spec, statuses.get(at))).collect();
    first_few(texts, 2, ", ")
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let field = match spec.text("type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let source = spec.at(field);
    let current = |name: &str| {
        let text = status.map_or("", |status| status.at(field).at("current").text(name));
        if text.is_empty() { "<unknown>".to_owned() } else { text.to_owned() }
    };
    let percent = |value: &Value, absent: &str| value.as_i64().map_or(absent.to_owned(), |value| format!("{value}%"));
    let average = source.text("target.averageValue");
    match field {
        "resource" | "containerResource" => {
            let name = source.text("name");
            if !average.is_empty() {
                return format!("{name}: {}/{average}", current("averageValue"));
            }
            let seen = status.map_or(&Value::Null, |status| status.at(field).at("current.averageUtilization"));
            let wanted = percent(source.at("target.averageUtilization"), "<auto>");
            format!("{name}: {}/{wanted}", percent(seen, "<unknown>"))
        }
        "pods" => format!("{}/{average}", current("averageValue")),
        _ if !average.is_empty() => format!("{}/{average} (avg)", current("averageValue")),
        _ => format!("{}/{}", current("value"), source.text("target.value")),
    }
}
