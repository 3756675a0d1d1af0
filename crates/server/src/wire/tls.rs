//! TLS of the listener: the serving certificate, ALPN, and client certificates, which are requested but not required.

use std::sync::Arc;
use std::time::Duration;

use machinery::clock::Clock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use tokio_rustls::TlsAcceptor;

use crate::certs::Pki;
use crate::error::CertError;
use crate::request::authentication::certificate;
use crate::wire::peer::ClientCertificate;

/// The TLS settings of a listener.
#[derive(Clone)]
pub struct Tls {
    pub acceptor: TlsAcceptor,
    verifier: Arc<dyn ClientCertVerifier>,
    clock: Clock,
}

impl Tls {
    pub fn new(pki: &Pki, clock: Clock) -> Result<Self, CertError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(pki.ca_pem.as_bytes()) {
            roots.add(ca.map_err(|e| CertError::Unreadable(e.to_string()))?)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|e| CertError::Unreadable(e.to_string()))?;
        let mut config = Self::builder(provider)?
            .with_client_cert_verifier(Arc::new(RequestedCertificate { inner: Arc::clone(&verifier) }))
            .with_single_cert(pki.serving.chain()?, pki.serving.key()?)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // One ticket is enough to resume a session; rustls sends two for browsers, which open connections in parallel.
        config.send_tls13_tickets = 1;
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), verifier, clock })
    }

    fn builder(
        provider: Arc<CryptoProvider>,
    ) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, CertError> {
        Ok(ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?)
    }

    /// Verifies the client's certificate; none without one.
    #[must_use]
    pub fn client(&self, session: &ServerConnection) -> Option<ClientCertificate> {
        let (first, others) = session.peer_certificates()?.split_first()?;
        let now = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let verified = self.verifier.verify_client_cert(first, others, now).is_ok();
        let user = verified.then(|| certificate::user(first)).flatten();
        Some(user.map_or(ClientCertificate::Refused, |user| ClientCertificate::Verified(Arc::new(user))))
    }
}

/// Requests a certificate and checks that the client holds its key, but accepts one of an unknown authority: the request
/// then gets a 401 with a reason, where most clients report nothing about a failed handshake. [`Tls::client`] does the
/// real check.
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
