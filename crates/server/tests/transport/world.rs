//! A server on a free port with a handler the test steers, and clients that show the bytes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use server::body::{EventSource, Events, Observer, RequestBody, ResponseBody, WatchBody};
use server::certs::{Leaf, Pki};
use server::connection::{Answer, Handler};
use server::drain::Drain;
use server::limits::{Limits, Place, Places};
use server::metrics::Metrics;
use server::peer::{ClientCertificate, Peer};
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

/// The handler: `/who` names the client, `/watch/<name>` streams what the test sends to that name, `/wait` answers when
/// the test says so.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Script>);

pub(crate) struct Script {
    drain: Arc<Drain>,
    feeds: Mutex<HashMap<String, mpsc::Sender<Events>>>,
    pub(crate) watches: Places,
    pub(crate) may_answer: Notify,
    pub(crate) waiting: Places,
}

struct Feed {
    events: mpsc::Receiver<Events>,
    _place: Option<Place>,
}

impl EventSource for Feed {
    fn poll_events(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<Option<Events>> {
        self.events.poll_recv(cx)
    }
}

struct Ignore;

impl Observer for Ignore {
    fn sent(&mut self, _: &Events) {}
}

impl Handler for Scripted {
    fn handle(&self, request: Request<RequestBody>, peer: &Arc<Peer>) -> Answer {
        let script = Arc::clone(&self.0);
        let peer = Arc::clone(peer);
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            if let Some(name) = path.strip_prefix("/watch/") {
                let (sender, events) = mpsc::channel(16);
                script.feeds.lock().insert(name.to_owned(), sender);
                let feed = Feed { events, _place: script.watches.take() };
                let watch = WatchBody::new(Box::new(feed), Box::new(Ignore), script.drain.ticket(), 64 * 1024);
                return Response::new(ResponseBody::watch(watch));
            }
            match path.as_str() {
                "/who" => {
                    let who = match &peer.certificate {
                        None => "nobody".to_owned(),
                        Some(ClientCertificate::Refused) => "stranger".to_owned(),
                        Some(ClientCertificate::Verified(user)) => user.name.clone(),
                    };
                    Response::new(ResponseBody::whole(who.into_bytes()))
                }
                "/wait" => {
                    let _place = script.waiting.take();
                    script.may_answer.notified().await;
                    Response::new(ResponseBody::whole(Bytes::from_static(b"done")))
                }
                "/length" => {
                    let body = request.into_body().read(1 << 20).await.unwrap_or_default();
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
}

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
        let pki = Pki::in_memory(&[], jiff::Timestamp::now()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::new(&limits));
        let script = Arc::new(Script {
            drain: Arc::default(),
            feeds: Mutex::default(),
            watches: Places::new("watches", usize::MAX),
            may_answer: Notify::new(),
            waiting: Places::new("waiting", usize::MAX),
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
        let events = Events { ends: (1..=segments.len()).collect(), segments, ..Events::default() };
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

/// HTTP/1.1 by hand: what is asserted is what was on the wire.
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

    /// Everything up to and including this text.
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

    /// What comes until the server ends the connection, gently or not.
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

/// Waits until something holds, and says how long that took.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    began.elapsed()
}
