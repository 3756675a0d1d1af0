//! Settlements: answers that come when the cluster is quiet.

use std::time::Duration;

use dogwatch::testing::{Server, Settings};
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client};
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

#[tokio::test]
async fn set_1_set_2_a_key_that_a_controller_works_on_is_waited_for_and_named() {
    let server = Server::with_controllers(Settings { nodes: 1, ..Settings::default() }).await;
    let world = World { client: server.client(), server };
    let controller = "system:serviceaccount:kube-system:deployment-controller";
    let matches = json!({"verbs": ["create"], "resources": ["replicasets.apps"], "users": [controller]});
    world.fault("slow", json!({"match": matches, "effect": {"delay": "2s"}, "when": {"times": 1}})).await;
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "example.com/web"}]}});
    let web: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }))
    .unwrap();
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), "default");
    deployments.create(&PostParams::default(), &web).await.unwrap();
    world.hits("slow", 1).await;
    let busy = settle(&world.client, json!({"quiet": "10ms", "timeout": "200ms"})).await.unwrap();
    assert_eq!(busy["settled"], false, "{busy}");
    let queues = busy["busy"]["queues"].as_array().unwrap();
    let queue = queues.iter().find(|queue| queue["controller"] == "deployment").unwrap_or_else(|| panic!("{busy}"));
    assert_eq!((&queue["working"], &queue["keys"][0]["key"]), (&json!(1), &json!("default/web")), "{busy}");
    let status = settle(&world.client, json!({"quiet": "200ms", "timeout": "50s"})).await.unwrap();
    assert_eq!(status["settled"], true, "{status}");
    let ready = deployments.get("web").await.unwrap().status.unwrap().ready_replicas;
    assert_eq!(ready, Some(1), "all that followed from the deployment has happened");
}

/// A namespace that is deleted, and whose controller waits for a second before it looks at it.
async fn namespace_about_to_be_emptied() -> (World, Api<Namespace>) {
    let mut settings = Settings { nodes: 1, ..Settings::default() };
    settings.timing.namespace_start = Duration::from_secs(1);
    let server = Server::with_controllers(settings).await;
    let world = World { client: server.client(), server };
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("shop".to_owned());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let status = settle(&world.client, json!({"quiet": "100ms", "timeout": "50s"})).await.unwrap();
    assert_eq!(status["settled"], true, "{status}");
    (world, namespaces)
}

#[tokio::test]
async fn set_1_a_key_that_comes_in_line_within_the_quiet_time_is_waited_for() {
    let (world, namespaces) = namespace_about_to_be_emptied().await;
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let status = settle(&world.client, json!({"quiet": "600ms", "timeout": "50s"})).await.unwrap();
    assert_eq!(status["settled"], true, "{status}");
    assert!(namespaces.get_opt("shop").await.unwrap().is_none(), "its deletion was due");
}

#[tokio::test]
async fn set_1_what_is_due_after_a_stopped_clock_is_not_waited_for() {
    let (world, namespaces) = namespace_about_to_be_emptied().await;
    let clock =
        Request::patch("/apis/lab.dogwatch.dev/v1/clocks/world").header("content-type", "application/merge-patch+json");
    let body = json!({"spec": {"mode": "Stopped"}}).to_string().into_bytes();
    let _: Value = world.client.request(clock.body(body).unwrap()).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let status = settle(&world.client, json!({"quiet": "600ms", "timeout": "50s"})).await.unwrap();
    assert_eq!(status["settled"], true, "{status}");
    assert!(namespaces.get_opt("shop").await.unwrap().is_some(), "it comes only when the clock is moved");
}

#[tokio::test]
async fn set_2_the_queues_of_controllers_are_in_the_metrics() {
    let server = Server::with_controllers(Settings { nodes: 1, ..Settings::default() }).await;
    let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
    loop {
        let request = Request::get("/metrics").body(Vec::new()).unwrap();
        let text = server.client().request_text(request).await.unwrap();
        let names = ["deployment", "job", "scheduler", "nodes", "garbagecollector_to_delete"];
        if names.iter().all(|name| text.contains(&format!("workqueue_depth{{name=\"{name}\"}}"))) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
