//! A certificate request: who asks for a certificate, for which names, with which key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};
use x509_parser::x509::X509Name;

use crate::{der, pem, signature};

/// A certificate request that was decoded. Its signature is checked by [`CertificateRequest::check_signature`].
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    raw: Vec<u8>,
    /// The subject and the public key as they are encoded in the request.
    subject: Vec<u8>,
    public_key: Vec<u8>,
    common_name: String,
    organizations: Vec<String>,
    /// The encoded names of the kinds that are copied to a certificate.
    alternative_names: Vec<u8>,
    names: NameKinds,
}

/// The kinds of alternative names that a request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameKinds {
    pub dns: bool,
    pub address: bool,
    pub email: bool,
    pub uri: bool,
}

impl CertificateRequest {
    /// Decodes the field `spec.request`: PEM in Base64.
    pub fn from_field(text: &str) -> Result<Self, String> {
        Self::from_pem(&STANDARD.decode(text).unwrap_or_default())
    }

    /// Decodes the first PEM block of a text.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(text);
        match pem::decode(&text) {
            Some((block, _)) if block.kind == pem::CERTIFICATE_REQUEST => Self::from_der(block.content),
            _ => Err(format!("PEM block type must be {}", pem::CERTIFICATE_REQUEST)),
        }
    }

    pub fn from_der(raw: Vec<u8>) -> Result<Self, String> {
        let (rest, request) = X509CertificationRequest::from_der(&raw)
            .map_err(|_| "asn1: structure error: malformed request".to_owned())?;
        if !rest.is_empty() {
            return Err("asn1: syntax error: trailing data".to_owned());
        }
        let info = &request.certification_request_info;
        let (mut names, mut alternative_names) = (NameKinds::default(), Vec::new());
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(given) = extension {
                given.general_names.iter().for_each(|name| alternative_names.extend(encode_name(name, &mut names)));
            }
        }
        let (common_name, organizations) = identity(&info.subject);
        Ok(CertificateRequest {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            common_name,
            organizations,
            alternative_names,
            names,
            raw,
        })
    }

    /// Checks that the sender of the request has the private key of its public key.
    pub fn check_signature(&self) -> Result<(), String> {
        let Ok((_, request)) = X509CertificationRequest::from_der(&self.raw) else {
            return Err("asn1: structure error: malformed request".to_owned());
        };
        let verified = match signature::verify_ecdsa(&request) {
            Some(is_right) => is_right.then_some(()).ok_or(X509Error::SignatureVerificationError),
            None => request.verify_signature(),
        };
        verified.map_err(|error| match error {
            X509Error::SignatureUnsupportedAlgorithm => {
                "x509: cannot verify signature: algorithm unimplemented".to_owned()
            }
            _ => match request.signature_algorithm.algorithm.to_id_string().as_str() {
                "1.3.101.112" => "x509: Ed25519 verification failure".to_owned(),
                ecdsa if ecdsa.starts_with("1.2.840.10045.") => "x509: ECDSA verification failure".to_owned(),
                _ => "crypto/rsa: verification error".to_owned(),
            },
        })
    }

    /// The last common name of the subject: the name of a user.
    #[must_use]
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// The organizations of the subject: the groups of a user.
    #[must_use]
    pub fn organizations(&self) -> &[String] {
        &self.organizations
    }

    #[must_use]
    pub fn names(&self) -> NameKinds {
        self.names
    }

    pub(crate) fn subject(&self) -> &[u8] {
        &self.subject
    }

    pub(crate) fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    pub(crate) fn alternative_names(&self) -> &[u8] {
        &self.alternative_names
    }
}

/// The common name and the organizations of a subject.
fn identity(subject: &X509Name<'_>) -> (String, Vec<String>) {
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map_or_else(|_| String::from_utf8_lossy(attribute.as_slice()).into_owned(), str::to_owned)
    };
    let common_name = subject.iter_common_name().last().map(text).unwrap_or_default();
    (common_name, subject.iter_organization().map(text).collect())
}

/// A name as a certificate has it; names of other kinds are not copied.
fn encode_name(name: &GeneralName<'_>, kinds: &mut NameKinds) -> Vec<u8> {
    match name {
        GeneralName::RFC822Name(text) => {
            kinds.email = true;
            der::value(0x81, text.as_bytes())
        }
        GeneralName::DNSName(text) => {
            kinds.dns = true;
            der::value(0x82, text.as_bytes())
        }
        GeneralName::URI(text) => {
            kinds.uri = true;
            der::value(0x86, text.as_bytes())
        }
        GeneralName::IPAddress(octets) => {
            kinds.address = true;
            der::value(0x87, octets)
        }
        _ => Vec::new(),
    }
}

/// The common name and the organizations of a certificate in PEM.
#[must_use]
pub fn certificate_identity(text: &str) -> Option<(String, Vec<String>)> {
    let (block, _) = pem::decode(text)?;
    let (_, certificate) = X509Certificate::from_der(&block.content).ok()?;
    Some(identity(certificate.subject()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    /// A request with a new key. Of several organizations rcgen keeps the last.
    pub(crate) fn request(name: &str, organizations: &[&str], names: &[&str]) -> CertificateRequest {
        CertificateRequest::from_der(encoded(name, organizations, names)).unwrap()
    }

    fn encoded(name: &str, organizations: &[&str], names: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        for organization in organizations {
            params.distinguished_name.push(DnType::OrganizationName, *organization);
        }
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) if name.contains('@') => SanType::Rfc822Name((*name).try_into().unwrap()),
                Err(_) if name.contains(':') => SanType::URI((*name).try_into().unwrap()),
                Err(_) => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn csr_2_keys_on_p_521_are_accepted() {
        use rcgen::{PKCS_ECDSA_P521_SHA256, PKCS_ECDSA_P521_SHA384, PKCS_ECDSA_P521_SHA512};
        for algorithm in [&PKCS_ECDSA_P521_SHA256, &PKCS_ECDSA_P521_SHA384, &PKCS_ECDSA_P521_SHA512] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let mut der = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
            assert_eq!(CertificateRequest::from_der(der.clone()).unwrap().check_signature(), Ok(()), "{algorithm:?}");
            let last = der.len() - 1;
            der[last] ^= 1;
            let changed = CertificateRequest::from_der(der).unwrap();
            assert_eq!(changed.check_signature().unwrap_err(), "x509: ECDSA verification failure");
        }
    }

    #[test]
    fn a_request_names_a_user_and_its_groups() {
        let request = request("jane", &["dev"], &["a.example", "127.0.0.1"]);
        assert_eq!((request.common_name(), request.organizations()), ("jane", &["dev".to_owned()][..]));
        assert_eq!(request.names(), NameKinds { dns: true, address: true, ..NameKinds::default() });
        assert_eq!(request.check_signature(), Ok(()));
    }

    #[test]
    fn csr_2_only_a_request_with_its_own_signature_is_one() {
        let wrong = "PEM block type must be CERTIFICATE REQUEST";
        for text in ["", "bm9wZQ==", "!!"] {
            assert_eq!(CertificateRequest::from_field(text).unwrap_err(), wrong);
        }
        let mut der = encoded("jane", &[], &[]);
        assert_eq!(CertificateRequest::from_pem(pem::encode("CERTIFICATE", &der).as_bytes()).unwrap_err(), wrong);
        assert!(CertificateRequest::from_pem(pem::encode(pem::CERTIFICATE_REQUEST, b"x").as_bytes()).is_err());
        let last = der.len() - 1;
        der[last] ^= 1;
        let changed = CertificateRequest::from_pem(pem::encode(pem::CERTIFICATE_REQUEST, &der).as_bytes()).unwrap();
        assert_eq!(changed.check_signature().unwrap_err(), "x509: ECDSA verification failure");
        der.push(0);
        assert!(CertificateRequest::from_der(der).is_err());
    }
}
