//! A server with roles, and requests of its users.

use dogwatch::testing::{Authorization, PluginSelection, Server};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinery::json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(crate) struct World {
    pub(crate) server: Server,
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        World { server: Server::start().await }
    }

    pub(crate) async fn with(authorization: Authorization) -> Self {
        World { server: Server::with_authorization(authorization).await }
    }

    /// With the modes `Node,RBAC` and these plugins beside those that are on by default.
    pub(crate) async fn with_plugins(enabled: &[&str]) -> Self {
        let plugins = PluginSelection::new(enabled, &[]).unwrap();
        let authorization = Authorization::of_modes(&["Node", "RBAC"]).unwrap();
        World { server: Server::with_plugins(authorization, plugins).await }
    }

    /// Sends a request as a user. `root` is in `system:masters`; a node has the group of nodes.
    pub(crate) async fn send(&self, user: &str, request: Request<Body>) -> http::Response<Body> {
        let groups: &[&str] = match user {
            "root" => &["system:masters"],
            node if node.starts_with("system:node:") => &["system:nodes"],
            _ => &[],
        };
        self.server.client_as(user, groups).send(request).await.unwrap()
    }

    pub(crate) async fn ask(&self, user: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.ask_as(user, method, path, "application/json", body).await
    }

    pub(crate) async fn ask_as(&self, user: &str, method: &str, path: &str, kind: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let response = self.send(user, request.body(Body::from(body)).unwrap()).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { code: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) async fn get(&self, user: &str, path: &str) -> Answer {
        self.ask(user, "GET", path, None).await
    }

    /// Creates an object as root.
    pub(crate) async fn make(&self, path: &str, object: Value) -> Value {
        let answer = self.ask("root", "POST", path, Some(object)).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.text());
        answer.json()
    }

    /// Gives a user a Role with these rules in the namespace `default`, or a ClusterRole; replaces an earlier one.
    pub(crate) async fn grant(&self, user: &str, cluster: bool, rules: Value) {
        let (kind, role, binding) = match cluster {
            true => ("ClusterRole", format!("{RBAC}/clusterroles"), format!("{RBAC}/clusterrolebindings")),
            false => {
                let place = format!("{RBAC}/namespaces/default");
                ("Role", format!("{place}/roles"), format!("{place}/rolebindings"))
            }
        };
        let name = format!("of-{}", user.replace(':', "-"));
        self.ask("root", "DELETE", &format!("{binding}/{name}"), None).await;
        self.ask("root", "DELETE", &format!("{role}/{name}"), None).await;
        self.make(&role, json!({"metadata": {"name": name}, "rules": rules})).await;
        let subject = match user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
            Some((namespace, name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
            None => json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}),
        };
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let object = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
        self.make(&binding, object).await;
    }

    /// Deletes the binding that [`World::grant`] made in the namespace `default`.
    pub(crate) async fn revoke(&self, user: &str) {
        let path = format!("{RBAC}/namespaces/default/rolebindings/of-{}", user.replace(':', "-"));
        let answer = self.ask("root", "DELETE", &path, None).await;
        assert_eq!(answer.code, 200, "{}", answer.text());
    }

    pub(crate) async fn make_config_map(&self, name: &str) {
        self.make("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": name}})).await;
    }

    pub(crate) async fn make_pod(&self, name: &str, more: Value) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": "img"}]});
        for (member, value) in more.as_object().into_iter().flatten() {
            spec[&**member] = value.clone();
        }
        self.make("/api/v1/namespaces/default/pods", json!({"metadata": {"name": name}, "spec": spec})).await
    }
}
