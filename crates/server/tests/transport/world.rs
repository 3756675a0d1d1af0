//! A server on a free port with a handler controlled by the test, and clients that expose the bytes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use machinery::clock::Clock;
use parking_lot::Mutex;
use registry::Frames;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use server::body::{BodyError, EventSource, Observer, ReadTerms, RequestBody, ResponseBody, WatchBody};
use server::certs::{Leaf, Pki};
use server::connection::{Handler, ResponseFuture};
use server::drain::Drain;
use server::limits::{Limits, Slot, Slots};
use server::metrics::Metrics;
use server::peer::Peer;
use server::shutdown::{self, Trigger};
use server::tls::Tls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// No test waits longer than this for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The handler: `/who` returns the client's name, `/watch/<name>` streams the events that the test sends to that name,
/// `/wait` responds when the test lets it, `/length` returns the size of the request's body.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Script>);

pub(crate) struct Script {
    drain: Arc<Drain>,
    clock: Clock,
    feeds: Mutex<HashMap<String, mpsc::Sender<Frames>>>,
    pub(crate) watches: Slots,
    pub(crate) may_respond: Notify,
    pub(crate) waiting: Slots,
}

struct Feed {
    events: mpsc::Receiver<Frames>,
    _slot: Option<Slot>,
}

impl EventSource for Feed {
    fn poll_frames(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<Option<Frames>> {
        self.events.poll_recv(cx)
    }
}

struct Ignore;

impl Observer for Ignore {
    fn sent(&mut self, _: &Frames) {}
}

impl Handler for Scripted {
    fn handle(&self, request: Request<RequestBody>, peer: &Arc<Peer>) -> ResponseFuture {
        let script = Arc::clone(&self.0);
        let peer = Arc::clone(peer);
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            if let Some(name) = path.strip_prefix("/watch/") {
                let (sender, events) = mpsc::channel(16);
                script.feeds.lock().insert(name.to_owned(), sender);
                let feed = Feed { events, _slot: script.watches.take() };
                let watch = WatchBody::new(Box::new(feed), Box::new(Ignore), script.drain.ticket(), 64 * 1024);
                return Response::new(ResponseBody::watch(watch));
            }
            match path.as_str() {
                "/who" => {
                    let who = match peer.user(Clock::system().now()) {
                        Ok(None) => "none".to_owned(),
                        Err(_) => "refused".to_owned(),
                        Ok(Some(user)) => user.name.clone(),
                    };
                    Response::new(ResponseBody::whole(who.into_bytes()))
                }
                "/wait" => {
                    let _slot = script.waiting.take();
                    script.may_respond.notified().await;
                    Response::new(ResponseBody::whole(Bytes::from_static(b"done")))
                }
                "/large" => Response::new(ResponseBody::whole(vec![b'x'; LARGE])),
                "/length" => {
                    let body = read(request.into_body()).await.unwrap_or_default();
                    Response::new(ResponseBody::whole(body.len().to_string().into_bytes()))
                }
                _ => {
                    let mut response = Response::new(ResponseBody::empty());
                    *response.status_mut() = StatusCode::NOT_FOUND;
                    response
                }
            }
        })
    }

    fn drain(&self) -> &Arc<Drain> {
        &self.0.drain
    }

    fn clock(&self) -> &Clock {
        &self.0.clock
    }
}

/// Bytes of a response that no buffer of a socket takes whole.
const LARGE: usize = 32 << 20;

/// A running server.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) pki: Pki,
    pub(crate) script: Arc<Script>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trigger: Trigger,
    pub(crate) running: JoinHandle<()>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        Self::with_pki(limits, Pki::in_memory(&[], Clock::system().now()).unwrap()).await
    }

    pub(crate) async fn with_pki(limits: Limits, pki: Pki) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::new(&limits));
        let script = Arc::new(Script {
            drain: Arc::default(),
            clock: Clock::system(),
            feeds: Mutex::default(),
            watches: Slots::new("watches", usize::MAX),
            may_respond: Notify::new(),
            waiting: Slots::new("waiting", usize::MAX),
        });
        let (trigger, shutdown) = shutdown::channel();
        let running = tokio::spawn(server::listener::run(
            listener,
            Some(Tls::new(&pki).unwrap()),
            Scripted(Arc::clone(&script)),
            Arc::new(limits),
            Arc::clone(&metrics),
            shutdown,
        ));
        World { address, pki, script, metrics, trigger, running }
    }

    /// Sends one batch of events to a watch.
    pub(crate) async fn send(&self, watch: &str, events: &[&str]) {
        let segments: Vec<Bytes> = events.iter().map(|event| Bytes::from(event.as_bytes().to_vec())).collect();
        let events = Frames { ends: (1..=segments.len()).collect(), segments, ..Frames::default() };
        let feed = self.script.feeds.lock().get(watch).cloned().expect("the watch is open");
        feed.send(events).await.expect("the watch is still open");
    }

    /// Ends a watch from the server's side.
    pub(crate) fn end(&self, watch: &str) {
        self.script.feeds.lock().remove(watch);
    }

    pub(crate) fn tls(&self, client: Option<&Leaf>, alpn: &[&str]) -> TlsConnector {
        connector(&self.pki.ca_pem, client, alpn)
    }

    pub(crate) async fn connect(&self, client: Option<&Leaf>, alpn: &[&str]) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.tls(client, alpn).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
    }

    /// An HTTP/1.1 connection of the administrator.
    pub(crate) async fn http1(&self) -> Client {
        Client { stream: self.connect(Some(&self.pki.admin), &["http/1.1"]).await, read: Vec::new() }
    }
}

async fn read(mut body: RequestBody) -> Result<Bytes, BodyError> {
    let (grace, bytes_per_second_min) = (PATIENCE, 1);
    body.read(ReadTerms { bytes_max: 1 << 20, grace, bytes_per_second_min, charge: &mut |_| true }).await
}

pub(crate) fn connector(ca_pem: &str, client: Option<&Leaf>, alpn: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(leaf) => builder.with_client_auth_cert(leaf.chain().unwrap(), leaf.key().unwrap()).unwrap(),
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// An HTTP/1.1 client that exposes the bytes on the wire.
pub(crate) struct Client {
    pub(crate) stream: TlsStream<TcpStream>,
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    }

    /// Reads up to and including this text.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.read.windows(text.len()).position(|window| window == text.as_bytes()) {
                let rest = self.read.split_off(at + text.len());
                return String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
            }
            let mut more = [0; 4096];
            let count = tokio::time::timeout(PATIENCE, self.stream.read(&mut more)).await.expect(text).unwrap();
            assert_ne!(count, 0, "ended before {text:?}, after {:?}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&more[..count]);
        }
    }

    /// Reads until the server closes or resets the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut more = [0; 4096];
        loop {
            match tokio::time::timeout(PATIENCE, self.stream.read(&mut more)).await.expect("the end") {
                Ok(0) | Err(_) => break,
                Ok(count) => self.read.extend_from_slice(&more[..count]),
            }
        }
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }
}

/// Waits until a condition holds; returns how long that took.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    began.elapsed()
}
