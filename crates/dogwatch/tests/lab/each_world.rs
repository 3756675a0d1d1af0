//! The lab of each world: its faults, its clock, its settlements and what it shows are about that world only.

use std::time::Duration;

use dogwatch::testing::{Server, World};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::world::{PATIENCE, code, map};

const LAB: &str = "/apis/lab.dogwatch.dev/v1";

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn make(client: Client, name: &str) -> ConfigMap {
    maps(client).create(&PostParams::default(), &map(name)).await.unwrap()
}

async fn names(client: Client) -> Vec<String> {
    let listed = maps(client).list(&ListParams::default()).await.unwrap();
    listed.items.into_iter().filter_map(|map| map.metadata.name).collect()
}

async fn ask(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
}

async fn post(client: &Client, plural: &str, kind: &str, spec: Value) -> kube::Result<Value> {
    let object = json!({"apiVersion": "lab.dogwatch.dev/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    let request = http::Request::post(format!("{LAB}/{plural}")).header("content-type", "application/json");
    client.request(request.body(object.to_string().into_bytes()).unwrap()).await
}

/// A member of the status of each object in a collection of the lab.
async fn shown(client: &Client, plural: &str, member: &str) -> Vec<String> {
    let listed = ask(client, &format!("{LAB}/{plural}")).await.unwrap();
    let items = listed["items"].as_array().unwrap();
    items.iter().filter_map(|item| item["status"][member].as_str()).map(str::to_owned).collect()
}

fn refusing() -> Value {
    json!({"match": {"resources": ["configmaps"]}, "effect": {"error": {"code": 500}}})
}

#[tokio::test]
async fn wld_4_lab_1_the_lab_is_served_in_each_world() {
    let server = Server::start().await;
    let (fork, empty) = (server.fork().await, server.world(json!({})).await);
    let deeper = server.world(json!({"from": {"world": fork.name()}})).await;
    for world in [&fork, &empty, &deeper] {
        let client = world.client();
        let listed = ask(&client, LAB).await.unwrap();
        let resources = listed["resources"].as_array().unwrap();
        let plural: Vec<&str> = resources.iter().filter_map(|resource| resource["name"].as_str()).collect();
        let expected = ["changes", "clocks", "clocks/status", "faults", "faults/status", "requests", "settlements"];
        assert_eq!(plural, [&expected[..], &["watchers"]].concat());
        let document = ask(&client, "/openapi/v3/apis/lab.dogwatch.dev/v1").await.unwrap().to_string();
        assert!(document.contains("dev.dogwatch.lab.v1.Fault") && !document.contains("dev.dogwatch.lab.v1.World\""));
        assert_eq!(code(ask(&client, &format!("{LAB}/worlds")).await), 404, "worlds are in main");
        assert_eq!(code(post(&client, "worlds", "World", json!({})).await), 404);
        assert_eq!(code(post(&client, "checkpoints", "Checkpoint", json!({})).await), 404);
        let before = world.registry().cache().revision();
        world.fault("a", json!({"effect": {"error": {"code": 500}}})).await;
        assert_eq!(ask(&client, &format!("{LAB}/faults")).await.unwrap()["items"].as_array().unwrap().len(), 1);
        assert_eq!(world.registry().cache().revision(), before, "the lab does not move the revision");
    }
    let main = ask(&server.client(), &format!("{LAB}/faults")).await.unwrap();
    assert_eq!(main["items"].as_array().unwrap().len(), 0);
    assert_eq!(ask(&server.client(), &format!("{LAB}/worlds")).await.unwrap()["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn wld_4_flt_16_a_fault_of_a_world_hits_that_world_only_and_its_requests_say_so() {
    let server = Server::start().await;
    let (one, other) = (server.fork().await, server.fork().await);
    one.fault("same-name", refusing()).await;
    other.fault("same-name", json!({"match": {"resources": ["secrets"]}, "effect": {"error": {"code": 503}}})).await;
    assert_eq!(code(maps(one.client()).list(&ListParams::default()).await), 500);
    names(other.client()).await;
    names(server.client()).await;
    let requests = ask(&one.client(), &format!("{LAB}/requests?fieldSelector=code=500")).await.unwrap();
    assert_eq!(requests["items"][0]["status"]["faults"], json!(["same-name"]));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while ask(&one.client(), &format!("{LAB}/faults/same-name")).await.unwrap()["status"]["hits"] != 1 {
        assert!(tokio::time::Instant::now() < deadline, "the hit is not counted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ask(&other.client(), &format!("{LAB}/faults/same-name")).await.unwrap()["status"]["hits"], 0);
    one.remove_fault("same-name").await;
    names(one.client()).await;
}

#[tokio::test]
async fn wld_4_lab_5_a_fault_of_a_world_may_name_that_world_only() {
    let server = Server::start().await;
    let world = server.fork().await;
    let with = |worlds: Value| {
        let mut spec = refusing();
        spec["match"]["worlds"] = worlds;
        spec
    };
    let refused = post(&world.client(), "faults", "Fault", with(json!(["main"]))).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!((status.code, &*status.details.unwrap().causes[0].field), (422, "spec.match.worlds"));
    post(&world.client(), "faults", "Fault", with(json!([world.name()]))).await.unwrap();
    assert_eq!(code(maps(world.client()).list(&ListParams::default()).await), 500);
    let patch = json!({"spec": {"match": {"worlds": ["main"]}}}).to_string().into_bytes();
    let request =
        http::Request::patch(format!("{LAB}/faults/x")).header("content-type", "application/merge-patch+json");
    assert_eq!(code(world.client().request::<Value>(request.body(patch).unwrap()).await), 422);
}

#[tokio::test]
async fn wld_4_faults_of_main_hit_worlds_that_come_later_until_they_are_removed() {
    let server = Server::start().await;
    let mut spec = refusing();
    spec["match"]["worlds"] = json!(["world-*"]);
    server.fault("everywhere-else", spec).await;
    let world = server.fork().await;
    assert_eq!(code(maps(world.client()).list(&ListParams::default()).await), 500);
    names(server.client()).await;
    server.remove_fault("everywhere-else").await;
    names(world.client()).await;
    // Of several the first by name decides, whichever world it is in.
    let with = |code: u16| json!({"match": {"resources": ["configmaps"], "worlds": ["world-*"]}, "effect": {"error": {"code": code}}});
    server.fault("b", with(501)).await;
    world.fault("c", refusing()).await;
    assert_eq!(code(maps(world.client()).list(&ListParams::default()).await), 501);
    world.fault("a", json!({"match": {"resources": ["configmaps"]}, "effect": {"error": {"code": 502}}})).await;
    assert_eq!(code(maps(world.client()).list(&ListParams::default()).await), 502);
}

#[tokio::test]
async fn wld_4_flt_8_each_world_has_its_own_past() {
    let server = Server::start().await;
    make(server.client(), "a").await;
    let (one, other) = (server.fork().await, server.fork().await);
    let hold =
        json!({"match": {"resources": ["configmaps"], "worlds": [one.name()]}, "effect": {"stale": {"hold": true}}});
    server.fault("of-main", hold).await;
    other
        .fault("own", json!({"match": {"resources": ["configmaps"]}, "effect": {"stale": {"by": {"revisions": 1}}}}))
        .await;
    for client in [server.client(), one.client(), other.client()] {
        make(client.clone(), "b").await;
        make(client, "c").await;
    }
    assert_eq!(names(server.client()).await, ["a", "b", "c"]);
    assert_eq!(names(one.client()).await, ["a"], "as it was when the fault appeared");
    assert_eq!(names(other.client()).await, ["a", "b"]);
    server.remove_fault("of-main").await;
    assert_eq!(names(one.client()).await, ["a", "b", "c"]);
    let late = json!({"match": {"resources": ["configmaps"]}, "effect": {"stale": {"by": {"duration": "1h"}}}});
    one.fault("late", late).await;
    assert_eq!(names(one.client()).await, ["a"], "an hour ago nothing of this world was written");
    assert_eq!(names(server.client()).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn wld_4_clk_1_the_clock_of_a_world_moves_that_world_only() {
    let server = Server::start().await;
    let (one, other) = (server.fork().await, server.fork().await);
    let clock = one.clock();
    clock.stop().await;
    let before = clock.now().await;
    clock.advance(Duration::from_secs(2 * 3600)).await;
    assert_eq!(clock.now().await.as_second(), before.as_second() + 2 * 3600);
    let written = |map: ConfigMap| map.metadata.creation_timestamp.unwrap().0.as_second();
    assert_eq!(written(make(one.client(), "a").await), before.as_second() + 2 * 3600);
    for client in [other.client(), server.client()] {
        assert!(written(make(client, "a").await) < before.as_second() + 3600);
    }
    for clock in [other.clock(), server.clock()] {
        assert!(clock.now().await.as_second() < before.as_second() + 3600);
    }
    assert_eq!(ask(&other.client(), &format!("{LAB}/clocks/world")).await.unwrap()["spec"]["mode"], "Real");
}

#[tokio::test]
async fn wld_4_clk_1_controllers_of_a_world_follow_its_clock() {
    let server = Server::start().await;
    let world = server.world(json!({"controllers": true})).await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "each-minute"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}},
    });
    let request = http::Request::post("/apis/batch/v1/namespaces/default/cronjobs");
    let request = request.header("content-type", "application/json").body(job.to_string().into_bytes()).unwrap();
    world.client().request::<Value>(request).await.unwrap();
    let clock = world.clock();
    clock.stop().await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let jobs = ask(&world.client(), "/apis/batch/v1/namespaces/default/jobs").await.unwrap();
        if !jobs["items"].as_array().unwrap().is_empty() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no job was made");
        clock.advance(Duration::from_secs(60)).await;
    }
}

#[tokio::test]
async fn wld_4_see_1_see_2_see_3_what_a_lab_shows_is_of_its_world() {
    let server = Server::start().await;
    let (one, other) = (server.fork().await, server.fork().await);
    make(server.client(), "of-main").await;
    let made = make(one.client(), "of-one").await;
    make(other.client(), "of-other").await;
    for (client, name) in [(server.client(), "of-main"), (one.client(), "of-one"), (other.client(), "of-other")] {
        let maps: Vec<String> =
            shown(&client, "changes", "name").await.into_iter().filter(|name| name.starts_with("of-")).collect();
        assert_eq!(maps, [name], "changes");
        let asked: Vec<String> =
            shown(&client, "requests", "verb").await.into_iter().filter(|verb| verb == "create").collect();
        assert_eq!(asked.len(), 1, "requests of {name}");
    }
    assert_eq!(one.timeline("ConfigMap", "of-one").await.0.len(), 1);
    assert_eq!(other.timeline("ConfigMap", "of-one").await.0.len(), 0);

    let revision = made.metadata.resource_version.unwrap();
    let params = WatchParams::default().disable_bookmarks();
    let mut events = maps(one.client()).watch(&params, &revision).await.unwrap().boxed();
    make(one.client(), "next").await;
    let event = tokio::time::timeout(PATIENCE, events.next()).await.unwrap();
    assert!(matches!(event, Some(Ok(WatchEvent::Added(_)))), "{event:?}");
    let watching = |resources: &[String]| resources.iter().any(|resource| resource == "configmaps");
    assert!(watching(&shown(&one.client(), "watchers", "resource").await));
    assert!(!watching(&shown(&other.client(), "watchers", "resource").await));
    assert!(!watching(&shown(&server.client(), "watchers", "resource").await));
    let watchers = ask(&one.client(), &format!("{LAB}/watchers")).await.unwrap();
    let name = watchers["items"][0]["metadata"]["name"].as_str().unwrap();
    let request = http::Request::delete(format!("{LAB}/watchers/{name}")).body(Vec::new()).unwrap();
    one.client().request::<Value>(request).await.unwrap();
    assert!(tokio::time::timeout(PATIENCE, events.next()).await.unwrap().is_none(), "the watch is cut");
}

#[tokio::test]
async fn wld_4_set_1_a_settlement_waits_for_its_world_only() {
    let server = Server::start().await;
    make(server.client(), "a").await;
    let (busy, quiet) = (server.fork().await, server.fork().await);
    let (maps, mut turn) = (maps(busy.client()), 0);
    let writing = tokio::spawn(async move {
        loop {
            turn += 1;
            let patch = json!({"data": {"x": turn.to_string()}});
            maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let status = busy.settlement(json!({"quiet": "10s", "timeout": "500ms"})).await;
        assert_eq!(status["settled"], false, "{status}");
        if status["busy"]["writers"][0]["name"] == "a" {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
    }
    assert_eq!(quiet.settle().await.changes, 0);
    server.settle().await;
    quiet.fault("never", json!({"effect": {"error": {"code": 500}}, "when": {"skip": 9}, "expect": {"hits": 1}})).await;
    let unmet = |status: Value| status["unmet"].clone();
    assert_eq!(unmet(quiet.settlement(json!({})).await), json!(["fault never expects 1 hits and has 0"]));
    assert_eq!(unmet(server.settlement(json!({})).await), Value::Null);
    writing.abort();
}

#[tokio::test]
async fn wld_5_the_lab_of_a_deleted_world_is_freed_and_its_watches_end() {
    let server = Server::start().await;
    let mut caches = Vec::new();
    let world: World = server.fork().await;
    let path = format!("/worlds/{}{LAB}/faults?watch=1", world.name());
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let mut lines = server.client().request_events::<Value>(request).await.unwrap().boxed();
    drop(world);
    let end = tokio::time::timeout(PATIENCE, lines.next()).await.expect("the watch ends");
    assert!(end.is_none(), "without an error: {end:?}");
    for _ in 0..50 {
        let world = server.fork().await;
        world.fault("a", refusing()).await;
        world.clock().stop().await;
        world.settlement(json!({"quiet": "0s"})).await;
        caches.push(std::sync::Arc::downgrade(world.registry().cache()));
    }
    let all_gone = async {
        // The lab of a world holds its objects.
        while caches.iter().any(|cache| cache.strong_count() > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_gone).await.expect("nothing holds a world that was deleted");
}

#[tokio::test]
async fn kit_1_a_server_and_a_world_have_all_powers() {
    let server = Server::start().await;
    let world = server.fork().await;
    make(world.client(), "a").await;
    let checkpoint = world.checkpoint().await;
    world
        .fault(
            "once",
            json!({"match": {"verbs": ["create"]}, "when": {"times": 1}, "effect": {"error": {"code": 500}}}),
        )
        .await;
    assert_eq!(code(maps(world.client()).create(&PostParams::default(), &map("b")).await), 500);
    make(world.client(), "b").await;
    world.rewind(&checkpoint).await;
    assert_eq!(names(world.client()).await, ["a"]);
    let settled = world.settle().await;
    assert!(settled.revision > checkpoint.revision);
    let line = world.timeline("ConfigMap", "b").await;
    assert_eq!(line.0.iter().map(|step| step.kind.as_str()).collect::<Vec<_>>(), ["ADDED", "DELETED"]);
    assert!(line.to_string().contains("DELETED ConfigMap/b"), "{line}");
    let clock = server.clock();
    clock.stop().await;
    assert_eq!(clock.now().await, clock.now().await);
    clock.scale(60.0).await;
    server.settle().await;
    assert!(server.timeline("ConfigMap", "a").await.0.is_empty());
}
