//! What one client sends does not keep the server from answering others.
//!
//! No time is compared with a fixed bound: requests that are answered while others are being worked on prove it on any machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use blackbox::{Server, Wire};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const HEAVY: usize = 16;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A body of about 2 MB that takes long to decode, to validate and to own.
fn heavy_body(name: usize) -> Value {
    let owners: Vec<Value> = (0..20_000)
        .map(|n| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("owner-{n}"), "uid": format!("uid-of-owner-{n}")}))
        .collect();
    let data: serde_json::Map<String, Value> = (0..20_000).map(|n| (format!("key-{n}"), json!("value"))).collect();
    json!({"metadata": {"name": format!("heavy-{name}"), "ownerReferences": owners}, "data": data})
}

/// One handshake with a health check, and a small write of another connection. Returns how long both took.
async fn healthy(wire: &Wire, round: usize) -> Duration {
    let began = Instant::now();
    let health = wire.get("/livez").send().await;
    assert_eq!((health.code, health.text()), (200, "ok"));
    let body = json!({"metadata": {"name": format!("small-{round}")}});
    wire.post(CONFIG_MAPS, &body).send().await.expect(201);
    began.elapsed()
}

/// Sends all bodies at once, and holds health checks, handshakes and small writes to be answered meanwhile.
async fn answers_meanwhile(wire: &Wire, path: &'static str, bodies: Vec<String>) {
    let mut quiet = Duration::ZERO;
    for round in 0..5 {
        quiet = quiet.max(healthy(wire, round).await);
    }
    let running = Arc::new(AtomicUsize::new(bodies.len()));
    let began = Instant::now();
    let heavy: Vec<_> = bodies
        .into_iter()
        .map(|body| {
            let (wire, running) = (wire.clone(), Arc::clone(&running));
            tokio::spawn(async move {
                let request = wire.request("POST", path).header("Content-Type", "application/json").body(body);
                let code = request.send().await.code;
                running.fetch_sub(1, Ordering::SeqCst);
                code
            })
        })
        .collect();
    let (mut answered, mut slowest) = (0, Duration::ZERO);
    while running.load(Ordering::SeqCst) > 0 {
        slowest = slowest.max(healthy(wire, 5 + answered).await);
        answered += 1;
    }
    let all = began.elapsed();
    for task in heavy {
        let code = task.await.expect("the request ended");
        assert!(matches!(code, 201 | 429), "{code}");
    }
    eprintln!("{answered} answers during requests of {all:?}: {slowest:?} at most, {quiet:?} before them");
    // Were they queued behind the others, there would be one answer, at the end.
    assert!(answered >= 3, "{answered} answers in {all:?}, {slowest:?} at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_handshakes_and_others_answer_while_heavy_requests_run() {
    let server = Server::start();
    let wire = Wire::to(&server);
    answers_meanwhile(&wire, CONFIG_MAPS, (0..HEAVY).map(|n| heavy_body(n).to_string()).collect()).await;
    server.stop();
}

/// Sixteen small objects of a kind whose rules compare each item of a list with each other item.
#[tokio::test(flavor = "multi_thread")]
async fn health_handshakes_and_others_answer_while_costly_rules_run() {
    const ITEMS: usize = 150;
    let server = Server::start();
    let wire = Wire::to(&server);
    let rules: Vec<Value> =
        (0..8).map(|n| json!({"rule": format!("self.l.all(x, self.l.all(y, x + y >= -{n}))")})).collect();
    let list = json!({"type": "array", "maxItems": ITEMS, "items": {"type": "integer"}});
    let schema = json!({"type": "object", "properties": {"l": list}, "x-kubernetes-validations": rules});
    wire.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition(schema)).send().await.expect(201);
    let things = "/apis/holds.example.com/v1/namespaces/default/things";
    while wire.get(things).send().await.code == 404 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let object = |name: usize| {
        let metadata = json!({"name": format!("costly-{name}")});
        let list: Vec<usize> = (0..ITEMS).collect();
        json!({"apiVersion": "holds.example.com/v1", "kind": "Thing", "metadata": metadata, "l": list})
    };
    // The first one shows what they cost.
    wire.post(things, &object(HEAVY)).send().await.expect(201);
    answers_meanwhile(&wire, things, (0..HEAVY).map(|n| object(n).to_string()).collect()).await;
    server.stop();
}

/// A definition of `things`.
fn definition(schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.holds.example.com"},
        "spec": {
            "group": "holds.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn very_many_errors_below_a_long_key_are_cut() {
    let server = Server::start();
    let wire = Wire::to(&server);
    // A map of lists of strings.
    let lists = json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]$"}}});
    let schema = json!({"type": "object", "properties": {"lists": lists}});
    wire.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition(schema)).send().await.expect(201);
    let things = "/apis/holds.example.com/v1/namespaces/default/things";
    let object = |lists: Value| json!({"apiVersion": "holds.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "lists": lists});
    while wire.get(things).send().await.code == 404 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut lists = serde_json::Map::new();
    lists.insert("k".repeat(500_000), vec!["0"; 300_000].into());
    let refused = wire.post(things, &object(lists.into())).send().await;
    refused.refused(422, "Invalid");
    assert!(refused.body.len() < 16 << 20, "{} bytes", refused.body.len());
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_writes_of_one_client_leave_places_for_others() {
    let server = Server::start_with(&["--max-mutating-requests-inflight", "10"]);
    let wire = Wire::to(&server);
    let mut unfinished = Vec::new();
    for _ in 0..40 {
        let mut socket = wire.socket().await;
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
        );
        socket.write_all(head.as_bytes()).await.expect("the server reads");
        socket.flush().await.expect("the server reads");
        unfinished.push(socket);
    }
    for round in 0..20 {
        healthy(&wire, round).await;
    }
    drop(unfinished);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_the_body_was_read_arrives() {
    let server = Server::start();
    let wire = Wire::to(&server);
    for _ in 0..20 {
        let mut socket = wire.socket().await;
        let length = 8 << 20;
        let head = format!(
            "POST /no/such/path HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.expect("the server reads");
        let (mut reader, mut writer) = tokio::io::split(socket);
        // The server may close before it has all of the body.
        let sending = tokio::spawn(async move {
            for _ in 0..length / 4096 {
                if writer.write_all(&[b'x'; 4096]).await.is_err() {
                    break;
                }
            }
        });
        let mut answer = vec![0; 12];
        let read = tokio::time::timeout(blackbox::process::DEADLINE, reader.read_exact(&mut answer)).await;
        read.expect("an answer in time").expect("the answer is not lost");
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 404");
        sending.abort();
    }
    server.stop();
}
