//! Every example, run against the scripted server.

use client::leader::Outcome;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testkit::fake_server::*;

use super::*;

#[path = "../../examples/crd_controller.rs"]
mod crd_controller;
#[path = "../../examples/dynamic.rs"]
mod dynamic;
#[path = "../../examples/namespaces.rs"]
mod namespaces;
#[path = "../../examples/typed.rs"]
mod typed;

#[tokio::test]
async fn typed_counts_pods_by_node() {
    let server = FakeServer::start().await;
    let pods = Answer::watch().line(added(&pod("a", 1))).line(added(&pod("b", 2)));
    server.answer(pods.line(bookmark_end(5)).hold());
    let stop = CancellationToken::new();
    let (counts, running) = typed::pods_per_node(client_of(&server), stop.clone()).await;
    assert_eq!(counts, [("node-of-a".to_owned(), 1), ("node-of-b".to_owned(), 1)]);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn dynamic_reads_whole_objects_and_metadata() {
    let server = FakeServer::start().await;
    let object = |kind: &str, api: &str| json!({"kind": kind, "apiVersion": api, "metadata": {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "3"}});
    // Both informers start together; either may be the first to ask. Each skips objects of the other form.
    for _ in 0..2 {
        let both = Answer::watch()
            .line(added(&object("Deployment", "apps/v1")))
            .line(added(&object("PartialObjectMetadata", "meta.k8s.io/v1")));
        server.answer(both.line(bookmark_end(5)).hold());
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let (whole, metadata) = dynamic::names(client_of(&server), &resource).await;
    assert_eq!((whole, metadata), (vec!["n/x".to_owned()], vec!["n/x".to_owned()]));
}

#[tokio::test]
async fn namespaces_are_counted_apart() {
    let server = FakeServer::start().await;
    for _ in 0..2 {
        server.answer(Answer::watch().line(bookmark_end(5)).hold());
    }
    assert_eq!(namespaces::count(client_of(&server), &["a", "b"]).await, [0, 0]);
    let mut paths: Vec<String> = server.requests().into_iter().map(|r| r.path).collect();
    paths.sort();
    assert_eq!(paths, ["/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps"]);
}

/// A server that answers by path: enough of an API for the controller example.
fn answer_by_path(request: &Request, greeting: &Value) -> Answer {
    let watch = |object: Option<&Value>| {
        let answer = object.into_iter().fold(Answer::watch(), |answer, object| answer.line(added(object)));
        answer.line(bookmark_end(10)).hold()
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/apis/example.com/v1/greetings") => watch(Some(greeting)),
        ("GET", "/api/v1/configmaps") => watch(None),
        ("GET", _) => Answer::json(404, &status(404, "NotFound", "not found")),
        _ => {
            let mut object: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            object["metadata"]["resourceVersion"] = json!("11");
            object["metadata"]["uid"] = json!("made");
            Answer::json(201, &object)
        }
    }
}

#[tokio::test]
async fn the_controller_leads_and_writes_a_config_map() {
    let server = FakeServer::start().await;
    let greeting = json!({"kind": "Greeting", "apiVersion": "example.com/v1",
        "metadata": {"name": "hello", "namespace": "n", "uid": "g", "resourceVersion": "3", "generation": 1}, "spec": {"text": "world"}});
    server.answer_with(move |request| answer_by_path(request, &greeting));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (client, stop) = (client_of(&server), stop.clone());
        async move { crd_controller::run(client, "me", stop).await }
    });
    let written = loop {
        let found = server.requests().into_iter().find(|r| r.method == "POST" && r.path.ends_with("/configmaps"));
        match found {
            Some(request) => break request,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let map: Value = serde_json::from_slice(&written.body).unwrap();
    assert_eq!(written.path, "/api/v1/namespaces/n/configmaps");
    assert_eq!(map["data"]["text"], "world");
    assert_eq!(map["metadata"]["ownerReferences"][0]["name"], "hello");
    let lease = server.requests().into_iter().find(|r| r.path.ends_with("/leases") && r.method == "POST").unwrap();
    let lease: Value = serde_json::from_slice(&lease.body).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "me");
    stop.cancel();
    assert_eq!(tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap(), Outcome::Stopped);
}
