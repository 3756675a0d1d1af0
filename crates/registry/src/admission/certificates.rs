//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who decides about a certificate request, who
//! issues its certificate, and what a user may not ask for.

use std::sync::Arc;

use access::{Authorizer, ResourceAttributes, What};
use certificates::{CertificateRequest, signers};
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::CERTIFICATE_SIGNING_REQUESTS;

/// Whether the user may do this with requests of a signer: by its name, or by its domain with a star.
async fn is_allowed(authorizer: &dyn Authorizer, attributes: &Attributes<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    let whole_domain = format!("{domain}/*");
    for name in [signer, &whole_domain] {
        let about = ResourceAttributes {
            group: "certificates.k8s.io",
            version: "*",
            resource: "signers",
            name,
            ..ResourceAttributes::default()
        };
        let asked = access::Attributes { user: &attributes.ctx.user, verb, what: What::Resource(about) };
        if authorizer.authorize(&asked).get().await.allowed {
            return true;
        }
    }
    false
}

fn is_update_of(attributes: &Attributes<'_>, subresource: &str) -> bool {
    attributes.operation == Operation::Update
        && attributes.subresource() == Some(subresource)
        && attributes.target.kind.collection == CERTIFICATE_SIGNING_REQUESTS
}

fn signer_of(request: &Value) -> &str {
    request["spec"]["signerName"].as_str().unwrap_or_default()
}

/// Refuses a write unless the user has the right to its signer. The stored signer counts: a write cannot change it.
async fn check(
    authorizer: &dyn Authorizer,
    attributes: &Attributes<'_>,
    verb: &str,
    old: &Value,
) -> Result<(), Status> {
    let signer = signer_of(old);
    if is_allowed(authorizer, attributes, verb, signer).await {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {}", quote(signer));
    Err(attributes.forbidden(old, why))
}

/// Checks that a user may decide about the requests of a signer.
pub(super) struct CertificateApproval {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateApproval {
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        CertificateApproval { authorizer }
    }
}

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        is_update_of(attributes, "approval")
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        match states.old {
            Some(old) => Decision::later(check(&*self.authorizer, attributes, "approve", old)),
            None => Decision::ADMIT,
        }
    }
}

/// Checks that a user may issue the certificates of a signer, or report that it cannot.
pub(super) struct CertificateSigning {
    authorizer: Arc<dyn Authorizer>,
}

impl CertificateSigning {
    pub(super) fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        CertificateSigning { authorizer }
    }
}

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        is_update_of(attributes, "status")
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let (Some(old), Some(new)) = (states.old, states.new) else { return Decision::ADMIT };
        let text = |of: &'a Value| of["status"]["certificate"].as_str().unwrap_or_default();
        let conditions = |of: &'a Value| of["status"]["conditions"].as_array().map(|all| &**all).unwrap_or_default();
        if text(old) == text(new) && conditions(old) == conditions(new) {
            return Decision::ADMIT;
        }
        Decision::later(check(&*self.authorizer, attributes, "sign", old))
    }
}

/// Refuses requests for certificates that would make a user a member of `system:masters`.
pub(super) struct CertificateSubjectRestriction;

impl CertificateSubjectRestriction {
    fn check(attributes: &Attributes<'_>, request: &Value) -> Result<(), Status> {
        if signer_of(request) != signers::CLIENT {
            return Ok(());
        }
        let parsed = CertificateRequest::from_field(request["spec"]["request"].as_str().unwrap_or_default())
            .map_err(|why| attributes.forbidden(request, format!("failed to parse CSR: {why}")))?;
        if !parsed.organizations().iter().any(|group| group == access::identity::MASTERS) {
            return Ok(());
        }
        let why = format!("use of {} signer with system:masters group is not allowed", signers::CLIENT);
        Err(attributes.forbidden(request, why))
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, CERTIFICATE_SIGNING_REQUESTS)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        Decision::Now(states.new.map_or(Ok(()), |request| Self::check(attributes, request)))
    }
}
