//! Authorities and certificates that are made for a test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A certificate with its key, and the certificates that lead to its root.
#[derive(Clone)]
pub struct Leaf {
    pub cert_pem: String,
    pub key_pem: String,
    pub chain_pem: String,
}

impl Leaf {
    #[must_use]
    pub fn self_signed(names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names).self_signed(&key).unwrap();
        Leaf { cert_pem: certificate.pem(), key_pem: key.serialize_pem(), chain_pem: String::new() }
    }
}

/// An authority. Its leaves have all names that are given.
pub struct Authority {
    pub pem: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
    chain_pem: String,
}

fn params(names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    // Every test authority has a name of its own, so that none is confused with another.
    params.distinguished_name.push(DnType::CommonName, format!("test {:016x}", rand_number()));
    params
}

fn rand_number() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn authority_params(names: &[&str]) -> CertificateParams {
    let mut params = params(names);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

impl Default for Authority {
    fn default() -> Self {
        Self::named(&[])
    }
}

impl Authority {
    #[must_use]
    pub fn new() -> Self {
        Self::named(&[])
    }

    /// An authority whose own certificate has names, as those of some tools have.
    #[must_use]
    pub fn named(names: &[&str]) -> Self {
        let issuer = CertifiedIssuer::self_signed(authority_params(names), KeyPair::generate().unwrap()).unwrap();
        Authority { pem: issuer.pem(), issuer, chain_pem: String::new() }
    }

    /// An authority that is valid from the first day of a year to that of another.
    #[must_use]
    pub fn of_years(from: i32, to: i32) -> Self {
        let mut params = authority_params(&[]);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { pem: issuer.pem(), issuer, chain_pem: String::new() }
    }

    #[must_use]
    pub fn intermediate(&self) -> Self {
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::signed_by(authority_params(&[]), key, &self.issuer).unwrap();
        Authority { pem: issuer.pem(), chain_pem: issuer.pem(), issuer }
    }

    /// The authority's certificate as that of a server.
    #[must_use]
    pub fn own_leaf(&self) -> Leaf {
        Leaf { cert_pem: self.pem.clone(), key_pem: self.issuer.key().serialize_pem(), chain_pem: String::new() }
    }

    #[must_use]
    pub fn leaf(&self, names: &[&str]) -> Leaf {
        let mut params = params(names);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    #[must_use]
    pub fn client_leaf(&self, names: &[&str]) -> Leaf {
        let mut params = params(names);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    #[must_use]
    pub fn leaf_of_years(&self, from: i32, to: i32) -> Leaf {
        let mut params = params(&["127.0.0.1"]);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        self.sign(params)
    }

    #[must_use]
    pub fn leaf_with_common_name_only(&self, name: &str) -> Leaf {
        let mut params = params(&[]);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params)
    }

    /// A leaf, and a certificate that it signed although it is no authority.
    #[must_use]
    pub fn leaf_that_signs(&self, names: &[&str]) -> (Leaf, Leaf) {
        let mut leaf_params = params(names);
        leaf_params.is_ca = IsCa::ExplicitNoCa;
        let issuer = CertifiedIssuer::signed_by(leaf_params, KeyPair::generate().unwrap(), &self.issuer).unwrap();
        let leaf = Leaf { cert_pem: issuer.pem(), key_pem: issuer.key().serialize_pem(), chain_pem: String::new() };
        let pem = issuer.pem();
        let signed = Authority { pem: pem.clone(), issuer, chain_pem: pem }.leaf(names);
        (leaf, signed)
    }

    fn sign(&self, params: CertificateParams) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { cert_pem: certificate.pem(), key_pem: key.serialize_pem(), chain_pem: self.chain_pem.clone() }
    }
}
