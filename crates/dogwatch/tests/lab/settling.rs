//! Settlements: answers that come when the cluster is quiet.

use http::Request;
use kube::Client;
use kube::api::{Patch, PatchParams, WatchParams};
use serde_json::{Value, json};

use crate::world::{World, code};

/// Asks for a settlement and returns its status.
async fn settle(client: &Client, spec: Value) -> kube::Result<Value> {
    let body = json!({"kind": "Settlement", "apiVersion": "lab.dogwatch.dev/v1", "spec": spec});
    let request = Request::post("/apis/lab.dogwatch.dev/v1/settlements").header("content-type", "application/json");
    let answer: Value = client.request(request.body(body.to_string().into_bytes()).unwrap()).await?;
    Ok(answer["status"].clone())
}

#[tokio::test]
async fn set_1_set_5_a_quiet_cluster_is_settled_and_unmet_expectations_are_named() {
    let world = World::start().await;
    let made = world.make_map("a").await.unwrap();
    let status = settle(&world.client, json!({"quiet": "50ms", "timeout": "50s"})).await.unwrap();
    assert_eq!(status["settled"], true, "{status}");
    let revision: u64 = made.metadata.resource_version.unwrap().parse().unwrap();
    assert!(status["revision"].as_u64().unwrap() >= revision, "{status}");
    assert!(status["waited"].as_str().unwrap().ends_with("ms") && status["unmet"].is_null(), "{status}");
    world.fault("never", json!({"effect": {"error": {"code": 500}}, "when": {"skip": 9}, "expect": {"hits": 1}})).await;
    let status = settle(&world.client, json!({"quiet": "50ms"})).await.unwrap();
    assert_eq!(status["unmet"], json!(["fault never expects 1 hits and has 0"]));
}

#[tokio::test]
async fn set_1_a_watch_that_is_behind_is_waited_for_and_named() {
    let world = World::start().await;
    let revision = world.make_map("a").await.unwrap().metadata.resource_version.unwrap();
    let _events = world.maps().watch(&WatchParams::default().disable_bookmarks(), &revision).await.unwrap();
    world.fault("hush", json!({"match": {"verbs": ["watch"]}, "effect": {"silence": {}}})).await;
    world.make_map("b").await.unwrap();
    let status = settle(&world.client, json!({"quiet": "20ms", "timeout": "300ms"})).await.unwrap();
    assert_eq!(status["settled"], false, "{status}");
    let watcher = &status["busy"]["watchers"][0];
    assert_eq!((&watcher["resource"], &watcher["revisionsBehind"]), (&json!("configmaps"), &json!(1)), "{status}");
    let others = settle(&world.client, json!({"quiet": "20ms", "clients": ["another-client"]})).await.unwrap();
    assert_eq!(others["settled"], true, "this client has no watch that is behind");
}

#[tokio::test]
async fn set_2_set_3_who_writes_is_named_and_a_hot_loop_is_marked() {
    let world = World::start().await;
    world.make_map("a").await.unwrap();
    let (maps, mut turn) = (world.maps(), 0);
    let writing = tokio::spawn(async move {
        loop {
            turn += 1;
            let patch = json!({"data": {"x": (turn % 2).to_string()}});
            maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    loop {
        let status = settle(&world.client, json!({"quiet": "10s", "timeout": "1s"})).await.unwrap();
        assert_eq!(status["settled"], false, "{status}");
        let writer = &status["busy"]["writers"][0];
        if writer["writes"].as_u64().unwrap() > 10 {
            assert_eq!((&writer["name"], &writer["hotLoop"]), (&json!("a"), &json!(true)), "{status}");
            assert_eq!(writer["fields"].as_array().unwrap().last(), Some(&json!("data.x")));
            assert!(writer["perSecond"].as_f64().unwrap() > 0.0 && status["changes"].as_u64().unwrap() > 10);
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
    }
    let ignored = json!({"quiet": "20ms", "ignore": {"resources": ["configmaps"]}});
    assert_eq!(settle(&world.client, ignored).await.unwrap()["settled"], true);
    writing.abort();
}

#[tokio::test]
async fn set_1_bad_questions_are_refused() {
    let world = World::start().await;
    assert_eq!(code(settle(&world.client, json!({"timeout": "10m"})).await), 422);
    assert_eq!(code(settle(&world.client, json!({"quiet": "soon"})).await), 422);
    let stored: kube::Result<Value> =
        world.client.request(Request::get("/apis/lab.dogwatch.dev/v1/settlements").body(Vec::new()).unwrap()).await;
    assert_eq!(code(stored), 405, "it is a question, and not stored");
}
