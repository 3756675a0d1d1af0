//! Where a call goes.

use base64::Engine as _;
use http::{HeaderValue, Uri};

use crate::error::{Error, ErrorKind};
use crate::tls::Tls;

/// The `Authorization` header of calls. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(HeaderValue);

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    /// None if the token has characters that a header cannot have.
    #[must_use]
    pub fn bearer(token: &str) -> Option<Self> {
        Self::header(&format!("Bearer {token}"))
    }

    #[must_use]
    pub fn basic(username: &str, password: &str) -> Option<Self> {
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        Self::header(&format!("Basic {encoded}"))
    }

    fn header(text: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        Some(Credential(value))
    }

    pub(crate) fn value(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// A URL to call, the address to connect to, and how to secure and authenticate the call.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: String,
    pub(crate) uri: Uri,
    /// `host:port` to connect to in place of that of the URL.
    address: Option<String>,
    pub(crate) tls: Tls,
    pub(crate) credential: Option<Credential>,
}

impl Endpoint {
    /// An endpoint at an `https` URL, or `http`, for which `tls` is not used.
    pub fn new(url: &str, tls: Tls) -> Result<Self, Error> {
        let failed = |why: String| Error::new(ErrorKind::Configuration, why);
        let uri: Uri =
            url.parse().map_err(|error| failed(format!("parse {}: {error}", machinery::go_text::quote(url))))?;
        match uri.scheme_str() {
            Some("https" | "http") => {}
            other => return Err(failed(format!("unsupported protocol scheme {:?}", other.unwrap_or_default()))),
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(failed(format!("http: no Host in request URL {url}")));
        }
        Ok(Endpoint { url: url.to_owned(), uri, address: None, tls, credential: None })
    }

    /// The same endpoint with another path and query.
    pub fn with_path(&self, path: &str) -> Result<Self, Error> {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let made = Endpoint::new(&format!("{scheme}://{authority}{path}"), self.tls.clone())?;
        Ok(Endpoint { address: self.address.clone(), credential: self.credential.clone(), ..made })
    }

    /// Connects to this `host:port` in place of that of the URL, which still names the server: a Service and its endpoint.
    #[must_use]
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    #[must_use]
    pub fn with_credential(mut self, credential: Option<Credential>) -> Self {
        self.credential = credential;
        self
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Host and port to connect to.
    pub(crate) fn address(&self) -> String {
        match &self.address {
            Some(address) => address.clone(),
            None => {
                let port = self.uri.port_u16().unwrap_or(if self.is_secure() { 443 } else { 80 });
                format!("{}:{port}", self.uri.host().unwrap_or_default())
            }
        }
    }

    /// The name that the server's certificate must have.
    pub(crate) fn server_name(&self) -> String {
        match &self.tls.server_name {
            Some(name) => name.to_string(),
            None => self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
        }
    }
}
