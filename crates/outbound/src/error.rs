//! Failures of calls, with the texts that Go's HTTP client has for them.

use std::fmt;

use http::Method;

/// What kind of failure a call ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The endpoint's own settings: a URL, certificate or key that cannot be used.
    Configuration,
    /// The name has no address.
    Resolution,
    /// Nothing listens at the address.
    Refused,
    /// The address cannot be reached otherwise.
    Connection,
    /// The TLS handshake failed, mostly because the certificate is not trusted.
    Tls,
    /// The time ended.
    Timeout,
    /// The other side closed the connection before its answer was complete.
    Closed,
    /// The answer is larger than allowed.
    TooLarge,
    /// The answers of all calls are larger than allowed.
    NoBudget,
    /// The answer is not HTTP.
    Protocol,
}

/// A failed call.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    why: String,
    /// Method and URL, once a request was attempted.
    request: Option<(Method, String)>,
    while_reading: bool,
}

impl Error {
    #[must_use]
    pub fn new(kind: ErrorKind, why: impl Into<String>) -> Self {
        Error { kind, why: why.into(), request: None, while_reading: false }
    }

    pub(crate) fn timeout() -> Self {
        Error::new(ErrorKind::Timeout, "context deadline exceeded")
    }

    /// Adds the method and URL: `Post "https://…": …`.
    #[must_use]
    pub fn of(mut self, method: &Method, url: &str) -> Self {
        self.request = Some((method.clone(), url.to_owned()));
        self
    }

    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The reason without method and URL.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether the head of an answer was there, and its body failed.
    #[must_use]
    pub fn while_reading(&self) -> bool {
        self.while_reading
    }

    pub(crate) fn reading(mut self) -> Self {
        self.while_reading = true;
        self
    }

    /// Whether no server was reached: the name has no address, or nothing accepts connections there.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind, ErrorKind::Resolution | ErrorKind::Refused | ErrorKind::Connection)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((method, url)) = &self.request else { return f.write_str(&self.why) };
        let method = method.as_str();
        let (first, rest) = method.split_at_checked(1).unwrap_or((method, ""));
        let url = machinery::go_text::quote(url);
        write!(f, "{first}{} {url}: {}", rest.to_ascii_lowercase(), self.why)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_method_and_url_as_go_does() {
        let error = Error::new(ErrorKind::Closed, "EOF");
        assert_eq!(error.to_string(), "EOF");
        assert_eq!(error.of(&Method::POST, "https://a/b?c=d").to_string(), r#"Post "https://a/b?c=d": EOF"#);
    }
}
