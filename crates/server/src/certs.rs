//! The server's certificate authority, its serving certificate, the administrator's client certificate, and the key that
//! signs the tokens of service accounts.
//!
//! Generated once and stored in a directory of the caller (0600, directory 0700):
//!
//! | file | content | renewed |
//! |---|---|---|
//! | `ca.crt`, `ca.key` | ECDSA P-256, ten years | never: clients trust it |
//! | `server.crt`, `server.key` | for the names and addresses of the server | when it lacks a name, is from another CA, or has less than a third of its life left |
//! | `admin.crt`, `admin.key` | CN `kubernetes-admin`, O `system:masters` | as above |
//! | `accounts.key` | ECDSA P-256, signs the tokens of service accounts | never: tokens in use would become invalid |

pub mod front_proxy;
pub mod webhooks;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

use crate::error::CertError;

const CA_YEARS: i16 = 10;
const LEAF_DAYS: i32 = 365;

/// The administrator of a new server, and the user of its kubeconfig.
pub const ADMIN_USER: &str = "kubernetes-admin";
/// A group whose members may do everything.
pub const ADMIN_GROUP: &str = "system:masters";

/// The keys and certificates of a server.
pub struct Pki {
    pub ca_pem: String,
    /// The authority with its key, which signs certificate requests.
    pub ca: Leaf,
    pub serving: Leaf,
    pub admin: Leaf,
    /// The key that signs the tokens of service accounts, as PEM.
    pub accounts_key_pem: String,
}

impl std::fmt::Debug for Pki {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki").field("serving", &self.serving).field("admin", &self.admin).finish_non_exhaustive()
    }
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Leaf {
    pub cert_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for Leaf {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// Names and addresses in every serving certificate.
#[must_use]
pub fn default_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "10.96.0.1",
    ]
    .map(str::to_owned)
    .to_vec();
    if let Ok(hostname) = fs::read_to_string("/proc/sys/kernel/hostname") {
        let hostname = hostname.trim().to_ascii_lowercase();
        if !hostname.is_empty() {
            names.push(hostname);
        }
    }
    names
}

impl Pki {
    /// Reads the files of the directory, and generates those that are missing, near their expiry, or lack a name.
    pub fn open(dir: &Path, extra_names: &[String], now: Timestamp) -> Result<Pki, CertError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| CertError::file(dir, e))?;
        let ca = match read_leaf(dir, "ca")? {
            Some(ca) => ca,
            None => {
                if read(&dir.join("ca.crt"))?.is_some() {
                    tracing::warn!(dir = %dir.display(), "the key of the authority is missing: there is a new authority");
                }
                write_leaf(dir, "ca", make_ca(now)?)?
            }
        };
        if !has_life_left(&ca, now) {
            // Clients trust it, so it is not replaced.
            tracing::warn!(dir = %dir.display(), "the authority has less than a third of its life left");
        }
        let issuer = issuer(&ca)?;
        let names = wanted_names(extra_names);
        let serving = match read_leaf(dir, "server")? {
            Some(leaf) if is_usable(&leaf, &ca, now) && covers(&leaf, &names) => leaf,
            _ => write_leaf(dir, "server", make_serving(&issuer, &names, now)?)?,
        };
        let admin = match read_leaf(dir, "admin")? {
            Some(leaf) if is_usable(&leaf, &ca, now) => leaf,
            _ => write_leaf(dir, "admin", make_client(&issuer, ADMIN_USER, &[ADMIN_GROUP], now)?)?,
        };
        let path = dir.join("accounts.key");
        let accounts_key_pem = match read(&path)? {
            Some(key) => key,
            None => {
                let key = make_key()?;
                write_private(&path, key.as_bytes())?;
                key
            }
        };
        Ok(Pki { ca_pem: ca.cert_pem.clone(), ca, serving, admin, accounts_key_pem })
    }

    /// As [`Pki::open`], without files.
    pub fn in_memory(extra_names: &[String], now: Timestamp) -> Result<Pki, CertError> {
        let ca = make_ca(now)?;
        let issuer = issuer(&ca)?;
        Ok(Pki {
            serving: make_serving(&issuer, &wanted_names(extra_names), now)?,
            admin: make_client(&issuer, ADMIN_USER, &[ADMIN_GROUP], now)?,
            ca_pem: ca.cert_pem.clone(),
            ca,
            accounts_key_pem: make_key()?,
        })
    }
}

impl Leaf {
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, CertError> {
        CertificateDer::pem_slice_iter(self.cert_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| CertError::Unreadable(e.to_string()))
    }

    pub fn key(&self) -> Result<PrivateKeyDer<'static>, CertError> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|e| CertError::Unreadable(e.to_string()))
    }
}

/// Issues a client certificate for a user, signed by the authority in this directory.
pub fn issue_client(dir: &Path, user: &str, groups: &[&str], now: Timestamp) -> Result<Leaf, CertError> {
    let ca = read_leaf(dir, "ca")?
        .ok_or_else(|| CertError::Unreadable(format!("there is no certificate authority in {}", dir.display())))?;
    make_client(&issuer(&ca)?, user, groups, now)
}

fn wanted_names(extra: &[String]) -> BTreeSet<String> {
    default_names().into_iter().chain(extra.iter().map(|name| name.to_ascii_lowercase())).collect()
}

fn params(now: Timestamp, until: Timestamp) -> CertificateParams {
    // Valid from a day ago, for clients whose clock is behind.
    let day = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    let mut params = CertificateParams::default();
    params.not_before = day(now.saturating_sub(24.hours()).unwrap_or(now));
    params.not_after = day(until);
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    params
}

fn days_later(now: Timestamp, days: i32) -> Timestamp {
    now.saturating_add((i64::from(days) * 24).hours()).unwrap_or(Timestamp::MAX)
}

fn make_ca(now: Timestamp) -> Result<Leaf, CertError> {
    make_authority("dogwatch-ca", now)
}

fn make_authority(name: &str, now: Timestamp) -> Result<Leaf, CertError> {
    let mut params = params(now, days_later(now, i32::from(CA_YEARS) * 365));
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok(Leaf { cert_pem: params.self_signed(&key)?.pem(), key_pem: key.serialize_pem() })
}

fn issuer(ca: &Leaf) -> Result<Issuer<'static, KeyPair>, CertError> {
    Ok(Issuer::from_ca_cert_pem(&ca.cert_pem, KeyPair::from_pem(&ca.key_pem)?)?)
}

fn make_serving(
    issuer: &Issuer<'static, KeyPair>,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Leaf, CertError> {
    let mut params = params(now, days_later(now, LEAF_DAYS));
    params.distinguished_name.push(DnType::CommonName, "dogwatch");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.subject_alt_names = names
        .iter()
        .map(|name| match name.parse::<IpAddr>() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => name
                .as_str()
                .try_into()
                .map(SanType::DnsName)
                .map_err(|_| CertError::Unreadable(format!("{name:?} is neither a host name nor an address"))),
        })
        .collect::<Result<_, _>>()?;
    sign(&params, issuer)
}

fn make_client(
    issuer: &Issuer<'static, KeyPair>,
    user: &str,
    groups: &[&str],
    now: Timestamp,
) -> Result<Leaf, CertError> {
    let mut params = params(now, days_later(now, LEAF_DAYS));
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    sign(&params, issuer)
}

fn sign(params: &CertificateParams, issuer: &Issuer<'static, KeyPair>) -> Result<Leaf, CertError> {
    let key = KeyPair::generate()?;
    Ok(Leaf { cert_pem: params.signed_by(&key, issuer)?.pem(), key_pem: key.serialize_pem() })
}

/// Returns whether a certificate is signed by this authority and not near its expiry.
fn is_usable(leaf: &Leaf, ca: &Leaf, now: Timestamp) -> bool {
    let (Ok(chain), Ok(ca_chain)) = (leaf.chain(), ca.chain()) else { return false };
    let (Some(der), Some(ca_der)) = (chain.first(), ca_chain.first()) else { return false };
    let (Ok((_, cert)), Ok((_, ca_cert))) = (X509Certificate::from_der(der), X509Certificate::from_der(ca_der)) else {
        return false;
    };
    // Every generated authority has the same subject: compare the key.
    let signed_with = cert.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|key| key.0),
        _ => None,
    });
    let ca_key = ca_cert.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    });
    signed_with.is_some() && signed_with == ca_key && has_life_left(leaf, now)
}

/// Returns whether a certificate has at least a third of its life left.
fn has_life_left(leaf: &Leaf, now: Timestamp) -> bool {
    let Ok(chain) = leaf.chain() else { return false };
    let Some((_, cert)) = chain.first().and_then(|der| X509Certificate::from_der(der).ok()) else { return false };
    let (from, until) = (cert.validity().not_before.timestamp(), cert.validity().not_after.timestamp());
    until.saturating_sub(now.as_second()).saturating_mul(3) >= until.saturating_sub(from)
}

fn covers(leaf: &Leaf, names: &BTreeSet<String>) -> bool {
    let Ok(chain) = leaf.chain() else { return false };
    let Some((_, cert)) = chain.first().and_then(|der| X509Certificate::from_der(der).ok()) else { return false };
    let Ok(Some(san)) = cert.subject_alternative_name() else { return false };
    let held: BTreeSet<String> = san
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(octets) => match octets.len() {
                4 => <[u8; 4]>::try_from(*octets).ok().map(|octets| IpAddr::from(octets).to_string()),
                _ => <[u8; 16]>::try_from(*octets).ok().map(|octets| IpAddr::from(octets).to_string()),
            },
            _ => None,
        })
        .collect();
    let canonical = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |ip| ip.to_string());
    names.iter().all(|name| held.contains(&canonical(name)))
}

fn read(path: &Path) -> Result<Option<String>, CertError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(CertError::file(path, e)),
    }
}

fn read_leaf(dir: &Path, name: &str) -> Result<Option<Leaf>, CertError> {
    let part = |suffix: &str| read(&dir.join(format!("{name}.{suffix}")));
    Ok(match (part("crt")?, part("key")?) {
        (Some(cert_pem), Some(key_pem)) => Some(Leaf { cert_pem, key_pem }),
        // A crash between the two renames leaves half a pair, which is ignored.
        _ => None,
    })
}

fn write_leaf(dir: &Path, name: &str, leaf: Leaf) -> Result<Leaf, CertError> {
    write_private(&dir.join(format!("{name}.key")), leaf.key_pem.as_bytes())?;
    write_private(&dir.join(format!("{name}.crt")), leaf.cert_pem.as_bytes())?;
    Ok(leaf)
}

/// Generates a key to sign tokens with, as PEM.
pub fn make_key() -> Result<String, CertError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// Writes a file that only its owner may read, atomically: a reader sees the old content or the new.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), CertError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    let _ = fs::remove_file(temporary);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    };
    write().map_err(|e| CertError::file(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::clock::Clock;
    use std::os::unix::fs::PermissionsExt as _;

    fn now() -> Timestamp {
        Clock::system().now()
    }

    #[test]
    fn rot_7_made_once_and_kept_for_their_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let pki_dir = dir.path().join("pki");
        let first = Pki::open(&pki_dir, &[], now()).unwrap();
        let second = Pki::open(&pki_dir, &[], now()).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_eq!(first.serving.cert_pem, second.serving.cert_pem);
        assert_eq!(first.admin.cert_pem, second.admin.cert_pem);
        for entry in fs::read_dir(&pki_dir).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&pki_dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn rot_1_a_new_name_renews_only_the_serving_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &[], now()).unwrap();
        let names = ["Dogwatch.Example.org".to_owned(), "192.0.2.7".to_owned(), "2001:db8:0::1".to_owned()];
        let second = Pki::open(dir.path(), &names, now()).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_ne!(first.serving.cert_pem, second.serving.cert_pem);
        assert_eq!(first.admin.cert_pem, second.admin.cert_pem);
        let third = Pki::open(dir.path(), &names, now()).unwrap();
        assert_eq!(second.serving.cert_pem, third.serving.cert_pem);
        // Fewer names than it has are no reason for a new one.
        let fourth = Pki::open(dir.path(), &[], now()).unwrap();
        assert_eq!(third.serving.cert_pem, fourth.serving.cert_pem);
    }

    #[test]
    fn rot_4_leaves_are_renewed_before_their_last_third_and_the_authority_never() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &[], now()).unwrap();
        let kept = Pki::open(dir.path(), &[], days_later(now(), LEAF_DAYS * 2 / 3 - 5)).unwrap();
        assert_eq!(first.serving.cert_pem, kept.serving.cert_pem);
        let later = days_later(now(), LEAF_DAYS * 2 / 3 + 5);
        let second = Pki::open(dir.path(), &[], later).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_ne!(first.serving.cert_pem, second.serving.cert_pem);
        assert_ne!(first.admin.cert_pem, second.admin.cert_pem);
        let old = Pki::open(dir.path(), &[], days_later(now(), i32::from(CA_YEARS) * 365 - 30)).unwrap();
        assert_eq!(first.ca_pem, old.ca_pem);
    }

    #[test]
    fn leaves_of_another_authority_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &[], now()).unwrap();
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        let second = Pki::open(dir.path(), &[], now()).unwrap();
        assert_ne!(first.ca_pem, second.ca_pem);
        assert_ne!(first.serving.cert_pem, second.serving.cert_pem);
        assert_ne!(first.admin.cert_pem, second.admin.cert_pem);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Pki::open(dir.path(), &["bücher.example".to_owned()], now()).is_err());
    }
}
