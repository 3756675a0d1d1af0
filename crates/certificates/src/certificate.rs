//! The certificate that answers a request, and the content of a stored certificate.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};

use crate::request::CertificateRequest;
use crate::{der, pem, usages};

/// Lifetime of a certificate whose request names none, and the longest one.
const DEFAULT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Shortest lifetime.
const SHORTEST: Duration = Duration::from_secs(600);
/// A certificate is valid from this long ago, for clients whose clock is behind.
const BACKDATE: Duration = Duration::from_secs(300);
/// A certificate that lives shorter ends as late as was asked for; others end earlier by as much as they begin earlier.
const SHORT: Duration = Duration::from_secs(8 * 3600);

const KEY_USAGE: [u64; 4] = [2, 5, 29, 15];
const ALTERNATIVE_NAMES: [u64; 4] = [2, 5, 29, 17];
const BASIC_CONSTRAINTS: [u64; 4] = [2, 5, 29, 19];
const AUTHORITY_KEY: [u64; 4] = [2, 5, 29, 35];
const EXTENDED_KEY_USAGE: [u64; 4] = [2, 5, 29, 37];

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Lifetime {
    /// The lifetime of a certificate that is issued now, by an authority that ends at `authority_end`. None if that has ended.
    #[must_use]
    pub fn new(now: Timestamp, wanted_seconds: Option<i64>, authority_end: Timestamp) -> Option<Self> {
        let wanted = wanted_seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
        let long = wanted.unwrap_or(DEFAULT).clamp(SHORTEST, DEFAULT);
        let after = |by: Duration| now.saturating_add(SignedDuration::try_from(by).unwrap_or_default()).unwrap_or(now);
        let until = after(if long < SHORT { long } else { long - BACKDATE }).min(authority_end);
        let from = now.saturating_sub(SignedDuration::try_from(BACKDATE).unwrap_or_default()).unwrap_or(now);
        (now < authority_end).then_some(Lifetime { from, until })
    }
}

/// A certificate that is to be signed.
pub struct Template<'a, S> {
    pub request: &'a CertificateRequest,
    pub usages: &'a [S],
    pub lifetime: Lifetime,
    /// A random positive number.
    pub serial: [u8; 16],
}

/// The authority that signs: its certificate, and the algorithm of its signatures as it is encoded in certificates.
pub struct Authority<'a> {
    pub certificate: &'a X509Certificate<'a>,
    pub algorithm: &'a [u8],
}

impl<S: AsRef<str>> Template<'_, S> {
    /// Encodes the part of the certificate that is signed. Subject, names and key are those of the request, usages those of
    /// `usages`; nothing else that was asked for is granted.
    pub fn encode(&self, authority: &Authority<'_>) -> Result<Vec<u8>, String> {
        if let Some(unknown) = self.usages.iter().map(AsRef::as_ref).find(|usage| !usages::is_known(usage)) {
            return Err(format!("unrecognized usage values: [{unknown:?}]"));
        }
        let extensions = der::sequence(&[&self.extensions(authority)]);
        Ok(der::sequence(&[
            &der::explicit(0, &der::integer(&[2])),
            &der::integer(&self.serial),
            authority.algorithm,
            authority.certificate.subject().as_raw(),
            &der::sequence(&[&der::time(self.lifetime.from), &der::time(self.lifetime.until)]),
            self.request.subject(),
            self.request.public_key(),
            &der::explicit(3, &extensions),
        ]))
    }

    fn extensions(&self, authority: &Authority<'_>) -> Vec<u8> {
        let mut all = Vec::new();
        let bits = usages::key_usage_bits(self.usages);
        if !bits.is_empty() {
            all.extend(extension(&KEY_USAGE, true, &der::flags(&bits)));
        }
        let purposes: Vec<u8> = usages::purposes(self.usages).into_iter().flat_map(der::object_identifier).collect();
        if !purposes.is_empty() {
            all.extend(extension(&EXTENDED_KEY_USAGE, false, &der::sequence(&[&purposes])));
        }
        // Not an authority: false is the default, which is not encoded.
        all.extend(extension(&BASIC_CONSTRAINTS, true, &der::sequence(&[])));
        if let Some(key) = key_identifier(authority.certificate) {
            all.extend(extension(&AUTHORITY_KEY, false, &der::sequence(&[&der::value(0x80, key)])));
        }
        let names = self.request.alternative_names();
        if !names.is_empty() {
            // Critical where the names are all that the certificate has.
            let nameless = self.request.subject() == der::sequence(&[]);
            all.extend(extension(&ALTERNATIVE_NAMES, nameless, &der::sequence(&[names])));
        }
        all
    }
}

/// A certificate in PEM, from its signed part and the signature.
#[must_use]
pub fn assemble(signed: &[u8], algorithm: &[u8], signature: &[u8]) -> String {
    pem::encode(pem::CERTIFICATE, &der::sequence(&[signed, algorithm, &der::bit_string(signature)]))
}

/// The algorithm of a signature, encoded. Only RSA has parameters, and they are null.
#[must_use]
pub fn encode_algorithm(identifier: &[u64], has_parameters: bool) -> Vec<u8> {
    let parameters: &[u8] = if has_parameters { &[5, 0] } else { &[] };
    der::sequence(&[&der::object_identifier(identifier), parameters])
}

fn extension(identifier: &[u64], critical: bool, content: &[u8]) -> Vec<u8> {
    let critical = if critical { der::boolean(true) } else { Vec::new() };
    der::sequence(&[&der::object_identifier(identifier), &critical, &der::octet_string(content)])
}

fn key_identifier<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0),
        _ => None,
    })
}

/// Checks the content of `status.certificate`: one or more certificates in PEM and nothing else.
pub fn check_content(text: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(text);
    let (mut rest, mut found) = (&*text, false);
    while let Some((block, after)) = pem::decode(rest) {
        if block.kind != pem::CERTIFICATE {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.kind));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        let mut der = block.content.as_slice();
        if der.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        while !der.is_empty() {
            let Ok((next, _)) = X509Certificate::from_der(der) else {
                return Err("x509: malformed certificate".to_owned());
            };
            der = next;
        }
        (rest, found) = (after, true);
    }
    if found { Ok(()) } else { Err("must contain at least one CERTIFICATE PEM block".to_owned()) }
}

/// The end of the first certificate in PEM.
#[must_use]
pub fn end(text: &[u8]) -> Option<Timestamp> {
    let text = String::from_utf8_lossy(text);
    let (block, _) = pem::decode(&text)?;
    let (_, certificate) = X509Certificate::from_der(&block.content).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn csr_21_certificates_begin_and_end_as_the_reference_has_them() {
        let (now, far) = (at("2026-01-01T00:00:00Z"), at("2036-01-01T00:00:00Z"));
        let lifetime = |seconds: Option<i64>| Lifetime::new(now, seconds, far).unwrap();
        assert_eq!(lifetime(None).from, at("2025-12-31T23:55:00Z"));
        assert_eq!(lifetime(None).until, at("2026-12-31T23:55:00Z"), "a year, ending earlier as it begins earlier");
        assert_eq!(lifetime(Some(3600)).until, at("2026-01-01T01:00:00Z"));
        assert_eq!(lifetime(Some(8 * 3600)).until, at("2026-01-01T07:55:00Z"));
        assert_eq!(lifetime(Some(1)).until, at("2026-01-01T00:10:00Z"), "at least ten minutes");
        assert_eq!(lifetime(Some(i64::MAX)).until, at("2026-12-31T23:55:00Z"), "at most a year");
        assert_eq!(lifetime(Some(-1)).until, at("2026-01-01T00:10:00Z"));
        let soon = Lifetime::new(now, None, at("2026-01-02T00:00:00Z")).unwrap();
        assert_eq!(soon.until, at("2026-01-02T00:00:00Z"), "never after the authority");
        assert_eq!(Lifetime::new(now, None, now), None);
    }

    #[test]
    fn csr_8_a_certificate_is_certificates_only() {
        assert_eq!(check_content(b"nope").unwrap_err(), "must contain at least one CERTIFICATE PEM block");
        let key = pem::encode("PRIVATE KEY", &[1]);
        let why = "only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\"";
        assert_eq!(check_content(key.as_bytes()).unwrap_err(), why);
        assert!(check_content(pem::encode(pem::CERTIFICATE, &[1]).as_bytes()).is_err());
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        assert_eq!(check_content(own.as_bytes()), Ok(()));
        assert_eq!(check_content(format!("{own}{own}").as_bytes()), Ok(()));
        let with_headers = own.replacen("-----\n", "-----\nA: b\n\n", 1);
        assert_eq!(check_content(with_headers.as_bytes()).unwrap_err(), "no PEM block headers are permitted");
        assert!(end(own.as_bytes()).is_some_and(|end| end > at("2030-01-01T00:00:00Z")));
    }

    #[test]
    fn csr_20_a_certificate_has_what_was_granted_of_its_request() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap();
        let (_, ca) = X509Certificate::from_der(ca.der()).unwrap();
        let request = request("jane", &["dev"], &["a.example", "127.0.0.1", "a@b", "urn:x"]);
        let usages = ["client auth", "digital signature", "key encipherment"];
        let lifetime = Lifetime { from: at("2026-01-01T00:00:00Z"), until: at("2027-01-01T00:00:00Z") };
        let template = Template { request: &request, usages: &usages, lifetime, serial: [0x81; 16] };
        let algorithm = encode_algorithm(&[1, 2, 840, 10045, 4, 3, 2], false);
        let signed = template.encode(&Authority { certificate: &ca, algorithm: &algorithm }).unwrap();
        let signature = rcgen::SigningKey::sign(&key, &signed).unwrap();
        let text = assemble(&signed, &algorithm, &signature);
        let (block, _) = pem::decode(&text).unwrap();
        let (rest, made) = X509Certificate::from_der(&block.content).unwrap();
        assert!(rest.is_empty());
        made.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(made.subject().as_raw(), request.subject());
        assert_eq!(made.public_key().raw, request.public_key());
        assert_eq!(made.issuer().as_raw(), ca.subject().as_raw());
        assert_eq!(made.raw_serial(), [&[0][..], &[0x81; 16]].concat());
        assert_eq!(made.validity().not_after.timestamp(), lifetime.until.as_second());
        assert!(!made.is_ca());
        let granted = made.key_usage().unwrap().unwrap();
        assert!(granted.critical && granted.value.digital_signature() && granted.value.key_encipherment());
        assert!(!granted.value.key_cert_sign());
        let granted = made.extended_key_usage().unwrap().unwrap().value;
        assert!(granted.client_auth && !granted.server_auth);
        let names = made.subject_alternative_name().unwrap().unwrap();
        assert!(!names.critical);
        assert_eq!(names.value.general_names.len(), 4);
        let unknown = Template { request: &request, usages: &["nope"], lifetime, serial: [1; 16] };
        let refused = unknown.encode(&Authority { certificate: &ca, algorithm: &algorithm }).unwrap_err();
        assert_eq!(refused, "unrecognized usage values: [\"nope\"]");
    }
}
