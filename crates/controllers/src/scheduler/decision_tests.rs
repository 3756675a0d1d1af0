//! Decisions, and the messages of refusals.

use serde_json::{Value, json};

use super::*;
use crate::scheduler::amounts::request_of;
use crate::scheduler::preemption;

fn node(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
    change(&mut node);
    node
}

fn plain(name: &str) -> Value {
    node(name, |_| {})
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d", "uid": name,
        "labels": {"app": "a"}}, "spec": spec}))
    .unwrap()
}

fn cluster(nodes: Vec<Value>, pods: Vec<(&str, Pod)>) -> Cluster {
    let mut cluster = Cluster::default();
    for node in nodes {
        cluster.put_node(Arc::new(serde_json::from_value(node).unwrap()));
    }
    for (node, pod) in pods {
        let request = request_of(&pod);
        cluster.put_pod(&Key::of(&pod), Arc::new(pod), node, || request);
    }
    cluster
}

/// The node for a pod, or the whole message.
fn decided(pod: &Pod, cluster: &mut Cluster) -> Result<String, String> {
    let (namespaces, _writer) = Store::new();
    let request = request_of(pod);
    decide(pod, &request, cluster, &namespaces, &mut 0).map_err(|refusal| {
        let outcome = preemption::search(pod, &request, &refusal, cluster, &namespaces, &[]);
        preemption::message(&refusal, &outcome)
    })
}

fn asks(cpu: &str, memory: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
}

#[test]
fn sc_12_no_nodes_at_all() {
    let refusal = decided(&pod("p", json!({})), &mut cluster(vec![], vec![])).unwrap_err();
    assert_eq!(refusal, "no nodes available to schedule pods");
}

#[test]
fn sc_4_every_filter_in_its_words() {
    let nodes = vec![
        node("cordoned", |node| node["spec"] = json!({"unschedulable": true})),
        node("tainted", |node| {
            node["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
        }),
        node("elsewhere", |node| node["metadata"]["labels"] = json!({"disk": "hdd"})),
        node("small", |node| {
            node["metadata"]["labels"] = json!({"disk": "ssd"});
            node["status"]["allocatable"] = json!({"cpu": "100m", "memory": "1Gi", "pods": "10"});
        }),
        node("full", |node| {
            node["metadata"]["labels"] = json!({"disk": "ssd"});
            node["status"]["allocatable"]["pods"] = json!("0");
        }),
        node("busy", |node| node["metadata"]["labels"] = json!({"disk": "ssd"})),
    ];
    let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let mut wants = asks("1", "2Gi");
    wants["nodeSelector"] = json!({"disk": "ssd"});
    wants["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    let refusal = decided(&pod("p", wants), &mut cluster(nodes, vec![("busy", pod("other", port))])).unwrap_err();
    assert_eq!(
        refusal,
        "0/6 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, \
         1 node(s) didn't have free ports for the requested pod ports, \
         1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), \
         1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/6 nodes are available: \
         2 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling."
    );
}

#[test]
fn sc_4_a_pod_that_names_its_node_gets_no_other() {
    let refusal = decided(&pod("p", json!({"nodeName": "b"})), &mut cluster(vec![plain("a")], vec![])).unwrap_err();
    assert!(
        refusal.starts_with("0/1 nodes are available: 1 node(s) didn't match the requested node name."),
        "{refusal}"
    );
}

#[test]
fn sc_5_a_node_without_room_for_pods_takes_none() {
    let nodes = vec![node("a", |node| node["status"] = json!({"allocatable": {"cpu": "4"}}))];
    let refusal = decided(&pod("p", json!({})), &mut cluster(nodes, vec![])).unwrap_err();
    assert!(refusal.contains("1 Too many pods"), "{refusal}");
}

#[test]
fn sc_5_what_assigned_pods_asked_for_is_gone() {
    let nodes = vec![plain("a"), plain("b")];
    let mut cluster = cluster(nodes, vec![("a", pod("other", asks("3", "1Gi")))]);
    assert_eq!(decided(&pod("p", asks("2", "1Gi")), &mut cluster).as_deref(), Ok("b"));
}

#[test]
fn sc_6_no_execute_filters_and_prefer_only_scores() {
    let tainted = |name: &str, effect: &str| {
        node(name, |node| node["spec"] = json!({"taints": [{"key": "k", "effect": effect}]}))
    };
    let mut only = cluster(vec![tainted("a", "NoExecute")], vec![]);
    assert!(decided(&pod("p", json!({})), &mut only).is_err());
    let tolerant = pod("p", json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
    assert_eq!(decided(&tolerant, &mut only).as_deref(), Ok("a"));
    let mut disliked = cluster(vec![tainted("a", "PreferNoSchedule")], vec![]);
    assert_eq!(decided(&pod("p", json!({})), &mut disliked).as_deref(), Ok("a"));
    let mut choice = cluster(vec![tainted("a", "PreferNoSchedule"), plain("b")], vec![]);
    for _ in 0..20 {
        assert_eq!(decided(&pod("p", json!({})), &mut choice).as_deref(), Ok("b"));
    }
}

#[test]
fn sc_7_the_emptier_node_and_the_preferred_one_win() {
    let mut crowded = cluster(vec![plain("a"), plain("b")], vec![("a", pod("other", asks("3", "6Gi")))]);
    for _ in 0..20 {
        assert_eq!(decided(&pod("p", asks("100m", "200Mi")), &mut crowded).as_deref(), Ok("b"));
    }
    let likes = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions":
            [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}}]}}});
    let mut even = cluster(vec![plain("a"), plain("b")], vec![]);
    for _ in 0..20 {
        assert_eq!(decided(&pod("p", likes.clone()), &mut even).as_deref(), Ok("a"));
    }
}

#[test]
fn sc_7_siblings_are_spread() {
    let child = |name: &str| {
        let mut pod = pod(name, json!({}));
        pod.metadata.owner_references = Some(vec![
            serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r",
                "controller": true}))
            .unwrap(),
        ]);
        pod
    };
    let mut cluster = cluster(vec![plain("a"), plain("b"), plain("c")], vec![("a", child("x")), ("b", child("y"))]);
    for _ in 0..20 {
        assert_eq!(decided(&child("p"), &mut cluster).as_deref(), Ok("c"));
    }
}

#[test]
fn sc_13_a_pod_that_names_its_node_by_field_goes_there_or_nowhere() {
    let named = |name: &str| {
        pod(
            "p",
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}),
        )
    };
    let nodes = vec![plain("a"), plain("b"), node("c", |node| node["spec"] = json!({"unschedulable": true}))];
    let mut cluster = cluster(nodes, vec![]);
    assert_eq!(decided(&named("b"), &mut cluster).as_deref(), Ok("b"));
    assert_eq!(
        decided(&named("c"), &mut cluster).unwrap_err(),
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
         no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
}

#[test]
fn company_and_distance() {
    let near = |kind: &str| {
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}]}}})
    };
    let with = || cluster(vec![plain("a"), plain("b")], vec![("a", pod("other", json!({})))]);
    assert_eq!(decided(&pod("p", near("podAffinity")), &mut with()).as_deref(), Ok("a"));
    assert_eq!(decided(&pod("p", near("podAntiAffinity")), &mut with()).as_deref(), Ok("b"));
    let mut empty = cluster(vec![plain("a")], vec![]);
    assert_eq!(decided(&pod("p", near("podAffinity")), &mut empty).as_deref(), Ok("a"), "the first of its group");
    let mut taken = cluster(vec![plain("a")], vec![("a", pod("other", json!({})))]);
    let refusal = decided(&pod("p", near("podAntiAffinity")), &mut taken).unwrap_err();
    assert!(
        refusal.starts_with("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."),
        "{refusal}"
    );
    let mut guarded = cluster(vec![plain("a")], vec![("a", pod("other", near("podAntiAffinity")))]);
    let refusal = decided(&pod("p", json!({})), &mut guarded).unwrap_err();
    let words = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert!(refusal.starts_with(words), "{refusal}");
}

#[test]
fn even_spreading() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}}]});
    let mut cluster = cluster(vec![plain("a"), plain("b")], vec![("a", pod("other", json!({})))]);
    assert_eq!(decided(&pod("p", spread.clone()), &mut cluster).as_deref(), Ok("b"));
    let mut elsewhere = spread;
    elsewhere["nodeSelector"] = json!({"kubernetes.io/hostname": "a"});
    elsewhere["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    let refusal = decided(&pod("p", elsewhere), &mut cluster).unwrap_err();
    assert_eq!(
        refusal,
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
         1 node(s) didn't match pod topology spread constraints. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, \
         1 Preemption is not helpful for scheduling."
    );
}

#[test]
fn sc_12_a_pod_that_may_not_preempt_says_so() {
    let never = pod("p", json!({"preemptionPolicy": "Never", "nodeSelector": {"a": "b"}}));
    let refusal = decided(&never, &mut cluster(vec![plain("a")], vec![])).unwrap_err();
    assert!(refusal.ends_with("preemption: not eligible due to preemptionPolicy=Never."), "{refusal}");
}

#[test]
fn sc_8_a_thousand_nodes_take_turns() {
    let nodes = (0..1000).map(|at| plain(&format!("n{at}"))).collect();
    let (mut cluster, (namespaces, _writer)) = (cluster(nodes, vec![]), Store::new());
    let (pod, mut start) = (pod("p", json!({})), 0);
    decide(&pod, &request_of(&pod), &mut cluster, &namespaces, &mut start).unwrap();
    assert_eq!(start, 420, "the first 420 were enough; the next pod begins after them");
}

#[test]
fn sc_20_a_pod_goes_where_its_volume_is() {
    let zone = "topology.kubernetes.io/zone";
    let zoned = |name: &str, value: &str| node(name, |node| node["metadata"]["labels"][zone] = value.into());
    let mut cluster = cluster(vec![zoned("a", "east"), zoned("b", "west")], vec![]);
    let volume: k8s_openapi::api::core::v1::PersistentVolume =
        serde_json::from_value(json!({"metadata": {"name": "v", "labels": {zone: "west"}}})).unwrap();
    let (namespaces, _writer) = Store::new();
    let pod = pod("p", json!({}));
    let mut request = request_of(&pod);
    request.volumes = vec![crate::scheduler::volumes::VolumePlace::of(&volume)];
    assert_eq!(decide(&pod, &request, &mut cluster, &namespaces, &mut 0), Ok("b".to_owned()));
    cluster.put_node(Arc::new(serde_json::from_value(zoned("b", "north")).unwrap()));
    let refusal = decide(&pod, &request, &mut cluster, &namespaces, &mut 0).unwrap_err();
    assert_eq!(refusal.message, "0/2 nodes are available: 2 node(s) had no available volume zone.");
    assert!(refusal.resolvable.is_empty(), "the removal of pods does not help");
}

#[test]
fn sc_21_a_node_that_has_the_image_is_preferred() {
    let with = |name: &str, image: &str, bytes: i64| {
        node(name, |node| node["status"]["images"] = json!([{"names": [image], "sizeBytes": bytes}]))
    };
    let nodes = |bytes: i64| vec![plain("a"), with("b", "registry:5000/app:latest", bytes), plain("c")];
    let pod = pod("p", json!({"containers": [{"name": "c", "image": "registry:5000/app"}]}));
    for _ in 0..20 {
        assert_eq!(decided(&pod, &mut cluster(nodes(900 << 20), vec![])), Ok("b".to_owned()));
    }
    // A small image is not worth it.
    let small = cluster(nodes(1 << 20), vec![]);
    let infos: Vec<&NodeInfo> = ["a", "b", "c"].iter().filter_map(|name| small.node(name)).collect();
    assert_eq!(crate::scheduler::images::scores(&pod, &infos), Some(vec![0, 0, 0]));
}
