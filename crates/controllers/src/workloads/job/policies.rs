//! What a failed pod means to its job, and when successes are enough, by the rules of the job itself.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicy};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexes::Indexes;
use crate::owners::{name, namespace};

/// What a failed pod leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts.
    Counts,
    /// It counts, and its index is given up.
    FailsIndex,
    /// It does not count.
    Ignored,
    /// The whole job fails, for this reason.
    FailsJob(String),
}

/// By the first rule that matches.
pub(super) fn failure(job: &Job, pod: &Pod) -> Failure {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    let rules = policy.map(|policy| policy.rules.as_slice()).unwrap_or_default();
    for (position, rule) in rules.iter().enumerate() {
        let Some(cause) = cause(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignored,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(format!("{cause} matching FailJob rule at index {position}")),
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

fn cause(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let which = format!("{}/{}", namespace(pod), name(pod));
    if let Some(wanted) = &rule.on_exit_codes {
        let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        let (container, code) = statuses.into_iter().find_map(|status| exit_code(status, wanted))?;
        return Some(format!("Container {container} for pod {which} failed with exit code {code}"));
    }
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let matches = |kind: &str, status: &str| {
        patterns.iter().any(|pattern| pattern.type_ == kind && pattern.status.as_deref().unwrap_or("True") == status)
    };
    let found = status.conditions.iter().flatten().find(|condition| matches(&condition.type_, &condition.status))?;
    Some(format!("Pod {which} has condition {}", found.type_))
}

fn exit_code<'a>(
    status: &'a ContainerStatus,
    wanted: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, i32)> {
    let code = status.state.as_ref()?.terminated.as_ref()?.exit_code;
    let named = wanted.container_name.as_ref().is_none_or(|name| *name == status.name);
    let listed = wanted.values.contains(&code);
    let holds = match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    };
    (named && code != 0 && holds).then_some((status.name.as_str(), code))
}

/// The message of the first rule that the succeeded indexes satisfy.
pub(super) fn success(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.total() == 0 {
        return None;
    }
    let rules = policy.map(|policy| policy.rules.as_slice()).unwrap_or_default();
    let position = rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Indexes::parse(text, completions);
            let there = wanted.overlap(succeeded);
            wanted.total() > 0 && (there == wanted.total() || rule.succeeded_count.is_some_and(|count| there >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.total() >= count),
    })?;
    Some(format!("Matched rules at index {position}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jb_5_the_first_matching_rule_decides() {
        let job: Job =
            serde_json::from_value(json!({"metadata": {}, "spec": {"template": {}, "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
                {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
                {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
            ]}}}))
            .unwrap();
        let pod = |container: &str, code: i32, condition: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "n"},
                "status": {
                    "conditions": [{"type": condition, "status": "True"}],
                    "containerStatuses": [{"name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}],
                },
            })).unwrap()
        };
        let rows = [
            ("main", 42, "DisruptionTarget", Failure::Ignored),
            (
                "main",
                42,
                "Other",
                Failure::FailsJob(
                    "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1".into(),
                ),
            ),
            ("side", 42, "Other", Failure::FailsIndex),
            ("main", 1, "Other", Failure::Counts),
            ("main", 2, "Other", Failure::Counts),
        ];
        for (container, code, condition, expected) in rows {
            assert_eq!(failure(&job, &pod(container, code, condition)), expected, "{container} {code} {condition}");
        }
        assert_eq!(failure(&Job::default(), &pod("main", 42, "x")), Failure::Counts);
    }

    #[test]
    fn jb_5_successes_that_are_enough() {
        let policy: SuccessPolicy = serde_json::from_value(json!({"rules": [
            {"succeededIndexes": "0,2"},
            {"succeededIndexes": "5-9", "succeededCount": 2},
            {"succeededCount": 6},
        ]}))
        .unwrap();
        for (succeeded, expected) in [
            ("", None),
            ("0", None),
            ("0,2", Some(0)),
            ("5,7", Some(1)),
            ("0,1,3,4,5", None),
            ("0,1,3,4,5,10", Some(2)),
        ] {
            let met = success(Some(&policy), 20, &Indexes::parse(succeeded, 20));
            assert_eq!(met, expected.map(|rule: i32| format!("Matched rules at index {rule}")), "{succeeded}");
        }
        assert_eq!(success(None, 20, &Indexes::parse("0-19", 20)), None);
    }
}
