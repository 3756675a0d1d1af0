//! How the registry calls an admission webhook. The registry itself knows no HTTP: the server implements [`HookCaller`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery::json::Value;

/// Port of a service that names none.
pub const DEFAULT_PORT: u16 = 443;

/// Where a webhook is, from its `clientConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookClient {
    pub target: HookTarget,
    /// The certificates that the webhook's must come from, as PEM; empty trusts the roots of the system.
    pub ca_bundle: Bytes,
}

/// The address of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookTarget {
    Url(String),
    Service {
        namespace: String,
        name: String,
        path: String,
        port: u16,
    },
    /// A configuration with neither; every call fails.
    None,
}

impl HookClient {
    /// Reads a `clientConfig`. Validation has refused what it cannot read, so such parts count as absent.
    #[must_use]
    pub fn new(config: &Value) -> Self {
        let service = &config["service"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target = match config["url"].as_str() {
            Some(url) => HookTarget::Url(url.to_owned()),
            None if service.is_object() => HookTarget::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                path: text(&service["path"]),
                port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT),
            },
            None => HookTarget::None,
        };
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        HookClient { target, ca_bundle: STANDARD.decode(bundle.trim()).unwrap_or_default().into() }
    }
}

/// Why a call has no answer. The text is what follows `failed to call webhook: ` in the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    pub text: String,
    /// Whether the webhook is skipped with a warning in place of its failure policy: nothing listens there, and the server was
    /// started to go on without such webhooks.
    pub skip: bool,
}

impl CallFailure {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        CallFailure { text: text.into(), skip: false }
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The answer of a webhook: the body of a response with a code of success, never empty.
pub type HookAnswer<'a> = Pin<Box<dyn Future<Output = Result<Bytes, CallFailure>> + Send + 'a>>;

/// Calls admission webhooks.
pub trait HookCaller: fmt::Debug + Send + Sync {
    /// Posts a review. `timeout` bounds the whole call, and is sent to the webhook in whole seconds, rounded up.
    fn call<'a>(&'a self, hook: &'a HookClient, review: Bytes, timeout: Duration) -> HookAnswer<'a>;
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn wh_5_a_service_has_defaults() {
        let hook = HookClient::new(&json!({"service": {"namespace": "n", "name": "s"}, "caBundle": "Q0E="}));
        let (namespace, name) = ("n".to_owned(), "s".to_owned());
        assert_eq!(hook.target, HookTarget::Service { namespace, name, path: String::new(), port: 443 });
        assert_eq!(hook.ca_bundle, "CA");
        let hook = HookClient::new(&json!({"url": "https://h/x"}));
        assert_eq!(hook.target, HookTarget::Url("https://h/x".to_owned()));
        assert!(hook.ca_bundle.is_empty());
        assert_eq!(HookClient::new(&json!({})).target, HookTarget::None);
    }
}
