//! Impersonation with roles: what they allow acts on the next request, and so does what they no longer allow.

use dogwatch::testing::Server;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinery::json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

struct World(Server);

impl World {
    async fn start() -> Self {
        let world = World(Server::start().await);
        world.root("POST", "/api/v1/namespaces", Some(json!({"metadata": {"name": "shop"}}))).await;
        world
    }

    async fn ask(&self, user: &str, groups: &[&str], request: Request<Body>) -> (u16, Value) {
        let response = self.0.client_as(user, groups).send(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn root(&self, method: &str, path: &str, object: Option<Value>) {
        let body = object.map(|object| object.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let (code, answer) = self.ask("root", &["system:masters"], request.body(Body::from(body)).unwrap()).await;
        assert!((200..300).contains(&code), "{method} {path}: {answer}");
    }

    /// A GET of alice on behalf of another user: the code, and the message of a refusal.
    async fn get_as(&self, other: &str, path: &str) -> (u16, String) {
        let request = Request::get(path).header("impersonate-user", other).body(Body::empty()).unwrap();
        let (code, body) = self.ask("alice", &[], request).await;
        (code, body["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn bind(&self, role: Value) {
        let name = role["metadata"]["name"].as_str().unwrap().to_owned();
        self.root("POST", &format!("{RBAC}/clusterroles"), Some(role)).await;
        let binding = json!({
            "metadata": {"name": name}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        });
        self.root("POST", &format!("{RBAC}/clusterrolebindings"), Some(binding)).await;
    }
}

#[tokio::test]
async fn im_4_14_two_rights_give_exactly_one_request_and_their_loss_acts_at_once() {
    let world = World::start().await;
    let group = "authentication.k8s.io";
    world
        .bind(json!({"metadata": {"name": "as-bob"}, "rules": [
            {"apiGroups": [group], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate:user-info"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
        ]}))
        .await;
    let viewer = json!({
        "metadata": {"name": "bob-views"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    });
    world.root("POST", &format!("{RBAC}/clusterrolebindings"), Some(viewer)).await;
    let pods = "/api/v1/namespaces/shop/pods";
    for _ in 0..2 {
        assert_eq!(world.get_as("bob", pods).await.0, 200);
    }
    let (code, why) = world.get_as("bob", "/api/v1/namespaces/shop/configmaps").await;
    assert_eq!(code, 403);
    assert!(why.contains("cannot impersonate-on:user-info:list resource \"configmaps\""), "{why}");
    assert_eq!(world.get_as("eve", pods).await.0, 403);
    world.root("DELETE", &format!("{RBAC}/clusterrolebindings/as-bob"), None).await;
    assert_eq!(world.get_as("bob", pods).await.0, 403, "no answer is kept");
}

#[tokio::test]
async fn im_11_the_role_edit_allows_service_accounts_of_its_namespace() {
    let world = World::start().await;
    let account = "system:serviceaccount:shop:default";
    let (code, why) = world.get_as(account, "/version").await;
    assert_eq!(code, 403);
    assert!(why.contains("cannot impersonate-on:serviceaccount:get path \"/version\""), "{why}");
    let binding = json!({
        "metadata": {"name": "edit"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
    });
    world.root("POST", &format!("{RBAC}/namespaces/shop/rolebindings"), Some(binding)).await;
    assert_eq!(world.get_as(account, "/version").await.0, 200);
    let (code, why) = world.get_as("system:serviceaccount:other:default", "/version").await;
    assert_eq!(code, 403);
    assert_eq!(
        why,
        "serviceaccounts \"default\" is forbidden: User \"alice\" cannot impersonate resource \"serviceaccounts\" in API group \
         \"\" in the namespace \"other\"",
        "IM-12: the mode that succeeded last is the one that is named"
    );
}
