//! A server on a free port with a store in memory, and clients of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::authorizer::{AuthenticatedOnly, Authorizer};
use access::identity::User;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use machinery::clock::Clock;
use machinery::json::{Value, json};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use server::authentication::Authenticator;
use server::authentication::accounts::{AccountTokens, TokenKeys, TokenSettings};
use server::authentication::anonymous::Anonymous;
use server::certs::{Leaf, Pki};
use server::limits::Limits;
use server::shutdown::{self, Trigger};
use server::tls::Tls;
use server::{Config, Server, listener};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// No test waits longer than this for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) pki: Pki,
    pub(crate) server: Server,
    pub(crate) trigger: Trigger,
    pub(crate) running: JoinHandle<()>,
}

/// A response with its whole body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Code and message of a `Status`.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let body = self.json();
        assert_eq!(body["kind"], "Status", "{body}");
        assert_eq!(body["code"], self.code, "{body}");
        (self.code, body["message"].as_str().unwrap_or_default().to_owned())
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        Self::with_authorizer(limits, Arc::new(AuthenticatedOnly)).await
    }

    pub(crate) async fn with_authorizer(limits: Limits, authorizer: Arc<dyn Authorizer>) -> Self {
        Self::new(limits, authorizer, Clock::system()).await
    }

    /// A server that decides by roles.
    pub(crate) async fn with_roles() -> Self {
        let roles: Arc<access::Rbac> = Arc::default();
        let authorizer = Arc::clone(&roles) as Arc<dyn Authorizer>;
        let settings = registry::Settings { authorizer: Arc::clone(&authorizer), roles, ..Default::default() };
        let store = Arc::new(store::memory::MemoryStore::new(store::Retention::default()));
        Self::with_settings(store, settings, Limits::default(), authorizer, Clock::system()).await
    }

    pub(crate) async fn with_clock(clock: Clock) -> Self {
        Self::new(Limits::default(), Arc::new(AuthenticatedOnly), clock).await
    }

    async fn new(limits: Limits, authorizer: Arc<dyn Authorizer>, clock: Clock) -> Self {
        let store = Arc::new(store::memory::MemoryStore::new(store::Retention::default()));
        Self::on(store, limits, authorizer, clock).await
    }

    pub(crate) async fn on(
        store: Arc<dyn store::Store>,
        limits: Limits,
        authorizer: Arc<dyn Authorizer>,
        clock: Clock,
    ) -> Self {
        Self::with_settings(store, registry::Settings::default(), limits, authorizer, clock).await
    }

    async fn with_settings(
        store: Arc<dyn store::Store>,
        settings: registry::Settings,
        limits: Limits,
        authorizer: Arc<dyn Authorizer>,
        clock: Clock,
    ) -> Self {
        let registry = registry::Registry::start(store, settings).await.unwrap();
        let mut authenticator = Authenticator { anonymous: Anonymous::allowed(true), ..Authenticator::default() };
        let keys = TokenKeys::new(&server::certs::make_key().unwrap(), &[]).unwrap();
        authenticator.accounts = Some(AccountTokens::new(Arc::clone(&registry), keys, TokenSettings::default()));
        authenticator.tokens.add("sesame", User { name: "alice".to_owned(), ..User::default() });
        let metrics = prometheus_client::registry::Registry::default();
        let server_metrics = Arc::new(server::metrics::Metrics::new(&limits));
        let config = Config {
            limits,
            authenticator,
            authorizer,
            inspection: Default::default(),
            traced_writes: 0,
            explain_refusals: false,
            metrics,
            server_metrics,
            certificates_clock: clock.clone(),
            clock,
        };
        let server = Server::new(registry, config);
        let pki = Pki::in_memory(&[], Clock::system().now()).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (trigger, stop) = shutdown::channel();
        let (limits, metrics) = (Arc::clone(server.limits()), Arc::clone(server.metrics()));
        let tls = Tls::new(&pki).unwrap();
        let running = tokio::spawn(listener::run(socket, Some(tls), server.clone(), limits, metrics, stop));
        World { address, pki, server, trigger, running }
    }

    pub(crate) async fn connect(&self, admin: bool) -> TlsStream<TcpStream> {
        self.connect_with(admin.then_some(&self.pki.admin)).await
    }

    /// Connects for HTTP/2, without a client certificate.
    pub(crate) async fn connect_h2(&self) -> TlsStream<TcpStream> {
        self.connect_for(b"h2", None).await
    }

    /// Connects with any client certificate.
    pub(crate) async fn connect_with(&self, leaf: Option<&Leaf>) -> TlsStream<TcpStream> {
        self.connect_for(b"http/1.1", leaf).await
    }

    async fn connect_for(&self, protocol: &[u8], leaf: Option<&Leaf>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.ca_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match leaf {
            Some(leaf) => builder.with_client_auth_cert(leaf.chain().unwrap(), leaf.key().unwrap()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await.unwrap()
    }

    /// Sends a request on a new connection; the body of the response is not read yet.
    pub(crate) async fn open(
        &self,
        admin: bool,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> http::Response<Incoming> {
        let io = TokioIo::new(self.connect(admin).await);
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path).header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sender.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap()
    }

    pub(crate) async fn ask(
        &self,
        admin: bool,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let response = self.open(admin, method, path, headers, body).await;
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("an end").unwrap().to_bytes();
        Answer { code: head.status.as_u16(), headers: head.headers, body }
    }

    /// As the administrator, without a body.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(true, "GET", path, &[], "").await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask(true, "GET", path, headers, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(true, "POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn make_config_map(&self, name: &str, data: &str) {
        let body = json!({"metadata": {"name": name}, "data": {"k": data}});
        let answer = self.post("/api/v1/namespaces/default/configmaps", &body).await;
        assert_eq!(answer.code, 201, "{}", answer.text());
    }
}
