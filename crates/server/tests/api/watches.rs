//! Watches over HTTP: before they open, while they stream, when they end.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use machinery::json::{Value, json};

use crate::world::{PATIENCE, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Reads the lines of a watch.
struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    async fn open(world: &World, path: &str) -> Self {
        let response = world.open(true, "GET", path, &[], "").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(response.headers().get("content-length").is_none());
        Lines { body: response.into_body(), rest: Vec::new() }
    }

    /// The next event; none at a clean end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event");
            self.rest.extend_from_slice(&frame?.expect("a clean end").into_data().unwrap());
        }
    }

    async fn next_shown(&mut self) -> Option<String> {
        let event = self.next().await?;
        Some(format!("{} {}", event["type"].as_str()?, event["object"]["metadata"]["name"].as_str().unwrap_or("-")))
    }
}

#[tokio::test]
async fn s01_15_1_and_2_what_is_there_comes_first() {
    let world = World::start().await;
    for name in ["b", "a"] {
        world.make_config_map(name, "v").await;
    }
    let mut watch = Lines::open(&world, &format!("{MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1")).await;
    assert_eq!(watch.next_shown().await.as_deref(), Some("ADDED a"));
    assert_eq!(watch.next_shown().await.as_deref(), Some("ADDED b"));
    assert_eq!(watch.next_shown().await, None, "ends after its second, without a bookmark");
    let query = "?watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true";
    let mut watch = Lines::open(&world, &format!("{MAPS}{query}")).await;
    watch.next().await;
    watch.next().await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
}

#[tokio::test]
async fn events_come_as_they_happen() {
    let world = World::start().await;
    let mut watch = Lines::open(&world, &format!("{MAPS}?watch=1&labelSelector=!none")).await;
    let mut legacy = Lines::open(&world, "/api/v1/watch/namespaces/default/configmaps/b").await;
    for name in ["a", "b"] {
        world.make_config_map(name, "v").await;
        assert_eq!(watch.next_shown().await, Some(format!("ADDED {name}")));
    }
    assert_eq!(legacy.next_shown().await.as_deref(), Some("ADDED b"));
    world.ask(true, "DELETE", &format!("{MAPS}/a"), &[], "").await;
    assert_eq!(watch.next_shown().await.as_deref(), Some("DELETED a"));
}

#[tokio::test]
async fn s01_8_refused_before_it_opens() {
    let world = World::start().await;
    let code = async |query: &str| world.get(&format!("{MAPS}?watch=1&timeoutSeconds=1&{query}")).await.code;
    assert_eq!(code("sendInitialEvents=true").await, 422);
    assert_eq!(code("limit=abc").await, 400);
    assert_eq!(code("labelSelector=a,").await, 400);
    assert_eq!(code("fieldSelector=spec.foo%3D1").await, 400);
    let legacy = "/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name%3Db";
    assert_eq!(
        world.get(legacy).await.refusal(),
        (400, "fieldSelector metadata.name doesn't match requested name".to_owned())
    );
    let yaml = world.get_with(&format!("{MAPS}?watch=1"), &[("accept", "application/yaml")]).await;
    assert_eq!(yaml.code, 406, "01 §15 row 11");
    assert_eq!(
        world.get("/api/v1/watch/namespaces/default/configmaps?sendInitialEvents=true").await.code,
        422,
        "the old paths are checked by the rules of lists"
    );
}

#[tokio::test]
async fn an_item_is_not_watched() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let answer = world.get(&format!("{MAPS}/a?watch=1")).await;
    assert_eq!((answer.code, &answer.json()["kind"]), (200, &json!("ConfigMap")));
}

#[tokio::test]
async fn a_stopping_server_ends_watches_cleanly() {
    let world = World::start().await;
    let mut watch = Lines::open(&world, &format!("{MAPS}?watch=1")).await;
    world.make_config_map("a", "v").await;
    assert_eq!(watch.next_shown().await.as_deref(), Some("ADDED a"));
    world.trigger.drain();
    assert_eq!(watch.next().await, None);
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
}

#[tokio::test]
async fn open_watches_are_counted_and_forgotten() {
    let world = World::start().await;
    let watch = Lines::open(&world, &format!("{MAPS}?watch=1")).await;
    let open = async || {
        let text = world.get("/metrics").await;
        let line =
            text.text().lines().find(|line| line.starts_with("apiserver_longrunning_requests{")).unwrap().to_owned();
        assert!(line.contains("resource=\"configmaps\""), "{line}");
        line.ends_with(" 1")
    };
    assert!(open().await);
    drop(watch);
    let gone = async {
        while open().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("forgotten");
}
