//! TLS of the listener: the serving certificate, ALPN, and client certificates, which are requested but not required.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme};
use tokio_rustls::TlsAcceptor;

use crate::certs::{Leaf, Pki};
use crate::error::CertError;
use crate::request::authentication::authorities::{ClientAuthorities, provider};
use crate::wire::peer::ClientCertificate;

/// The TLS settings of a listener. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct Tls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
    authorities: Arc<ClientAuthorities>,
}

impl Tls {
    /// Serves with the server's own certificate, and accepts users of its own authority.
    pub fn new(pki: &Pki) -> Result<Self, CertError> {
        Self::with(&pki.serving, ClientAuthorities::new(&pki.ca_pem, None)?)
    }

    pub fn with(serving: &Leaf, authorities: Arc<ClientAuthorities>) -> Result<Self, CertError> {
        let config = Arc::new(RwLock::new(config(serving, &authorities)?));
        Ok(Tls { config, authorities })
    }

    /// Serves another certificate from the next connection on, and names the present client authorities to clients.
    pub fn replace(&self, serving: &Leaf) -> Result<(), CertError> {
        let config = config(serving, &self.authorities)?;
        *self.config.write() = config;
        Ok(())
    }

    #[must_use]
    pub fn authorities(&self) -> &Arc<ClientAuthorities> {
        &self.authorities
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }

    /// The client's certificate; none without one. Requests verify it.
    #[must_use]
    pub fn client(&self, session: &ServerConnection) -> Option<ClientCertificate> {
        self.authorities.present(session.peer_certificates()?).map(ClientCertificate::Presented)
    }
}

fn config(serving: &Leaf, authorities: &ClientAuthorities) -> Result<Arc<ServerConfig>, CertError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(RequestedCertificate { inner: authorities.users() }))
        .with_single_cert(serving.chain()?, serving.key()?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // One ticket is enough to resume a session; rustls sends two for browsers, which open connections in parallel.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// Requests a certificate and checks that the client holds its key, but accepts one of an unknown authority: the request
/// then gets a 401 with a reason, where most clients report nothing about a failed handshake. Requests do the real check.
#[derive(Debug)]
struct RequestedCertificate {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for RequestedCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
