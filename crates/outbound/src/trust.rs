//! Which certificates a call accepts: the rules of Go's `crypto/x509`, with its texts.
//!
//! In order: validity of the server's certificate, its names, then who vouches for it. Every certificate of a bundle is an anchor,
//! also one that is no authority: test environments put the webhook's own certificate into `caBundle`. Other certificates need a
//! chain to an anchor that is valid at the time, which webpki checks.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, GeneralName, Validity, X509Certificate, X509Version};

/// Names of a certificate that a message lists; a certificate with more is described by their number.
const NAMES_LISTED_MAX: usize = 100;

/// Why a certificate is not accepted, in Go's words.
#[derive(Debug)]
pub(crate) struct Distrust(String);

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Distrust {}

impl From<Distrust> for rustls::Error {
    fn from(distrust: Distrust) -> Self {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(distrust))))
    }
}

/// Verifies the certificates of servers.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// None accepts every certificate; the server must still hold its key.
    anchors: Option<Anchors>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The certificates that are trusted by themselves.
#[derive(Debug)]
pub(crate) struct Anchors {
    certificates: Vec<CertificateDer<'static>>,
    /// Those that may vouch for others.
    roots: RootCertStore,
    /// When each of the roots is valid, in the same order: webpki does not ask.
    validities: Vec<Validity>,
}

impl Anchors {
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut roots = RootCertStore::empty();
        let mut validities = Vec::new();
        for der in &certificates {
            let Ok((_, certificate)) = X509Certificate::from_der(der) else { continue };
            if may_sign(&certificate) && roots.add(der.clone()).is_ok() {
                validities.push(certificate.validity().clone());
            }
        }
        Anchors { certificates, roots, validities }
    }

    /// Verifies that a root which is valid now vouches for a certificate.
    fn verify(
        &self,
        certificate: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), Distrust> {
        let signed_by = |roots: &RootCertStore| {
            verify_server_cert_signed_by_trust_anchor(certificate, roots, intermediates, now, algorithms.all)
        };
        let refused = |error: rustls::Error| Distrust(chain_text(&error, now));
        if self.validities.iter().all(|validity| check_time(validity, now).is_ok()) {
            return signed_by(&self.roots).map_err(refused);
        }
        let all = self.roots.roots.iter().zip(&self.validities);
        let (valid, outside): (Vec<_>, Vec<_>) = all.partition(|(_, validity)| check_time(validity, now).is_ok());
        let store = |roots: &[(&TrustAnchor<'static>, &Validity)]| {
            roots.iter().map(|(root, _)| (*root).clone()).collect::<RootCertStore>()
        };
        let Err(error) = signed_by(&store(&valid)) else { return Ok(()) };
        // The text names the time of the root that would have vouched. It is found by halves, because webpki does not name it.
        let mut among = &outside[..];
        if signed_by(&store(among)).is_ok() {
            while among.len() > 1 {
                let (first, second) = among.split_at(among.len() / 2);
                among = if signed_by(&store(first)).is_ok() { first } else { second };
            }
            among.iter().try_for_each(|(_, validity)| check_time(validity, now))?;
        }
        Err(refused(error))
    }
}

/// Whether a certificate may vouch for others, and not only for itself.
fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let is_authority = match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        // Before version 3 there was no such mark.
        Ok(None) => certificate.version() != X509Version::V3,
        Err(_) => false,
    };
    let may_sign = match certificate.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    is_authority && may_sign
}

impl Verifier {
    pub(crate) fn new(anchors: Option<Anchors>, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Verifier { anchors, algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(anchors) = &self.anchors else { return Ok(ServerCertVerified::assertion()) };
        let malformed = || Distrust("x509: malformed certificate".to_owned());
        let (_, certificate) = X509Certificate::from_der(end_entity).map_err(|_| malformed())?;
        check_time(certificate.validity(), now)?;
        let parsed = ParsedCertificate::try_from(end_entity).map_err(|_| malformed())?;
        if verify_server_name(&parsed, server_name).is_err() {
            return Err(wrong_name(&certificate, server_name).into());
        }
        if anchors.certificates.iter().any(|anchor| anchor.as_ref() == end_entity.as_ref()) {
            check_usage(&certificate)?;
            return Ok(ServerCertVerified::assertion());
        }
        anchors.verify(&parsed, intermediates, now, &self.algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn check_time(validity: &Validity, now: UnixTime) -> Result<(), Distrust> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < validity.not_before.timestamp() {
        return Err(outside(now, "before", validity.not_before.timestamp()));
    }
    if now > validity.not_after.timestamp() {
        return Err(outside(now, "after", validity.not_after.timestamp()));
    }
    Ok(())
}

fn outside(now: i64, relation: &str, limit: i64) -> Distrust {
    Distrust(format!(
        "x509: certificate has expired or is not yet valid: current time {} is {relation} {}",
        time(now),
        time(limit)
    ))
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// A certificate that names its uses must name that of a server.
fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), Distrust> {
    match certificate.extended_key_usage() {
        Ok(Some(usage)) if !usage.value.server_auth && !usage.value.any => {
            Err(Distrust("x509: certificate specifies an incompatible key usage".to_owned()))
        }
        _ => Ok(()),
    }
}

fn wrong_name(certificate: &X509Certificate<'_>, wanted: &ServerName<'_>) -> Distrust {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = || alternatives.iter().flat_map(|extension| extension.value.general_names.iter());
    let text = match wanted {
        ServerName::IpAddress(address) => {
            let wanted = IpAddr::from(*address);
            let addresses: Vec<String> = names()
                .filter_map(|name| match name {
                    GeneralName::IPAddress(bytes) => ip(bytes).map(|address| address.to_string()),
                    _ => None,
                })
                .collect();
            if addresses.is_empty() {
                return Distrust(format!(
                    "x509: cannot validate certificate for {wanted} because it doesn't contain any IP SANs"
                ));
            }
            not_among(&addresses, &wanted.to_string())
        }
        other => {
            let wanted = other.to_str();
            let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
            if alternatives.is_none() && common_name.is_some_and(|name| name.eq_ignore_ascii_case(&wanted)) {
                return Distrust("x509: certificate relies on legacy Common Name field, use SANs instead".to_owned());
            }
            let names: Vec<String> = names()
                .filter_map(|name| match name {
                    GeneralName::DNSName(name) => Some((*name).to_owned()),
                    _ => None,
                })
                .collect();
            not_among(&names, &wanted)
        }
    };
    Distrust(text)
}

fn not_among(names: &[String], wanted: &str) -> String {
    match names.len() {
        0 => format!("x509: certificate is not valid for any names, but wanted to match {wanted}"),
        1..=NAMES_LISTED_MAX => format!("x509: certificate is valid for {}, not {wanted}", names.join(", ")),
        count => format!("x509: certificate is valid for {count} names, but none matched {wanted}"),
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(bytes));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// The text for a chain that leads to no anchor.
fn chain_text(error: &rustls::Error, now: UnixTime) -> String {
    let rustls::Error::InvalidCertificate(why) = error else { return format!("x509: {error}") };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let seconds = |time: &UnixTime| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match why {
        CertificateError::ExpiredContext { not_after, .. } => outside(now, "after", seconds(not_after)).0,
        CertificateError::NotValidYetContext { not_before, .. } => outside(now, "before", seconds(not_before)).0,
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => "x509: unhandled critical extension".to_owned(),
        other => format!("x509: {other}"),
    }
}
