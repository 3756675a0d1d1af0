//! TLS configurations: roots, client certificate, server name.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind};
use crate::trust::{Anchors, Verifier};

/// Configurations that are kept; the least recently used is evicted. A server has a few, unless its webhooks' bundles rotate.
const CONFIGURATIONS_MAX: usize = 128;

/// The certificates that vouch for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// Those of the operating system.
    #[default]
    System,
    /// Only these, as PEM. Each is an anchor, also one that is no authority.
    Bundle(Vec<u8>),
    /// Any certificate is accepted.
    Unverified,
}

impl Roots {
    /// A PEM bundle; an empty one means the roots of the system, as in a `caBundle` that is not set.
    #[must_use]
    pub fn bundle(pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        if pem.is_empty() { Roots::System } else { Roots::Bundle(pem) }
    }
}

/// A client certificate with its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificate_pem: Vec<u8>,
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for Identity {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

/// What a TLS configuration is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    pub roots: Roots,
    pub identity: Option<Identity>,
    /// The name that the server's certificate must have; none is the host of the URL.
    pub server_name: Option<String>,
}

/// A TLS configuration. Equal options have the same one while it is kept, and so share connections.
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: Option<Arc<str>>,
    pub(crate) key: [u8; 32],
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Configurations by the hash of their options.
#[derive(Debug)]
pub(crate) struct TlsCache(Mutex<LruCache<[u8; 32], Tls>>);

impl Default for TlsCache {
    fn default() -> Self {
        TlsCache(Mutex::new(LruCache::new(NonZeroUsize::new(CONFIGURATIONS_MAX).unwrap_or(NonZeroUsize::MIN))))
    }
}

impl TlsCache {
    pub(crate) fn get(&self, options: &TlsOptions) -> Result<Tls, Error> {
        let key = key(options);
        if let Some(tls) = self.0.lock().get(&key) {
            return Ok(tls.clone());
        }
        let tls = Tls {
            config: Arc::new(configuration(options)?),
            server_name: options.server_name.as_deref().map(Arc::from),
            key,
        };
        self.0.lock().put(key, tls.clone());
        Ok(tls)
    }
}

/// Each part with its length, so that parts cannot run into each other.
fn key(options: &TlsOptions) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match &options.roots {
        Roots::System => part(b"system"),
        Roots::Unverified => part(b"unverified"),
        Roots::Bundle(pem) => {
            part(b"bundle");
            part(pem);
        }
    }
    match &options.identity {
        None => part(b""),
        Some(identity) => {
            part(&identity.certificate_pem);
            part(&identity.key_pem);
        }
    }
    part(options.server_name.as_deref().unwrap_or_default().as_bytes());
    hash.finalize().into()
}

fn configuration(options: &TlsOptions) -> Result<ClientConfig, Error> {
    let failed = |why: String| Error::new(ErrorKind::Configuration, why);
    let anchors = match &options.roots {
        Roots::Unverified => None,
        // Certificates of the system that cannot be read are left out, as Go does.
        Roots::System => Some(Anchors::new(rustls_native_certs::load_native_certs().certs)),
        Roots::Bundle(pem) => {
            // Blocks that cannot be read are skipped; a bundle without any certificate is a mistake.
            let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
            if certificates.is_empty() {
                return Err(failed("unable to load root certificates: unable to parse bytes as PEM block".to_owned()));
            }
            Some(Anchors::new(certificates))
        }
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Verifier::new(anchors, provider.signature_verification_algorithms);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &options.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain: Vec<_> =
                CertificateDer::pem_slice_iter(&identity.certificate_pem).filter_map(Result::ok).collect();
            if chain.is_empty() {
                return Err(failed("tls: failed to find any PEM data in certificate input".to_owned()));
            }
            let key = PrivateKeyDer::from_pem_slice(&identity.key_pem)
                .map_err(|_| failed("tls: failed to find any PEM data in key input".to_owned()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| failed(format!("tls: {error}")))?
        }
    };
    // A resumed session is not verified again: a server whose certificate, or the root that vouches for it, has expired since
    // would still be accepted.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
