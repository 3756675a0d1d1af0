//! A webhook: a TLS server that records each review and answers what the test wants.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::json::{self, Value, json};
use outbound::testing::{Authority, Reply, Seen, TestServer};

use crate::world::World;

/// A running webhook.
pub(crate) struct Hook {
    pub(crate) server: TestServer,
    authority: Authority,
}

impl Hook {
    /// `answer` returns the members of a response, from the request of a review.
    pub(crate) async fn new(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::replying(move |review| {
            let mut response = answer(&review["request"]);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            if response.get("allowed").is_none() {
                response["allowed"] = json!(true);
            }
            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            Reply::text(&json::to_string(&answer))
        })
        .await
    }

    pub(crate) async fn replying(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Authority::new();
        let reply = Arc::new(reply);
        let script = move |seen: &Seen| reply(&json::from_str(&seen.body).unwrap_or_default());
        let server = TestServer::start(authority.leaf(&["127.0.0.1", "localhost"]), script).await;
        Hook { server, authority }
    }

    /// Allows everything.
    pub(crate) async fn open() -> Self {
        Self::new(|_| json!({})).await
    }

    /// Refuses everything with a message.
    pub(crate) async fn closed(message: &'static str) -> Self {
        Self::new(move |_| json!({"allowed": false, "status": {"message": message}})).await
    }

    /// Patches everything.
    pub(crate) async fn patching(patch: Value) -> Self {
        Self::new(move |_| patched(&patch)).await
    }

    pub(crate) fn client(&self) -> Value {
        json!({"url": self.server.url("/hook"), "caBundle": STANDARD.encode(&self.authority.pem)})
    }

    /// The requests of all reviews so far.
    pub(crate) fn reviews(&self) -> Vec<Value> {
        let bodies = self.server.requests().into_iter().map(|seen| json::from_str(&seen.body).unwrap());
        bodies.map(|review: Value| review["request"].parsed().into_owned()).collect()
    }

    /// A webhook for some operations on a resource, by its name.
    pub(crate) fn webhook(&self, name: &str, operations: &[&str], resources: &[&str]) -> Value {
        json!({
            "name": name,
            "clientConfig": self.client(),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [{"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}],
        })
    }

    pub(crate) async fn validates(&self, world: &World, operations: &[&str], resources: &[&str]) {
        let webhook = self.webhook("h.example.com", operations, resources);
        configure(world, "validating", "hooks", &[webhook]).await;
    }

    pub(crate) async fn mutates(&self, world: &World, operations: &[&str], resources: &[&str]) {
        let webhook = self.webhook("h.example.com", operations, resources);
        configure(world, "mutating", "hooks", &[webhook]).await;
    }
}

/// The response with a patch.
pub(crate) fn patched(patch: &Value) -> Value {
    json!({"patch": STANDARD.encode(json::to_string(patch)), "patchType": "JSONPatch"})
}

/// Creates a configuration; `kind` is `mutating` or `validating`.
pub(crate) async fn configure(world: &World, kind: &str, name: &str, webhooks: &[Value]) {
    let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
    world.register(&format!("{kind}webhookconfigurations"), &configuration).await;
}
