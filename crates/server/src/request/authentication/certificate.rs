//! The user of a client certificate: common name, organisations, UID, and the fingerprint of the certificate.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::X509Name;

use access::identity::User;

/// The subject attribute for the user's UID.
const UID_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57_683, 2];

/// What the subject of a certificate says.
#[derive(Clone, Debug)]
pub struct Subject {
    pub common_name: String,
    /// None without a common name; an error for a UID that cannot be used.
    pub user: Result<Option<Arc<User>>, String>,
}

/// Reads the subject of a certificate.
#[must_use]
pub fn subject(der: &[u8]) -> Subject {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Subject { common_name: String::new(), user: Err("the client certificate cannot be read".to_owned()) };
    };
    let subject = certificate.subject();
    // The last one counts if there are several.
    let common_name = subject.iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or_default();
    let user = if common_name.is_empty() { Ok(None) } else { user(der, subject, common_name).map(Some) };
    Subject { common_name: common_name.to_owned(), user }
}

fn user(der: &[u8], subject: &X509Name<'_>, name: &str) -> Result<Arc<User>, String> {
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let credential = Sha256::digest(der).iter().fold(String::from("X509SHA256="), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    });
    let extra = [("authentication.kubernetes.io/credential-id".to_owned(), vec![credential])].into();
    Ok(Arc::new(User { name: name.to_owned(), uid: uid(subject)?, groups, extra }.authenticated()))
}

fn uid(subject: &X509Name<'_>) -> Result<String, String> {
    let oid = Oid::from(UID_OID).map_err(|_| "the attribute of a UID is unknown".to_owned())?;
    let mut values = subject.iter_by_oid(&oid);
    let Some(first) = values.next() else { return Ok(String::new()) };
    if values.next().is_some() {
        return Err("expected 1 UID, but found multiple".to_owned());
    }
    match first.as_str() {
        Ok("") => Err("UID cannot be an empty string".to_owned()),
        Ok(uid) => Ok(uid.to_owned()),
        Err(_) => Err("unable to parse UID into a string".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::Pki;
    use machinery::clock::Clock;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn certificate(attributes: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn au_12_the_subject_names_user_and_groups() {
        let pki = Pki::in_memory(&[], Clock::system().now()).unwrap();
        let der = pki.admin.chain().unwrap()[0].to_vec();
        let admin = subject(&der).user.unwrap().unwrap();
        assert_eq!(admin.name, "kubernetes-admin");
        assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
        let digest: String = Sha256::digest(&der).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(admin.extra["authentication.kubernetes.io/credential-id"], [format!("X509SHA256={digest}")]);
        assert_eq!(admin.uid, "");
    }

    #[test]
    fn au_13_an_attribute_is_the_uid() {
        let uid = || DnType::CustomDnType(UID_OID.to_vec());
        let user = subject(&certificate(&[(DnType::CommonName, "ann"), (uid(), "u-7")])).user.unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "u-7"));
        let empty = subject(&certificate(&[(DnType::CommonName, "ann"), (uid(), "")]));
        assert!(empty.user.unwrap_err().contains("empty"));
    }

    #[test]
    fn au_16_a_subject_without_a_name_is_no_user() {
        assert_eq!(subject(&certificate(&[(DnType::OrganizationName, "devs")])).user, Ok(None));
        assert!(subject(b"\x30\x03\x02\x01\x01").user.is_err());
        assert!(subject(b"").user.is_err());
    }
}
