//! One call of a webhook.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use outbound::{Answer, Client, Endpoint, Error, ErrorKind, Request, Roots, ServiceResolver as _, TlsOptions};
use registry::admission::webhooks::client::{CallFailure, HookClient, HookTarget};
use tokio::time::{Instant, timeout_at};

use crate::metrics::Metrics;
use crate::services::{Services, is_own};
use crate::webhooks::credentials::HookCredentials;
use crate::webhooks::own::OwnServer;
use crate::webhooks::{MissingWebhooks, WebhookSettings, answer};

const USER_AGENT: &str = "kube-apiserver-admission";
/// Calls of one webhook for one review: further ones follow an answer that asks for them with `Retry-After`.
const ATTEMPTS_MAX: u32 = 11;

/// Calls webhooks.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) services: Arc<Services>,
    pub(crate) own: OwnServer,
    pub(crate) settings: WebhookSettings,
    pub(crate) metrics: Arc<Metrics>,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The outcome for metrics.
    pub(crate) kind: &'static str,
    text: String,
    /// Nothing listens at the webhook's address, or it has none.
    is_missing: bool,
}

impl Failure {
    fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Failure { kind, text: text.into(), is_missing: false }
    }

    /// The failure as the registry handles it.
    pub(crate) fn into_reported(self, missing: MissingWebhooks) -> CallFailure {
        CallFailure { text: self.text, skip: self.is_missing && missing == MissingWebhooks::Skip }
    }
}

/// URL and, for a Service, where it is.
struct Address {
    /// Scheme, host and port.
    base: String,
    path: String,
    service: Option<(String, String, u16)>,
}

impl Address {
    fn of(target: &HookTarget) -> Result<Self, Failure> {
        match target {
            HookTarget::None => {
                Err(Failure::new("configuration", "webhook configuration must have either service or URL"))
            }
            HookTarget::Service { namespace, name, path, port } => Ok(Address {
                base: format!("https://{name}.{namespace}.svc:{port}"),
                path: clean_path(path),
                service: Some((namespace.clone(), name.clone(), *port)),
            }),
            HookTarget::Url(url) => {
                let failed =
                    |why: &dyn std::fmt::Display| Failure::new("configuration", format!("Unparsable URL: {why}"));
                let uri: http::Uri = url.parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
                let authority = uri.authority().ok_or_else(|| failed(&"no host"))?;
                // Credentials in a URL would be sent to a host that a reader does not expect.
                if uri.scheme_str() != Some("https") || authority.as_str().contains('@') {
                    return Err(failed(&"an https URL without user information is needed"));
                }
                let base = format!("https://{authority}");
                Ok(Address { base, path: clean_path(uri.path()), service: None })
            }
        }
    }

    /// `host:port`, by which credentials are found.
    fn host_port(&self) -> String {
        let authority = self.base.trim_start_matches("https://");
        match authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
            _ => format!("{authority}:443"),
        }
    }
}

impl Caller {
    pub(crate) fn new(
        client: Client,
        services: Arc<Services>,
        settings: WebhookSettings,
        metrics: Arc<Metrics>,
    ) -> Self {
        Caller { client, services, own: OwnServer::default(), settings, metrics }
    }

    /// Posts a review. The body of the answer is not empty.
    pub(crate) async fn post(
        &self,
        hook: &HookClient,
        review: Bytes,
        timeout: Duration,
        credentials: Option<&HookCredentials>,
    ) -> Result<Bytes, Failure> {
        let deadline = Instant::now() + timeout;
        let address = Address::of(&hook.target)?;
        let url = format!("{}{}?timeout={}", address.base, address.path, whole_seconds(timeout));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let answer = self.attempt(hook, &address, &url, review.clone(), deadline, credentials).await?;
            let wait = retry_after(&answer).filter(|_| attempts < ATTEMPTS_MAX);
            let Some(wait) = wait else { return answer::body(answer).map_err(|text| Failure::new("status", text)) };
            if timeout_at(deadline, tokio::time::sleep(wait)).await.is_err() {
                let error = Error::new(ErrorKind::Timeout, "context deadline exceeded");
                return Err(self.failure(&error.of(&http::Method::POST, &url)));
            }
        }
    }

    async fn attempt(
        &self,
        hook: &HookClient,
        address: &Address,
        url: &str,
        review: Bytes,
        deadline: Instant,
        credentials: Option<&HookCredentials>,
    ) -> Result<Answer, Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut request = Request::post_json(review).user_agent(USER_AGENT).timeout(left);
        request.refused_wait = self.settings.refused_wait;
        let failed = |error: Error| self.failure(&error.of(&http::Method::POST, url));
        if let Some((namespace, name, port)) = &address.service
            && is_own(namespace, name, *port)
        {
            return self.own.send(url, request, self.metrics.webhook_bytes.clone()).await.map_err(failed);
        }
        let user = credentials.and_then(|credentials| credentials.find(&address.host_port()));
        let options = TlsOptions {
            roots: Roots::bundle(match trimmed(&hook.ca_bundle) {
                none if none.is_empty() && address.service.is_some() => &self.settings.services_ca,
                bundle => bundle,
            }),
            identity: user.and_then(|user| user.identity.clone()),
            server_name: None,
        };
        // Not a failed call, so without method and URL.
        let configuration = |error: Error| self.failure(&error);
        let tls = self.client.tls(&options).map_err(configuration)?;
        let mut endpoint = Endpoint::new(url, tls)
            .map_err(configuration)?
            .with_credential(user.and_then(|user| user.credential.clone()));
        if let Some((namespace, name, port)) = &address.service {
            let resolved = self.services.resolve(namespace, name, *port);
            endpoint = endpoint.at(resolved.map_err(|why| failed(Error::new(ErrorKind::Resolution, why)))?);
        }
        self.client.send(&endpoint, request).await.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &Error) -> Failure {
        let kind = match error.kind() {
            ErrorKind::Configuration => "configuration",
            ErrorKind::Resolution => "resolution",
            ErrorKind::Refused => "refused",
            ErrorKind::Connection => "connection",
            ErrorKind::Tls => "tls",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Closed => "closed",
            ErrorKind::Protocol => "protocol",
            ErrorKind::TooLarge => {
                self.metrics.refused("webhook_response_bytes_max");
                "too_large"
            }
            ErrorKind::NoBudget => {
                self.metrics.refused(self.metrics.webhook_bytes.name());
                "no_budget"
            }
        };
        let text = if error.while_reading() {
            format!("unexpected error when reading response body. Please retry. Original error: {}", error.why())
        } else {
            error.to_string()
        };
        Failure { kind, text, is_missing: error.is_unreachable() }
    }
}

/// A bundle of white space counts as none.
fn trimmed(bundle: &[u8]) -> &[u8] {
    if bundle.trim_ascii().is_empty() { &[] } else { bundle }
}

/// The wait that an overloaded webhook asks for.
fn retry_after(answer: &Answer) -> Option<Duration> {
    if answer.status != StatusCode::TOO_MANY_REQUESTS && !answer.status.is_server_error() {
        return None;
    }
    let value: &HeaderValue = answer.headers.get(header::RETRY_AFTER)?;
    value.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// A time limit in whole seconds, rounded up, as Go prints it: `10s`, `1m30s`.
fn whole_seconds(timeout: Duration) -> String {
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// A path without empty and relative parts and without a slash at its end, as the reference joins paths.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wh_1_the_time_limit_is_sent_in_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_secs(10)), "10s");
        assert_eq!(whole_seconds(Duration::from_millis(9_001)), "10s");
        assert_eq!(whole_seconds(Duration::from_millis(1)), "1s");
        assert_eq!(whole_seconds(Duration::from_secs(90)), "1m30s");
    }

    #[test]
    fn wh_4_wh_5_urls_are_those_of_the_reference() {
        let service = |path: &str| HookTarget::Service {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            path: path.to_owned(),
            port: 443,
        };
        let of = |target: &HookTarget| {
            Address::of(target).map(|address| (address.base.clone() + &address.path, address.host_port()))
        };
        let (url, host) = of(&service("")).unwrap();
        assert_eq!((url.as_str(), host.as_str()), ("https://s.n.svc:443/", "s.n.svc:443"));
        assert_eq!(of(&service("/a//b/")).unwrap().0, "https://s.n.svc:443/a/b");
        let (url, host) = of(&HookTarget::Url("https://h/x".to_owned())).unwrap();
        assert_eq!((url.as_str(), host.as_str()), ("https://h/x", "h:443"));
        assert_eq!(of(&HookTarget::Url("https://[::1]:9443/x".to_owned())).unwrap().1, "[::1]:9443");
        for bad in ["http://h/x", "https://user@h/x", "nonsense", "https://"] {
            assert!(of(&HookTarget::Url(bad.to_owned())).is_err(), "{bad}");
        }
        assert!(of(&HookTarget::None).is_err());
    }
}
