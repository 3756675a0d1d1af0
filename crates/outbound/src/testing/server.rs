//! A TLS server that records requests and replies as a function of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, HandshakeKind, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::Leaf;

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
    pub server_name: String,
    pub client_certificates: usize,
    /// The connection continued a TLS session of an earlier one.
    pub is_resumed: bool,
}

impl Seen {
    #[must_use]
    pub fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    }
}

enum Content {
    Text(String),
    /// Pieces of this size without end; the head only if it is 0.
    Endless(usize),
    Never,
    Close,
    /// Echoes what is sent after the upgrade.
    Upgrade,
}

/// A reply of the server.
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    content: Content,
}

impl Reply {
    fn of(content: Content) -> Self {
        Reply { status: 200, headers: Vec::new(), content }
    }

    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::of(Content::Text(text.to_owned()))
    }

    #[must_use]
    pub fn endless(piece: usize) -> Self {
        Self::of(Content::Endless(piece))
    }

    #[must_use]
    pub fn never() -> Self {
        Self::of(Content::Never)
    }

    /// Closes the connection without a reply.
    #[must_use]
    pub fn close() -> Self {
        Self::of(Content::Close)
    }

    #[must_use]
    pub fn upgrade() -> Self {
        Self::of(Content::Upgrade).status(101).header("connection", "upgrade").header("upgrade", "echo")
    }

    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Ends the connection after this reply.
    #[must_use]
    pub fn last(self) -> Self {
        self.header("connection", "close")
    }
}

type Script = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// A server on a loopback address; it ends when dropped, with its connections.
pub struct TestServer {
    address: String,
    scheme: &'static str,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Seen>>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// An address at which nothing listens.
pub async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Accepts connections of a server that a test writes itself.
#[must_use]
pub fn acceptor(leaf: &Leaf) -> TlsAcceptor {
    tls(leaf, Clients::None)
}

impl TestServer {
    pub async fn start(leaf: Leaf, script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", leaf, script).await
    }

    pub async fn start_at(address: &str, leaf: Leaf, script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::run(address, Some(tls(&leaf, Clients::None)), Arc::new(script)).await
    }

    /// A server that requires client certificates of an authority.
    pub async fn with_clients(
        leaf: Leaf,
        authority: &str,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::run("127.0.0.1:0", Some(tls(&leaf, Clients::Of(authority))), Arc::new(script)).await
    }

    /// A server that asks for client certificates, and takes any or none.
    pub async fn with_clients_if_given(leaf: Leaf, script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::run("127.0.0.1:0", Some(tls(&leaf, Clients::Any)), Arc::new(script)).await
    }

    /// A server without TLS.
    pub async fn plain(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::run("127.0.0.1:0", None, Arc::new(script)).await
    }

    async fn run(address: &str, tls: Option<TlsAcceptor>, script: Script) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = tokio::spawn(accept(listener, tls, script, Arc::clone(&connections), Arc::clone(&requests)));
        TestServer { address, scheme, connections, requests, task: Some(task) }
    }

    /// Stops listening and closes all connections before it returns.
    pub async fn stop(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    #[must_use]
    pub fn address(&self) -> String {
        self.address.clone()
    }

    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.requests.lock().clone()
    }
}

/// Whose certificates a server asks for.
enum Clients<'a> {
    None,
    /// Any or none is accepted.
    Any,
    /// One of this authority is required.
    Of(&'a str),
}

/// Asks for a certificate and accepts any.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

fn tls(leaf: &Leaf, clients: Clients<'_>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Clients::None => builder.with_no_client_auth(),
        Clients::Any => {
            builder.with_client_cert_verifier(Arc::new(AnyClient(provider.signature_verification_algorithms)))
        }
        Clients::Of(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap));
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let pem = format!("{}{}", leaf.cert_pem, leaf.chain_pem);
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    script: Script,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Seen>>>,
) {
    // Connections end with the server.
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::AcqRel);
        let (tls, script, requests) = (tls.clone(), Arc::clone(&script), Arc::clone(&requests));
        tasks.spawn(async move {
            let Some(tls) = tls else { return serve(stream, script, requests, Session::default()).await };
            let Ok(stream) = tls.accept(stream).await else { return };
            let session = stream.get_ref().1;
            let session = Session {
                server_name: session.server_name().unwrap_or_default().to_owned(),
                certificates: session.peer_certificates().map_or(0, <[_]>::len),
                is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            };
            serve(stream, script, requests, session).await;
        });
    }
}

/// What the handshake of a connection settled.
#[derive(Default)]
struct Session {
    server_name: String,
    certificates: usize,
    is_resumed: bool,
}

async fn serve<S>(stream: S, script: Script, requests: Arc<Mutex<Vec<Seen>>>, session: Session)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Session { server_name, certificates, is_resumed } = session;
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let (script, requests, server_name) = (Arc::clone(&script), Arc::clone(&requests), server_name.clone());
        async move {
            let upgrade = hyper::upgrade::on(&mut request);
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| "the request ended")?.to_bytes();
            let seen = Seen {
                method: head.method,
                path: head.uri.path_and_query().map(|path| path.as_str().to_owned()).unwrap_or_default(),
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
                server_name,
                client_certificates: certificates,
                is_resumed,
            };
            requests.lock().push(seen.clone());
            let reply = script(&seen);
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            let body: UnsyncBoxBody<Bytes, Infallible> = match reply.content {
                Content::Text(text) => Full::from(text).boxed_unsync(),
                Content::Endless(0) => StreamBody::new(stream::pending()).boxed_unsync(),
                Content::Endless(piece) => {
                    let piece = Bytes::from(vec![b'x'; piece]);
                    let pieces = stream::repeat_with(move || Ok(Frame::data(piece.clone())));
                    StreamBody::new(pieces).boxed_unsync()
                }
                Content::Never => std::future::pending().await,
                Content::Close => return Err("closed"),
                Content::Upgrade => {
                    tokio::spawn(async move {
                        let Ok(upgraded) = upgrade.await else { return };
                        let mut stream = TokioIo::new(upgraded);
                        let mut buffer = [0; 64];
                        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                            if stream.write_all(&buffer[..read]).await.is_err() {
                                return;
                            }
                        }
                    });
                    Full::default().boxed_unsync()
                }
            };
            response.body(body).map_err(|_| "not a response")
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}
