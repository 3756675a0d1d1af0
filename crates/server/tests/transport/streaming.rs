//! Watch bodies: events are sent immediately, several in one chunk, and a disconnected client leaves nothing behind.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;

use crate::world::{World, eventually};

#[tokio::test]
async fn headers_come_before_any_event_and_each_event_at_once() {
    let world = World::start().await;
    let mut client = world.http1().await;
    client.get("/watch/a").await;
    let head = client.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("content-length"), "{head}");
    world.send("a", &["{\"one\"}\n"]).await;
    assert_eq!(client.until("\n\r\n").await, "8\r\n{\"one\"}\n\r\n");
    world.send("a", &["{\"two\"}\n", "{\"three\"}\n"]).await;
    assert_eq!(client.until("three\"}\n\r\n").await, "12\r\n{\"two\"}\n{\"three\"}\n\r\n", "one chunk for both");
    world.end("a");
    assert_eq!(client.until("\r\n\r\n").await, "0\r\n\r\n");
    client.get("/who").await;
    client.until("kubernetes-admin").await;
}

#[tokio::test]
async fn a_client_that_closes_frees_its_watch_within_a_second() {
    let world = World::start().await;
    let mut client = world.http1().await;
    client.get("/watch/a").await;
    client.until("\r\n\r\n").await;
    assert_eq!(world.script.watches.taken(), 1);
    client.stream.shutdown().await.unwrap();
    let took = eventually("the watch is gone", || world.script.watches.taken() == 0).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    eventually("the connection is gone", || world.metrics.connections.taken() == 0).await;
}

#[tokio::test]
async fn a_client_that_vanishes_frees_its_watch_within_a_second() {
    let world = World::start().await;
    let mut client = world.http1().await;
    client.get("/watch/a").await;
    client.until("\r\n\r\n").await;
    // No close_notify, no FIN: a reset, as a killed process leaves it.
    client.stream.get_ref().0.set_zero_linger().unwrap();
    drop(client);
    let took = eventually("the watch is gone", || world.script.watches.taken() == 0).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn http2_streams_are_independent() {
    let world = World::start().await;
    let io = TokioIo::new(world.connect(Some(&world.pki.admin), &["h2"]).await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut open = async |path: &str| {
        let request = Request::get(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    };
    let mut a = open("/watch/a").await.into_body();
    let b = open("/watch/b").await.into_body();
    assert_eq!(world.script.watches.taken(), 2);
    world.send("a", &["{\"one\"}\n", "{\"two\"}\n"]).await;
    let frame = a.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, "{\"one\"}\n{\"two\"}\n", "one frame for both");
    drop(b);
    eventually("the dropped stream's watch is gone", || world.script.watches.taken() == 1).await;
    world.send("a", &["{\"three\"}\n"]).await;
    assert_eq!(a.frame().await.unwrap().unwrap().into_data().unwrap(), "{\"three\"}\n");
    assert!(open("/who").await.into_body().collect().await.unwrap().to_bytes() == "kubernetes-admin");
    drop((a, sender));
    connection.await.unwrap().unwrap();
    eventually("all is gone", || world.metrics.connections.taken() == 0).await;
    assert_eq!(world.script.watches.taken(), 0);
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_back_only_itself() {
    let world = World::start().await;
    let mut stalled = world.http1().await;
    stalled.get("/watch/stalled").await;
    let mut other = world.http1().await;
    other.get("/watch/other").await;
    eventually("both are open", || world.script.watches.taken() == 2).await;
    let big = "x".repeat(1 << 20);
    let feeding = async {
        for _ in 0..64 {
            if tokio::time::timeout(Duration::from_millis(100), world.send("stalled", &[&big])).await.is_err() {
                return true;
            }
        }
        false
    };
    assert!(feeding.await, "the socket took all of it");
    world.send("other", &["{\"one\"}\n"]).await;
    other.until("{\"one\"}\n").await;
    drop(stalled);
    eventually("the stalled watch is gone", || world.script.watches.taken() == 1).await;
}

#[tokio::test]
async fn a_request_body_arrives_whole() {
    let world = World::start().await;
    let mut client = world.http1().await;
    let body = "b".repeat(300_000);
    client.send(&format!("POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
    assert!(client.until("300000").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_request_sent_during_a_watch_is_answered_after_it() {
    let world = World::start().await;
    let mut client = world.http1().await;
    client.get("/watch/a").await;
    client.until("\r\n\r\n").await;
    client.send("GET /who HTTP/1.1\r\nHo").await;
    world.send("a", &["{\"one\"}\n"]).await;
    client.until("{\"one\"}\n\r\n").await;
    world.end("a");
    assert_eq!(client.until("0\r\n\r\n").await, "0\r\n\r\n");
    client.send("st: x\r\n\r\nGET /watch/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    client.until("kubernetes-admin").await;
    let head = client.until("\r\n\r\n").await;
    assert!(head.contains("connection: close\r\n"), "{head}");
    world.end("b");
    assert_eq!(client.rest().await, "0\r\n\r\n");
}

#[tokio::test]
async fn two_requests_at_once_may_both_be_watches() {
    let world = World::start().await;
    let mut client = world.http1().await;
    let watch = |name| format!("GET /watch/{name} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.send(&format!("{}{}", watch("a"), watch("b"))).await;
    client.until("\r\n\r\n").await;
    world.end("a");
    client.until("0\r\n\r\n").await;
    client.until("\r\n\r\n").await;
    world.send("b", &["{\"two\"}\n"]).await;
    client.until("{\"two\"}\n\r\n").await;
}

#[tokio::test]
async fn http_1_0_has_no_chunks() {
    let world = World::start().await;
    let mut client = world.http1().await;
    client.send("GET /watch/a HTTP/1.0\r\n\r\n").await;
    let head = client.until("\r\n\r\n").await;
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
    world.send("a", &["{\"one\"}\n"]).await;
    world.end("a");
    assert_eq!(client.rest().await, "{\"one\"}\n");
}
