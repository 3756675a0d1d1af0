//! The bytes on the wire: media types, frames, compression, tables, WebSockets.

use std::io::Read as _;

use blackbox::process::DEADLINE;
use flate2::read::GzDecoder;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::world::Namespace;

#[tokio::test]
async fn list_watch_15_11_yaml_is_not_watched() {
    let ns = Namespace::new("r15-11").await;
    let answer = ns.get_request("configmaps?watch=1").header("Accept", "application/yaml").send().await;
    assert_eq!(answer.code, 406, "{answer:?}");
    // The refusal itself is YAML, which may fold a long line.
    let text = answer.text().split_whitespace().collect::<Vec<_>>().join(" ");
    let accepted = "only the following media types are accepted: application/json;stream=watch, \
                    application/vnd.kubernetes.protobuf;stream=watch";
    assert!(text.contains(accepted), "{text}");
    assert!(text.contains("NotAcceptable"), "{text}");
}

#[tokio::test]
async fn list_watch_15_12_protobuf_events_say_their_length() {
    let ns = Namespace::new("r15-12").await;
    ns.config_maps(&["a", "b"]).await;
    let request = ns.get_request("configmaps?watch=1").header("Accept", "application/vnd.kubernetes.protobuf");
    let mut watch = request.open().await;
    assert_eq!(watch.code, 200);
    assert_eq!(watch.header("content-type"), "application/vnd.kubernetes.protobuf;stream=watch");
    for name in ["a", "b"] {
        let length = u32::from_be_bytes(watch.bytes(4).await[..].try_into().unwrap());
        let event = watch.bytes(length.try_into().unwrap()).await;
        // Field 1 is the type; field 2 is the object in its envelope, which starts with a magic number.
        assert!(event.starts_with(b"\x0a\x05ADDED\x12"), "{event:?}");
        assert!(event.windows(4).any(|window| window == b"k8s\0"), "{event:?}");
        let named = [b"\x0a\x01", name.as_bytes()].concat();
        assert!(event.windows(3).any(|window| window == named), "{event:?}");
    }
}

async fn upgrade(ns: &Namespace, origin: Option<&str>) -> Result<impl futures::Stream<Item = Message> + use<>, u16> {
    let path = ns.path("configmaps?watch=1");
    let mut request = format!("wss://127.0.0.1{path}").into_client_request().unwrap();
    if let Some(origin) = origin {
        request.headers_mut().insert("Origin", origin.parse().unwrap());
    }
    match client_async(request, ns.socket().await).await {
        Ok((socket, _)) => Ok(socket.map(|message| message.expect("the socket is not cut off"))),
        Err(Error::Http(refused)) => Err(refused.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn list_watch_15_13_websocket_needs_an_origin() {
    let ns = Namespace::new("r15-13").await;
    assert_eq!(upgrade(&ns, None).await.err(), Some(403));
    assert!(upgrade(&ns, Some("http://localhost")).await.is_ok());
}

#[tokio::test]
async fn list_watch_15_14_websocket_has_one_text_frame_an_event() {
    let ns = Namespace::new("r15-14").await;
    ns.config_maps(&["a", "b"]).await;
    let mut socket = Box::pin(upgrade(&ns, Some("http://localhost")).await.unwrap());
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        if index == 2 {
            ns.config_map("c").await;
        }
        let message =
            tokio::time::timeout(DEADLINE, socket.next()).await.expect("a message in time").expect("an open socket");
        let Message::Text(text) = message else { panic!("not text: {message:?}") };
        let event: Value = serde_json::from_str(&text).expect("one event per frame");
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&"ADDED".into(), &name.into()));
        assert!(text.ends_with("}\n"), "{text:?}");
    }
}

#[tokio::test]
async fn list_watch_15_15_large_lists_are_compressed() {
    let ns = Namespace::new("r15-15").await;
    // Two of these in a list are below 128 KiB, four are above.
    let data = "x".repeat(50 * 1024);
    let add =
        async |name: &str| ns.create("configmaps", &json!({"metadata": {"name": name}, "data": {"k": data}})).await;
    add("a").await;
    add("b").await;
    let small = ns.get_request("configmaps").header("Accept-Encoding", "gzip").send().await;
    assert!((100 * 1024..128 * 1024).contains(&small.body.len()), "{}", small.body.len());
    assert_eq!((small.header("content-encoding"), small.header("vary")), ("", ""));
    small.expect(200);

    add("c").await;
    add("d").await;
    let plain = ns.get_response("configmaps").await;
    assert!(plain.body.len() > 200 * 1024);
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", ""));
    let packed = ns.get_request("configmaps").header("Accept-Encoding", "gzip").send().await;
    assert_eq!((packed.header("content-encoding"), packed.header("vary")), ("gzip", "Accept-Encoding"));
    assert!(packed.body.len() < plain.body.len() / 10);
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    // The revision of the list depends on the writes of other tests.
    let unpacked: Value = serde_json::from_slice(&unpacked).unwrap();
    assert!(unpacked["items"] == plain.json()["items"], "the same items");
}

#[tokio::test]
async fn list_watch_15_16_table_without_objects() {
    let ns = Namespace::new("r15-16").await;
    ns.config_maps(&["a", "b"]).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = async |parameters: &str| {
        ns.get_request(&format!("configmaps{parameters}")).header("Accept", accept).send().await.expect(200)
    };
    let none = table("?includeObject=None").await;
    assert_eq!((&none["kind"], &none["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let rows = none["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["object"].is_null()), "{none}");
    assert_eq!(rows[0]["cells"][0], "a");
    let metadata = table("").await;
    assert_eq!(metadata["rows"][1]["object"]["kind"], "PartialObjectMetadata", "{metadata}");
}
