//! Calls webhooks over HTTPS, with the certificate authority of their configuration.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use machinery::json::Value;
use registry::Webhooks;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::limits::Limits;
use crate::metrics::Metrics;

/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls webhooks over the network, with a new connection for each call.
#[derive(Debug)]
pub struct HttpsWebhooks {
    /// Largest response of a webhook.
    response_bytes_max: usize,
    metrics: Arc<Metrics>,
}

impl HttpsWebhooks {
    #[must_use]
    pub fn new(limits: &Limits, metrics: &Arc<Metrics>) -> Self {
        HttpsWebhooks { response_bytes_max: limits.webhook_response_bytes_max, metrics: Arc::clone(metrics) }
    }
}

impl Webhooks for HttpsWebhooks {
    fn post(&self, client: &Value, review: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>> {
        let (client, metrics, bytes_max) = (client.clone(), Arc::clone(&self.metrics), self.response_bytes_max);
        Box::pin(async move {
            let url = url(&client)?;
            match tokio::time::timeout(TIMEOUT, call(&url, &client, review, &metrics, bytes_max)).await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(why)) => Err(format!("Post \"{url}\": {why}")),
                Err(_) => Err(format!("Post \"{url}\": no answer within {} s", TIMEOUT.as_secs())),
            }
        })
    }
}

/// The URL of a `clientConfig`.
fn url(client: &Value) -> Result<String, String> {
    if let Some(url) = client["url"].as_str() {
        return Ok(url.to_owned());
    }
    let service = &client["service"];
    let text = |member: &str| service[member].as_str().unwrap_or_default().to_owned();
    // Simulated pods do not listen, so a service has no address to call.
    Err(format!("service \"{}/{}\" has no address that could be called; use a url", text("namespace"), text("name")))
}

async fn call(url: &str, client: &Value, review: Bytes, metrics: &Metrics, bytes_max: usize) -> Result<Bytes, String> {
    let uri: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    if uri.scheme_str() != Some("https") {
        return Err("only https is allowed".to_owned());
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let connector = connector(client["caBundle"].as_str().unwrap_or_default())?;
    let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| error.to_string())?;
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(review))
        .map_err(|error| error.to_string())?;
    let response = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("the webhook answered {status}"));
        }
        read(response.into_body(), metrics, bytes_max).await
    };
    let response = response.await;
    connection.abort();
    response
}

/// Reads a response, within the limits on its size and on that of all responses.
async fn read<B>(mut body: B, metrics: &Metrics, bytes_max: usize) -> Result<Bytes, String>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let budget = &metrics.webhook_bytes;
    let mut charged = budget.force(0);
    // Copied: a body of many small frames would keep more memory than it has bytes.
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            metrics.refused("webhook_response_bytes_max");
            return Err(format!("the response has more than {bytes_max} bytes"));
        }
        if !charged.grow(data.len()) {
            metrics.refused(budget.name());
            return Err("the responses of all webhooks are too large together".to_owned());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

/// A connector that trusts only the authority of the configuration.
fn connector(bundle: &str) -> Result<TlsConnector, String> {
    let pem = base64::engine::general_purpose::STANDARD.decode(bundle.trim()).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&pem) {
        let authority = authority.map_err(|error| format!("caBundle: {error}"))?;
        roots.add(authority).map_err(|error| format!("caBundle: {error}"))?;
    }
    if roots.is_empty() {
        return Err("caBundle names no certificate authority".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::StreamBody;
    use machinery::json::json;

    use super::*;

    #[tokio::test]
    async fn a_webhook_that_cannot_be_called_is_an_error_with_a_reason() {
        let limits = Limits::default();
        let webhooks = HttpsWebhooks::new(&limits, &Arc::new(Metrics::new(&limits)));
        let call_error = |client: Value| {
            let call = webhooks.post(&client, Bytes::new());
            async move { call.await.unwrap_err() }
        };
        let service = call_error(json!({"service": {"namespace": "n", "name": "s"}})).await;
        assert!(service.starts_with("service \"n/s\" has no address"), "{service}");
        let plain = call_error(json!({"url": "http://127.0.0.1:1/"})).await;
        assert!(plain.ends_with("only https is allowed"), "{plain}");
        let untrusted = call_error(json!({"url": "https://127.0.0.1:1/", "caBundle": ""})).await;
        assert!(untrusted.ends_with("caBundle names no certificate authority"), "{untrusted}");
    }

    #[tokio::test]
    async fn responses_without_end_are_refused_within_the_limits() {
        let limits = Limits { webhook_bytes_total_max: 1000, webhook_response_bytes_max: 600, ..Limits::default() };
        let metrics = Metrics::new(&limits);
        let endless = || {
            let frames = std::iter::repeat_with(|| {
                Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(&[b' '; 100])))
            });
            StreamBody::new(futures::stream::iter(frames))
        };
        let refused = read(endless(), &metrics, 600).await.unwrap_err();
        assert_eq!(refused, "the response has more than 600 bytes");
        assert_eq!(metrics.webhook_bytes.taken(), 0);
        let others = metrics.webhook_bytes.take_many(700).unwrap();
        let refused = read(endless(), &metrics, 600).await.unwrap_err();
        assert_eq!(refused, "the responses of all webhooks are too large together");
        drop(others);
        assert_eq!(metrics.webhook_bytes.taken(), 0);
    }
}
