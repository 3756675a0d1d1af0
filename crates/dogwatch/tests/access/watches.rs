//! Rights of running watches.

use std::time::Duration;

use dogwatch::testing::Authorization;
use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinery::json::{Value, json};

use crate::world::World;

/// No test waits longer than this for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn rules() -> Value {
    json!([{"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}])
}

/// An open watch, as lines.
struct Lines {
    body: futures::stream::BoxStream<'static, Vec<u8>>,
    buffer: Vec<u8>,
}

impl Lines {
    async fn open(world: &World, user: &str) -> Self {
        let request = Request::get(format!("{MAPS}?watch=1")).body(Body::empty()).unwrap();
        let response = world.send(user, request).await;
        assert_eq!(response.status(), 200);
        let body = response.into_body().into_data_stream().map(|piece| piece.unwrap().to_vec()).boxed();
        Lines { body, buffer: Vec::new() }
    }

    /// The next event; none once the watch has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let piece = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event or the end");
            self.buffer.extend(piece?);
        }
    }
}

#[tokio::test]
async fn az_150_az_151_a_running_watch_goes_on_after_the_right_is_gone() {
    let world = World::start().await;
    world.grant("alice", false, rules()).await;
    let mut watch = Lines::open(&world, "alice").await;
    world.make_config_map("a").await;
    let seen = |event: Option<Value>| event.unwrap()["object"]["metadata"]["name"].as_str().unwrap().to_owned();
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "a") {
        names.push(seen(watch.next().await));
    }
    world.revoke("alice").await;
    let again = world.get("alice", &format!("{MAPS}?watch=1")).await;
    assert_eq!(again.code, 403, "the next request is judged anew");
    world.make_config_map("b").await;
    assert_eq!(seen(watch.next().await), "b", "events go on");
}

#[tokio::test]
async fn ba_14_a_watch_ends_with_a_403_when_it_is_rechecked() {
    let mut authorization = Authorization::default();
    authorization.recheck_watches = true;
    let world = World::with(authorization).await;
    world.grant("alice", false, rules()).await;
    let mut watch = Lines::open(&world, "alice").await;
    let mut of_root = Lines::open(&world, "root").await;
    world.make_config_map("a").await;
    world.revoke("alice").await;
    let mut last = None;
    while let Some(event) = watch.next().await {
        last = Some(event);
    }
    let last = last.expect("an event before the end");
    assert_eq!(last["type"], "ERROR");
    assert_eq!(last["object"]["code"], 403);
    let message = last["object"]["message"].as_str().unwrap();
    assert!(message.contains("User \"alice\" cannot watch resource \"configmaps\""), "{message}");
    // Those who have the right are not disturbed.
    world.make_config_map("b").await;
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "b") {
        let event = of_root.next().await.expect("a running watch");
        names.push(event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    }
}
