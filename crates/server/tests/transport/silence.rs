//! Idle connections, and requests that arrive too slowly.

use std::time::Duration;

use server::limits::Limits;

use crate::world::{World, eventually};

#[tokio::test]
async fn slow_headers_end_the_connection() {
    let limits = Limits { header_read_timeout: Duration::from_millis(150), ..Limits::default() };
    let world = World::with(limits).await;
    let mut client = world.http1().await;
    client.send("GET /who HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
    assert_eq!(client.rest().await, "");
    eventually("its slot is free", || world.metrics.connections.taken() == 0).await;
}

#[tokio::test]
async fn an_idle_connection_is_ended_and_a_watching_one_is_not() {
    let limits = Limits { idle_timeout: Duration::from_millis(150), ..Limits::default() };
    let world = World::with(limits).await;
    let mut watching = world.http1().await;
    watching.get("/watch/a").await;
    watching.until("\r\n\r\n").await;
    let mut idle = world.http1().await;
    idle.get("/who").await;
    idle.until("kubernetes-admin").await;
    assert_eq!(idle.rest().await, "");
    world.send("a", &["{\"one\"}\n"]).await;
    watching.until("{\"one\"}\n").await;
}

#[tokio::test]
async fn headers_that_are_too_long_are_refused() {
    let world = World::with(Limits { header_bytes_max: 8192, ..Limits::default() }).await;
    let mut client = world.http1().await;
    client.send(&format!("GET /who HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "y".repeat(20_000))).await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}
