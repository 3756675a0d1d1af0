//! Rights that a request needs beyond the one to its verb.

use access::authorizer::{self, ResourceAttributes, What, forbidden};
use machinery::Status;

use crate::admission::plugin::{Attributes, Options};
use crate::registry::Registry;
use crate::request::{Context, Target};

/// Checks that the user of a PUT or an apply may create the missing object. A POST was authorized as such.
pub(crate) async fn confirm_create(registry: &Registry, attributes: &Attributes<'_>) -> Result<(), Status> {
    if matches!(attributes.options, Options::Create(_) | Options::None) {
        return Ok(());
    }
    let create = authorizer::Attributes { user: &attributes.ctx.user, verb: "create", what: what(attributes.target) };
    let decision = registry.settings().authorizer.authorize(&create).get().await;
    match (decision.allowed, decision.error.is_empty()) {
        (true, _) => Ok(()),
        (false, false) => Err(Status::internal(&decision.error)),
        (false, true) => Err(forbidden(&create, &decision)),
    }
}

/// Checks that the user of a connection to a pod may create it: a WebSocket begins with a GET, which is only authorized as `get`.
pub(crate) async fn confirm_connect(registry: &Registry, target: &Target, ctx: &Context) -> Result<(), Status> {
    let connection = matches!(target.subresource.as_deref(), Some("exec" | "attach" | "portforward"));
    if !connection || !target.kind.gvk.group.is_empty() || target.kind.plural != "pods" {
        return Ok(());
    }
    let create = authorizer::Attributes { user: &ctx.user, verb: "create", what: what(target) };
    let decision = registry.settings().authorizer.authorize(&create).get().await;
    if decision.allowed {
        Ok(())
    } else {
        Err(Status::forbidden(&target.gr(), target.name(), decision.reason.to_string()))
    }
}

fn what(target: &Target) -> What<'_> {
    let gvk = &target.kind.gvk;
    What::Resource(ResourceAttributes {
        group: &gvk.group,
        version: &gvk.version,
        resource: &target.kind.plural,
        subresource: target.subresource.as_deref().unwrap_or_default(),
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name(),
        ..ResourceAttributes::default()
    })
}
