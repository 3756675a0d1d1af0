//! Behaviour that the scheduler and the controllers rely on: bindings (SC-9, SC-10), new namespaces (NS-1).

use serde_json::{Value, json};

use crate::world::{Namespace, message};

async fn bind(ns: &Namespace, pod: &str, metadata: Value) -> blackbox::wire::Response {
    let mut binding = json!({"metadata": metadata, "target": {"kind": "Node", "name": "n1"}});
    binding["metadata"]["name"] = json!(pod);
    ns.post(ns.path(&format!("pods/{pod}/binding")), &binding).send().await
}

#[tokio::test]
async fn sc_9_a_binding_is_one_write() {
    let ns = Namespace::new("sc-9").await;
    let made = ns.pod("a", None).await;
    let metadata = json!({"uid": made["metadata"]["uid"], "namespace": "sc-9", "annotations": {"why": "room"}});
    let status = bind(&ns, "a", metadata).await.expect(201);
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    let bound = ns.read("pods/a").await;
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["generation"]), (&json!("n1"), &json!(1)));
    assert_eq!(bound["metadata"]["annotations"], json!({"why": "room"}));
    let condition = &bound["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
}

#[tokio::test]
async fn sc_10_bindings_that_come_too_late_are_conflicts() {
    let ns = Namespace::new("sc-10").await;
    ns.pod("assigned", Some("n0")).await;
    let spec = json!({"containers": [{"name": "app", "image": "app"}]});
    let held = json!({"name": "deleting", "finalizers": ["example.com/held"]});
    ns.create("pods", &json!({"metadata": held, "spec": spec})).await;
    ns.remove("pods/deleting").await;
    let mut gated = spec.clone();
    gated["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    ns.create("pods", &json!({"metadata": {"name": "gated"}, "spec": gated})).await;
    ns.pod("another", None).await;
    let other_uid = "StorageError: invalid object, Code: 4, Key: /registry/pods/sc-10/another, ResourceVersion: 0, \
                     AdditionalErrorMsg: Precondition failed: UID in precondition: of-one-before, UID in";
    for (pod, metadata, what, why) in [
        ("assigned", json!({}), "pods/binding", "pod assigned is already assigned to node \"n0\""),
        ("deleting", json!({}), "pods/binding", "pod deleting is being deleted, cannot be assigned to a host"),
        ("gated", json!({}), "pods/binding", "pod gated has non-empty .spec.schedulingGates"),
        ("another", json!({"uid": "of-one-before"}), "pods", other_uid),
    ] {
        let before = ns.read(&format!("pods/{pod}")).await;
        let status = bind(&ns, pod, metadata).await.refused(409, "Conflict");
        let words = format!("Operation cannot be fulfilled on {what} \"{pod}\": {why}");
        assert!(message(&status).starts_with(&words), "{status}");
        assert_eq!(ns.read(&format!("pods/{pod}")).await, before, "{pod}: nothing was written");
    }
}

#[tokio::test]
async fn ns_1_a_new_namespace_is_active_and_held() {
    let ns = Namespace::new("ns-1").await;
    let made = ns.get("/api/v1/namespaces/ns-1").send().await.expect(200);
    assert_eq!(made["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(made["status"], json!({"phase": "Active"}));
    assert_eq!(made["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "ns-1"}));
    // A client can set neither the label nor the status.
    let body = json!({"metadata": {"name": "ns-1-created", "labels": {"mine": "yes", "kubernetes.io/metadata.name": "x"}},
        "status": {"phase": "Terminating"}});
    let created = ns.post("/api/v1/namespaces", &body).send().await.expect(201);
    assert_eq!(created["metadata"]["labels"], json!({"mine": "yes", "kubernetes.io/metadata.name": "ns-1-created"}));
    assert_eq!(created["status"], json!({"phase": "Active"}));
    // A client's finalizer is kept in addition.
    let body = json!({"metadata": {"name": "ns-1-held"}, "spec": {"finalizers": ["example.com/other"]}});
    let held = ns.post("/api/v1/namespaces", &body).send().await.expect(201);
    let mut finalizers: Vec<&str> =
        held["spec"]["finalizers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    finalizers.sort_unstable();
    assert_eq!(finalizers, ["example.com/other", "kubernetes"]);
}
