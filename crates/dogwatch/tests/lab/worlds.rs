//! Worlds beside a server: made, used, and gone again.

use std::sync::Arc;
use std::time::Duration;

use dogwatch::testing::{Server, World};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use store::embedded::{EmbeddedOptions, EmbeddedStore};

use crate::world::{PATIENCE, code, map};

fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn worlds(server: &Server) -> Api<DynamicObject> {
    Api::all_with(server.client(), &resource("World", "worlds"))
}

pub(crate) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "lab.dogwatch.dev".into(),
        version: "v1".into(),
        api_version: "lab.dogwatch.dev/v1".into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

fn world(name: &str, spec: Value) -> DynamicObject {
    let mut world = DynamicObject::new(name, &resource("World", "worlds"));
    world.data = json!({"spec": spec});
    world
}

async fn make(api: &Api<ConfigMap>, name: &str) -> ConfigMap {
    api.create(&PostParams::default(), &map(name)).await.unwrap()
}

async fn names(api: &Api<ConfigMap>) -> Vec<String> {
    let listed = api.list(&ListParams::default()).await.unwrap();
    listed.items.into_iter().filter_map(|map| map.metadata.name).collect()
}

async fn ask(client: &kube::Client, path: &str) -> kube::Result<Value> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn wld_1_a_world_can_be_used_when_its_creation_is_answered() {
    let server = Server::start().await;
    make(&maps(server.client()), "shared").await;
    let made = worlds(&server).create(&PostParams::default(), &world("a", json!({"from": {}}))).await.unwrap();
    assert_eq!(made.data["spec"]["from"]["world"], "main");
    assert_eq!(made.data["status"]["conditions"][0], json!({"type": "Ready", "status": "True"}));
    assert_eq!((&made.data["status"]["url"], &made.data["status"]["from"]), (&json!("/worlds/a"), &json!("main")));
    let listed = ask(&server.client(), "/worlds/a/api/v1/namespaces/default/configmaps").await.unwrap();
    assert_eq!(listed["items"][0]["metadata"]["name"], "shared");
    assert_eq!(listed["metadata"]["resourceVersion"], made.data["status"]["revision"]);
    let version = ask(&server.client(), "/worlds/a/version").await.unwrap();
    assert_eq!(version, ask(&server.client(), "/version").await.unwrap());
    let lab = ask(&server.client(), "/worlds/a/apis/lab.dogwatch.dev/v1/worlds").await;
    assert_eq!(code(lab), 404, "worlds are at the server's own address");
}

#[tokio::test]
async fn wld_1_a_world_made_from_nothing_has_what_every_cluster_has() {
    let server = Server::start().await;
    make(&maps(server.client()), "elsewhere").await;
    let empty = server.world(json!({})).await;
    assert_eq!(names(&maps(empty.client())).await, Vec::<String>::new());
    let namespaces = ask(&empty.client(), "/api/v1/namespaces").await.unwrap();
    assert_eq!(namespaces["items"].as_array().unwrap().len(), 4);
    make(&maps(empty.client()), "own").await;
    let other = server.world(json!({})).await;
    assert_eq!(names(&maps(other.client())).await, Vec::<String>::new(), "each one begins anew");
}

#[tokio::test]
async fn wld_1_bad_worlds_are_refused_with_a_reason() {
    let server = Server::start().await;
    let refused = [
        ("a.b", json!({}), 422, "metadata.name"),
        ("main", json!({}), 422, "metadata.name"),
        ("a", json!({"from": {"world": "nowhere"}}), 422, "spec.from.world"),
        ("a", json!({"from": {"revision": 1_000_000}}), 422, "spec.from.revision"),
        ("a", json!({"from": {"revision": "soon"}}), 422, "spec.from.revision"),
        ("a", json!({"controllers": "yes"}), 422, "spec.controllers"),
    ];
    for (name, spec, code, field) in refused {
        let answer = worlds(&server).create(&PostParams::default(), &world(name, spec.clone())).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{name} {spec} was accepted") };
        assert_eq!(status.code, code, "{name} {spec}: {status:?}");
        let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
        assert!(causes.iter().any(|cause| cause.field == field), "{name} {spec}: {status:?}");
    }
    assert!(worlds(&server).list(&ListParams::default()).await.unwrap().items.is_empty(), "nothing is left of them");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    worlds(&server).create(&dry, &world("a", json!({}))).await.unwrap();
    assert!(ask(&server.client(), "/worlds/a/version").await.is_err());
}

#[tokio::test]
async fn wld_2_worlds_share_objects_until_one_of_them_writes() {
    let server = Server::start().await;
    make(&maps(server.client()), "a").await;
    let world = server.fork().await;
    let item = |registry: &Arc<registry::Registry>| {
        let collection = registry.cache().collection("core/configmaps");
        collection.get(&collection.key(Some("default"), "a").unwrap()).unwrap()
    };
    assert!(Arc::ptr_eq(&item(server.registry()), &item(world.registry())));
}

#[tokio::test]
async fn wld_3_a_watch_of_main_resumes_in_the_fork() {
    let server = Server::start().await;
    let seen = make(&maps(server.client()), "a").await.metadata.resource_version.unwrap();
    make(&maps(server.client()), "b").await;
    let world = server.fork().await;
    make(&maps(server.client()), "only-in-main").await;
    make(&maps(world.client()), "c").await;
    let mut watch = maps(world.client()).watch(&WatchParams::default(), &seen).await.unwrap().boxed();
    let mut added = Vec::new();
    while added.len() < 2 {
        match tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap() {
            WatchEvent::Added(map) => added.extend(map.metadata.name),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(added, ["b", "c"], "what main did before the fork, then what the fork did");
}

#[tokio::test]
async fn wld_3_a_world_can_be_forked_from_the_past_and_from_another_world() {
    let server = Server::start().await;
    let first = make(&maps(server.client()), "a").await.metadata.resource_version.unwrap();
    make(&maps(server.client()), "b").await;
    let past = server.world(json!({"from": {"world": "main", "revision": first}})).await;
    assert_eq!(names(&maps(past.client())).await, ["a"]);
    make(&maps(past.client()), "c").await;
    let further = server.world(json!({"from": {"world": past.name()}})).await;
    assert_eq!(names(&maps(further.client())).await, ["a", "c"]);
    server.registry().store().compact(server.registry().cache().revision()).await.unwrap();
    let lost = world("lost", json!({"from": {"revision": first}}));
    let Err(kube::Error::Api(status)) = worlds(&server).create(&PostParams::default(), &lost).await else {
        panic!("history was not lost")
    };
    assert_eq!(status.code, 410);
    assert!(status.message.contains("begins at revision"), "{}", status.message);
}

#[tokio::test]
async fn wld_4_writes_and_watches_of_one_world_do_not_show_in_another() {
    let server = Server::start().await;
    let (one, other) = (server.fork().await, server.fork().await);
    let start = server.registry().cache().revision();
    let mut watch = maps(other.client()).watch(&WatchParams::default(), &start.to_string()).await.unwrap().boxed();
    make(&maps(one.client()), "a").await;
    assert_eq!(names(&maps(one.client())).await, ["a"]);
    assert!(names(&maps(other.client())).await.is_empty() && names(&maps(server.client())).await.is_empty());
    make(&maps(other.client()), "b").await;
    match tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap() {
        WatchEvent::Added(map) => assert_eq!(map.metadata.name.as_deref(), Some("b"), "the first event is its own"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn wld_4_a_fault_hits_the_worlds_that_it_names() {
    let server = Server::start().await;
    let (one, other) = (server.fork().await, server.fork().await);
    one.fault("one", json!({"match": {"resources": ["configmaps"]}, "effect": {"error": {"code": 500}}})).await;
    assert_eq!(code(maps(one.client()).list(&ListParams::default()).await), 500);
    names(&maps(other.client())).await;
    names(&maps(server.client())).await;
    server.fault("main", json!({"match": {"resources": ["configmaps"]}, "effect": {"error": {"code": 503}}})).await;
    assert_eq!(code(maps(server.client()).list(&ListParams::default()).await), 503);
    names(&maps(other.client())).await;
}

#[tokio::test]
async fn wld_4_definitions_are_shared_and_then_go_their_own_way() {
    let server = Server::start().await;
    let definition = |plural: &str, kind: &str| -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }))
        .unwrap()
    };
    let definitions = |client| Api::<CustomResourceDefinition>::all(client);
    definitions(server.client()).create(&PostParams::default(), &definition("cars", "Car")).await.unwrap();
    let served = async |client: kube::Client, plural: &str| {
        ask(&client, &format!("/apis/example.com/v1/{plural}")).await.is_ok()
    };
    while !served(server.client(), "cars").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let world = server.fork().await;
    assert!(served(world.client(), "cars").await, "at once, without another installation");
    definitions(world.client()).create(&PostParams::default(), &definition("boats", "Boat")).await.unwrap();
    while !served(world.client(), "boats").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!served(server.client(), "boats").await);
    definitions(world.client()).delete("cars.example.com", &DeleteParams::default()).await.unwrap();
    while served(world.client(), "cars").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(served(server.client(), "cars").await);
}

#[tokio::test]
async fn wld_4_roles_of_a_world_decide_in_that_world() {
    let server = Server::start().await;
    let world = server.fork().await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let request = http::Request::post(path).header("content-type", "application/json");
    let made: Value = world.client().request(request.body(binding.to_string().into_bytes()).unwrap()).await.unwrap();
    assert_eq!(made["metadata"]["name"], "alice");
    names(&maps(world.client_as("alice", &[]))).await;
    assert_eq!(code(maps(server.client_as("alice", &[])).list(&ListParams::default()).await), 403);
}

#[tokio::test]
async fn wld_4_tokens_that_a_world_issues_are_good_in_that_world_only() {
    let server = Server::start().await;
    let main = server.client();
    let send = |client: kube::Client, path: &'static str, body: Value| async move {
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    send(main.clone(), accounts, json!({"metadata": {"name": "robot"}})).await;
    let world = server.fork().await;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = |client: kube::Client| {
        let asked = asked.clone();
        async move {
            let issued = send(client, "/api/v1/namespaces/default/serviceaccounts/robot/token", asked).await;
            issued["status"]["token"].as_str().unwrap().to_owned()
        }
    };
    let is_good = |client: kube::Client, token: String| async move {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = send(client, "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
        answer["status"]["authenticated"] == json!(true)
    };
    let of_main = token(main.clone()).await;
    let of_world = token(world.client()).await;
    assert!(is_good(main.clone(), of_main.clone()).await);
    assert!(is_good(world.client(), of_main).await, "the same credentials are good in a fork");
    assert!(is_good(world.client(), of_world.clone()).await);
    assert!(!is_good(main, of_world).await, "who may do everything in a fork may not be others in its origin");
}

#[tokio::test]
async fn wld_5_deleting_a_world_ends_its_watches_cleanly() {
    let server = Server::start().await;
    let made = worlds(&server).create(&PostParams::default(), &world("a", json!({"from": {}}))).await.unwrap();
    let path = format!(
        "/worlds/a/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={}",
        made.data["status"]["revision"].as_str().unwrap()
    );
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let mut lines = server.client().request_events::<ConfigMap>(request).await.unwrap().boxed();
    worlds(&server).delete("a", &DeleteParams::default()).await.unwrap();
    let end = tokio::time::timeout(PATIENCE, lines.next()).await.expect("the watch ends");
    assert!(end.is_none(), "without an error: {end:?}");
    assert_eq!(code(ask(&server.client(), "/worlds/a/api/v1/namespaces").await), 404);
    worlds(&server).create(&PostParams::default(), &world("a", json!({"from": {}}))).await.unwrap();
    ask(&server.client(), "/worlds/a/api/v1/namespaces").await.expect("its name can be used again");
}

#[tokio::test]
async fn wld_5_the_memory_of_1000_deleted_worlds_is_freed() {
    let server = Server::start().await;
    make(&maps(server.client()), "a").await;
    let mut registries = Vec::new();
    for _ in 0..1000 {
        let world: World = server.fork().await;
        make(&maps(world.client()), "b").await;
        registries.push(Arc::downgrade(world.registry()));
    }
    let all_gone = async {
        while registries.iter().any(|registry| registry.strong_count() > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_gone).await.expect("nothing holds a world that was deleted");
    assert!(worlds(&server).list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn wld_5_a_main_on_disk_is_forked_and_rewound_too() {
    let dir = tempfile::tempdir().unwrap();
    let opened = EmbeddedStore::open(EmbeddedOptions::new(dir.path())).unwrap();
    let server = Server::start_on(Arc::new(opened)).await;
    let first = make(&maps(server.client()), "a").await;
    let checkpoint = server.checkpoint().await;
    make(&maps(server.client()), "b").await;
    let past = server.world(json!({"from": {"revision": checkpoint.revision}})).await;
    let now = server.fork().await;
    assert_eq!((names(&maps(past.client())).await.len(), names(&maps(now.client())).await.len()), (1, 2));
    maps(server.client()).delete("a", &DeleteParams::default()).await.unwrap();
    server.rewind(&checkpoint).await;
    assert_eq!(names(&maps(server.client())).await, ["a"]);
    assert_eq!(maps(server.client()).get("a").await.unwrap().metadata.uid, first.metadata.uid);
    assert_eq!(names(&maps(now.client())).await, ["a", "b"], "a world does not see what is done to its origin");
    server.stop().await;
}

#[tokio::test]
async fn wld_9_a_server_is_prepared_once_and_forked_for_each_test() {
    let server = Server::start().await;
    make(&maps(server.client()), "prepared").await;
    for _ in 0..3 {
        let world = server.fork().await;
        let checkpoint = world.checkpoint().await;
        maps(world.client()).delete("prepared", &DeleteParams::default()).await.unwrap();
        world.rewind(&checkpoint).await;
        assert_eq!(names(&maps(world.client())).await, ["prepared"]);
    }
}
