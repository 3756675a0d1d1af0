//! The authorities of client certificates, and the certificates that clients presented.
//!
//! A chain is verified when a request needs it, with the clock of that request. The result is kept with the certificate:
//! while the authorities are the same and the time is within the validity of every certificate of the chain, a request
//! costs two comparisons.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::identity::User;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::error::CertError;
use crate::request::authentication::certificate;

/// Presented certificates in the table before entries of closed connections are removed.
const KNOWN_MIN: usize = 64;

/// The authorities that sign certificates of users and of front proxies. Shared by all listeners; they can be replaced
/// while connections are open.
pub struct ClientAuthorities {
    roots: RwLock<Arc<Roots>>,
    /// The generation of `roots`, which counts from 1.
    generation: AtomicU64,
    /// The certificates of open connections by digest: the connections of one client share one entry.
    known: Mutex<Known>,
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").field("generation", &self.generation).finish_non_exhaustive()
    }
}

struct Roots {
    generation: u64,
    users: Arc<dyn ClientCertVerifier>,
    proxies: Option<Arc<dyn ClientCertVerifier>>,
}

#[derive(Default)]
struct Known {
    entries: HashMap<[u8; 32], Weak<Presented>>,
    /// Entries at which the table is cleaned.
    clean_at: usize,
}

impl ClientAuthorities {
    /// `users_pem` are the authorities of users, `proxies_pem` those of front proxies.
    pub fn new(users_pem: &str, proxies_pem: Option<&str>) -> Result<Arc<Self>, CertError> {
        Ok(Arc::new(ClientAuthorities {
            roots: RwLock::new(Arc::new(Roots::new(1, users_pem, proxies_pem)?)),
            generation: AtomicU64::new(1),
            known: Mutex::default(),
        }))
    }

    /// Replaces the authorities. Connections stay open; their next request is verified anew.
    pub fn replace(&self, users_pem: &str, proxies_pem: Option<&str>) -> Result<(), CertError> {
        let mut current = self.roots.write();
        let generation = current.generation + 1;
        *current = Arc::new(Roots::new(generation, users_pem, proxies_pem)?);
        self.generation.store(generation, Ordering::Release);
        Ok(())
    }

    /// The verifier of users' certificates, for what it knows of signatures and of the authorities' names.
    pub(crate) fn users(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.roots.read().users)
    }

    /// The certificate of a connection; none for an empty chain.
    pub(crate) fn present(self: &Arc<Self>, chain: &[CertificateDer<'_>]) -> Option<Arc<Presented>> {
        let first = chain.first()?;
        let mut digest = Sha256::new();
        for certificate in chain {
            digest.update((certificate.len() as u64).to_le_bytes());
            digest.update(certificate);
        }
        let digest: [u8; 32] = digest.finalize().into();
        if let Some(presented) = self.known.lock().entries.get(&digest).and_then(Weak::upgrade) {
            return Some(presented);
        }
        let (from, until) = common_validity(chain);
        let presented = Arc::new(Presented {
            subject: certificate::subject(first),
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
            authorities: Arc::clone(self),
            from,
            until,
            user_generation: AtomicU64::new(0),
            proxy_generation: AtomicU64::new(0),
        });
        let mut known = self.known.lock();
        if known.entries.len() >= known.clean_at.max(KNOWN_MIN) {
            known.entries.retain(|_, entry| entry.strong_count() > 0);
            known.clean_at = known.entries.len() * 2;
        }
        known.entries.insert(digest, Arc::downgrade(&presented));
        Some(presented)
    }
}

impl Roots {
    fn new(generation: u64, users_pem: &str, proxies_pem: Option<&str>) -> Result<Self, CertError> {
        Ok(Roots { generation, users: verifier(users_pem)?, proxies: proxies_pem.map(verifier).transpose()? })
    }
}

fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, CertError> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(authority.map_err(|error| CertError::Unreadable(error.to_string()))?)?;
    }
    if roots.is_empty() {
        return Err(CertError::Unreadable("there is no certificate in the file of the client authority".to_owned()));
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| CertError::Unreadable(error.to_string()))?;
    Ok(verifier)
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The certificate that a client presented in its handshake.
pub struct Presented {
    subject: certificate::Subject,
    chain: Vec<CertificateDer<'static>>,
    authorities: Arc<ClientAuthorities>,
    /// The seconds at which all certificates of the chain are valid.
    from: i64,
    until: i64,
    /// The generation of authorities that verified the chain for a user, and for a front proxy; 0 for none.
    user_generation: AtomicU64,
    proxy_generation: AtomicU64,
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").field("common_name", &self.subject.common_name).finish_non_exhaustive()
    }
}

impl Presented {
    /// The user of a certificate that is known to be good now. None says nothing: [`Presented::user`] verifies.
    #[inline]
    pub(crate) fn known_user(&self, now: Timestamp) -> Option<&Arc<User>> {
        if self.is_known(&self.user_generation, now) { self.subject.user.as_ref().ok()?.as_ref() } else { None }
    }

    /// The user of the certificate, none if its subject has no name, or the reason why it is refused.
    pub(crate) fn user(&self, now: Timestamp) -> Result<Option<Arc<User>>, String> {
        let roots = Arc::clone(&self.authorities.roots.read());
        self.verify(&roots.users, &self.user_generation, roots.generation, now)?;
        self.subject.user.clone()
    }

    /// Checks that the certificate is of a front proxy: returns its common name.
    pub(crate) fn proxy(&self, now: Timestamp) -> Result<&str, String> {
        let roots = Arc::clone(&self.authorities.roots.read());
        let Some(proxies) = &roots.proxies else { return Err("there is no authority for front proxies".to_owned()) };
        self.verify(proxies, &self.proxy_generation, roots.generation, now)?;
        Ok(&self.subject.common_name)
    }

    fn is_known(&self, verified: &AtomicU64, now: Timestamp) -> bool {
        let (now, current) = (now.as_second(), self.authorities.generation.load(Ordering::Acquire));
        verified.load(Ordering::Relaxed) == current && self.from <= now && now < self.until
    }

    fn verify(
        &self,
        roots: &Arc<dyn ClientCertVerifier>,
        verified: &AtomicU64,
        generation: u64,
        now: Timestamp,
    ) -> Result<(), String> {
        if self.is_known(verified, now) {
            return Ok(());
        }
        let Some((first, others)) = self.chain.split_first() else { return Err("there is no certificate".to_owned()) };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        roots.verify_client_cert(first, others, now).map_err(|error| error.to_string())?;
        // Of the authorities that were asked: if they were replaced meanwhile, the next request verifies again.
        verified.store(generation, Ordering::Relaxed);
        Ok(())
    }
}

/// The seconds at which all certificates of a chain are valid; empty if one cannot be read.
fn common_validity(chain: &[CertificateDer<'_>]) -> (i64, i64) {
    let mut common = (i64::MIN, i64::MAX);
    for der in chain {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return (0, 0) };
        let validity = certificate.validity();
        common.0 = common.0.max(validity.not_before.timestamp());
        common.1 = common.1.min(validity.not_after.timestamp());
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{Pki, issue_client};
    use jiff::SignedDuration;
    use machinery::clock::Clock;

    fn presented(pki: &Pki, authorities: &Arc<ClientAuthorities>) -> Arc<Presented> {
        authorities.present(&pki.admin.chain().unwrap()).unwrap()
    }

    #[test]
    fn au_15_each_request_is_verified_with_its_own_time() {
        let now = Clock::system().now();
        let pki = Pki::in_memory(&[], now).unwrap();
        let authorities = ClientAuthorities::new(&pki.ca_pem, None).unwrap();
        let admin = presented(&pki, &authorities);
        assert!(admin.known_user(now).is_none(), "nothing is known before it was verified");
        let user = admin.user(now).unwrap().unwrap();
        assert!(Arc::ptr_eq(admin.known_user(now).unwrap(), &user), "the second request shares the user");
        for later in [SignedDuration::from_hours(24 * 400), SignedDuration::from_hours(-24 * 3)] {
            assert!(admin.known_user(now + later).is_none());
            assert!(admin.user(now + later).is_err());
        }
        assert!(admin.known_user(now).is_some());
        let server = authorities.present(&pki.serving.chain().unwrap()).unwrap();
        assert!(server.user(now).is_err(), "it is not for clients");
    }

    #[test]
    fn au_14_17_authorities_are_replaced_while_certificates_are_in_use() {
        let now = Clock::system().now();
        let (first, second) = (Pki::in_memory(&[], now).unwrap(), Pki::in_memory(&[], now).unwrap());
        let authorities = ClientAuthorities::new(&first.ca_pem, None).unwrap();
        let (old, new) = (presented(&first, &authorities), presented(&second, &authorities));
        assert!(old.user(now).is_ok());
        assert!(new.user(now).is_err());
        authorities.replace(&second.ca_pem, None).unwrap();
        assert!(old.known_user(now).is_none());
        assert!(old.user(now).is_err());
        assert!(new.user(now).is_ok());
        assert!(authorities.replace("nothing", None).is_err(), "a file without certificates is refused");
        assert!(new.user(now).is_ok(), "and the authorities stay");
    }

    #[test]
    fn connections_of_one_client_share_its_certificate() {
        let now = Clock::system().now();
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), &[], now).unwrap();
        let authorities = ClientAuthorities::new(&pki.ca_pem, None).unwrap();
        let admin = presented(&pki, &authorities);
        assert!(Arc::ptr_eq(&admin, &presented(&pki, &authorities)));
        for _ in 0..KNOWN_MIN {
            let other = issue_client(dir.path(), "ann", &[], now).unwrap();
            drop(authorities.present(&other.chain().unwrap()));
        }
        drop(authorities.present(&issue_client(dir.path(), "ann", &[], now).unwrap().chain().unwrap()));
        assert!(authorities.known.lock().entries.len() <= 3, "entries of closed connections are removed");
        assert!(Arc::ptr_eq(&admin, &presented(&pki, &authorities)));
    }
}
