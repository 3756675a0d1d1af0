//! The role of those who may use the lab.

use std::sync::Arc;

use access::identity::{MASTERS, User};
use machinery::json::json;
use machinery::media::MediaType;
use machinery::options::CreateOptions;
use registry::{Body, Context, Registry, Target, WriteRequest};

/// The name of the role. No binding grants it: only members of `system:masters` and of `cluster-admin` may use the lab before one does.
const NAME: &str = "dogwatch:lab";

/// Creates the role, unless it is there already.
pub(crate) async fn seed(registry: &Registry) {
    let kinds = registry.kinds();
    let Some(kind) = kinds.get("rbac.authorization.k8s.io", "v1", "clusterroles") else { return };
    let target = Target { kind: Arc::clone(kind), namespace: None, name: None, subresource: None };
    let role = json!({
        "kind": "ClusterRole",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": NAME},
        "rules": [{"apiGroups": [lab::kinds::GROUP], "resources": ["*"], "verbs": ["*"]}],
    });
    let user = User { name: "system:apiserver".to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() };
    let ctx = Context { user: Arc::new(user), user_agent: "dogwatch".to_owned(), ..Context::default() };
    let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &ctx };
    let body = Body { bytes: role.to_string().into(), media: MediaType::Json };
    match registry.create(request, &body).await {
        Ok(_) => {}
        Err(status) if status.code == 409 => {}
        Err(status) => tracing::warn!(%status, "the role {NAME} could not be created"),
    }
}
