//! The user of a client certificate: common name, organisations, and the fingerprint of the certificate.

use sha2::{Digest as _, Sha256};
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use access::identity::User;

/// The subject attribute for the user's UID.
const UID_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 57_683, 2];

/// Returns the user; none when the subject has no common name.
#[must_use]
pub fn user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let uid_oid = Oid::from(UID_OID).ok()?;
    let uid = subject.iter_by_oid(&uid_oid).next().and_then(|uid| uid.as_str().ok()).unwrap_or_default().to_owned();
    let credential = Sha256::digest(der).iter().fold(String::from("X509SHA256="), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    });
    let extra = [("authentication.kubernetes.io/credential-id".to_owned(), vec![credential])].into();
    Some(User { name, uid, groups, extra }.authenticated())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::Pki;
    use machinery::clock::Clock;

    #[test]
    fn the_admin_certificate_names_a_master() {
        let pki = Pki::in_memory(&[], Clock::system().now()).unwrap();
        let admin = user(&pki.admin.chain().unwrap()[0]).unwrap();
        assert_eq!(admin.name, "kubernetes-admin");
        assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
        assert!(admin.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    }

    #[test]
    fn bytes_other_than_a_certificate_have_no_user() {
        assert_eq!(user(b"\x30\x03\x02\x01\x01"), None);
        assert_eq!(user(b""), None);
    }
}
