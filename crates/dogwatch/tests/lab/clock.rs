//! The clock: hours that pass in a moment.

use std::time::Duration;

use dogwatch::testing::{Server, Settings};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::world::PATIENCE;

const CLOCK: &str = "/apis/lab.dogwatch.dev/v1/clocks/world";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

async fn send(client: &Client, method: &str, path: &str, body: Value) -> Result<Value, kube::core::Status> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes).unwrap();
    match client.request::<Value>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(other) => panic!("{method} {path}: {other}"),
    }
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    send(client, "GET", path, Value::Null).await.ok()
}

async fn set(client: &Client, spec: Value) -> Value {
    send(client, "PATCH", CLOCK, json!({"spec": spec})).await.unwrap()
}

async fn advance(client: &Client, by: &str) -> Value {
    set(client, json!({"advance": by})).await
}

/// Advances step by step until something holds: a step is answered when what was due has been done, but what other clients make of
/// it may come later.
async fn advance_until(client: &Client, path: &str, by: &str, holds: impl Fn(Option<&Value>) -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = get(client, path).await;
        if holds(found.as_ref()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?}");
        advance(client, by).await;
    }
}

async fn until(client: &Client, path: &str, holds: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = get(client, path).await;
        if holds(found.as_ref()) {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A cluster with one simulated node, whose clock is then stopped.
async fn stopped() -> (Server, Client) {
    let server = Server::with_controllers(Settings { nodes: 1, ..Settings::default() }).await;
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let ready = |node: &Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|is| is.type_ == "Ready" && is.status == "True")
            && node.spec.as_ref().is_some_and(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty))
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !nodes.list(&Default::default()).await.unwrap().iter().any(ready) {
        assert!(tokio::time::Instant::now() < deadline, "the node is not ready");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until(&client, "/api/v1/namespaces/default/serviceaccounts/default", |found| found.is_some()).await;
    set(&client, json!({"mode": "Stopped"})).await;
    (server, client)
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    for (member, value) in spec.as_object().unwrap() {
        pod["spec"][member] = value.clone();
    }
    pod
}

fn is_in_phase(found: Option<&Value>, phase: &str) -> bool {
    found.is_some_and(|pod| pod["status"]["phase"] == phase)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_1_a_stopped_clock_shows_one_time_and_an_advance_moves_it() {
    let server = Server::start().await;
    let client = server.client();
    let real = get(&client, CLOCK).await.unwrap();
    assert_eq!(real["spec"]["mode"], "Real");
    let set = set(&client, json!({"mode": "Stopped", "now": "2200-01-01T00:00:00Z"})).await;
    assert_eq!(set["status"]["now"], "2200-01-01T00:00:00Z");
    let map = |name: &str| json!({"metadata": {"name": name}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let first = send(&client, "POST", maps, map("first")).await.unwrap();
    assert_eq!(first["metadata"]["creationTimestamp"], "2200-01-01T00:00:00Z");
    let moved = advance(&client, "10m").await;
    assert_eq!(moved["status"]["now"], "2200-01-01T00:10:00Z");
    assert!(moved["spec"].get("advance").is_none(), "a move is not kept: {moved}");
    let second = send(&client, "POST", maps, map("second")).await.unwrap();
    assert_eq!(second["metadata"]["creationTimestamp"], "2200-01-01T00:10:00Z");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_1_a_clock_runs_at_a_rate() {
    let server = Server::start().await;
    let client = server.client();
    set(&client, json!({"mode": "Scaled", "rate": 100_000.0, "now": "2200-01-01T00:00:00Z"})).await;
    until(&client, "/api/v1/namespaces/default/configmaps/late", |found| found.is_none()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let map = json!({"metadata": {"name": "late"}});
    let made = send(&client, "POST", "/api/v1/namespaces/default/configmaps", map).await.unwrap();
    let made = made["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
    assert!(made.as_str() > "2200-01-01T01:00:00Z", "fifty milliseconds are more than an hour: {made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_1_what_a_clock_cannot_do_is_refused() {
    let server = Server::start().await;
    let client = server.client();
    let refused = |spec: Value| {
        let client = client.clone();
        async move { send(&client, "PATCH", CLOCK, json!({"spec": spec})).await.unwrap_err() }
    };
    for (spec, says) in [
        (json!({"advance": "10m"}), "only a Stopped clock is advanced"),
        (json!({"mode": "Scaled"}), "the rate of a Scaled clock"),
        (json!({"mode": "Stopped", "now": "2001-01-01T00:00:00Z"}), "is never set back"),
        (json!({"mode": "Stopped", "advance": "often"}), "spec.advance"),
        (json!({"mode": "Stopped", "advance": "1m", "advanceToNext": true}), "may not be given beside advance"),
        (json!({"mode": "Sometimes"}), "Unsupported value"),
    ] {
        let status = refused(spec).await;
        assert_eq!(status.code, 422);
        assert!(status.message.contains(says), "{}", status.message);
    }
    set(&client, json!({"mode": "Stopped", "now": "2200-01-01T00:00:00Z"})).await;
    let status = refused(json!({"mode": "Real", "now": null})).await;
    assert!(status.message.contains("the machine's clock has not reached"), "{}", status.message);
    let deleted = send(&client, "DELETE", CLOCK, Value::Null).await.unwrap_err();
    assert_eq!(deleted.code, 405);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_2_jobs_of_a_schedule_come_when_their_hour_does_and_go_after_their_time() {
    let (server, client) = stopped().await;
    let job = json!({"spec": {"ttlSecondsAfterFinished": 7200, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "60"]}]}}}});
    let cron = json!({"metadata": {"name": "hourly"},
        "spec": {"schedule": "0 * * * *", "jobTemplate": job, "successfulJobsHistoryLimit": 100}});
    send(&client, "POST", "/apis/batch/v1/namespaces/default/cronjobs", cron).await.unwrap();
    let some = |list: Option<&Value>| list.and_then(|list| list["items"].as_array()).is_some_and(|all| !all.is_empty());
    advance_until(&client, JOBS, "10m", some).await;
    let jobs = get(&client, JOBS).await.unwrap();
    let made = jobs["items"][0]["metadata"]["creationTimestamp"].as_str().unwrap();
    assert!(made.contains(":00:"), "it was made at a full hour: {made}");
    let path = format!("{JOBS}/{}", jobs["items"][0]["metadata"]["name"].as_str().unwrap());
    // No other job comes in between.
    let suspend = json!({"spec": {"suspend": true}});
    send(&client, "PATCH", "/apis/batch/v1/namespaces/default/cronjobs/hourly", suspend).await.unwrap();
    advance_until(&client, &path, "30s", |job| job.is_some_and(|job| job["status"]["succeeded"] == 1)).await;
    advance(&client, "1h").await;
    assert!(get(&client, &path).await.is_some(), "two hours are not over");
    advance_until(&client, &path, "30m", |job| job.is_none()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_2_a_node_without_an_agent_is_lost_after_its_grace_and_a_simulated_one_is_not() {
    let (server, client) = stopped().await;
    let node = json!({"metadata": {"name": "silent"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}]}});
    send(&client, "POST", "/api/v1/nodes", node).await.unwrap();
    let ready = |node: Option<&Value>, wanted: &str| {
        let node = node.unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap();
        conditions.iter().any(|is| is["type"] == "Ready" && is["status"] == wanted)
    };
    assert!(ready(get(&client, "/api/v1/nodes/silent").await.as_ref(), "True"));
    advance_until(&client, "/api/v1/nodes/silent", "20s", |node| ready(node, "Unknown")).await;
    assert!(ready(get(&client, "/api/v1/nodes/node-1").await.as_ref(), "True"), "its lease was renewed on the way");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_2_clk_3_pods_start_crash_and_end_by_the_clock_alone() {
    let (server, client) = stopped().await;
    let command = json!([{"name": "c", "image": "busybox", "command": ["sh", "-c", "sleep 5; exit 1"]}]);
    send(&client, "POST", PODS, pod("crashes", json!({"containers": command}))).await.unwrap();
    let path = format!("{PODS}/crashes");
    let restarts = |pod: Option<&Value>| pod.unwrap()["status"]["containerStatuses"][0]["restartCount"].as_i64();
    advance_until(&client, &path, "1s", |pod| is_in_phase(pod, "Running")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(restarts(get(&client, &path).await.as_ref()).unwrap_or_default() == 0, "nothing happens by itself");
    advance_until(&client, &path, "1m", |pod| restarts(pod).is_some_and(|count| count >= 4)).await;
    let deleted = send(&client, "DELETE", &path, Value::Null).await.unwrap();
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    tokio::time::sleep(Duration::from_millis(50)).await;
    advance_until(&client, &path, "31s", |pod| pod.is_none()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_2_tokens_end_with_their_time() {
    let server = Server::with_controllers(Settings { nodes: 0, ..Settings::default() }).await;
    let client = server.client();
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    until(&client, account, |found| found.is_some()).await;
    set(&client, json!({"mode": "Stopped"})).await;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600}});
    let issued = send(&client, "POST", &format!("{account}/token"), asked).await.unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": issued["status"]["token"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = send(&client, "POST", reviews, review.clone()).await.unwrap();
    assert_eq!(answer["status"]["authenticated"], true, "{answer}");
    // A minute is tolerated, since clocks differ.
    advance(&client, "12m").await;
    let answer = send(&client, "POST", reviews, review).await.unwrap();
    assert_ne!(answer["status"]["authenticated"], json!(true), "{answer}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clk_4_the_next_moment_says_who_waited_for_it() {
    let (server, client) = stopped().await;
    let before = get(&client, CLOCK).await.unwrap();
    let moved = set(&client, json!({"advanceToNext": true})).await;
    let advanced = &moved["status"]["advanced"];
    assert!(advanced["moments"].as_i64().unwrap() >= 1, "{moved}");
    let known = ["nodes", "nodelifecycle", "podgc", "csrcleaner", "horizontalpodautoscaling"];
    let who = advanced["due"][0]["who"].as_str().unwrap();
    assert!(known.contains(&who) || who == "events", "{moved}");
    assert!(moved["status"]["now"].as_str() > before["status"]["now"].as_str());
    server.stop().await;
}
