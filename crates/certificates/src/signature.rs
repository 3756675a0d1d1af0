//! ECDSA signatures of the kinds that `x509-parser` does not verify: on the curve P-521, and with SHA-512.

use aws_lc_rs::signature::{self, EcdsaVerificationAlgorithm, UnparsedPublicKey};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ECDSA_WITH_SHA512,
};

/// Returns whether the signature of a request is right; none if it is of another kind.
pub(crate) fn verify_ecdsa(request: &X509CertificationRequest<'_>) -> Option<bool> {
    let info = &request.certification_request_info;
    let key = &info.subject_pki;
    let curve = key.algorithm.parameters.as_ref()?.as_oid().ok()?;
    let hash = &request.signature_algorithm.algorithm;
    let kinds: [(_, _, &'static EcdsaVerificationAlgorithm); 5] = [
        (OID_EC_P256, OID_SIG_ECDSA_WITH_SHA512, &signature::ECDSA_P256_SHA512_ASN1),
        (OID_NIST_EC_P384, OID_SIG_ECDSA_WITH_SHA512, &signature::ECDSA_P384_SHA512_ASN1),
        (OID_NIST_EC_P521, OID_SIG_ECDSA_WITH_SHA256, &signature::ECDSA_P521_SHA256_ASN1),
        (OID_NIST_EC_P521, OID_SIG_ECDSA_WITH_SHA384, &signature::ECDSA_P521_SHA384_ASN1),
        (OID_NIST_EC_P521, OID_SIG_ECDSA_WITH_SHA512, &signature::ECDSA_P521_SHA512_ASN1),
    ];
    let (_, _, algorithm) = kinds.into_iter().find(|(on, with, _)| *on == curve && with == hash)?;
    let key = UnparsedPublicKey::new(algorithm, &key.subject_public_key.data);
    Some(key.verify(info.raw, &request.signature_value.data).is_ok())
}
