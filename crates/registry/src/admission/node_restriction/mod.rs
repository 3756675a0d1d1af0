//! NodeRestriction: what the credentials of a node may write. Off unless it is enabled.
//!
//! - `own_node`: the Node object of the node
//! - `own_pods`: mirror pods, and status, eviction and deletion of the pods that are bound to the node
//! - `tokens`: tokens of service accounts, for the pods of the node
//!
//! Reads are the business of the Node authorizer.

mod own_node;
mod own_pods;
mod tokens;

use std::sync::Arc;

use access::Authorizer;
use certificates::{CertificateRequest, signers};
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use super::plugin::{Attributes, Decision, Operation, Plugin};
use crate::collections::{
    CERTIFICATE_SIGNING_REQUESTS, CSI_NODES, LEASES, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
};
use crate::meta;
use crate::storage::Storage;

/// Prefix of the user name of a node.
const USER_PREFIX: &str = "system:node:";
/// Group of all nodes.
const GROUP: &str = "system:nodes";
/// Namespace of the leases of nodes.
const LEASE_NAMESPACE: &str = "kube-node-lease";

pub(super) struct NodeRestriction {
    storage: Storage,
    authorizer: Arc<dyn Authorizer>,
}

/// A write by a node.
struct Request<'a> {
    attributes: &'a Attributes<'a>,
    /// The name of the node that writes.
    node: &'a str,
    /// Null for a deletion.
    object: &'a Value,
    old: Option<&'a Value>,
    storage: &'a Storage,
}

impl NodeRestriction {
    pub(super) fn new(storage: Storage, authorizer: Arc<dyn Authorizer>) -> Self {
        NodeRestriction { storage, authorizer }
    }
}

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        let user = &attributes.ctx.user;
        user.name.starts_with(USER_PREFIX) && user.in_group(GROUP) && attributes.operation != Operation::Connect
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Decision<'a> {
        let object = &*object;
        let node = attributes.ctx.user.name.strip_prefix(USER_PREFIX).unwrap_or_default();
        if node.is_empty() {
            let why = format!("could not determine node from user {}", quote(&attributes.ctx.user.name));
            return Decision::Now(Err(attributes.forbidden(object, why)));
        }
        let request = Request { attributes, node, object, old, storage: &self.storage };
        let kind = attributes.target.kind.collection.as_str();
        if kind == SERVICE_ACCOUNTS && attributes.subresource() == Some("token") {
            return Decision::later(async move { tokens::admit(&request, &*self.authorizer).await });
        }
        Decision::Now(match kind {
            PODS => own_pods::admit(&request),
            NODES => own_node::admit(&request),
            PERSISTENT_VOLUME_CLAIMS => request.admit_claim(),
            LEASES => request.admit_lease(),
            CSI_NODES => request.admit_csi_node(),
            RESOURCE_SLICES => request.admit_slice(),
            CERTIFICATE_SIGNING_REQUESTS => request.admit_certificate_request(),
            _ => Ok(()),
        })
    }
}

impl Request<'_> {
    fn refuse(&self, why: impl Into<String>) -> Result<(), Status> {
        // A deletion has only the stored object.
        let shown = if self.object.is_object() { Some(self.object) } else { self.old };
        Err(self.attributes.forbidden(shown.unwrap_or(&Value::Null), why))
    }

    fn unexpected_operation(&self) -> Result<(), Status> {
        self.refuse(format!("unexpected operation {}", quote(self.operation())))
    }

    fn operation(&self) -> &'static str {
        match self.attributes.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// The name of the written object.
    fn name(&self) -> &str {
        let named = [self.attributes.name, meta::name(self.object), self.old.map(meta::name).unwrap_or_default()];
        named.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// A node may report the size of a claim's volume, and nothing else of it.
    fn admit_claim(&self) -> Result<(), Status> {
        if self.attributes.subresource() != Some("status") {
            return self.refuse("may only update PVC status");
        }
        let (Operation::Update, Some(old)) = (self.attributes.operation, self.old) else {
            return self.unexpected_operation();
        };
        const REPORTED: [&str; 4] = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
                REPORTED.iter().for_each(|member| drop(status.shift_remove(member)));
            }
            let metadata = meta::of_mut(&mut claim);
            ["resourceVersion", "managedFields"].iter().for_each(|member| drop(metadata.shift_remove(member)));
            claim
        };
        if rest(old) == rest(self.object) {
            return Ok(());
        }
        let node = quote(self.node);
        self.refuse(format!(
            "node {node} is not allowed to update fields other than status.quantity and status.conditions"
        ))
    }

    fn admit_lease(&self) -> Result<(), Status> {
        if self.attributes.target.namespace.as_deref() != Some(LEASE_NAMESPACE) {
            return self.refuse(format!("can only access leases in the {} system namespace", quote(LEASE_NAMESPACE)));
        }
        if self.name() == self.node {
            return Ok(());
        }
        self.refuse("can only access node lease with the same name as the requesting node")
    }

    fn admit_csi_node(&self) -> Result<(), Status> {
        if self.name() == self.node {
            return Ok(());
        }
        self.refuse("can only access CSINode with the same name as the requesting node")
    }

    fn admit_slice(&self) -> Result<(), Status> {
        let (slice, verb) = match self.attributes.operation {
            Operation::Create => (self.object, "create"),
            Operation::Delete => (self.old.unwrap_or(&Value::Null), "delete"),
            Operation::Update | Operation::Connect => return Ok(()),
        };
        if slice["spec"]["nodeName"] == self.node {
            return Ok(());
        }
        self.refuse(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
    }

    /// A node asks for certificates under its own name only.
    fn admit_certificate_request(&self) -> Result<(), Status> {
        let spec = &self.object["spec"];
        let signer = spec["signerName"].as_str().unwrap_or_default();
        let of_nodes = matches!(signer, signers::NODE_CLIENT | signers::NODE_SERVING);
        if self.attributes.operation != Operation::Create || !of_nodes {
            return Ok(());
        }
        match CertificateRequest::from_field(spec["request"].as_str().unwrap_or_default()) {
            Err(why) => self.refuse(format!("unable to parse csr: {why}")),
            Ok(parsed) if parsed.common_name() == self.attributes.ctx.user.name => Ok(()),
            Ok(_) => self.refuse(format!("can only create a node CSR with CN={USER_PREFIX}{}", self.node)),
        }
    }
}

/// Whether two members are equal; absent, null and empty ones are the same.
fn same(a: &Value, b: &Value) -> bool {
    let empty = |value: &Value| {
        value.is_null()
            || value.as_array().is_some_and(|list| list.is_empty())
            || value.as_object().is_some_and(|map| map.is_empty())
    };
    a == b || (empty(a) && empty(b))
}
