//! Shutdown: watches end cleanly, requests finish, idle connections close, and a second signal aborts.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::limits::Limits;
use tokio::net::TcpStream;

use crate::world::{PATIENCE, World, eventually};

#[tokio::test]
async fn watches_end_with_their_last_chunk_and_requests_finish() {
    let world = World::start().await;
    let mut watching = world.http1().await;
    watching.get("/watch/a").await;
    watching.until("\r\n\r\n").await;
    let mut waiting = world.http1().await;
    waiting.get("/wait").await;
    eventually("the request is being answered", || world.script.waiting.taken() == 1).await;
    let mut idle = world.http1().await;
    idle.get("/who").await;
    idle.until("kubernetes-admin").await;

    world.trigger.drain();
    assert_eq!(watching.rest().await, "0\r\n\r\n");
    assert_eq!(idle.rest().await, "");
    assert!(TcpStream::connect(world.address).await.is_err(), "the listener is closed");
    assert!(!world.running.is_finished(), "a request is still open");
    world.script.may_respond.notify_one();
    let answer = waiting.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("done"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
}

#[tokio::test]
async fn http2_watches_end_and_the_connection_closes_cleanly() {
    let world = World::start().await;
    let io = TokioIo::new(world.connect(Some(&world.pki.admin), &["h2"]).await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("https://localhost/watch/a").body(Empty::<Bytes>::new()).unwrap();
    let body = sender.send_request(request).await.unwrap().into_body();
    world.trigger.drain();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "", "a clean end of the stream");
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
    tokio::time::timeout(PATIENCE, connection).await.expect("the end").unwrap().unwrap();
}

#[tokio::test]
async fn the_second_signal_aborts() {
    let world = World::start().await;
    let mut waiting = world.http1().await;
    waiting.get("/wait").await;
    eventually("the request is being answered", || world.script.waiting.taken() == 1).await;
    let mut idle = world.http1().await;
    idle.get("/who").await;
    idle.until("kubernetes-admin").await;
    world.trigger.signal();
    assert_eq!(idle.rest().await, "", "draining has begun");
    assert!(!world.running.is_finished(), "a request is still open");
    world.trigger.signal();
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
    assert_eq!(waiting.rest().await, "");
}

#[tokio::test]
async fn draining_is_bounded() {
    let world = World::with(Limits { drain_timeout: Duration::from_millis(100), ..Limits::default() }).await;
    let mut waiting = world.http1().await;
    waiting.get("/wait").await;
    eventually("the request is being answered", || world.script.waiting.taken() == 1).await;
    world.trigger.drain();
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
    assert_eq!(world.script.waiting.taken(), 0, "the request was dropped");
}
