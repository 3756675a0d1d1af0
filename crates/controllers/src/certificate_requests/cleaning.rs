//! Removes certificate requests that have been answered for long, or that were never answered.

use std::time::Duration;

use certificates::certificate::end;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use super::{APPROVED, DENIED, FAILED, certificate, conditions, has, is_issued};
use crate::context::Context;
use crate::requests::Api;

/// Interval between two looks at all requests.
const EVERY: Duration = Duration::from_secs(3600);
/// Age of a decision after which its request is removed.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
/// Age of a request without an answer.
const WAITING: SignedDuration = SignedDuration::from_hours(24);

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let requests = context.informers.informer::<CertificateSigningRequest>();
    context.informers.start(&context.stop);
    if context.stop.run_until_cancelled(requests.wait_synced()).await != Some(true) {
        return;
    }
    let (store, api) = (requests.store(), Api::<CertificateSigningRequest>::all(&context.client));
    let mut looks = context.clock.interval(EVERY);
    while context.stop.run_until_cancelled(looks.tick()).await.is_some() {
        let now = context.clock.now();
        let old: Vec<String> =
            store.snapshot().iter().filter(|request| is_old(request, now)).map(|request| request.name_any()).collect();
        for name in old {
            match api.delete(&name, &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(name, %error, "an old certificate request could not be removed");
                }
                _ => {}
            }
        }
    }
}

/// CSR-24: whether a request has served its purpose, or never will.
fn is_old(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let older = |time: Option<&Time>, than: SignedDuration| time.is_some_and(|time| now.duration_since(time.0) > than);
    let decided = |kind: &str, than: SignedDuration| {
        conditions(request).iter().any(|is| is.type_ == kind && older(is.last_update_time.as_ref(), than))
    };
    let expired = || certificate(request).and_then(end).is_some_and(|end| now > end);
    let waiting = conditions(request).is_empty() && older(request.metadata.creation_timestamp.as_ref(), WAITING);
    let issued = is_issued(request);
    waiting
        || decided(DENIED, ANSWERED)
        || decided(FAILED, ANSWERED)
        || (issued && (decided(APPROVED, ANSWERED) || (has(request, APPROVED) && expired())))
        || (!issued && decided(APPROVED, WAITING))
}

#[cfg(test)]
mod tests {
    use super::super::with_condition;
    use super::*;
    use k8s_openapi::ByteString;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hours * 3600 + 60).unwrap()
    }

    fn request(decision: Option<&str>, issued: bool) -> CertificateSigningRequest {
        let made = Time(Timestamp::from_second(1_800_000_000).unwrap());
        let mut request = CertificateSigningRequest::default();
        request.metadata.creation_timestamp = Some(made.clone());
        if let Some(kind) = decision {
            request = with_condition(&request, kind, "R", String::new());
            if let Some(conditions) = request.status.as_mut().and_then(|status| status.conditions.as_mut()) {
                conditions[0].last_update_time = Some(made);
            }
        }
        if issued {
            request.status.get_or_insert_default().certificate = Some(ByteString(b"x".to_vec()));
        }
        request
    }

    #[test]
    fn csr_24_requests_end_an_hour_after_their_answer_or_a_day_without_one() {
        for kind in [DENIED, FAILED] {
            assert!(!is_old(&request(Some(kind), false), at(0)));
            assert!(is_old(&request(Some(kind), false), at(1)));
        }
        assert!(is_old(&request(Some(APPROVED), true), at(1)));
        assert!(!is_old(&request(Some(APPROVED), true), at(0)));
        assert!(!is_old(&request(Some(APPROVED), false), at(23)), "approved and not signed");
        assert!(is_old(&request(Some(APPROVED), false), at(24)));
        assert!(!is_old(&request(None, false), at(23)));
        assert!(is_old(&request(None, false), at(24)));
    }

    #[test]
    fn csr_24_requests_end_with_their_certificate() {
        // Ends on 2027-01-20, five days after the request was made.
        let pem = "-----BEGIN CERTIFICATE-----\n\
            MIIBEjCBxaADAgECAgEBMAUGAytlcDAMMQowCAYDVQQDDAFjMB4XDTI2MDEwMTAw\n\
            MDAwMFoXDTI3MDEyMDAwMDAwMFowDDEKMAgGA1UEAwwBYzAqMAUGAytlcAMhAM5E\n\
            PMnkOxMgCK/P7tMBDi75Me/zzs8DSYVaynIe3Ncoo0wwSjAJBgNVHRMEAjAAMB0G\n\
            A1UdDgQWBBRhHGW/K2ZsavKqaOSTrJuEvbRmNzAeBgNVHSMEFzAVoRCkDjAMMQow\n\
            CAYDVQQDDAFjggEBMAUGAytlcANBAMRlq1ycsyxz1H5myn4W5BDdi0AsGqlcQFhA\n\
            IyXpo9XFCgKh5OgPPnZF5JUC36CBxM2cZ2y3kteerxSUucOQAwU=\n\
            -----END CERTIFICATE-----\n";
        let mut issued = request(Some(APPROVED), true);
        let status = issued.status.as_mut().unwrap();
        status.certificate = Some(ByteString(pem.as_bytes().to_vec()));
        // Its decision has no time, so that only the end of the certificate counts.
        status.conditions.as_mut().unwrap()[0].last_update_time = None;
        assert!(!is_old(&issued, at(24 * 4)));
        assert!(is_old(&issued, at(24 * 6)));
    }
}
