//! The server without a socket: a tower service.

use access::identity::User;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use machinery::json::{Value, json};
use tower_service::Service as _;

use crate::world::World;

#[tokio::test]
async fn create_list_and_watch_without_a_socket() {
    let world = World::start().await;
    let admin = User { name: "me".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
    let mut service = world.server.in_process(admin);
    let path = "/api/v1/namespaces/default/configmaps";
    let watch = Request::get(format!("{path}?watch=1")).body(Full::<Bytes>::default()).unwrap();
    let mut watch = service.call(watch).await.unwrap().into_body();
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let create = Request::post(path).header("content-type", "application/json").body(Full::from(body)).unwrap();
    assert_eq!(service.call(create).await.unwrap().status(), 201);
    let list = Request::get(path).body(Full::<Bytes>::default()).unwrap();
    let list = service.call(list).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&list).unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.extend_from_slice(&watch.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
}
