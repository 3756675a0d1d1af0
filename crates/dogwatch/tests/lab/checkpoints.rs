//! Checkpoints, and the way back to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::informer::{InformerConfig, SharedInformer};
use client::list_watch::ApiListWatch;
use dogwatch::testing::{Server, Settings};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{PATIENCE, map};
use crate::worlds::resource;

fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

fn checkpoints(server: &Server) -> Api<DynamicObject> {
    Api::all_with(server.client(), &resource("Checkpoint", "checkpoints"))
}

fn checkpoint(name: &str, spec: Value) -> DynamicObject {
    let mut checkpoint = DynamicObject::new(name, &resource("Checkpoint", "checkpoints"));
    checkpoint.data = json!({"spec": spec});
    checkpoint
}

async fn rewind(server: &Server, name: &str) -> kube::Result<Value> {
    let path = format!("/apis/lab.dogwatch.dev/v1/checkpoints/{name}/rewind");
    let request = http::Request::post(path).header("content-type", "application/json");
    server.client().request(request.body(b"{}".to_vec()).unwrap()).await
}

async fn set(api: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = json!({"data": {"v": value}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn wld_7_a_rewind_brings_objects_back_by_new_revisions() {
    let server = Server::start().await;
    let api = maps(server.client());
    let kept = api.create(&PostParams::default(), &map("kept")).await.unwrap();
    let changed = api.create(&PostParams::default(), &map("changed")).await.unwrap();
    let removed = api.create(&PostParams::default(), &map("removed")).await.unwrap();
    let made = checkpoints(&server).create(&PostParams::default(), &checkpoint("c", json!({}))).await.unwrap();
    assert_eq!(made.data["status"]["revision"], json!(removed.metadata.resource_version));
    set(&api, "changed", "2").await;
    api.delete("removed", &DeleteParams::default()).await.unwrap();
    let last = api.create(&PostParams::default(), &map("new")).await.unwrap().metadata.resource_version.unwrap();
    let mut watch = api.watch(&WatchParams::default(), &last).await.unwrap().boxed();
    let rewound = rewind(&server, "c").await.unwrap();
    let counts = &rewound["status"]["lastRewind"];
    assert_eq!((&counts["deleted"], &counts["modified"], &counts["added"]), (&json!(1), &json!(1), &json!(1)));

    let mut events = Vec::new();
    while events.len() < 3 {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap();
        let (kind, map) = match event {
            WatchEvent::Added(map) => ("ADDED", map),
            WatchEvent::Modified(map) => ("MODIFIED", map),
            WatchEvent::Deleted(map) => ("DELETED", map),
            other => panic!("{other:?}"),
        };
        assert!(map.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok()) > last.parse().ok());
        events.push((kind, map.metadata.name.unwrap()));
    }
    let expected = [("DELETED", "new"), ("MODIFIED", "changed"), ("ADDED", "removed")];
    assert_eq!(events, expected.map(|(kind, name)| (kind, name.to_owned())));
    for before in [kept, changed, removed] {
        let now = api.get(before.metadata.name.as_deref().unwrap()).await.unwrap();
        assert_eq!(now.metadata.uid, before.metadata.uid);
        assert_eq!(now.metadata.creation_timestamp, before.metadata.creation_timestamp);
        assert_eq!(now.data, before.data);
    }
    let again = rewind(&server, "c").await.unwrap();
    assert_eq!(again["status"]["lastRewind"]["revision"], counts["revision"], "nothing to do makes no revision");
}

#[tokio::test]
async fn wld_6_a_checkpoint_may_be_of_the_past_and_of_any_world() {
    let server = Server::start().await;
    let world = server.fork().await;
    let api = maps(world.client());
    let first = api.create(&PostParams::default(), &map("a")).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &map("b")).await.unwrap();
    let spec = json!({"world": world.name(), "revision": first});
    checkpoints(&server).create(&PostParams::default(), &checkpoint("c", spec)).await.unwrap();
    maps(server.client()).create(&PostParams::default(), &map("main")).await.unwrap();
    rewind(&server, "c").await.unwrap();
    let names = |listed: kube::core::ObjectList<ConfigMap>| -> Vec<String> {
        listed.items.into_iter().filter_map(|map| map.metadata.name).collect()
    };
    assert_eq!(names(api.list(&ListParams::default()).await.unwrap()), ["a"]);
    assert_eq!(names(maps(server.client()).list(&ListParams::default()).await.unwrap()), ["main"]);
    drop(world);
    let gone = async {
        loop {
            match rewind(&server, "c").await {
                Err(kube::Error::Api(status)) => break status,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, gone).await.expect("the world is deleted");
    assert!(status.code == 409 && status.message.contains("its world is gone"), "{status:?}");
}

#[tokio::test]
async fn wld_6_bad_checkpoints_are_refused_with_a_reason() {
    let server = Server::start().await;
    let current = server.registry().cache().revision();
    server.registry().store().compact(current).await.unwrap();
    for (spec, code, text) in [
        (json!({"world": "nowhere"}), 422, "spec.world"),
        (json!({"revision": current.0 + 1000}), 422, "spec.revision"),
        (json!({"revision": 1}), 410, "begins at revision"),
    ] {
        let answer = checkpoints(&server).create(&PostParams::default(), &checkpoint("c", spec.clone())).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{spec} was accepted") };
        assert!(status.code == code && status.message.contains(text), "{spec}: {status:?}");
    }
    assert!(matches!(rewind(&server, "c").await, Err(kube::Error::Api(status)) if status.code == 404));
}

/// Informers and a watch stay right over many rewinds while others write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wld_7_informers_are_never_wrong_after_a_rewind() {
    const REWINDS: usize = 100;
    let server = Arc::new(Server::start().await);
    let world = Arc::new(server.fork().await);
    let api = maps(world.client());
    for number in 0..20 {
        api.create(&PostParams::default(), &map(&format!("m{number}"))).await.unwrap();
    }
    let checkpoint = world.checkpoint().await;

    let informer = SharedInformer::new(ApiListWatch::all::<ConfigMap>(world.client()), InformerConfig::default());
    let informing = CancellationToken::new();
    let running = tokio::spawn(informer.start(informing.clone()).expect("it was not started"));
    assert!(informer.wait_synced().await);
    let store = informer.store();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (api, stop) = (api.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("w{writer}-{number}");
                    // A rewind may be faster than each of these.
                    let _ = api.create(&PostParams::default(), &map(&name)).await;
                    let patch = json!({"data": {"v": number.to_string()}});
                    let _ =
                        api.patch(&format!("m{}", number % 20), &PatchParams::default(), &Patch::Merge(&patch)).await;
                    let _ = api.delete(&format!("m{}", (number + 7) % 20), &DeleteParams::default()).await;
                    number += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        })
        .collect();
    for _ in 0..REWINDS {
        world.rewind(&checkpoint).await;
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let versions = |items: Vec<ConfigMap>| -> BTreeMap<String, (Option<String>, Option<String>)> {
        items
            .into_iter()
            .map(|map| (map.metadata.name.unwrap_or_default(), (map.metadata.uid, map.metadata.resource_version)))
            .filter(|(name, _)| name != "kube-root-ca.crt")
            .collect()
    };
    // Once among the last writes, and once after a rewind that nothing follows.
    for round in 0..2 {
        let equal = async {
            loop {
                let listed = versions(api.list(&ListParams::default()).await.unwrap().items);
                let held = versions(store.snapshot().iter().map(|map| ConfigMap::clone(map)).collect());
                if listed == held {
                    break listed;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let listed = tokio::time::timeout(PATIENCE, equal).await.expect("the informer has what the server has");
        if round == 0 {
            world.rewind(&checkpoint).await;
        } else {
            assert_eq!(listed.len(), 20, "{listed:?}");
        }
    }
    informing.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wld_8_controllers_begin_again_after_a_rewind() {
    let server = Server::with_controllers(Settings { nodes: 1, ..Settings::default() }).await;
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let before = server.checkpoint().await;
    let wanted: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }))
    .unwrap();
    for round in 0..3 {
        deployments.create(&PostParams::default(), &wanted).await.unwrap();
        let available = async {
            loop {
                let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
                if status.available_replicas == Some(2) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, available).await.unwrap_or_else(|_| panic!("no pods run in round {round}"));
        server.rewind(&before).await;
        let pods: Api<Pod> = Api::default_namespaced(server.client());
        let empty = async {
            while !pods.list(&ListParams::default()).await.unwrap().items.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, empty).await.unwrap_or_else(|_| panic!("pods come back in round {round}"));
    }
}
