//! The arithmetic of autoscalers, as tables.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerSpec, MetricTarget};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::limits::{History, Limited, Now};
use super::replicas::{Measured, Proposal, Readiness, Sample, Samples, Tolerances, Wanted, propose};
use super::{metric_status, tolerances, wanted};

const USUAL: Tolerances = Tolerances { up: 0.1, down: 0.1 };

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn readiness() -> Readiness {
    let (initialization, initial_delay) = (Duration::from_secs(300), Duration::from_secs(30));
    Readiness { now: at(0), initialization, initial_delay }
}

/// A pod that has been ready for an hour and requests one core.
fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let then = at(-3600).to_string();
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1k"}}}]},
        "status": {
            "phase": "Running", "startTime": then,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": then}],
        },
    });
    change(&mut pod);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn samples(values: &[(&str, i64)]) -> Samples {
    let sample = |value| Sample { value, at: at(0), window: Duration::from_secs(15) };
    values.iter().map(|(name, value)| ((*name).to_owned(), sample(*value))).collect()
}

fn by(wanted: Wanted, current: i32, pods: &[Arc<Pod>], values: &[(&str, i64)]) -> Result<Proposal, String> {
    let measured = Measured { resource: "cpu", container: None, pods, samples: samples(values) };
    propose(current, wanted, measured, USUAL, readiness())
}

fn replicas(wanted: Wanted, current: i32, pods: &[Arc<Pod>], values: &[(&str, i64)]) -> i32 {
    by(wanted, current, pods, values).unwrap().replicas
}

#[test]
fn hpa_5_hpa_6_the_size_follows_the_ratio_of_usage_to_target() {
    let two = [pod("a", |_| {}), pod("b", |_| {})];
    for (wanted, used, expected) in [
        (Wanted::Utilization(50), [900, 900], 4),
        (Wanted::Utilization(50), [500, 500], 2),
        (Wanted::Utilization(50), [540, 540], 2),
        (Wanted::Utilization(50), [460, 460], 2),
        (Wanted::Utilization(50), [560, 560], 3),
        (Wanted::Utilization(50), [100, 200], 1),
        (Wanted::Average(300), [600, 600], 4),
        (Wanted::Average(300), [320, 320], 2),
        (Wanted::Average(300), [100, 100], 1),
    ] {
        let values = [("a", used[0]), ("b", used[1])];
        assert_eq!(replicas(wanted, 2, &two, &values), expected, "{wanted:?} {used:?}");
    }
    let proposal = by(Wanted::Utilization(50), 2, &two, &[("a", 900), ("b", 700)]).unwrap();
    assert_eq!((proposal.utilization, proposal.average), (Some(80), 800));
}

#[test]
fn hpa_6_tolerances_can_be_set_for_each_direction() {
    let spec = |behavior: Value| -> HorizontalPodAutoscalerSpec {
        serde_json::from_value(json!({
            "maxReplicas": 9, "scaleTargetRef": {"kind": "Deployment", "name": "x"}, "behavior": behavior,
        }))
        .unwrap()
    };
    assert_eq!(tolerances(&spec(Value::Null)), USUAL);
    let set = spec(json!({"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0"}}));
    assert_eq!(tolerances(&set), Tolerances { up: 0.05, down: 0.0 });
    let measured = |value| Measured { resource: "cpu", container: None, pods: &[], samples: samples(&[("a", value)]) };
    let pods = [pod("a", |_| {})];
    let size = |value, tolerances| {
        let measured = Measured { pods: &pods, ..measured(value) };
        propose(1, Wanted::Utilization(50), measured, tolerances, readiness()).unwrap().replicas
    };
    assert_eq!((size(540, USUAL), size(540, tolerances(&set))), (1, 2));
}

#[test]
fn hpa_7_pods_that_end_or_wait_do_not_count() {
    let pods = [
        pod("a", |_| {}),
        pod("gone", |pod| pod["metadata"]["deletionTimestamp"] = json!(at(0).to_string())),
        pod("failed", |pod| pod["status"]["phase"] = "Failed".into()),
    ];
    assert_eq!(replicas(Wanted::Utilization(50), 1, &pods, &[("a", 1000), ("gone", 0), ("failed", 0)]), 2);
    let waiting = [pod("a", |_| {}), pod("w", |pod| pod["status"]["phase"] = "Pending".into())];
    // Waiting pods use nothing when the target grows: 100 % of two pods is the target.
    assert_eq!(replicas(Wanted::Utilization(50), 2, &waiting, &[("a", 1000)]), 2);
    assert_eq!(replicas(Wanted::Utilization(50), 2, &waiting, &[("a", 100)]), 1);
    let error = by(Wanted::Utilization(50), 1, &waiting[1..], &[("w", 9)]).unwrap_err();
    assert_eq!(error, "did not receive metrics for targeted pods (pods might be unready)");
    let error = by(Wanted::Utilization(50), 1, &[], &[("a", 9)]).unwrap_err();
    assert_eq!(error, "no pods returned by selector while calculating replica count");
}

#[test]
fn hpa_8_cpu_of_a_pod_that_has_just_started_does_not_count() {
    let young = |ready: &str, changed: i64, started: i64| {
        pod("young", move |pod| {
            pod["status"]["startTime"] = at(started).to_string().into();
            let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": at(changed).to_string()});
            pod["status"]["conditions"] = json!([condition]);
        })
    };
    // Two pods at 1000: counted they ask for four of 50 %, and for two if the young one counts as zero.
    for (ready, changed, started, expected) in [
        ("True", -20, -60, 4),
        ("True", -10, -60, 2),
        ("False", -20, -60, 2),
        ("True", -10, -600, 4),
        ("False", -580, -600, 2),
        ("False", -500, -600, 4),
    ] {
        let pods = [pod("a", |_| {}), young(ready, changed, started)];
        let values = [("a", 1000), ("young", 1000)];
        let found = replicas(Wanted::Utilization(50), 2, &pods, &values);
        assert_eq!(found, expected, "{ready} since {changed}, started {started}");
    }
    let pods = [pod("a", |_| {}), young("False", -10, -60)];
    let values = samples(&[("a", 1_000_000), ("young", 1_000_000)]);
    let measured = Measured { resource: "memory", container: None, pods: &pods, samples: values };
    let found = propose(2, Wanted::Utilization(50), measured, USUAL, readiness()).unwrap();
    assert_eq!(found.replicas, 4, "memory counts from the start");
}

#[test]
fn hpa_9_missing_pods_make_a_change_smaller() {
    let pods = [pod("a", |_| {}), pod("b", |_| {}), pod("m", |_| {})];
    for (wanted, used, expected) in [
        // Up: the missing pod uses nothing. (900 + 900 + 0) / 3 = 60 % of 50 %: 4 pods instead of 6.
        (Wanted::Utilization(50), [900, 900], 4),
        // Down: it uses all of its request. (100 + 100 + 1000) / 3 = 40 %: 3 pods instead of 1.
        (Wanted::Utilization(50), [100, 100], 3),
        // Down by usage: it uses the target.
        (Wanted::Average(500), [100, 100], 2),
        // It would turn the change around.
        (Wanted::Utilization(50), [560, 560], 3),
    ] {
        let values = [("a", used[0]), ("b", used[1])];
        assert_eq!(replicas(wanted, 3, &pods, &values), expected, "{wanted:?} {used:?}");
    }
}

#[test]
fn hpa_5_a_container_without_a_request_has_no_utilization() {
    let pods = [pod("a", |pod| pod["spec"]["containers"][0]["resources"] = json!({}))];
    let error = by(Wanted::Utilization(50), 1, &pods, &[("a", 9)]).unwrap_err();
    assert_eq!(error, "missing request for cpu in container c of Pod a");
    assert_eq!(replicas(Wanted::Average(3), 1, &pods, &[("a", 9)]), 3);
    let of = |container: &'static str| {
        let measured =
            Measured { resource: "cpu", container: Some(container), pods: &pods, samples: samples(&[("a", 9)]) };
        propose(1, Wanted::Utilization(50), measured, USUAL, readiness()).unwrap_err()
    };
    assert_eq!(of("x"), "container x not found in Pod a");
    let pods = [pod("a", |pod| pod["spec"]["resources"] = json!({"requests": {"cpu": "2"}}))];
    assert_eq!(by(Wanted::Utilization(50), 1, &pods, &[("a", 1000)]).unwrap().utilization, Some(50));
}

fn spec(behavior: Value) -> HorizontalPodAutoscalerSpec {
    let target = json!({"kind": "Deployment", "name": "x"});
    serde_json::from_value(json!({"minReplicas": 2, "maxReplicas": 20, "scaleTargetRef": target, "behavior": behavior}))
        .unwrap()
}

fn now(seconds: i64) -> Now {
    Now { time: at(seconds), down_window: Duration::from_secs(300) }
}

fn outcome(limited: Limited) -> (i32, &'static str, &'static str, bool) {
    (limited.replicas, limited.able.0, limited.limit.0, limited.is_limited)
}

#[test]
fn hpa_10_a_target_shrinks_to_the_highest_recent_recommendation() {
    let spec = spec(Value::Null);
    let mut history = History::default();
    history.begin(8, now(0));
    let mut at_time = |seconds, recommended| outcome(history.limit(&spec, 8, recommended, now(seconds)));
    assert_eq!(at_time(10, 3), (8, "ScaleDownStabilized", "DesiredWithinRange", false));
    assert_eq!(at_time(20, 5), (8, "ScaleDownStabilized", "DesiredWithinRange", false));
    assert_eq!(at_time(310, 3), (5, "ScaleDownStabilized", "DesiredWithinRange", false));
    assert_eq!(at_time(330, 3), (3, "ReadyForNewScale", "DesiredWithinRange", false));
}

#[test]
fn hpa_11_without_behaviour_a_target_at_most_doubles() {
    for (current, recommended, expected) in [
        (2, 3, (3, "DesiredWithinRange", false)),
        (2, 9, (4, "ScaleUpLimit", true)),
        (1, 9, (4, "ScaleUpLimit", true)),
        (8, 30, (16, "ScaleUpLimit", true)),
        (15, 30, (20, "TooManyReplicas", true)),
        (5, 1, (2, "TooFewReplicas", true)),
    ] {
        let limited = History::default().limit(&spec(Value::Null), current, recommended, now(0));
        let (replicas, _, limit, is_limited) = outcome(limited);
        assert_eq!((replicas, limit, is_limited), expected, "{current} to {recommended}");
    }
}

#[test]
fn hpa_12_behaviour_stabilises_both_directions() {
    let spec = spec(json!({
        "scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 0},
    }));
    let mut history = History::default();
    history.begin(4, now(0));
    let mut at_time = |seconds, recommended| outcome(history.limit(&spec, 4, recommended, now(seconds)));
    assert_eq!(at_time(10, 8), (4, "ScaleUpStabilized", "DesiredWithinRange", false));
    assert_eq!(at_time(70, 6), (6, "ReadyForNewScale", "DesiredWithinRange", false));
    assert_eq!(at_time(80, 3), (3, "ReadyForNewScale", "DesiredWithinRange", false));
}

#[test]
fn hpa_13_policies_bound_the_rate_of_change() {
    let policy = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 60});
    let rules = |select: &str, policies: Value| json!({"selectPolicy": select, "stabilizationWindowSeconds": 0, "policies": policies});
    let both = json!([policy("Pods", 2), policy("Percent", 50)]);
    for (up, down, current, recommended, expected) in [
        ("Max", "Max", 8, 20, (12, "ScaleUpLimit", true)),
        ("Min", "Max", 8, 20, (10, "ScaleUpLimit", true)),
        ("Disabled", "Max", 8, 20, (8, "ScaleUpLimit", true)),
        ("Max", "Max", 8, 3, (4, "ScaleDownLimit", true)),
        ("Max", "Min", 8, 3, (6, "ScaleDownLimit", true)),
        ("Max", "Disabled", 8, 3, (8, "ScaleDownLimit", true)),
        ("Max", "Max", 18, 30, (20, "TooManyReplicas", true)),
        ("Max", "Max", 3, 1, (2, "TooFewReplicas", true)),
        ("Max", "Max", 8, 9, (9, "DesiredWithinRange", false)),
    ] {
        let spec = spec(json!({"scaleUp": rules(up, both.clone()), "scaleDown": rules(down, both.clone())}));
        let (replicas, _, limit, is_limited) = outcome(History::default().limit(&spec, current, recommended, now(0)));
        assert_eq!((replicas, limit, is_limited), expected, "{up} {down}: {current} to {recommended}");
    }
    let spec = spec(json!({"scaleUp": rules("Max", json!([policy("Pods", 4)]))}));
    let mut history = History::default();
    history.changed(5, 8, now(0));
    let size = |history: &mut History, seconds| outcome(history.limit(&spec, 8, 20, now(seconds))).0;
    assert_eq!(size(&mut history, 30), 9, "three of four pods of this minute are there");
    assert_eq!(size(&mut history, 61), 12);
}

#[test]
fn hpa_17_the_status_shows_what_was_measured() {
    let shown =
        |resource, container, proposal| serde_json::to_value(metric_status(resource, container, proposal)).unwrap();
    let proposal = Proposal { replicas: 3, utilization: Some(80), average: 800 };
    let current = json!({"averageUtilization": 80, "averageValue": "800m"});
    assert_eq!(
        shown("cpu", None, proposal),
        json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})
    );
    let proposal = Proposal { replicas: 3, utilization: None, average: 2_048_000 };
    let of_container = json!({"name": "memory", "container": "c", "current": {"averageValue": "2Ki"}});
    let expected = json!({"type": "ContainerResource", "containerResource": of_container});
    assert_eq!(shown("memory", Some("c"), proposal), expected);
    let target: MetricTarget = serde_json::from_value(json!({"type": "Utilization"})).unwrap();
    assert!(wanted(&target).unwrap_err().starts_with("invalid resource metric source"));
}
