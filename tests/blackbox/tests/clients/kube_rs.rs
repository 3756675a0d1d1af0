//! kube-rs: `Api`, `watcher` in both modes, `reflector`.

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use blackbox::Server;
use blackbox::process::DEADLINE;
use blackbox::writer::{client, pod};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::RwLock;
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

/// The next event of a stream, as `word name`.
async fn next(stream: &mut (impl Stream<Item = watcher::Result<Event<Pod>>> + Unpin)) -> String {
    let event = timeout(DEADLINE, stream.try_next()).await.expect("an event in time").expect("no error");
    match event.expect("the stream is open") {
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
    assert!(pods.get_opt("one").await.expect("a response").is_none());
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    assert!(pods.list(&ListParams::default()).await.expect("a list").items.is_empty());
}

fn images(deployment: &Deployment) -> Vec<String> {
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).expect("a pod template");
    spec.containers.iter().map(|container| container.image.clone().unwrap_or_default()).collect()
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref().and_then(|spec| spec.replicas)
}

#[tokio::test]
async fn api_applies_and_patches() {
    let server = Server::start();
    let deployments: Api<Deployment> = Api::namespaced(client(&server).await, "default");
    let wanted =
        |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let template =
        |containers: Value| json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let both = json!([{"name": "app", "image": "app"}, {"name": "side", "image": "side"}]);
    let selector = json!({"matchLabels": {"app": "web"}});
    let whole = wanted(json!({"replicas": 2, "selector": selector, "template": template(both)}));
    let owner = PatchParams::apply("owner");
    let applied = deployments.patch("web", &owner, &Patch::Apply(&whole)).await.expect("apply creates");
    assert_eq!((replicas(&applied), images(&applied)), (Some(2), vec!["app".into(), "side".into()]));
    let again = deployments.patch("web", &owner, &Patch::Apply(&whole)).await.expect("applied again");
    assert_eq!(again.resource_version(), applied.resource_version(), "the same again writes nothing");

    let more = wanted(json!({"replicas": 5}));
    let scaler = PatchParams::apply("scaler");
    let conflict = deployments.patch("web", &scaler, &Patch::Apply(&more)).await.expect_err("it is the owner's");
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"));
    let forced = deployments.patch("web", &scaler.force(), &Patch::Apply(&more)).await.expect("forced");
    assert_eq!(replicas(&forced), Some(5));
    let one = json!([{"name": "app", "image": "app"}]);
    let less = wanted(json!({"selector": selector, "template": template(one)}));
    let applied = deployments.patch("web", &owner, &Patch::Apply(&less)).await.expect("applied with less");
    assert_eq!((replicas(&applied), images(&applied)), (Some(5), vec!["app".into()]), "only what it owned goes");

    let added = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "newer"}]}}}});
    let none = PatchParams::default();
    let strategic = deployments.patch("web", &none, &Patch::Strategic(&added)).await.expect("a strategic patch");
    assert_eq!((replicas(&strategic), images(&strategic)), (Some(5), vec!["newer".into()]));
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    let scale = deployments.patch_scale("web", &none, &scale).await.expect("scaled");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(1));
    let status = Patch::Merge(json!({"status": {"replicas": 3}, "spec": {"replicas": 9}}));
    let reported = deployments.patch_status("web", &none, &status).await.expect("the status is written");
    assert_eq!(reported.status.as_ref().and_then(|status| status.replicas), Some(3));
    assert_eq!(replicas(&reported), Some(1), "the status alone is written");
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
    let event = timeout(DEADLINE, stream.try_next()).await.expect("an event in time").expect("no error");
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
    // The watch of the listing mode opens with the next poll; it must not miss changes before that.
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
    timeout(DEADLINE, reader.wait_until_ready()).await.expect("it is filled").expect("the writer runs");
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
    assert!(namespaces.get_opt("default").await.expect("a response").is_some());
}

/// The names of all config maps with their versions.
fn versions<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> BTreeMap<String, (Option<String>, Option<String>)> {
    maps.into_iter().map(|map| (map.name_any(), (map.uid(), map.resource_version()))).collect()
}

/// After each of many rewinds, and while others write, a reflector has what the server lists.
async fn reflector_over_rewinds(mode: watcher::Config) {
    const REWINDS: usize = 100;
    const PREPARED: usize = 20;
    let server = Server::start_with(&["--memory", "--lab"]);
    let client = client(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = |name: String| ConfigMap {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    for number in 0..PREPARED {
        maps.create(&PostParams::default(), &map(format!("m{number}"))).await.expect("it is created");
    }
    let post = async |path: &str, body: Value| {
        let path = format!("/apis/lab.dogwatch.dev/v1/checkpoints{path}");
        let request = http::Request::post(path).header("content-type", "application/json");
        client.request::<Value>(request.body(body.to_string().into_bytes()).expect("a request")).await
    };
    let kind = ("lab.dogwatch.dev/v1", "Checkpoint");
    let prepared =
        json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": "prepared"}, "spec": {"world": "main"}});
    post("", prepared).await.expect("a checkpoint");

    let (store, writer) = reflector::store();
    let following = reflector::reflector(writer, watch(maps.clone(), mode)).default_backoff();
    let following = tokio::spawn(following.for_each(|_| ready(())));
    timeout(DEADLINE, store.wait_until_ready()).await.expect("in time").expect("a writer");
    // Held by a writer for each of its turns, and by the comparison for as long as it takes.
    let writing = Arc::new(RwLock::new(()));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (maps, writing) = (maps.clone(), Arc::clone(&writing));
            tokio::spawn(async move {
                for turn in 0_usize.. {
                    let _writing = writing.read().await;
                    // A rewind may be faster than each of these.
                    let _ = maps.create(&PostParams::default(), &map(format!("w{writer}-{turn}"))).await;
                    let patch = Patch::Merge(json!({"data": {"v": turn.to_string()}}));
                    let _ = maps.patch(&format!("m{}", turn % PREPARED), &PatchParams::default(), &patch).await;
                    let _ = maps.delete(&format!("m{}", (turn + 7) % PREPARED), &DeleteParams::default()).await;
                }
            })
        })
        .collect();
    for turn in 0..REWINDS {
        post("/prepared/rewind", json!({})).await.expect("a rewind");
        let _pause = writing.write().await;
        let listed = versions(&maps.list(&ListParams::default()).await.expect("a list").items);
        let equal = async {
            while versions(store.state().iter().map(|map| &**map)) != listed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(DEADLINE, equal).await.unwrap_or_else(|_| panic!("the store is wrong after rewind {turn}"));
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
    following.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wld_7_a_reflector_that_lists_and_watches_is_never_wrong_after_a_rewind() {
    reflector_over_rewinds(watcher::Config::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wld_7_a_reflector_that_streams_its_list_is_never_wrong_after_a_rewind() {
    reflector_over_rewinds(watcher::Config::default().streaming_lists()).await;
}
