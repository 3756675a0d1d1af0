//! Webhooks that hang, flood, redirect, or call back into the server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use dogwatch::cluster::Access;
use machinery::json::{self, Value, json};
use outbound::testing::Reply;
use parking_lot::Mutex;
use server::limits::Limits;

use crate::hook::{Hook, configure};
use crate::world::{MAPS, World, map};

const CREATE: &[&str] = &["CREATE"];

fn labelled(name: &str) -> Value {
    let mut map = map(name);
    map["metadata"]["labels"] = json!({"slow": "1"});
    map
}

/// A webhook for labelled objects, with a timeout of a second.
async fn attach(world: &World, hook: &Hook) {
    let mut webhook = hook.webhook("h.example.com", CREATE, &["configmaps"]);
    webhook["timeoutSeconds"] = json!(1);
    webhook["objectSelector"] = json!({"matchLabels": {"slow": "1"}});
    configure(world, "validating", "hooks", &[webhook]).await;
}

#[tokio::test]
async fn requests_that_wait_for_a_webhook_hold_no_place() {
    let limits = Limits { inflight_writes_max: 2, ..Limits::default() };
    let world = Arc::new(World::with(Access::default(), registry::Settings::default(), limits).await);
    let hook = Hook::replying(|_| Reply::never()).await;
    attach(&world, &hook).await;
    let waiting: Vec<_> = (0..8)
        .map(|at| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.post(MAPS, &labelled(&format!("slow-{at}"))).await.code })
        })
        .collect();
    while hook.server.connections() == 0 {
        tokio::task::yield_now().await;
    }
    for at in 0..20 {
        let user = crate::world::user("bob", &["system:masters-not"]);
        let request = http::Request::get(format!("{MAPS}/m{at}")).body(bytes::Bytes::new()).unwrap();
        assert_ne!(world.send(user, request).await.code, 429);
        world.post(MAPS, &map(&format!("m{at}"))).await.object();
    }
    for request in waiting {
        assert_eq!(request.await.unwrap(), 500);
    }
}

#[tokio::test]
async fn too_many_requests_that_wait_are_refused() {
    let limits = Limits { webhooks_waiting_max: 0, ..Limits::default() };
    let world = World::with(Access::default(), registry::Settings::default(), limits).await;
    let hook = Hook::open().await;
    attach(&world, &hook).await;
    assert_eq!(world.post(MAPS, &labelled("m")).await.code, 429);
    assert!(hook.reviews().is_empty());
    world.post(MAPS, &map("m")).await.object();
}

#[tokio::test]
async fn wh_9_an_endless_answer_ends_the_request_in_its_time() {
    let (world, hook) = (World::new().await, Hook::replying(|_| Reply::endless(1 << 20)).await);
    attach(&world, &hook).await;
    let refused = world.post(MAPS, &labelled("m")).await;
    assert_eq!(refused.code, 500);
    assert!(refused.message().contains("failed calling webhook \"h.example.com\": failed to call webhook: "));
}

#[tokio::test]
async fn wh_9_a_redirect_is_not_followed() {
    let (world, other) = (World::new().await, Hook::open().await);
    let hook = Hook::replying(|_| Reply::text("").status(302).header("location", "https://127.0.0.1/hook")).await;
    attach(&world, &hook).await;
    assert_eq!(world.post(MAPS, &labelled("m")).await.code, 500);
    assert_eq!(other.server.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_webhook_may_call_back_into_the_server() {
    let limits = Limits { inflight_writes_max: 1, inflight_reads_max: 1, ..Limits::default() };
    let world = World::with(Access::default(), registry::Settings::default(), limits).await;
    let address = world.listen().await;
    let answered = Arc::new(Mutex::new(String::new()));
    let hook = {
        let answered = Arc::clone(&answered);
        Hook::replying(move |review| {
            *answered.lock() = tokio::task::block_in_place(|| call(&address));
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            Reply::text(&json::to_string(&answer))
        })
        .await
    };
    let mut webhook = hook.webhook("h.example.com", CREATE, &["configmaps"]);
    webhook["timeoutSeconds"] = json!(30);
    configure(&world, "validating", "hooks", &[webhook]).await;
    world.post(MAPS, &map("m")).await.object();
    assert!(answered.lock().starts_with("HTTP/1.1 200"), "{:?}", answered.lock());
}

/// Calls the server and waits for its answer.
fn call(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
