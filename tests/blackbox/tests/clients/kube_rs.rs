//! kube-rs: `Api`, `watcher` in both modes, `reflector`.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use blackbox::Server;
use blackbox::process::DEADLINE;
use blackbox::writer::{client, pod};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

async fn pods(server: &Server) -> Api<Pod> {
    Api::namespaced(client(server).await, "default")
}

async fn create(pods: &Api<Pod>, name: &str) -> Pod {
    pods.create(&PostParams::default(), &pod(name)).await.expect("the pod is created")
}

async fn label(pods: &Api<Pod>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": value}}}));
    pods.patch(name, &PatchParams::default(), &patch).await.expect("the pod is labelled");
}

/// The next thing of a stream, as `word name`.
async fn next(stream: &mut (impl Stream<Item = watcher::Result<Event<Pod>>> + Unpin)) -> String {
    let event = timeout(DEADLINE, stream.try_next()).await.expect("an event comes").expect("no error");
    match event.expect("the stream goes on") {
        Event::Init => "init".into(),
        Event::InitApply(pod) => format!("there {}", pod.name_any()),
        Event::InitDone => "done".into(),
        Event::Apply(pod) => format!("apply {}", pod.name_any()),
        Event::Delete(pod) => format!("delete {}", pod.name_any()),
    }
}

#[tokio::test]
async fn api_walks_an_objects_life() {
    let server = Server::start();
    let pods = pods(&server).await;
    let created = create(&pods, "one").await;
    assert!(created.uid().is_some() && created.resource_version().is_some());
    let twice = pods.create(&PostParams::default(), &pod("one")).await.expect_err("it is there already");
    assert!(matches!(twice, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists"));
    label(&pods, "one", "web").await;
    create(&pods, "two").await;
    let list = pods.list(&ListParams::default().labels("app=web")).await.expect("a list");
    assert_eq!(list.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["one"]);

    let mut stale = created.clone();
    stale.metadata.labels = Some([("app".into(), "db".into())].into());
    let conflict = pods.replace("one", &PostParams::default(), &stale).await.expect_err("it was changed since");
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"));

    let patch: Patch<()> = Patch::Json(
        serde_json::from_value(json!([
            {"op": "replace", "path": "/metadata/labels/app", "value": "db"}
        ]))
        .expect("a JSON patch"),
    );
    let patched = pods.patch("one", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(patched.labels()["app"], "db");
    assert_eq!(pods.list_metadata(&ListParams::default()).await.expect("metadata").items.len(), 2);
    pods.delete("one", &DeleteParams::default()).await.expect("deleted");
    assert!(pods.get_opt("one").await.expect("an answer").is_none());
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    assert!(pods.list(&ListParams::default()).await.expect("a list").items.is_empty());
}

#[tokio::test]
async fn api_pages_and_watches() {
    let server = Server::start();
    let pods = pods(&server).await;
    for name in ["a", "b", "c"] {
        create(&pods, name).await;
    }
    let first = pods.list(&ListParams::default().limit(2)).await.expect("a page");
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (2, Some(1)));
    let token = first.metadata.continue_.expect("there is more");
    create(&pods, "d").await;
    let second = pods.list(&ListParams::default().limit(2).continue_token(&token)).await.expect("a page");
    assert_eq!(second.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c"], "pages show one moment");

    let at = first.metadata.resource_version.expect("a list has a revision");
    let mut stream = pin!(pods.watch(&WatchParams::default(), &at).await.expect("a watch"));
    let event = timeout(DEADLINE, stream.try_next()).await.expect("an event comes").expect("no error");
    assert!(matches!(event, Some(WatchEvent::Added(pod)) if pod.name_any() == "d"));
}

#[tokio::test]
async fn watcher_lists_then_watches() {
    watcher_follows(watcher::Config::default()).await;
}

#[tokio::test]
async fn watcher_streams_its_list() {
    watcher_follows(watcher::Config::default().streaming_lists()).await;
}

async fn watcher_follows(config: watcher::Config) {
    let server = Server::start();
    let pods = pods(&server).await;
    create(&pods, "one").await;
    create(&pods, "two").await;
    let mut stream = pin!(watch(pods.clone(), config));
    for wanted in ["init", "there one", "there two", "done"] {
        assert_eq!(next(&mut stream).await, wanted);
    }
    // The watch of the listing mode opens with the next poll; what happens until then it must not miss.
    create(&pods, "three").await;
    assert_eq!(next(&mut stream).await, "apply three");
    label(&pods, "one", "web").await;
    assert_eq!(next(&mut stream).await, "apply one");
    pods.delete("two", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(next(&mut stream).await, "apply two", "a pod is marked before it goes");
    assert_eq!(next(&mut stream).await, "delete two");
}

#[tokio::test]
async fn watcher_with_a_selector_and_of_the_whole_cluster() {
    let server = Server::start();
    let client = client(&server).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    create(&pods, "one").await;
    let config = watcher::Config::default().labels("app=web");
    let mut stream = pin!(watch(Api::<Pod>::all(client), config));
    assert_eq!(next(&mut stream).await, "init");
    assert_eq!(next(&mut stream).await, "done");
    label(&pods, "one", "web").await;
    assert_eq!(next(&mut stream).await, "apply one");
    label(&pods, "one", "db").await;
    assert_eq!(next(&mut stream).await, "delete one");
}

#[tokio::test]
async fn reflector_keeps_a_copy() {
    let server = Server::start();
    let pods = pods(&server).await;
    create(&pods, "one").await;
    let (reader, writer) = reflector::store();
    let stream = watch(pods.clone(), watcher::Config::default()).default_backoff().reflect(writer);
    let driving = tokio::spawn(stream.for_each(|_| ready(())));
    timeout(DEADLINE, reader.wait_until_ready()).await.expect("it is filled").expect("the writer lives");
    assert_eq!(reader.len(), 1);
    create(&pods, "two").await;
    label(&pods, "one", "web").await;
    pods.delete("two", &DeleteParams::default()).await.expect("deleted");
    let one = ObjectRef::new("one").within("default");
    let caught_up = async {
        while reader.len() != 1 || reader.get(&one).is_none_or(|pod| pod.labels().is_empty()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, caught_up).await.expect("the copy catches up");
    driving.abort();
}

#[tokio::test]
async fn client_discovers_kinds_and_the_version() {
    let server = Server::start();
    let client: Client = client(&server).await;
    let version = client.apiserver_version().await.expect("a version");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    let discovered = kube::discovery::Discovery::new(client.clone()).run().await.expect("discovery");
    assert!(discovered.has_group("apps"));
    let namespaces: Api<Namespace> = Api::all(client);
    assert!(namespaces.get_opt("default").await.expect("an answer").is_some());
}
