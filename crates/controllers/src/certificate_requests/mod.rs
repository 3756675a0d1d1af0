//! Certificate requests: those that are approved without a person, the certificates of approved ones, and the end of old ones.
//!
//! - `approving`: approves the requests of nodes that may ask (CSR-23), or all
//! - [`signing`]: issues the certificates of Kubernetes' own signers (CSR-15…CSR-22)
//! - `cleaning`: removes old requests (CSR-24)

pub(crate) mod approving;
pub(crate) mod cleaning;
pub(crate) mod signing;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

fn conditions(request: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    request.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(request).iter().any(|condition| condition.type_ == kind)
}

fn is_issued(request: &CertificateSigningRequest) -> bool {
    certificate(request).is_some_and(|certificate| !certificate.is_empty())
}

fn certificate(request: &CertificateSigningRequest) -> Option<&[u8]> {
    request.status.as_ref()?.certificate.as_ref().map(|certificate| certificate.0.as_slice())
}

/// The request with one more condition.
fn with_condition(
    request: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: String,
) -> CertificateSigningRequest {
    let mut request = request.clone();
    let condition = CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..CertificateSigningRequestCondition::default()
    };
    request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    /// A request that is stored: with a signer and the PEM of the request.
    pub(super) fn stored(signer: &str, user: &str, request: &str, usages: &[&str]) -> CertificateSigningRequest {
        let mut stored = CertificateSigningRequest::default();
        stored.metadata.name = Some("c".to_owned());
        stored.spec.signer_name = signer.to_owned();
        stored.spec.username = Some(user.to_owned());
        stored.spec.request = ByteString(request.as_bytes().to_vec());
        stored.spec.usages = Some(usages.iter().map(|usage| (*usage).to_owned()).collect());
        stored
    }

    #[test]
    fn a_condition_is_added_to_those_that_are_there() {
        let request = with_condition(&CertificateSigningRequest::default(), APPROVED, "R", "m".to_owned());
        assert!(has(&request, APPROVED) && !has(&request, DENIED) && !is_issued(&request));
        let request = with_condition(&request, FAILED, "R", "m".to_owned());
        assert_eq!(conditions(&request).len(), 2);
    }
}
