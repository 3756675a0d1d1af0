//! Logs, commands and port forwards, with containers that follow a script (spec 04 §15.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use machinery::json::{Value, json};
use server::streams::containers::{
    CommandResult, ContainerRef, Containers, LogOptions, Reader, Refusal, Session, Writer,
};
use server::streams::pipes::PIPE_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::world::{PATIENCE, World};

type Socket = WebSocketStream<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>;

const POD: &str = "/api/v1/namespaces/default/pods/p";

/// Containers whose commands copy their input, and whose logs never end.
#[derive(Default)]
struct Script {
    /// Bytes of logs that were written.
    written: AtomicUsize,
}

struct Handle(Arc<Script>);

impl Containers for Handle {
    fn runs(&self, node: &Value) -> bool {
        node["metadata"]["name"] == "n"
    }

    fn log(&self, _: ContainerRef, _: LogOptions, mut to: Writer) -> Result<BoxFuture<'static, ()>, Refusal> {
        let script = Arc::clone(&self.0);
        Ok(async move {
            while to.write_all(&[b'x'; 1024]).await.is_ok() {
                script.written.fetch_add(1024, Ordering::SeqCst);
            }
        }
        .boxed())
    }

    fn check_command(&self, of: &ContainerRef, _: bool) -> Result<(), Refusal> {
        let refused = || Refusal::Internal("container not found (\"gone\")".to_owned());
        if of.container == "gone" { Err(refused()) } else { Ok(()) }
    }

    fn exec(&self, _: ContainerRef, command: Vec<String>, session: Session) -> BoxFuture<'static, CommandResult> {
        async move {
            let (mut stdin, mut stdout) = (session.stdin.unwrap(), session.stdout.unwrap());
            tokio::io::copy(&mut stdin, &mut stdout).await.map_err(|error| error.to_string())?;
            Ok(command[0].parse().unwrap())
        }
        .boxed()
    }

    fn attach(&self, _: ContainerRef, _: Session) -> BoxFuture<'static, CommandResult> {
        std::future::pending().boxed()
    }

    fn check_forward(&self, _: &ContainerRef) -> Result<(), Refusal> {
        Ok(())
    }

    fn forward(
        &self,
        _: ContainerRef,
        port: u16,
        mut from: Reader,
        mut to: Writer,
    ) -> BoxFuture<'static, Result<(), String>> {
        async move {
            if port == 81 {
                return Err("connection refused".to_owned());
            }
            tokio::io::copy(&mut from, &mut to).await.map(|_| ()).map_err(|error| error.to_string())
        }
        .boxed()
    }
}

async fn world() -> (World, Arc<Script>) {
    let world = World::start().await;
    let script = Arc::<Script>::default();
    world.server.set_containers(Arc::new(Handle(Arc::clone(&script))));
    for name in ["n", "other"] {
        assert_eq!(world.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.code, 201);
    }
    for (name, node) in [("p", "n"), ("q", "other"), ("lost", "missing")] {
        let containers = json!([{"name": "c", "image": "i"}, {"name": "gone", "image": "i"}]);
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers}});
        assert_eq!(world.post("/api/v1/namespaces/default/pods", &pod).await.code, 201);
    }
    (world, script)
}

async fn open(world: &World, path: &str, protocol: &str) -> Result<Socket, u16> {
    let mut request = format!("wss://localhost{path}").into_client_request().unwrap();
    if !protocol.is_empty() {
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    }
    match client_async(request, world.connect(true).await).await {
        Ok((socket, answer)) => {
            let named = answer.headers().get("sec-websocket-protocol").map(|name| name.to_str().unwrap());
            assert_eq!(named.unwrap_or_default(), protocol);
            Ok(socket)
        }
        Err(Error::Http(refused)) => Err(refused.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

async fn next(socket: &mut Socket) -> Option<Vec<u8>> {
    match tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message") {
        Some(Ok(message @ (Message::Binary(_) | Message::Text(_)))) => Some(message.into_data().to_vec()),
        Some(Ok(Message::Close(_)) | Err(_)) | None => None,
        Some(Ok(other)) => panic!("{other:?}"),
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect(what);
}

#[tokio::test]
async fn sp_5_sp_6_channels_carry_a_command_and_its_result() {
    let (world, _) = world().await;
    let path = format!("{POD}/exec?container=c&command=3&stdin=1&stdout=1&stderr=1");
    let mut socket = open(&world, &path, "v5.channel.k8s.io").await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"\x01", "an empty message is the first");
    socket.send(Message::binary(&b"\x00hello"[..])).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"\x01hello");
    socket.send(Message::binary(&b"\xff\x00"[..])).await.unwrap();
    let result = next(&mut socket).await.unwrap();
    assert_eq!(result[0], 3);
    let status: Value = machinery::json::from_slice(&result[1..]).unwrap();
    assert_eq!(
        (&status["reason"], &status["details"]["causes"][0]["message"]),
        (&json!("NonZeroExitCode"), &json!("3"))
    );
    assert_eq!(next(&mut socket).await, None, "closed after the result");
    let mut socket = open(&world, &path, "base64.channel.k8s.io").await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"1");
    socket.send(Message::text("0aGVsbG8=")).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"1aGVsbG8=");
    until("two sessions, one of them ended", || world.server.metrics().streams_open.taken() == 1).await;
    drop(socket);
    until("no session is left", || world.server.metrics().streams_open.taken() == 0).await;
}

#[tokio::test]
async fn sp_5_requests_that_cannot_be_served_are_refused() {
    let (world, _) = world().await;
    let exec = |rest: &str| format!("{POD}/exec?{rest}");
    assert_eq!(open(&world, &exec("container=c&command=0&stdout=1"), "v9.channel.k8s.io").await.err(), Some(403));
    assert_eq!(open(&world, &exec("container=c&command=0"), "v4.channel.k8s.io").await.err(), Some(400));
    assert_eq!(open(&world, &exec("container=gone&command=0&stdout=1"), "v4.channel.k8s.io").await.err(), Some(500));
    assert_eq!(open(&world, &format!("{POD}/portforward"), "v4.channel.k8s.io").await.err(), Some(400), "no ports");
    let plain = world.get(&exec("container=c&command=0&stdout=1")).await;
    assert_eq!(plain.refusal(), (400, "Upgrade request required".to_owned()));
    let unnamed = world.get(&exec("command=0&stdout=1")).await;
    assert_eq!(unnamed.refusal().1, "a container name must be specified for pod p, choose one of: [c gone]");
    let other = world.get("/api/v1/namespaces/default/pods/q/log?container=c").await;
    assert_eq!(other.refusal(), (501, "log needs a node agent, and pod \"q\" has none".to_owned()));
    let lost = world.get("/api/v1/namespaces/default/pods/lost/log?container=c").await;
    assert_eq!(lost.refusal(), (404, "nodes \"missing\" not found".to_owned()));
}

#[tokio::test]
async fn sp_9_ports_are_forwarded_over_channels() {
    let (world, _) = world().await;
    let mut socket = open(&world, &format!("{POD}/portforward?ports=80&ports=81"), "v4.channel.k8s.io").await.unwrap();
    let mut first = Vec::new();
    while first.len() < 5 {
        first.push(next(&mut socket).await.unwrap());
    }
    first.sort();
    let error = first.pop().unwrap();
    assert_eq!(first, [&b"\x00\x50\x00"[..], b"\x01\x50\x00", b"\x02\x51\x00", b"\x03\x51\x00"]);
    assert!(
        error.starts_with(b"\x03error forwarding port 81 to pod p, uid ") && error.ends_with(b": connection refused")
    );
    socket.send(Message::binary(&b"\x00ping"[..])).await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"\x00ping");
}

#[tokio::test]
async fn sp_11_a_client_that_does_not_read_holds_up_the_writer() {
    let (world, script) = world().await;
    let mut connection = world.connect(true).await;
    let request = format!("GET {POD}/log?container=c&follow=1 HTTP/1.1\r\nhost: x\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 512];
    connection.read_exact(&mut head).await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
    // Until neither the pipe nor the buffers of both sockets take more.
    let mut before = usize::MAX;
    let settled = async {
        loop {
            let now = script.written.load(Ordering::SeqCst);
            if now == before {
                return now;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let written = tokio::time::timeout(PATIENCE, settled).await.expect("the writer waits");
    assert!(written < 64 * 1024 * 1024 && written > PIPE_BYTES_MAX / 2, "{written}");
    drop(connection);
    until("the log ends with its client", || world.server.metrics().streams_open.taken() == 0).await;
}

#[tokio::test]
async fn sp_11_a_stopping_server_ends_sessions() {
    let (world, _) = world().await;
    let mut socket = open(&world, &format!("{POD}/attach?container=c&stdout=1"), "v5.channel.k8s.io").await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"\x01");
    world.trigger.drain();
    assert_eq!(next(&mut socket).await, None);
    drop(socket);
    tokio::time::timeout(PATIENCE, world.running).await.expect("the end").unwrap();
}

#[tokio::test]
async fn sp_11_sessions_have_audit_events_at_their_start_and_end() {
    let (world, _) = world().await;
    let mut events = crate::audit::audit(&world, "- level: Metadata", Vec::new());
    let mut socket = open(&world, &format!("{POD}/attach?container=c&stdout=1"), "v5.channel.k8s.io").await.unwrap();
    assert_eq!(next(&mut socket).await.unwrap(), b"\x01");
    for stage in ["RequestReceived", "ResponseStarted"] {
        assert_eq!(crate::audit::next(&mut events).await["stage"], stage);
    }
    drop(socket);
    let last = crate::audit::next(&mut events).await;
    assert_eq!((&last["stage"], &last["responseStatus"]["code"]), (&json!("ResponseComplete"), &json!(101)));
    assert_eq!(last["objectRef"]["subresource"], "attach");
}
