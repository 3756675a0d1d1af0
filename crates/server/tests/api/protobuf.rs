//! Requests, responses and watches in protobuf (01 §10, 02 §1.4).

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use machinery::GroupVersionKind;
use machinery::json::{Value, json};
use schema::facts::Types;
use schema::protobuf;

use crate::world::{Answer, PATIENCE, World};

const MEDIA: &str = "application/vnd.kubernetes.protobuf";
const LIST: &str = "/api/v1/namespaces/default/configmaps";
const ITEM: &str = "/api/v1/namespaces/default/configmaps/a";

fn ty(api_version: &str, kind: &str) -> schema::facts::Type {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Types::get().kind(&GroupVersionKind::new(group, version, kind)).unwrap()
}

/// An object as a client sends it.
fn sealed(object: &Value) -> Bytes {
    let text = |name: &str| object[name].as_str().unwrap();
    let message = protobuf::write(&ty(text("apiVersion"), text("kind")), object).unwrap();
    protobuf::envelope::seal(text("apiVersion"), text("kind"), &message).into()
}

/// An object as a client reads it: its kind, version and content.
fn opened(bytes: &[u8]) -> Value {
    let opened = protobuf::open(bytes).unwrap();
    let ty = ty(opened.api_version, opened.kind);
    let mut value = protobuf::read(&ty, opened.raw).unwrap();
    schema::decode::normalise(&ty, &mut value, None).unwrap();
    value["kind"] = json!(opened.kind);
    value["apiVersion"] = json!(opened.api_version);
    value
}

fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}})
}

async fn send(world: &World, method: &str, path: &str, body: Bytes) -> Answer {
    world.ask(true, method, path, &[("content-type", MEDIA), ("accept", MEDIA)], body).await
}

async fn read(world: &World, path: &str, accept: &str) -> Answer {
    world.get_with(path, &[("accept", accept)]).await
}

#[tokio::test]
async fn s02_1_4_a_life_in_protobuf() {
    let world = World::start().await;
    let created = send(&world, "POST", LIST, sealed(&config_map("a"))).await;
    assert_eq!((created.code, created.header("content-type")), (201, MEDIA));
    let mut object = opened(&created.body);
    assert_eq!(object, world.get(ITEM).await.json(), "the same object in both forms");
    assert_eq!(opened(&read(&world, ITEM, MEDIA).await.body), object);

    object["data"]["k"] = json!("w");
    let updated = send(&world, "PUT", ITEM, sealed(&object)).await;
    assert_eq!((updated.code, &opened(&updated.body)["data"]["k"]), (200, &json!("w")));
    let again = send(&world, "PUT", ITEM, sealed(&object)).await;
    assert_eq!((again.code, again.header("content-type")), (409, MEDIA));
    assert_eq!(opened(&again.body)["reason"], "Conflict");

    let patch = [("content-type", "application/merge-patch+json"), ("accept", MEDIA)];
    let patched = world.ask(true, "PATCH", ITEM, &patch, r#"{"data":{"k":"x"}}"#).await;
    assert_eq!(opened(&patched.body)["data"]["k"], "x");

    let options =
        |uid: &str| sealed(&json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}));
    let refused = send(&world, "DELETE", ITEM, options("other")).await;
    assert_eq!((refused.code, &opened(&refused.body)["kind"]), (409, &json!("Status")));
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let deleted = send(&world, "DELETE", ITEM, options(uid)).await;
    assert_eq!((deleted.code, &opened(&deleted.body)["status"]), (200, &json!("Success")));
    let missing = read(&world, ITEM, MEDIA).await;
    assert_eq!((missing.code, &opened(&missing.body)["details"]["name"]), (404, &json!("a")));
}

#[tokio::test]
async fn bodies_that_are_refused() {
    let world = World::start().await;
    let json = world.ask(true, "POST", LIST, &[("content-type", MEDIA)], "{}").await;
    assert_eq!(
        json.refusal(),
        (
            400,
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})".to_owned()
        )
    );
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}});
    let pod = world.ask(true, "POST", LIST, &[("content-type", MEDIA)], sealed(&pod)).await;
    assert!(pod.refusal().1.starts_with("Pod in version \"v1\" cannot be handled as a ConfigMap: "));
    world.make_config_map("a", "v").await;
    let options = sealed(&config_map("a"));
    let options = world.ask(true, "DELETE", ITEM, &[("content-type", MEDIA)], options).await;
    assert_eq!(options.refusal().0, 400);
}

#[tokio::test]
async fn lists_and_their_pages() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        world.make_config_map(name, "v").await;
    }
    let plain = read(&world, LIST, MEDIA).await;
    assert_eq!((plain.code, plain.header("content-type")), (200, MEDIA));
    assert_eq!(opened(&plain.body), world.get(LIST).await.json());
    let page = opened(&read(&world, &format!("{LIST}?limit=2"), MEDIA).await.body);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["metadata"]["remainingItemCount"]), (2, &json!(1)));

    let partial = |version: &str| format!("{MEDIA};as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
    let metadata = opened(&read(&world, LIST, &partial("v1")).await.body);
    assert_eq!(
        (&metadata["kind"], &metadata["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(metadata["items"][2]["metadata"]["name"], "c");
    // The older version has its items first: field 1, with the metadata of each (field 1), with its name (field 1).
    let older = read(&world, LIST, &partial("v1beta1")).await;
    let raw = protobuf::open(&older.body).unwrap();
    assert_eq!((raw.api_version, raw.raw[0]), ("meta.k8s.io/v1beta1", 0x0a));
    let one = read(&world, ITEM, &format!("{MEDIA};as=PartialObjectMetadata;g=meta.k8s.io;v=v1")).await;
    assert_eq!(opened(&one.body)["metadata"]["name"], "a");
}

#[tokio::test]
async fn discovery_in_protobuf() {
    let world = World::start().await;
    let groups = opened(&read(&world, "/apis", MEDIA).await.body);
    assert_eq!(groups["kind"], "APIGroupList");
    let resources = opened(&read(&world, "/apis/apps/v1", MEDIA).await.body);
    assert_eq!(resources, world.get("/apis/apps/v1").await.json());
    let all = read(&world, "/apis", &format!("{MEDIA};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")).await;
    assert!(all.header("content-type").starts_with(MEDIA), "{}", all.header("content-type"));
    assert_eq!(opened(&all.body)["kind"], "APIGroupDiscoveryList");
}

/// The next event of a stream: its type and object.
async fn event(body: &mut Incoming, buffer: &mut BytesMut) -> Option<(String, Value)> {
    loop {
        if buffer.len() >= 4 {
            let length = buffer.clone().get_u32() as usize;
            if buffer.len() >= 4 + length {
                let frame = buffer.split_to(4 + length).freeze().slice(4..);
                // { 1: type, 2: { 1: object } }
                let kind = usize::from(frame[1]);
                let at = frame.windows(4).position(|bytes| bytes == protobuf::envelope::MAGIC).unwrap();
                return Some((String::from_utf8(frame[2..2 + kind].to_vec()).unwrap(), opened(&frame[at..])));
            }
        }
        let more = tokio::time::timeout(PATIENCE, body.frame()).await.expect("an event")?;
        buffer.extend_from_slice(&more.unwrap().into_data().unwrap());
    }
}

#[tokio::test]
async fn s01_10_a_watch_is_frames_with_their_length() {
    let world = World::start().await;
    world.make_config_map("a", "v").await;
    let path =
        format!("{LIST}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let answer = world.open(true, "GET", &path, &[("accept", MEDIA)], "").await;
    assert_eq!(answer.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let (mut body, mut buffer) = (answer.into_body(), BytesMut::new());
    let names = |event: &Option<(String, Value)>| {
        let (kind, object) = event.as_ref().unwrap();
        (kind.clone(), object["metadata"]["name"].as_str().map(str::to_owned))
    };
    let name = |name: &str| Some(name.to_owned());
    loop {
        let next = event(&mut body, &mut buffer).await;
        let (kind, object) = next.as_ref().unwrap();
        if kind == "BOOKMARK" {
            assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
            break;
        }
        assert_eq!(kind, "ADDED");
    }
    send(&world, "POST", LIST, sealed(&config_map("b"))).await;
    assert_eq!(names(&event(&mut body, &mut buffer).await), ("ADDED".to_owned(), name("b")));
    world.ask(true, "DELETE", ITEM, &[], "").await;
    let gone = event(&mut body, &mut buffer).await;
    assert_eq!(names(&gone), ("DELETED".to_owned(), name("a")));
    assert_eq!(gone.unwrap().1["data"]["k"], "v");
}

#[tokio::test]
async fn a_watch_that_cannot_start_reports_its_error_in_protobuf() {
    let world = World::start().await;
    let future = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999";
    let answer = world.open(true, "GET", &format!("{LIST}?watch=1&{future}"), &[("accept", MEDIA)], "").await;
    assert_eq!(answer.status(), 200);
    let (mut body, mut buffer) = (answer.into_body(), BytesMut::new());
    let (kind, object) = event(&mut body, &mut buffer).await.unwrap();
    assert_eq!((kind.as_str(), &object["kind"], &object["code"]), ("ERROR", &json!("Status"), &json!(504)));
    assert!(event(&mut body, &mut buffer).await.is_none(), "and ends");
}
