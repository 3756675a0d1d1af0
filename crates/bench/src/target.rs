//! The server to measure: its address and credentials from a kubeconfig.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;

use crate::trouble::Trouble;

#[derive(Clone)]
pub struct Target {
    pub url: String,
    pub(crate) address: SocketAddr,
    /// Host and port as requests name them.
    pub(crate) authority: String,
    pub(crate) name: ServerName<'static>,
    pub(crate) authorization: Option<String>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    /// Certificates that the server is trusted by.
    trust: Trust,
}

impl Target {
    /// The current context of a kubeconfig.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, Trouble> {
        read(path).map_err(|why| Trouble::Kubeconfig { path: path.display().to_string(), why })
    }

    /// A server of ours on loopback, known by its certificate.
    pub(crate) fn with_certificate(address: SocketAddr, certificate: CertificateDer<'static>) -> Result<Self, Trouble> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(Trouble::impossible)?;
        let url = format!("https://localhost:{}", address.port());
        Self::new(url, address, Trust::Roots(roots), None, None).map_err(Trouble::impossible)
    }

    /// The same server for another user: without the client certificate, and with this `Authorization`.
    pub(crate) fn without_identity(&self, authorization: String) -> Result<Self, Trouble> {
        let (url, trust) = (self.url.clone(), self.trust.clone());
        Self::new(url, self.address, trust, None, Some(authorization)).map_err(Trouble::impossible)
    }

    fn new(
        url: String,
        address: SocketAddr,
        trust: Trust,
        identity: Option<Identity>,
        authorization: Option<String>,
    ) -> Result<Self, String> {
        let (http1, http2) = configs(trust.clone(), identity)?;
        let authority = url.strip_prefix("https://").unwrap_or(&url).trim_end_matches('/').to_owned();
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        Ok(Target { url, address, authority, name, authorization, http1: http1.into(), http2: http2.into(), trust })
    }

    pub(crate) fn tls(&self, http2: bool) -> Arc<ClientConfig> {
        Arc::clone(if http2 { &self.http2 } else { &self.http1 })
    }
}

fn read(path: &Path) -> Result<Target, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let config = Value::from(machinery::yaml::read(&text)?.value);
    let dir = path.parent().unwrap_or(Path::new("."));
    let wanted = config["current-context"].as_str().ok_or("it has no current-context")?;
    let context = &named(&config["contexts"], wanted).ok_or(format!("it has no context {wanted}"))?["context"];
    let cluster_name = context["cluster"].as_str().unwrap_or_default();
    let cluster =
        &named(&config["clusters"], cluster_name).ok_or(format!("it has no cluster {cluster_name}"))?["cluster"];
    let nobody = Value::Null;
    let user =
        context["user"].as_str().and_then(|name| named(&config["users"], name)).map_or(&nobody, |user| &user["user"]);
    if user["exec"].is_object() || user["auth-provider"].is_object() {
        return Err("its user needs another program to log in".to_owned());
    }

    let url = cluster["server"].as_str().ok_or("it names no server")?.trim_end_matches('/').to_owned();
    let authority = url.strip_prefix("https://").ok_or(format!("{url} is not https"))?;
    if authority.contains('/') {
        return Err(format!("{url} has a path"));
    }
    let with_port = if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        authority.to_owned()
    } else {
        format!("{authority}:443")
    };
    let address = with_port
        .to_socket_addrs()
        .map_err(|error| format!("{authority}: {error}"))?
        .next()
        .ok_or(format!("{authority} has no address"))?;

    let trust = match inline_or_file(cluster, "certificate-authority", dir)? {
        _ if cluster["insecure-skip-tls-verify"] == true => Trust::Any,
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| format!("certificate-authority: {error}"))?;
                roots.add(certificate).map_err(|error| format!("certificate-authority: {error}"))?;
            }
            Trust::Roots(roots)
        }
        None => return Err("it has no certificate-authority".to_owned()),
    };
    let certificate = inline_or_file(user, "client-certificate", dir)?;
    let key = inline_or_file(user, "client-key", dir)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
            let chain = chain.map_err(|error| format!("client-certificate: {error}"))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| format!("client-key: {error}"))?;
            Some((chain, key))
        }
        _ => None,
    };
    let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
        (Some(token), _) => Some(token.to_owned()),
        (None, Some(file)) => {
            Some(std::fs::read_to_string(dir.join(file)).map_err(|error| format!("{file}: {error}"))?.trim().to_owned())
        }
        (None, None) => None,
    };
    Target::new(url, address, trust, identity, token.map(|token| format!("Bearer {token}")))
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|entry| entry["name"] == name)
}

/// `NAME-data` holds base64, `NAME` a path relative to the kubeconfig.
fn inline_or_file(holder: &Value, name: &str, dir: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = holder[format!("{name}-data")].as_str() {
        return STANDARD.decode(data).map(Some).map_err(|error| format!("{name}-data: {error}"));
    }
    let Some(file) = holder[name].as_str() else { return Ok(None) };
    std::fs::read(dir.join(file)).map(Some).map_err(|error| format!("{file}: {error}"))
}

#[derive(Clone)]
enum Trust {
    Roots(RootCertStore),
    Any,
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn configs(trust: Trust, identity: Option<Identity>) -> Result<(ClientConfig, ClientConfig), String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match trust {
        Trust::Roots(roots) => builder.with_root_certificates(roots),
        Trust::Any => builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate { provider })),
    };
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?,
        None => builder.with_no_client_auth(),
    };
    // Every connection is a client of its own, so no session resumption.
    config.resumption = Resumption::disabled();
    let mut http2 = config.clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    http2.alpn_protocols = vec![b"h2".to_vec()];
    Ok((config, http2))
}

/// For `insecure-skip-tls-verify`: accepts every certificate.
#[derive(Debug)]
struct AcceptAnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    fn target(text: &str) -> Result<Target, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it can be written");
        Target::from_kubeconfig(file.path()).map_err(|trouble| trouble.to_string())
    }

    const GOOD: &str = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443', insecure-skip-tls-verify: true}}]\n\
        users: [{name: u, user: {token: secret}}]\n";

    #[test]
    fn a_kubeconfig_names_the_server_and_the_user() {
        let target = target(GOOD).expect("it is whole");
        assert_eq!(target.authority, "127.0.0.1:6443");
        assert_eq!(target.authorization.as_deref(), Some("Bearer secret"));
    }

    #[test]
    fn what_is_wrong_with_a_kubeconfig_is_one_sentence() {
        for (broken, part) in [
            (GOOD.replace("current-context: a", "current-context: b"), "no context b"),
            (GOOD.replace("cluster: c,", "cluster: d,"), "no cluster d"),
            (GOOD.replace("https:", "http:"), "is not https"),
            (GOOD.replace(", insecure-skip-tls-verify: true", ""), "no certificate-authority"),
            ("{".to_owned(), "cannot be used"),
        ] {
            let sentence = target(&broken).err().expect("it is refused");
            assert!(sentence.contains(part) && !sentence.contains('\n'), "{sentence}");
        }
        let missing = Target::from_kubeconfig("/nowhere/kubeconfig".as_ref()).err().expect("it is not there");
        assert!(missing.to_string().contains("/nowhere/kubeconfig"));
    }
}
