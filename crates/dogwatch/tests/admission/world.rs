//! A server in memory, and requests to it without a socket.

use std::sync::Arc;

use access::identity::User;
use bytes::Bytes;
use dogwatch::cluster::{Access, Cluster};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use machinery::json::{self, Value, json};
use parking_lot::Mutex;
use server::limits::Limits;
use server::shutdown::Trigger;
use store::Retention;
use store::memory::MemoryStore;
use tokio::net::TcpListener;
use tower_service::Service as _;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A running server.
pub(crate) struct World {
    cluster: Cluster,
    /// Keeps listeners.
    triggers: Mutex<Vec<Trigger>>,
}

/// A response with its body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Response {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all(header::WARNING).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    /// The object of a response with a code of success.
    #[track_caller]
    pub(crate) fn object(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Access::default(), registry::Settings::default(), Limits::default()).await
    }

    pub(crate) async fn with(access: Access, settings: registry::Settings, limits: Limits) -> Self {
        let access = Access { anonymous: true, ..access };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let cluster = Cluster::start(store, &access, limits, settings).await.unwrap();
        World { cluster, triggers: Mutex::default() }
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
        let body = body.to_bytes();
        let body = json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
        Response { code: StatusCode::as_u16(&head.status), headers: head.headers, body: body.parsed().into_owned() }
    }

    pub(crate) async fn request(&self, method: Method, path: &str, content: &str, body: &Value) -> Response {
        let mut request = Request::new(if body.is_null() { Bytes::new() } else { json::to_string(body).into() });
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert(header::CONTENT_TYPE, content.parse().unwrap());
        self.send(admin(), request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path, "application/json", &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Response {
        self.request(Method::PUT, path, "application/json", body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Response {
        self.request(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.request(Method::DELETE, path, "application/json", &Value::Null).await
    }

    /// Creates an object of admissionregistration.k8s.io/v1.
    pub(crate) async fn register(&self, plural: &str, body: &Value) {
        self.post(&format!("/apis/admissionregistration.k8s.io/v1/{plural}"), body).await.object();
    }
}

pub(crate) fn admin() -> User {
    user("admin", &["system:masters"])
}

pub(crate) fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }.authenticated()
}

pub(crate) fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
