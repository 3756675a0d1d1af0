//! Issues the certificates of approved requests, or reports why their signer does not issue them.

use std::fmt;
use std::sync::Arc;

use certificates::{CertificateRequest, signers};
use client::Error;
use client::controller::{Action, Predicate, Run, RunError};
use client::informer::Event;
use client::store::Store;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use machinery::Clock;

use super::{APPROVED, FAILED, has, is_issued, with_condition};
use crate::context::Context;
use crate::reconciling;
use crate::requests::Api;

/// A certificate that is to be issued.
pub struct Order<'a> {
    pub request: &'a CertificateRequest,
    pub usages: &'a [String],
    /// The lifetime that was asked for.
    pub expiration_seconds: Option<i64>,
    pub now: Timestamp,
}

/// The authority that signs certificates: returns them as PEM.
#[derive(Clone)]
pub struct Signer(Arc<Sign>);

type Sign = dyn Fn(&Order<'_>) -> Result<String, String> + Send + Sync;

impl Signer {
    pub fn new(sign: impl Fn(&Order<'_>) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Signer(Arc::new(sign))
    }

    fn sign(&self, order: &Order<'_>) -> Result<String, String> {
        (self.0)(order)
    }
}

impl fmt::Debug for Signer {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

/// Runs until the context's stop. Does nothing without an authority.
pub(crate) async fn run(context: Context) {
    let Some(signer) = context.settings.signer.clone() else { return };
    let requests = context.informers.informer::<CertificateSigningRequest>();
    let controller =
        context.controller("csrsigning").on(&requests, Predicate::new(|event| !matches!(event, Event::Deleted { .. })));
    let client = context.client.clone();
    let issuer = Arc::new(Issuer { client, signer, requests: requests.store() });
    let reconcile = move |run: Run| {
        let issuer = issuer.clone();
        async move { issuer.reconcile(&run).await }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

struct Issuer {
    client: Client,
    signer: Signer,
    requests: Store<CertificateSigningRequest>,
}

impl Issuer {
    async fn reconcile(&self, run: &Run) -> Result<Action, RunError> {
        let Some(stored) = self.requests.get(&run.key) else { return Ok(Action::done()) };
        // Certificates are judged by the machine's clock, whatever the cluster believes.
        match answer(&stored, &self.signer, Clock::system().now()) {
            Ok(None) => Ok(Action::done()),
            Ok(Some(answered)) => {
                self.write(&answered).await?;
                Ok(Action::done())
            }
            Err(error) => {
                tracing::warn!(request = %run.key, error, "a certificate could not be signed");
                Ok(Action::done())
            }
        }
    }

    async fn write(&self, answered: &CertificateSigningRequest) -> Result<(), Error> {
        match Api::all(&self.client).replace_status(answered).await {
            // Another server signed it, or the request is gone: the watch shows it.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

/// Returns the request with its certificate, or with the condition that names why it gets no certificate. Returns `None` for the
/// requests of other signers.
fn answer(
    stored: &CertificateSigningRequest,
    signer: &Signer,
    now: Timestamp,
) -> Result<Option<CertificateSigningRequest>, String> {
    if !has(stored, APPROVED) || has(stored, FAILED) || is_issued(stored) {
        return Ok(None);
    }
    let spec = &stored.spec;
    let request = CertificateRequest::from_pem(&spec.request.0)?;
    let usages = spec.usages.as_deref().unwrap_or_default();
    match signers::check(&spec.signer_name, &request, usages) {
        None => Ok(None),
        Some(Err(why)) => Ok(Some(with_condition(stored, FAILED, "SignerValidationFailure", why))),
        Some(Ok(())) => {
            let expiration_seconds = spec.expiration_seconds.map(i64::from);
            let certificate = signer.sign(&Order { request: &request, usages, expiration_seconds, now })?;
            let mut answered = stored.clone();
            answered.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
            Ok(Some(answered))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::stored;
    use super::super::{certificate, conditions};
    use super::*;

    /// CN=jane, O=dev, an Ed25519 key.
    const JANE: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
        MIGcMFACAQAwHTENMAsGA1UEAwwEamFuZTEMMAoGA1UECgwDZGV2MCowBQYDK2Vw\n\
        AyEAXsUj68TPEJgLryDqzFndN6603IwMMIKNxZf+r0urxe+gADAFBgMrZXADQQCz\n\
        pOVets3B2ZnE6QpXgpyKXVG4biR/cXT/1IMOOXCiV/j0WhQrAN1WH/R1FoIOoOQG\n\
        4Kdb9ChkILq/ChPXyUQB\n\
        -----END CERTIFICATE REQUEST-----\n";

    fn signer() -> Signer {
        Signer::new(|order| Ok(format!("{} for {:?}", order.request.common_name(), order.expiration_seconds)))
    }

    fn approved(signer: &str, usages: &[&str]) -> CertificateSigningRequest {
        with_condition(&stored(signer, "jane", JANE, usages), APPROVED, "R", "m".to_owned())
    }

    #[test]
    fn csr_15_what_is_approved_gets_its_certificate_once() {
        let mut request = approved(signers::CLIENT, &["client auth"]);
        request.spec.expiration_seconds = Some(3600);
        let answered = answer(&request, &signer(), Timestamp::UNIX_EPOCH).unwrap().unwrap();
        assert_eq!(certificate(&answered), Some(&b"jane for Some(3600)"[..]));
        assert_eq!(answer(&answered, &signer(), Timestamp::UNIX_EPOCH), Ok(None));
        let waiting = stored(signers::CLIENT, "jane", JANE, &["client auth"]);
        assert_eq!(answer(&waiting, &signer(), Timestamp::UNIX_EPOCH), Ok(None));
    }

    #[test]
    fn csr_16_17_what_a_signer_does_not_issue_fails_with_the_reason() {
        let failed = answer(&approved(signers::NODE_CLIENT, &["client auth"]), &signer(), Timestamp::UNIX_EPOCH);
        let failed = failed.unwrap().unwrap();
        let last = conditions(&failed).last().unwrap();
        assert_eq!((last.type_.as_str(), last.status.as_str()), (FAILED, "True"));
        assert_eq!(last.reason.as_deref(), Some("SignerValidationFailure"));
        assert_eq!(last.message.as_deref(), Some("subject organization is not system:nodes"));
        assert!(!is_issued(&failed));
        assert_eq!(answer(&failed, &signer(), Timestamp::UNIX_EPOCH), Ok(None));
    }

    #[test]
    fn csr_19_requests_of_other_signers_are_not_touched() {
        let foreign = approved("example.com/s", &["client auth"]);
        assert_eq!(answer(&foreign, &signer(), Timestamp::UNIX_EPOCH), Ok(None));
        let refused = Signer::new(|_| Err("no key".to_owned()));
        let client = approved(signers::CLIENT, &["client auth"]);
        assert_eq!(answer(&client, &refused, Timestamp::UNIX_EPOCH), Err("no key".to_owned()));
    }
}
