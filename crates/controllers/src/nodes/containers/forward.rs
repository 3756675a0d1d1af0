//! What answers at the ports of simulated pods: a program of this host, a fixed HTTP response, or a page that says what it is.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Containers;
use super::rules::PortAnswer;

/// Time that a target has to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Bytes of the head of a request.
const REQUEST_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the body of a request, which is dropped.
const REQUEST_BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Requests of one connection.
const REQUESTS_MAX: usize = 1_000;

impl Containers {
    /// Joins a connection to a port of a pod. An error is the reason why it failed.
    pub async fn forward(
        &self,
        pod: &Pod,
        port: u16,
        from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
    ) -> Result<(), String> {
        let rules = self.rules_of(pod).forwards;
        let rule = rules.into_iter().find(|rule| rule.ports.is_empty() || rule.ports.contains(&port));
        let answer = match rule.map(|rule| rule.answer) {
            Some(answer) => answer,
            None if declares(pod, port) => default_page(pod, port),
            None => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                return Err(format!(
                    "failed to execute portforward in network namespace \"simulated-{uid}\": failed to connect to localhost:{port} \
                     inside namespace: dial tcp4 127.0.0.1:{port}: connect: connection refused"
                ));
            }
        };
        match answer {
            PortAnswer::Target(address) if address.ip().is_loopback() => join(address, from, to).await,
            PortAnswer::Target(address) => Err(format!("{address} is not an address of the loopback interface")),
            PortAnswer::Refused(why) => Err(why),
            PortAnswer::Http { status, headers, body } => {
                // A client that disconnects in the middle of a request is none that failed.
                let _ = answer_http(from, to, status, &headers, &body).await;
                Ok(())
            }
        }
    }
}

/// Whether a container of the pod says that it listens on this port.
fn declares(pod: &Pod, port: u16) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .flat_map(|container| container.ports.iter().flatten())
        .any(|known| known.container_port == i32::from(port))
}

fn default_page(pod: &Pod, port: u16) -> PortAnswer {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    PortAnswer::Http {
        status: 200,
        headers: BTreeMap::from([("Content-Type".to_owned(), "text/plain; charset=utf-8".to_owned())]),
        body: format!("pod {name}, port {port} (simulated; the annotation nodes.dogwatch/port-forward changes this)\n"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a network timeout follows the machine's clock")]
async fn join(
    address: std::net::SocketAddr,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("failed to connect to {address}: {error}");
    let connecting = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| format!("failed to connect to {address}: timed out"))?.map_err(failed)?;
    let (mut reader, mut writer) = stream.into_split();
    let sending = async {
        let _ = tokio::io::copy(&mut from, &mut writer).await;
        let _ = writer.shutdown().await;
        // The client has nothing more to send; the answer may still come.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = sending => Ok(()),
        copied = tokio::io::copy(&mut reader, &mut to) => {
            let _ = to.shutdown().await;
            copied.map(|_| ()).map_err(|error| format!("the connection to {address} ended: {error}"))
        }
    }
}

/// The head of a request: whether the connection is kept, and the bytes of its body.
struct RequestHead {
    keeps_alive: bool,
    is_head: bool,
    body_bytes: u64,
}

/// Reads the head of a request. None when the client has sent everything, or no HTTP.
async fn read_head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<RequestHead>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        let mut byte = [0];
        if head.len() >= REQUEST_HEAD_BYTES_MAX || from.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut words = first.split(' ');
    let (method, version) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
    let header = |name: &str| {
        let found = text.lines().skip(1).filter_map(|line| line.split_once(':'));
        found
            .filter(|(known, _)| known.trim().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .next()
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
    let closes = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    // The end of a body in chunks is not looked for: the connection ends after the answer.
    let is_chunked = header("transfer-encoding").is_some();
    let keeps_alive = version == "HTTP/1.1" && !closes && !is_chunked && length <= REQUEST_BODY_BYTES_MAX;
    Ok(version.starts_with("HTTP/1.").then_some(RequestHead {
        keeps_alive,
        is_head: method == "HEAD",
        body_bytes: length,
    }))
}

/// Answers every request of a connection in the same way.
async fn answer_http(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    status: u16,
    headers: &BTreeMap<String, String>,
    body: &str,
) -> io::Result<()> {
    for _ in 0..REQUESTS_MAX {
        let Some(head) = read_head(&mut from).await? else { break };
        if head.keeps_alive {
            tokio::io::copy(&mut (&mut from).take(head.body_bytes), &mut tokio::io::sink()).await?;
        }
        let mut response = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length")) {
            response.push_str(&format!("{}: {}\r\n", one_line(name), one_line(value)));
        }
        response.push_str(&format!("Content-Length: {}\r\n", body.len()));
        if !head.keeps_alive {
            response.push_str("Connection: close\r\n");
        }
        response.push_str("\r\n");
        to.write_all(response.as_bytes()).await?;
        if !head.is_head {
            to.write_all(body.as_bytes()).await?;
        }
        to.flush().await?;
        if !head.keeps_alive {
            break;
        }
    }
    to.shutdown().await
}

/// A text without line ends, which would end its header.
fn one_line(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).collect()
}

fn reason(status: u16) -> &'static str {
    let known = http::StatusCode::from_u16(status).ok();
    known.and_then(|status| status.canonical_reason()).unwrap_or("Unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(annotation: &str) -> Pod {
        let mut metadata: Value = json!({"name": "p", "uid": "u"});
        if !annotation.is_empty() {
            metadata["annotations"] = json!({"nodes.dogwatch/port-forward": annotation});
        }
        let spec = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    async fn exchange(pod: &Pod, port: u16, request: &str) -> Result<String, String> {
        let mut answer = Vec::new();
        Containers::default().forward(pod, port, request.as_bytes(), &mut answer).await?;
        Ok(String::from_utf8(answer).unwrap())
    }

    #[tokio::test]
    async fn pf_2_http_answers_are_given_to_every_request() {
        let pod = pod("{80: {http: {status: 404, headers: {X-A: b}, body: none}}}");
        let twice = "GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
        let answer = exchange(&pod, 80, twice).await.unwrap();
        assert_eq!(
            answer.matches("HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 4\r\n\r\nnone").count(),
            2,
            "{answer}"
        );
        let closed = exchange(&pod, 80, "HEAD / HTTP/1.0\r\n\r\n").await.unwrap();
        assert!(closed.ends_with("Connection: close\r\n\r\n"), "{closed}");
        assert_eq!(exchange(&pod, 80, "\x16\x03\x01 TLS \r\n\r\n").await.unwrap(), "");
    }

    #[tokio::test]
    async fn pf_3_declared_ports_answer_and_others_refuse() {
        let answer = exchange(&pod(""), 80, "GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(answer.contains("pod p, port 80 (simulated"), "{answer}");
        let refused = exchange(&pod(""), 81, "").await.unwrap_err();
        assert!(refused.ends_with("connect: connection refused"), "{refused}");
        let outside = exchange(&pod("{80: {target: 10.0.0.1:80}}"), 80, "").await.unwrap_err();
        assert!(outside.contains("is not an address of the loopback interface"), "{outside}");
    }

    #[tokio::test]
    async fn pf_4_targets_are_programs_of_this_host() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = String::new();
            stream.read_to_string(&mut asked).await.unwrap();
            stream.write_all(format!("you said {asked}").as_bytes()).await.unwrap();
        });
        let pod = pod(&format!("{{80: {{target: {address}}}}}"));
        assert_eq!(exchange(&pod, 80, "hello").await.unwrap(), "you said hello");
        serving.await.unwrap();
        let gone = exchange(&pod, 80, "").await.unwrap_err();
        assert!(gone.starts_with("failed to connect to"), "{gone}");
    }
}
