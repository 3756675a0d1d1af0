//! Dividing endpoints among slices, without a server.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::slices::{ENDPOINTS_MAX, Plan, plan};

fn service(more: Value) -> Service {
    let mut spec =
        json!({"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": [{"port": 80, "targetPort": 8080}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        spec[name.as_str()] = value.clone();
    }
    let metadata = json!({"name": "web", "namespace": "n", "uid": "web-uid", "labels": {"team": "a"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn pod(at: usize) -> Pod {
    let pod = json!({
        "metadata": {"name": format!("p{at}"), "namespace": "n", "uid": format!("u{at:04}")},
        "spec": {"nodeName": "node", "containers": [{"name": "c"}]},
        "status": {
            "phase": "Running", "podIPs": [{"ip": format!("10.1.{}.{}", at / 200, at % 200 + 1)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    serde_json::from_value(pod).unwrap()
}

fn pods(range: std::ops::Range<usize>) -> Vec<Arc<Pod>> {
    range.map(|at| Arc::new(pod(at))).collect()
}

fn node(name: &str) -> Option<Arc<Node>> {
    let node = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z1"}}});
    (name == "node").then(|| Arc::new(serde_json::from_value(node).unwrap()))
}

fn planned(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>]) -> Plan {
    plan(service, pods, node, existing)
}

/// Existing slices after a plan was carried out.
fn carried_out(plan: Plan, existing: &[Arc<EndpointSlice>]) -> Vec<Arc<EndpointSlice>> {
    let touched = |slice: &EndpointSlice| {
        plan.update.iter().chain(&plan.delete).any(|other| other.metadata.name == slice.metadata.name)
    };
    let kept = existing.iter().filter(|slice| !touched(slice)).cloned().collect::<Vec<_>>();
    let created = plan.create.into_iter().enumerate().map(|(at, mut slice)| {
        slice.metadata.name = Some(format!("web-{}-{at}", existing.len()));
        slice
    });
    kept.into_iter().chain(created.chain(plan.update).map(Arc::new)).collect()
}

fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    let mut sizes: Vec<usize> = slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect();
    sizes.sort_unstable();
    sizes
}

fn counts(plan: &Plan) -> (usize, usize, usize) {
    (plan.create.len(), plan.update.len(), plan.delete.len())
}

#[test]
fn ep_3_conditions_follow_readiness_and_deletion() {
    let going = |mut pod: Pod| {
        let now = jiff::Timestamp::UNIX_EPOCH;
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        pod
    };
    let unready = |mut pod: Pod| {
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".into();
        pod
    };
    let said = |publishes: bool, pod: Pod| {
        let plan = planned(&service(json!({"publishNotReadyAddresses": publishes})), &[Arc::new(pod)], &[]);
        let endpoint = plan.create[0].endpoints.as_ref().unwrap()[0].clone();
        let conditions = endpoint.conditions.unwrap();
        (conditions.ready.unwrap(), conditions.serving.unwrap(), conditions.terminating.unwrap())
    };
    assert_eq!(said(false, pod(0)), (true, true, false));
    assert_eq!(said(false, unready(pod(0))), (false, false, false));
    assert_eq!(said(false, going(pod(0))), (false, true, true));
    assert_eq!(said(true, going(unready(pod(0)))), (true, false, true));
}

#[test]
fn ep_4_a_slice_says_whose_it_is_and_whom_it_names() {
    let plan = planned(&service(json!({})), &pods(0..1), &[]);
    let slice = serde_json::to_value(&plan.create[0]).unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "web-uid", "controller": true, "blockOwnerDeletion": true});
    assert_eq!(
        slice,
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": "web-", "namespace": "n", "ownerReferences": [owner],
                "labels": {
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                    "kubernetes.io/service-name": "web", "team": "a",
                },
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{
                "addresses": ["10.1.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "node", "zone": "z1",
                "targetRef": {"kind": "Pod", "namespace": "n", "name": "p0", "uid": "u0000"},
            }],
        })
    );
    let headless = planned(&service(json!({"clusterIP": "None"})), &[], &[]);
    assert_eq!(headless.create[0].labels()["service.kubernetes.io/headless"], "");
}

#[test]
fn ep_4_no_slice_has_more_than_a_hundred_and_few_are_written() {
    let web = service(json!({}));
    let slices = carried_out(planned(&web, &pods(0..250), &[]), &[]);
    assert_eq!(sizes(&slices), [50, ENDPOINTS_MAX, ENDPOINTS_MAX]);
    assert_eq!(counts(&planned(&web, &pods(0..250), &slices)), (0, 0, 0), "nothing changed");
    // Ten more fit where there is room.
    let more = planned(&web, &pods(0..260), &slices);
    assert_eq!(counts(&more), (0, 1, 0));
    let slices = carried_out(more, &slices);
    assert_eq!(sizes(&slices), [60, ENDPOINTS_MAX, ENDPOINTS_MAX]);
    // One was deleted and another added: the slice that lost one takes it.
    let mut replaced = pods(1..260);
    replaced.extend(pods(300..301));
    let plan = planned(&web, &replaced, &slices);
    assert_eq!(counts(&plan), (0, 1, 0));
    // All but one are deleted.
    let plan = planned(&web, &pods(5..6), &slices);
    assert_eq!(counts(&plan), (0, 1, 2));
}

#[test]
fn ep_4_pods_with_other_ports_and_families_are_apart() {
    let named = service(json!({"ports": [{"port": 80, "targetPort": "http"}]}));
    let with_port = |at: usize, number: i32| {
        let mut pod = pod(at);
        pod.spec.as_mut().unwrap().containers[0].ports =
            Some(serde_json::from_value(json!([{"name": "http", "containerPort": number}])).unwrap());
        Arc::new(pod)
    };
    let plan = planned(&named, &[with_port(0, 1), with_port(1, 2), with_port(2, 1)], &[]);
    let mut apart: Vec<(i32, usize)> = plan
        .create
        .iter()
        .map(|slice| (slice.ports.as_ref().unwrap()[0].port.unwrap(), slice.endpoints.as_ref().unwrap().len()))
        .collect();
    apart.sort_unstable();
    assert_eq!(apart, [(1, 2), (2, 1)]);
    let both = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let families = carried_out(planned(&both, &pods(0..1), &[]), &[]);
    let mut types: Vec<&str> = families.iter().map(|slice| slice.address_type.as_str()).collect();
    types.sort_unstable();
    assert_eq!(types, ["IPv4", "IPv6"]);
    // The second family is removed.
    assert_eq!(counts(&planned(&service(json!({})), &pods(0..1), &families)), (0, 0, 1));
}

#[test]
fn ep_5_nobody_answers_and_one_empty_slice_says_so() {
    let web = service(json!({}));
    let slices = carried_out(planned(&web, &[], &[]), &[]);
    assert_eq!(sizes(&slices), [0]);
    assert_eq!(counts(&planned(&web, &[], &slices)), (0, 0, 0));
    // The first pod: the empty slice is reused for it.
    let first = planned(&web, &pods(0..1), &slices);
    assert_eq!(counts(&first), (0, 1, 0));
    let slices = carried_out(first, &slices);
    let none = planned(&web, &[], &slices);
    assert_eq!(counts(&none), (0, 1, 0));
    assert_eq!(sizes(&carried_out(none, &slices)), [0]);
}

#[test]
fn ep_5_pods_on_unknown_nodes_are_left_out_for_now() {
    let mut lost = pod(1);
    lost.spec.as_mut().unwrap().node_name = Some("gone".into());
    let pods = [Arc::new(pod(0)), Arc::new(lost)];
    let plan = planned(&service(json!({})), &pods, &[]);
    assert_eq!(plan.skipped, ["skipping Pod p1 for Service n/web: Node gone Not Found"]);
    assert_eq!(plan.create[0].endpoints.as_ref().unwrap().len(), 1);
    let plan = planned(&service(json!({"publishNotReadyAddresses": true})), &pods, &[]);
    assert!(plan.skipped.is_empty());
}

#[test]
fn ep_4_slices_of_an_earlier_service_of_that_name_are_not_taken_over() {
    let web = service(json!({}));
    let slices = carried_out(planned(&web, &pods(0..1), &[]), &[]);
    let mut another = web;
    another.metadata.uid = Some("another".into());
    assert_eq!(counts(&planned(&another, &pods(0..1), &slices)), (1, 0, 1));
}

#[test]
fn ep_4_labels_of_the_service_are_followed() {
    let mut web = service(json!({}));
    let slices = carried_out(planned(&web, &pods(0..1), &[]), &[]);
    web.labels_mut().insert("team".into(), "b".into());
    let plan = planned(&web, &pods(0..1), &slices);
    assert_eq!(counts(&plan), (0, 1, 0));
    assert_eq!(plan.update[0].labels()["team"], "b");
}
