//! A service account's token over a socket: requested, used, reviewed, and invalid once its account is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::SignedDuration;
use machinery::clock::Clock;
use machinery::json::{Value, json};

use crate::world::World;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn token(world: &World, spec: Value) -> Value {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let answer = world.post(&format!("{ACCOUNTS}/sa/token"), &body).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    answer.json()
}

async fn review(world: &World, token: &str, audiences: Value) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    world.post("/apis/authentication.k8s.io/v1/tokenreviews", &body).await.json()["status"].clone()
}

async fn code(world: &World, token: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    world.ask(false, "GET", "/api/v1/namespaces/default/pods", &[("authorization", &bearer)], "").await.code
}

#[tokio::test]
async fn au_10_50_ba_4_a_token_is_requested_and_used() {
    let world = World::start().await;
    world.post(ACCOUNTS, &json!({"metadata": {"name": "sa"}})).await;
    let request = token(&world, json!({"expirationSeconds": 600})).await;
    assert_eq!(request["spec"]["expirationSeconds"], 600);
    assert_eq!(request["spec"]["audiences"].as_array().map(Vec::len), Some(1));
    assert_eq!(request["metadata"]["name"], "sa");
    assert!(request["status"]["expirationTimestamp"].is_string());
    let made = request["status"]["token"].as_str().unwrap();
    assert_eq!(code(&world, made).await, 200);
    let reviewed = review(&world, made, json!([])).await;
    assert_eq!(reviewed["authenticated"], true);
    assert_eq!(reviewed["user"]["username"], "system:serviceaccount:default:sa");
    assert_eq!(reviewed["audiences"], request["spec"]["audiences"]);
    let answer = world.ask(true, "DELETE", &format!("{ACCOUNTS}/sa"), &[], "").await;
    assert_eq!(answer.code, 200);
    assert_eq!(code(&world, made).await, 401);
    let error = review(&world, made, json!([])).await["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("[invalid bearer token, "), "{error}");
}

#[tokio::test]
async fn au_22_ba_13_a_token_expires_by_the_clock_of_the_server() {
    let ahead = Arc::new(AtomicI64::new(0));
    let seconds = Arc::clone(&ahead);
    let clock =
        Clock::from_fn(move || Clock::system().now() + SignedDuration::from_secs(seconds.load(Ordering::Relaxed)));
    let world = World::with_clock(clock).await;
    world.post(ACCOUNTS, &json!({"metadata": {"name": "sa"}})).await;
    let request = token(&world, json!({"expirationSeconds": 600})).await;
    let made = request["status"]["token"].as_str().unwrap();
    assert_eq!(code(&world, made).await, 200);
    ahead.store(700, Ordering::Relaxed);
    assert_eq!(code(&world, made).await, 401);
    let error = review(&world, made, json!([])).await["error"].as_str().unwrap().to_owned();
    assert_eq!(error, "[invalid bearer token, service account token has expired]");
}

#[tokio::test]
async fn au_23_61_a_token_for_another_audience_is_refused() {
    let world = World::start().await;
    world.post(ACCOUNTS, &json!({"metadata": {"name": "sa"}})).await;
    let request = token(&world, json!({"audiences": ["vault"]})).await;
    let made = request["status"]["token"].as_str().unwrap();
    assert_eq!(code(&world, made).await, 401);
    assert_eq!(review(&world, made, json!(["vault", "x"])).await["audiences"], json!(["vault"]));
    assert_eq!(review(&world, made, json!([])).await["authenticated"], Value::Null);
}

#[tokio::test]
async fn a_log_of_an_unscheduled_pod_is_empty() {
    let world = World::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    world.post(pods, &json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let answer = world.get(&format!("{pods}/p/log")).await;
    assert_eq!((answer.code, answer.header("content-type")), (204, ""));
    assert_eq!(world.get(&format!("{pods}/p/log?tailLines=-1")).await.code, 422);
    assert_eq!(
        world.get(&format!("{pods}/p/exec?container=x")).await.json()["message"],
        "container x is not valid for pod p"
    );
    assert_eq!(world.post(&format!("{pods}/p/exec"), &json!({})).await.code, 400);
}
