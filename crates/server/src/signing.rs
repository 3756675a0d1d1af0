//! The server's certificate authority as the signer of certificate requests.

use certificates::certificate::{Authority as Issuer, assemble, encode_algorithm};
use certificates::{CertificateRequest, Lifetime, Template};
use jiff::Timestamp;
use rcgen::{KeyPair, SigningKey as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certs::Leaf;
use crate::error::CertError;

/// Signs certificates with the key of the server's authority.
pub struct Authority {
    certificate: Vec<u8>,
    key: KeyPair,
    /// The algorithm of the key's signatures, as certificates have it.
    algorithm: Vec<u8>,
    end: Timestamp,
}

impl Authority {
    pub fn new(authority: &Leaf) -> Result<Self, CertError> {
        let unreadable = |why: &str| CertError::Unreadable(format!("the certificate authority {why}"));
        let chain = authority.chain()?;
        let certificate = chain.first().ok_or_else(|| unreadable("has no certificate"))?.to_vec();
        let key = KeyPair::from_pem(&authority.key_pem)?;
        let algorithm = encode(&key).ok_or_else(|| unreadable("has a key of a kind that cannot sign"))?;
        let end = {
            let (_, parsed) =
                X509Certificate::from_der(&certificate).map_err(|_| unreadable("has a malformed certificate"))?;
            Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX)
        };
        Ok(Authority { certificate, key, algorithm, end })
    }

    /// Issues the certificate that answers a request, as PEM.
    pub fn sign<S: AsRef<str>>(
        &self,
        request: &CertificateRequest,
        usages: &[S],
        expiration_seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, String> {
        request.check_signature()?;
        let lifetime = Lifetime::new(now, expiration_seconds, self.end)
            .ok_or_else(|| "the certificate authority has expired".to_owned())?;
        let (_, certificate) = X509Certificate::from_der(&self.certificate).map_err(|error| error.to_string())?;
        let issuer = Issuer { certificate: &certificate, algorithm: &self.algorithm };
        let signed = Template { request, usages, lifetime, serial: serial() }.encode(&issuer)?;
        let signature = self.key.sign(&signed).map_err(|error| error.to_string())?;
        Ok(assemble(&signed, &self.algorithm, &signature))
    }
}

/// A random positive number. The first bit is the sign, and the second keeps the number from being short.
fn serial() -> [u8; 16] {
    let mut serial: [u8; 16] = rand::random();
    serial[0] = serial[0] & 0x7f | 0x40;
    serial
}

fn encode(key: &KeyPair) -> Option<Vec<u8>> {
    let kinds: [(&rcgen::SignatureAlgorithm, &[u64], bool); 4] = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, &[1, 2, 840, 10045, 4, 3, 2], false),
        (&rcgen::PKCS_ECDSA_P384_SHA384, &[1, 2, 840, 10045, 4, 3, 3], false),
        (&rcgen::PKCS_ED25519, &[1, 3, 101, 112], false),
        (&rcgen::PKCS_RSA_SHA256, &[1, 2, 840, 113_549, 1, 1, 11], true),
    ];
    let found = kinds.iter().find(|(kind, ..)| key.is_compatible(kind))?;
    Some(encode_algorithm(found.1, found.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::Pki;
    use certificates::request::certificate_identity;
    use machinery::clock::Clock;

    #[test]
    fn csr_20_21_a_request_becomes_a_certificate_of_this_authority() {
        let now = Clock::system().now();
        let pki = Pki::in_memory(&[], now).unwrap();
        let authority = Authority::new(&pki.ca).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "dev");
        let key = KeyPair::generate().unwrap();
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = CertificateRequest::from_pem(request.as_bytes()).unwrap();
        let pem = authority.sign(&request, &["client auth", "digital signature"], Some(3600), now).unwrap();
        assert_eq!(certificate_identity(&pem), Some(("jane".to_owned(), vec!["dev".to_owned()])));
        let leaf = Leaf { cert_pem: pem, key_pem: String::new() };
        let (chain, ca) = (leaf.chain().unwrap(), pki.ca.chain().unwrap());
        let (_, made) = X509Certificate::from_der(&chain[0]).unwrap();
        let (_, ca) = X509Certificate::from_der(&ca[0]).unwrap();
        made.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(made.validity().not_after.timestamp(), now.as_second() + 3600);
        let other = authority.sign(&request, &["client auth"], None, now).unwrap();
        assert_ne!(other, leaf.cert_pem, "serial numbers differ");
    }

    #[test]
    fn an_authority_that_has_ended_signs_nothing() {
        let now = Clock::system().now();
        let pki = Pki::in_memory(&[], now).unwrap();
        let authority = Authority::new(&pki.ca).unwrap();
        let key = KeyPair::generate().unwrap();
        let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let request = CertificateRequest::from_pem(request.as_bytes()).unwrap();
        let refused = authority.sign(&request, &["client auth"], None, authority.end).unwrap_err();
        assert_eq!(refused, "the certificate authority has expired");
    }
}
