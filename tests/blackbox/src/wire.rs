//! A raw HTTP/1.1 client over TLS: status, headers, and the bytes of a body as they arrive.
//!
//! It does not retry, decode or reconnect as other clients do, so that a test can compare each byte with the specification.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::process::DEADLINE;
use crate::server::Server;

pub type Socket = TlsStream<TcpStream>;

/// The address of a server, with the administrator's certificate and without one.
#[derive(Clone)]
pub struct Wire {
    address: String,
    administrator: Arc<ClientConfig>,
    anonymous: Arc<ClientConfig>,
}

impl Wire {
    pub fn to(server: &Server) -> Self {
        let (administrator, anonymous) = tls_of(server.kubeconfig());
        let address = server.url().strip_prefix("https://").expect("it serves TLS").to_owned();
        Self { address, administrator: Arc::new(administrator), anonymous: Arc::new(anonymous) }
    }

    /// Opens a new connection.
    pub async fn socket(&self) -> Socket {
        self.socket_as(&self.administrator).await
    }

    async fn socket_as(&self, config: &Arc<ClientConfig>) -> Socket {
        let host = self.address.rsplit_once(':').expect("an address has a port").0.to_owned();
        let stream = TcpStream::connect(&self.address).await.expect("the server accepts connections");
        let name = ServerName::try_from(host).expect("the address is an IP address");
        TlsConnector::from(Arc::clone(config)).connect(name, stream).await.expect("the server's certificate is good")
    }

    /// Opens a connection for many requests, one after the other.
    pub async fn connection(&self) -> Connection {
        Connection { sender: handshake(self.socket().await).await }
    }

    pub fn request(&self, method: &'static str, path: impl Into<String>) -> RequestBuilder<'_> {
        RequestBuilder {
            wire: self,
            anonymous: false,
            method,
            path: path.into(),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub fn get(&self, path: impl Into<String>) -> RequestBuilder<'_> {
        self.request("GET", path)
    }

    pub fn delete(&self, path: impl Into<String>) -> RequestBuilder<'_> {
        self.request("DELETE", path)
    }

    pub fn post(&self, path: impl Into<String>, body: &Value) -> RequestBuilder<'_> {
        self.request("POST", path).json(body)
    }

    pub fn put(&self, path: impl Into<String>, body: &Value) -> RequestBuilder<'_> {
        self.request("PUT", path).json(body)
    }

    /// `kind` is the word before `-patch` in the media type: `merge`, `json`, `strategic-merge`, `apply`.
    pub fn patch(&self, kind: &str, path: impl Into<String>, body: &Value) -> RequestBuilder<'_> {
        let form = if kind == "apply" { "yaml" } else { "json" };
        let media = format!("application/{kind}-patch+{form}");
        self.request("PATCH", path).header("Content-Type", &media).body(body.to_string())
    }

    /// Opens a watch, which must succeed.
    pub async fn watch(&self, path: impl Into<String>) -> Stream {
        let mut stream = self.get(path).open().await;
        if stream.code != 200 {
            let body = stream.rest().await;
            panic!("{}: {}", stream.code, String::from_utf8_lossy(&body));
        }
        stream
    }
}

/// The TLS configuration of a kubeconfig, with its client certificate and without one.
pub fn tls_of(kubeconfig: &Path) -> (ClientConfig, ClientConfig) {
    let kubeconfig = std::fs::read_to_string(kubeconfig).expect("the kubeconfig can be read");
    let ca = embedded(&kubeconfig, "certificate-authority-data:");
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&ca) {
        roots.add(authority.expect("the authority is PEM")).expect("the authority is a certificate");
    }
    let chain = CertificateDer::pem_slice_iter(&embedded(&kubeconfig, "client-certificate-data:"))
        .collect::<Result<Vec<_>, _>>()
        .expect("the client certificate is PEM");
    let key = PrivateKeyDer::from_pem_slice(&embedded(&kubeconfig, "client-key-data:")).expect("the key is PEM");
    let builder = || {
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows current versions")
            .with_root_certificates(roots.clone())
    };
    let administrator = builder().with_client_auth_cert(chain, key).expect("key and certificate belong together");
    (administrator, builder().with_no_client_auth())
}

/// The decoded data of the kubeconfig under `key`.
fn embedded(kubeconfig: &str, key: &str) -> Vec<u8> {
    STANDARD.decode(value_of(kubeconfig, key)).expect("embedded data is base64")
}

/// The first value under `key`, such as `server:`.
pub fn value_of<'a>(kubeconfig: &'a str, key: &str) -> &'a str {
    let mut words = kubeconfig.split_whitespace();
    words.find(|word| *word == key).unwrap_or_else(|| panic!("no {key} in the kubeconfig"));
    words.next().expect("a key has a value").trim_matches('"')
}

async fn handshake(socket: Socket) -> SendRequest<Full<Bytes>> {
    let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.expect("HTTP needs no handshake");
    // Ends when the sender or the response body is dropped. The reader of the response gets its errors.
    tokio::spawn(connection);
    sender
}

/// A request that is not sent yet.
#[must_use = "nothing is sent before `send` or `open`"]
pub struct RequestBuilder<'a> {
    wire: &'a Wire,
    anonymous: bool,
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl RequestBuilder<'_> {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    /// Sends it without a client certificate.
    pub fn without_certificate(mut self) -> Self {
        self.anonymous = true;
        self
    }

    fn build(self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri(&self.path).header("Host", &self.wire.address);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body)).unwrap_or_else(|e| panic!("{}: {e}", self.path))
    }

    /// Sends it on a connection of its own. Returns the head of the response with a body to be read.
    pub async fn open(self) -> Stream {
        let wire = self.wire;
        let config = if self.anonymous { &wire.anonymous } else { &wire.administrator };
        let mut sender = handshake(wire.socket_as(config).await).await;
        let sent_at = Instant::now();
        let sent = tokio::time::timeout(DEADLINE, sender.send_request(self.build())).await;
        let (head, body) = sent.expect("the head of a response in time").expect("a response").into_parts();
        let (code, headers) = (head.status.as_u16(), head.headers);
        Stream { code, headers, sent_at, body, pending: BytesMut::new() }
    }

    /// Sends it on a connection of its own and reads the whole response.
    pub async fn send(self) -> Response {
        self.open().await.whole().await
    }
}

/// One open connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub async fn send(&mut self, request: RequestBuilder<'_>) -> Response {
        let sent_at = Instant::now();
        self.sender.ready().await.expect("the connection is open");
        let (head, body) = self.sender.send_request(request.build()).await.expect("a response").into_parts();
        let (code, headers) = (head.status.as_u16(), head.headers);
        Stream { code, headers, sent_at, body, pending: BytesMut::new() }.whole().await
    }
}

/// A response whose body is read as it arrives.
pub struct Stream {
    pub code: u16,
    pub headers: HeaderMap,
    sent_at: Instant,
    body: Incoming,
    pending: BytesMut,
}

impl Stream {
    pub fn header(&self, name: &str) -> &str {
        text_of(&self.headers, name)
    }

    /// Time since the request was sent.
    pub fn age(&self) -> Duration {
        self.sent_at.elapsed()
    }

    /// Waits for more bytes. `None` is the clean end of the body, an error is a body that was cut off.
    async fn more(&mut self) -> Option<Result<(), hyper::Error>> {
        let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("no bytes within {DEADLINE:?}; unread: {:?}", self.pending));
        Some(frame?.map(|frame| self.pending.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()))))
    }

    /// The next line; `None` at the clean end of the body, an error if it was cut off.
    pub async fn try_line(&mut self) -> Result<Option<String>, hyper::Error> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                return Ok(Some(String::from_utf8(line.to_vec()).expect("JSON is UTF-8")));
            }
            match self.more().await {
                Some(more) => more?,
                None => {
                    assert!(self.pending.is_empty(), "the body ends inside a line: {:?}", self.pending);
                    return Ok(None);
                }
            }
        }
    }

    /// The next event of a watch, or `None` at its clean end.
    pub async fn event(&mut self) -> Option<Value> {
        let line = self.try_line().await.expect("the body is not cut off")?;
        Some(serde_json::from_str(&line).unwrap_or_else(|e| panic!("not one event per line: {e}\n{line}")))
    }

    /// Type and object of the next event: `ADDED name`.
    pub async fn summary(&mut self) -> Option<String> {
        self.event().await.map(|event| summary(&event))
    }

    /// The next `count` bytes.
    pub async fn bytes(&mut self, count: usize) -> Bytes {
        while self.pending.len() < count {
            self.more().await.expect("the body has not ended").expect("the body is not cut off");
        }
        self.pending.split_to(count).freeze()
    }

    /// The rest of the body up to its clean end.
    pub async fn rest(&mut self) -> Bytes {
        while let Some(more) = self.more().await {
            more.expect("the body is not cut off");
        }
        self.pending.split().freeze()
    }

    async fn whole(mut self) -> Response {
        let body = self.rest().await;
        let took = self.sent_at.elapsed();
        Response { code: self.code, headers: self.headers, body, took }
    }
}

/// Type of an event and name of its object.
pub fn summary(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Response {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub took: Duration,
}

impl Response {
    pub fn header(&self, name: &str) -> &str {
        text_of(&self.headers, name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{} and no JSON: {e}\n{self:?}", self.code))
    }

    /// The body of a response that must have this code.
    pub fn expect(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// A `Status` that must have this code and reason.
    pub fn refused(&self, code: u16, reason: &str) -> Value {
        let status = self.expect(code);
        assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()), "{status}");
        assert_eq!(status["code"], code, "{status}");
        assert_eq!(status["reason"].as_str().unwrap_or_default(), reason, "{status}");
        status
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().expect("the header is text"))
}
