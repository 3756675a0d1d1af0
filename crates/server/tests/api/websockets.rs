//! Watches over WebSocket (01 §10.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt as _;
use machinery::json::Value;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, http::Response};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::world::{PATIENCE, World};

const PATH: &str = "/api/v1/namespaces/default/configmaps?watch=1";

type Socket = WebSocketStream<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>;

async fn open(
    world: &World,
    admin: bool,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(Socket, Response<Option<Vec<u8>>>), u16> {
    let mut request = format!("wss://localhost{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match client_async(request, world.connect(admin).await).await {
        Ok(opened) => Ok(opened),
        Err(Error::Http(refused)) => Err(refused.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

const ORIGIN: (&str, &str) = ("origin", "http://localhost");

async fn next(socket: &mut Socket) -> Option<Message> {
    tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message").map(Result::unwrap)
}

#[tokio::test]
async fn s01_15_13_without_an_origin_it_is_forbidden() {
    let world = World::start().await;
    assert_eq!(open(&world, true, PATH, &[]).await.err(), Some(403));
    assert_eq!(open(&world, true, PATH, &[("origin", "nowhere")]).await.err(), Some(403));
}

#[tokio::test]
async fn s01_15_14_one_text_message_an_event() {
    let world = World::start().await;
    let (mut socket, answer) = open(&world, true, PATH, &[ORIGIN]).await.unwrap();
    assert!(answer.headers().get("sec-websocket-protocol").is_none());
    for name in ["a", "b"] {
        world.make_config_map(name, "v").await;
        let Some(Message::Text(text)) = next(&mut socket).await else { panic!("no text") };
        assert!(text.ends_with('\n'));
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some(name)));
    }
}

#[tokio::test]
async fn s01_10_1_events_in_protobuf_are_binary_and_say_no_length() {
    let world = World::start().await;
    let accept = ("accept", "application/vnd.kubernetes.protobuf");
    let (mut socket, _) = open(&world, true, PATH, &[ORIGIN, accept]).await.unwrap();
    world.make_config_map("a", "v").await;
    let Some(Message::Binary(event)) = next(&mut socket).await else { panic!("not binary") };
    assert!(event.starts_with(b"\x0a\x05ADDED\x12"), "{event:?}");
    assert!(event.ends_with(schema::protobuf::envelope::TAIL), "{event:?}");
}

#[tokio::test]
async fn it_ends_with_the_watch_and_frees_its_slot_when_the_client_disconnects() {
    let world = World::start().await;
    let (mut socket, _) = open(&world, true, &format!("{PATH}&timeoutSeconds=1"), &[ORIGIN]).await.unwrap();
    assert!(matches!(next(&mut socket).await, Some(Message::Close(_))));
    let (socket, _) = open(&world, true, PATH, &[ORIGIN]).await.unwrap();
    assert_eq!(world.server.metrics().watches_open.taken(), 1);
    drop(socket);
    let gone = async {
        while world.server.metrics().watches_open.taken() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(1), gone).await.expect("free within a second");
}

#[tokio::test]
async fn a_stopping_server_closes_it() {
    let world = World::start().await;
    let (mut socket, _) = open(&world, true, PATH, &[ORIGIN]).await.unwrap();
    world.trigger.drain();
    assert!(matches!(next(&mut socket).await, Some(Message::Close(_))));
    drop(socket);
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
}

#[tokio::test]
async fn subprotocols_are_echoed_and_carry_tokens() {
    let world = World::start().await;
    let protocol = |value| [ORIGIN, ("sec-websocket-protocol", value)];
    let (_, answer) = open(&world, true, PATH, &protocol("anything")).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "anything");
    assert_eq!(open(&world, true, PATH, &protocol("a, b")).await.err(), Some(400));
    let token = format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode("sesame"));
    let both = format!("{token}, v1");
    let (_, answer) = open(&world, false, PATH, &protocol(&both)).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v1");
    assert_eq!(open(&world, false, PATH, &protocol(&token)).await.err(), Some(401));
    assert_eq!(open(&world, false, PATH, &[ORIGIN]).await.err(), Some(403), "anonymous users may not watch");
}

#[tokio::test]
async fn errors_of_the_watch_are_http_responses() {
    let world = World::start().await;
    assert_eq!(open(&world, true, &format!("{PATH}&sendInitialEvents=1"), &[ORIGIN]).await.err(), Some(422));
    assert_eq!(open(&world, true, "/api/v1/nope?watch=1", &[ORIGIN]).await.err(), Some(404));
}
