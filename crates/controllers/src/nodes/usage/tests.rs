//! What pods use, by what prescribes it.

use super::*;
use serde_json::{Value, json};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "annotations": {}},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}, {"name": "b"}]},
        "status": {
            "phase": "Running", "startTime": "2027-01-15T07:59:50Z",
            "containerStatuses": [
                {"name": "a", "state": {"running": {}}, "ready": true, "restartCount": 0, "image": "", "imageID": ""},
                {"name": "b", "state": {"running": {}}, "ready": true, "restartCount": 0, "image": "", "imageID": ""},
            ],
        },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn cpu(usages: &Usages, pods: &[Pod]) -> Vec<Option<Vec<f64>>> {
    let used = usages.of_pods(pods, now());
    used.into_iter().map(|pod| pod.map(|pod| pod.containers.iter().map(|(_, used)| used[0]).collect())).collect()
}

#[test]
fn mx_4_a_running_container_uses_half_of_its_requests() {
    let usages = Usages::default();
    let used = usages.of_pods(&[pod("p", |_| {})], now()).remove(0).unwrap();
    assert_eq!(used.containers[0], ("a".to_owned(), [0.1, 32.0 * 1024.0 * 1024.0]));
    assert_eq!(used.containers[1], ("b".to_owned(), WITHOUT_REQUEST));
    let waiting = pod("p", |pod| pod["status"]["containerStatuses"][1]["state"] = json!({"waiting": {}}));
    let ended = pod("p", |pod| pod["status"]["phase"] = "Succeeded".into());
    assert_eq!(cpu(&usages, &[waiting, ended]), [Some(vec![0.1]), None]);
}

#[test]
fn mx_5_annotations_prescribe_what_containers_use() {
    let usages = Usages::default();
    let each = pod("p", |pod| pod["metadata"]["annotations"]["nodes.dogwatch/cpu"] = "step(1,2,10s)".into());
    let one = pod("p", |pod| {
        pod["metadata"]["annotations"] = json!({"nodes.dogwatch/cpu": "300m", "nodes.dogwatch/cpu.b": "ramp(0,1,20s)", "nodes.dogwatch/memory": "x"});
    });
    assert_eq!(cpu(&usages, &[each, one]), [Some(vec![2.0, 2.0]), Some(vec![0.3, 0.5])]);
}

#[test]
fn mx_5_a_shared_load_is_divided_among_the_pods_of_an_owner() {
    let usages = Usages::default();
    let owned = |name: &str, phase: &str| {
        pod(name, |pod| {
            pod["metadata"]["annotations"]["nodes.dogwatch/cpu"] = "shared(3)".into();
            let owner =
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
            pod["status"]["phase"] = phase.into();
        })
    };
    let pods = [owned("p", "Running"), owned("q", "Running"), owned("r", "Pending")];
    assert_eq!(cpu(&usages, &pods), [Some(vec![1.5, 1.5]), Some(vec![1.5, 1.5]), None]);
}

#[test]
fn mx_5_mx_7_rules_and_kwoks_objects_prescribe_usage_too() {
    let stages = Stages::from_text(
        "rules: [{match: {namespace: default}, then: {cpu: 700m}}]\n---\napiVersion: kwok.x-k8s.io/v1alpha1\n\
         kind: ClusterResourceUsage\nmetadata: {name: u}\nspec:\n  usages:\n  - containers: [a]\n    usage:\n      \
         cpu: {value: 1}\n      memory: {expression: 'Quantity(\"3Mi\")'}\n",
    )
    .unwrap();
    let usages = Usages::default();
    let kwok = Arc::new(stages.kwok.clone());
    usages.set(Arc::new(stages), kwok);
    let used = usages.of_pods(&[pod("p", |_| {})], now()).remove(0).unwrap();
    assert_eq!(used.containers[0].1, [0.7, 3.0 * 1024.0 * 1024.0]);
    assert_eq!(used.containers[1].1, [0.7, WITHOUT_REQUEST[1]]);
}

#[test]
fn mx_6_a_file_with_a_curve_that_cannot_be_read_is_refused() {
    let error = Stages::from_text("rules: [{then: {cpu: 'sine(1,2)'}}]").unwrap_err();
    assert!(error.contains("sine(1,2)"), "{error}");
    let kwok = |usage: &str| {
        Stages::from_text(&format!(
            "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: ResourceUsage\nmetadata: {{name: u}}\nspec: {{usages: [{{usage: {usage}}}]}}"
        ))
    };
    for (bad, word) in [("{cpu: {value: much}}", "much"), ("{cpu: {expression: 'Sum(1)'}}", "Sum")] {
        assert!(kwok(bad).unwrap_err().contains(word), "{bad}");
    }
}

#[test]
fn mx_4_a_node_uses_what_its_pods_use_and_a_little_more() {
    let node = |annotations: Value| -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap()
    };
    let usages = Usages::default();
    assert_eq!(usages.of_node(&node(json!({})), [1.0, 0.0], now()), [1.1, OF_SYSTEM[1]]);
    assert_eq!(usages.of_node(&node(json!({"nodes.dogwatch/cpu": "4"})), [1.0, 0.0], now()), [4.0, OF_SYSTEM[1]]);
}
