//! TLS handshakes: the client's user, the protocol, and connections that never complete one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use machinery::clock::Clock;
use server::certs::{self, Leaf, Pki};
use server::limits::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{PATIENCE, World, eventually};

/// The user that the server sees for a client certificate.
async fn who(world: &World, leaf: Option<&Leaf>) -> String {
    let mut stream = world.connect(leaf, &["http/1.1"]).await;
    stream.write_all(b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn client_certificates_name_the_user() {
    let world = World::start().await;
    let stranger = Pki::in_memory(&[], Clock::system().now()).unwrap().admin;
    for (leaf, expected) in [(Some(&world.pki.admin), "kubernetes-admin"), (Some(&stranger), "refused"), (None, "none")]
    {
        assert_eq!(who(&world, leaf).await, expected);
    }
}

#[tokio::test]
async fn a_serving_certificate_is_not_for_clients() {
    let world = World::start().await;
    assert_eq!(who(&world, Some(&world.pki.serving)).await, "refused");
}

#[tokio::test]
async fn issued_client_certificates_are_accepted_until_they_expire() {
    let dir = tempfile::tempdir().unwrap();
    let now = Clock::system().now();
    let pki = Pki::open(dir.path(), &[], now).unwrap();
    let alice = certs::issue_client(dir.path(), "alice", &["devs"], now).unwrap();
    let user = server::authentication::certificate::subject(&alice.chain().unwrap()[0]).user.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.groups[0].as_str()), ("alice", "devs"));
    let world = World::with_pki(Limits::default(), pki).await;
    assert_eq!(who(&world, Some(&alice)).await, "alice");
    let late = now - SignedDuration::from_hours(2 * 365 * 24);
    let expired = certs::issue_client(dir.path(), "alice", &["devs"], late).unwrap();
    assert_eq!(who(&world, Some(&expired)).await, "refused");
}

#[tokio::test]
async fn alpn_chooses_the_protocol() {
    let world = World::start().await;
    for (offered, chosen) in [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)] {
        let stream = world.connect(None, offered).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes));
    }
}

#[tokio::test]
async fn plain_http_on_the_tls_port_gets_a_400() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_without_a_handshake_is_closed() {
    let world = World::with(Limits { handshake_timeout: Duration::from_millis(100), ..Limits::default() }).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 16])).await.expect("the end");
    assert!(matches!(ended, Ok(0) | Err(_)));
    eventually("its slot is free", || world.metrics.connections.taken() == 0).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_slot() {
    let world = World::with(Limits { connections_max: 1, ..Limits::default() }).await;
    let mut first = world.http1().await;
    first.get("/who").await;
    first.until("kubernetes-admin").await;
    let connecting = TcpStream::connect(world.address).await.unwrap();
    let waiting = tokio::spawn({
        let tls = world.tls(None, &[]);
        async move { tls.connect("localhost".try_into().unwrap(), connecting).await.unwrap() }
    });
    // A round trip on the open connection, during which a wrong accept would happen.
    first.get("/who").await;
    first.until("kubernetes-admin").await;
    assert!(!waiting.is_finished(), "the slot is taken");
    assert_eq!(world.metrics.connections_accepted.load(Ordering::Relaxed), 1);
    drop(first);
    tokio::time::timeout(PATIENCE, waiting).await.expect("the slot is free").unwrap();
    assert_eq!(world.metrics.connections_accepted.load(Ordering::Relaxed), 2);
}
