//! A server in memory, and requests to it without a socket.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use access::identity::User;
use bytes::Bytes;
use dogwatch::cluster::{Access, Cluster};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use machinery::json::{self, Value, json};
use parking_lot::Mutex;
use server::limits::Limits;
use server::shutdown::Trigger;
use server::webhooks::WebhookSettings;
use store::Retention;
use store::memory::MemoryStore;
use tokio::net::TcpListener;
use tower_service::Service as _;

/// The administrator's token on a listener.
pub(crate) const TOKEN: &str = "admin-token";

/// A running server.
pub(crate) struct World {
    cluster: Cluster,
    /// Keeps listeners.
    triggers: Mutex<Vec<Trigger>>,
    /// With the token file.
    _folder: tempfile::TempDir,
}

/// A response with its body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        json::from_str(&self.text).unwrap_or_default()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The object of a response with a code of success.
    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        assert!(self.code.is_success(), "{} {}", self.code, self.text);
        self.json()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(WebhookSettings::default()).await
    }

    pub(crate) async fn with(webhooks: WebhookSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        std::fs::write(&tokens, format!("{TOKEN},admin,1,\"system:masters\"\n")).unwrap();
        let access = Access { token_file: Some(tokens), anonymous: true, webhooks, ..Access::default() };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let settings = registry::Settings::default();
        let cluster = Cluster::start(store, &access, Limits::default(), settings).await.unwrap();
        World { cluster, triggers: Mutex::default(), _folder: folder }
    }

    /// Listens without TLS; returns the address.
    pub(crate) async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (trigger, shutdown) = server::shutdown::channel();
        tokio::spawn(self.cluster.server().serve(listener, None, shutdown));
        self.triggers.lock().push(trigger);
        address
    }

    pub(crate) async fn send(&self, user: User, request: Request<Bytes>) -> Response {
        let mut service = self.cluster.server().in_process(user);
        let response = service.call(request.map(Full::new)).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Response { code: head.status, headers: head.headers, text }
    }

    async fn request(&self, method: Method, path: &str, body: &Value) -> Response {
        let mut request = Request::new(if body.is_null() { Bytes::new() } else { json::to_string(body).into() });
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        self.send(admin(), request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Response {
        self.request(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.request(Method::DELETE, path, &Value::Null).await
    }

    /// Creates a namespace and a Service in it with port 443, and returns the path of Services.
    pub(crate) async fn service(&self, namespace: &str, name: &str) {
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 443, "targetPort": 9443}]}});
        self.post(&format!("/api/v1/namespaces/{namespace}/services"), &service).await.object();
    }

    /// Creates an EndpointSlice by hand that leads to an address, which must not be loopback.
    pub(crate) async fn slice(&self, namespace: &str, service: &str, address: &str) {
        let (host, port) = address.rsplit_once(':').unwrap();
        let slice = json!({
            "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"port": port.parse::<u16>().unwrap()}],
            "endpoints": [{"addresses": [host]}],
        });
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        self.post(&path, &slice).await.object();
    }
}

/// An address of this host that is not loopback, which an EndpointSlice must not have; none on a host without a network.
pub(crate) fn host_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing; it only chooses a route.
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

pub(crate) fn admin() -> User {
    user("admin", &["system:masters"])
}

pub(crate) fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }.authenticated()
}
