//! OwnerReferencesPermissionEnforcement: only users who may delete an object set its owners, and only those who may set finalizers of
//! an owner block its deletion.

use std::sync::Arc;

use access::{Authorizer, ResourceAttributes, What};
use machinery::Status;
use machinery::json::Value;

use crate::admission::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::kinds::definitions::Definitions;

pub(super) struct OwnerReferences {
    authorizer: Arc<dyn Authorizer>,
    definitions: Arc<Definitions>,
}

impl OwnerReferences {
    pub(super) fn new(authorizer: Arc<dyn Authorizer>, definitions: Arc<Definitions>) -> Self {
        OwnerReferences { authorizer, definitions }
    }

    /// Whether the user may do this; otherwise the reason.
    async fn ask(&self, attributes: &Attributes<'_>, verb: &str, about: ResourceAttributes<'_>) -> Result<(), String> {
        let asked = access::Attributes { user: &attributes.ctx.user, verb, what: What::Resource(about) };
        let decision = self.authorizer.authorize(&asked).get().await;
        if decision.allowed { Ok(()) } else { Err(decision.reason.to_string()) }
    }

    async fn check(&self, attributes: &Attributes<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let target = attributes.target;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        if attributes.operation != Operation::Create {
            let about = ResourceAttributes {
                group: &target.kind.gvk.group,
                version: &target.kind.gvk.version,
                resource: &target.kind.plural,
                subresource: attributes.subresource().unwrap_or_default(),
                namespace,
                name: attributes.name,
                ..ResourceAttributes::default()
            };
            if let Err(reason) = self.ask(attributes, "delete", about).await {
                let why = format!("cannot set an ownerRef on a resource you can't delete: {reason}, <nil>");
                return Err(attributes.forbidden(new, why));
            }
        }
        let blocking = new_blocking(old, new);
        let anything = ResourceAttributes {
            group: "*",
            version: "*",
            resource: "*",
            subresource: "finalizers",
            name: "*",
            ..ResourceAttributes::default()
        };
        if blocking.is_empty() || self.ask(attributes, "update", anything).await.is_ok() {
            return Ok(());
        }
        for owner in blocking {
            self.check_owner(attributes, namespace, owner, new).await?;
        }
        Ok(())
    }

    async fn check_owner(
        &self,
        attributes: &Attributes<'_>,
        namespace: &str,
        owner: &Value,
        new: &Value,
    ) -> Result<(), Status> {
        let text = |member: &str| owner[member].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let kinds = self.definitions.kinds();
        let served = |kind: &&Arc<schema::kind::Kind>| {
            kind.gvk.group == group && kind.gvk.version == version && kind.gvk.kind == text("kind")
        };
        let Some(kind) = kinds.iter().find(served) else {
            let (version, kind) = (text("apiVersion"), text("kind"));
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind {kind}: \
                 no matches for kind \"{kind}\" in version \"{version}\""
            );
            return Err(attributes.forbidden(new, why));
        };
        let about = ResourceAttributes {
            group,
            version,
            resource: &kind.plural,
            subresource: "finalizers",
            namespace: if kind.namespaced { namespace } else { "" },
            name: text("name"),
            ..ResourceAttributes::default()
        };
        self.ask(attributes, "update", about).await.map_err(|reason| {
            let why = format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {reason}, \
                 <nil>"
            );
            attributes.forbidden(new, why)
        })
    }
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(|list| &**list).unwrap_or_default()
}

/// The owners that block their deletion now and did not before.
fn new_blocking<'v>(old: Option<&Value>, new: &'v Value) -> Vec<&'v Value> {
    let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
    let known = |owner: &Value| {
        old.is_some_and(|old| owners(old).iter().filter(blocks).any(|before| before["uid"] == owner["uid"]))
    };
    owners(new).iter().filter(blocks).filter(|owner| !known(owner)).collect()
}

impl Plugin for OwnerReferences {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let Some(new) = states.new else { return Decision::ADMIT };
        // The status of a pod cannot change its owners.
        let pod_status = attributes.subresource() == Some("status") && attributes.target.kind.plural == "pods";
        if pod_status || owners(new) == states.old.map(owners).unwrap_or_default() {
            return Decision::ADMIT;
        }
        Decision::later(self.check(attributes, states.old, new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn owners_that_block_already_are_not_asked_about() {
        let object = |blocks: &[bool]| {
            let owners: Vec<Value> = blocks
                .iter()
                .enumerate()
                .map(|(i, blocks)| json!({"uid": i.to_string(), "blockOwnerDeletion": blocks}))
                .collect();
            json!({"metadata": {"ownerReferences": owners}})
        };
        assert_eq!(new_blocking(None, &object(&[true, false])).len(), 1);
        assert_eq!(new_blocking(Some(&object(&[true])), &object(&[true])).len(), 0);
        assert_eq!(new_blocking(Some(&object(&[false])), &object(&[true])).len(), 1);
    }
}
