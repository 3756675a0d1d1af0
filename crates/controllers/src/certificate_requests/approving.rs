//! Approves the requests of nodes for certificates as clients, where their requester may have them; or every request (BA-9).

use std::sync::Arc;

use certificates::{CertificateRequest, signers};
use client::Error;
use client::controller::{Action, Predicate, Run, RunError};
use client::informer::Event;
use client::store::Store;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use serde_json::{Value, json};

use super::{APPROVED, DENIED, has, is_issued, with_condition};
use crate::context::Context;
use crate::identities::Identity;
use crate::reconciling;
use crate::requests::{Api, Form, request};

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let requests = context.informers.informer::<CertificateSigningRequest>();
    let controller = context
        .controller("csrapproving")
        .on(&requests, Predicate::new(|event| !matches!(event, Event::Deleted { .. })));
    let all = context.settings.approve_all;
    // No controller's role lets it approve the requests of every signer.
    let client = if all { context.clients.get(Identity::Server) } else { context.client.clone() };
    let approver = Arc::new(Approver { client, all, requests: requests.store() });
    let reconcile = move |run: Run| {
        let approver = approver.clone();
        async move { approver.reconcile(&run).await }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

struct Approver {
    client: Client,
    /// Whether every request is approved.
    all: bool,
    requests: Store<CertificateSigningRequest>,
}

/// A right that lets a requester have a certificate without a decision of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grant {
    /// The subresource of requests that the requester must be allowed to create.
    right: &'static str,
    message: &'static str,
}

const OWN: Grant = Grant {
    right: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const ANY_NODE: Grant =
    Grant { right: "nodeclient", message: "Auto approving kubelet client certificate after SubjectAccessReview." };

impl Approver {
    async fn reconcile(&self, run: &Run) -> Result<Action, RunError> {
        let Some(stored) = self.requests.get(&run.key) else { return Ok(Action::done()) };
        if is_issued(&stored) || has(&stored, APPROVED) || has(&stored, DENIED) {
            return Ok(Action::done());
        }
        if self.all {
            self.approve(&stored, "This server approves every certificate request.").await?;
            return Ok(Action::done());
        }
        for grant in grants(&stored) {
            if self.is_allowed(&stored, grant.right).await? {
                self.approve(&stored, grant.message).await?;
                break;
            }
        }
        Ok(Action::done())
    }

    async fn is_allowed(&self, stored: &CertificateSigningRequest, right: &str) -> Result<bool, Error> {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review: SubjectAccessReview =
            request(&self.client, "POST", path, Form::Json, &review(stored, right)).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, stored: &CertificateSigningRequest, message: &str) -> Result<(), Error> {
        let approved = with_condition(stored, APPROVED, "AutoApproved", message.to_owned());
        match Api::all(&self.client).replace_subresource("approval", &approved).await {
            // Another decision was first, or the request is gone: the watch shows it.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

/// The rights of which one is enough.
fn grants(stored: &CertificateSigningRequest) -> Vec<Grant> {
    let spec = &stored.spec;
    if spec.signer_name != signers::NODE_CLIENT {
        return Vec::new();
    }
    let Ok(parsed) = CertificateRequest::from_pem(&spec.request.0) else { return Vec::new() };
    let usages = spec.usages.as_deref().unwrap_or_default();
    if signers::check_node_client(&parsed, usages).is_err() {
        return Vec::new();
    }
    let own = spec.username.as_deref() == Some(parsed.common_name());
    if own { vec![OWN, ANY_NODE] } else { vec![ANY_NODE] }
}

/// The question whether the requester has a right.
fn review(stored: &CertificateSigningRequest, right: &str) -> Value {
    let spec = &stored.spec;
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
            "resourceAttributes": {
                "group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
                "subresource": right, "verb": "create",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::stored;
    use super::*;

    /// A request of a node, made with openssl: O=system:nodes, CN=system:node:n1, an Ed25519 key.
    const NODE: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
        MIGvMGMCAQAwMDEVMBMGA1UECgwMc3lzdGVtOm5vZGVzMRcwFQYDVQQDDA5zeXN0\n\
        ZW06bm9kZTpuMTAqMAUGAytlcAMhAJRWwxzXf6yJAv7FpKtHv022XN4X3/afokrl\n\
        n+tPsJrwoAAwBQYDK2VwA0EAEXNAJrrnDE9fzpivP0QJP7uTL9Q/G5HkeTyBl6VD\n\
        hSgw/uJejjYe0Xx0OPIoWfxhtYLSfqWYlWP+yMITsx2kBQ==\n\
        -----END CERTIFICATE REQUEST-----\n";

    #[test]
    fn csr_23_only_requests_of_nodes_are_approved_without_a_person() {
        let usages = ["digital signature", "client auth"];
        let of = |signer: &str, user: &str, usages: &[&str]| grants(&stored(signer, user, NODE, usages));
        assert_eq!(of(signers::NODE_CLIENT, "system:node:n1", &usages), [OWN, ANY_NODE]);
        assert_eq!(of(signers::NODE_CLIENT, "system:bootstrap:abcdef", &usages), [ANY_NODE]);
        assert_eq!(of(signers::NODE_CLIENT, "system:node:n1", &["client auth"]), []);
        assert_eq!(of(signers::NODE_SERVING, "system:node:n1", &usages), []);
        assert_eq!(of(signers::CLIENT, "system:node:n1", &usages), []);
        assert_eq!(grants(&stored(signers::NODE_CLIENT, "system:node:n1", "nope", &usages)), []);
    }

    #[test]
    fn the_requester_is_asked_about_as_it_was_when_it_asked() {
        let mut request = stored(signers::NODE_CLIENT, "jane", NODE, &["client auth"]);
        request.spec.groups = Some(vec!["system:bootstrappers".to_owned()]);
        let spec = &review(&request, "nodeclient")["spec"];
        assert_eq!((&spec["user"], &spec["groups"]), (&json!("jane"), &json!(["system:bootstrappers"])));
        assert_eq!(spec["resourceAttributes"]["subresource"], "nodeclient");
    }
}
