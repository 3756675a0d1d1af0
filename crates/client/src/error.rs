//! The error of this crate: the failure of the server or the transport, its class, and advice.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

/// Everything that can go wrong between this process and the server.
///
/// The same type carries an HTTP response and an ERROR event of a watch, so that status, reason, causes and the retry hint
/// reach the caller from either.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The server responded with a failure.
    #[error("the server answered {}: {}{}", code_of(.0), .0.status.message, advice_of(.0))]
    Api(Box<ApiFailure>),
    /// The server could not be reached, or the connection broke.
    #[error("cannot reach the server: {message}{}", .kind.advice())]
    Transport {
        /// Its class.
        kind: TransportKind,
        /// The chain of causes, outermost first.
        message: String,
    },
    /// The bytes violate the protocol.
    #[error("cannot read {what}: {message}")]
    Decode {
        /// The thing being read.
        what: &'static str,
        /// The reason.
        message: String,
    },
    /// The client's own configuration is unusable (kubeconfig, certificates, arguments).
    #[error("{0}")]
    Config(String),
}

/// A `Status`, with the HTTP status and headers.
#[derive(Debug, Clone)]
pub struct ApiFailure {
    /// The HTTP status code; `None` for an ERROR event within a stream.
    pub http: Option<u16>,
    /// The failure as the server described it.
    pub status: Status,
    /// The `Retry-After` header, or `details.retryAfterSeconds`, whichever is longer.
    pub retry_after: Option<Duration>,
}

/// The class of a transport failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// The connection was refused.
    Refused,
    /// No response in time.
    Timeout,
    /// The peer ended the connection in the middle.
    Eof,
    /// The certificate was not accepted.
    Tls,
    /// Anything else.
    Other,
}

impl TransportKind {
    fn advice(self) -> &'static str {
        match self {
            Self::Refused => " (is the server running at the address in the kubeconfig?)",
            Self::Tls => {
                " (the server's certificate is not trusted: does certificate-authority in the kubeconfig belong to this server?)"
            }
            _ => "",
        }
    }
}

fn code_of(failure: &ApiFailure) -> String {
    let code = failure.http.unwrap_or(failure.status.code);
    match failure.status.reason.as_str() {
        "" => code.to_string(),
        reason => format!("{code} {reason}"),
    }
}

fn advice_of(failure: &ApiFailure) -> &'static str {
    match failure.http.unwrap_or(failure.status.code) {
        401 => " (the credentials in the kubeconfig are missing or expired)",
        403 => " (this user needs a role that allows list and watch on the resource)",
        404 if failure.status.details.as_ref().is_none_or(|d| d.name.is_empty()) => {
            " (the server does not serve this kind: check group, version and plural, or install its CRD)"
        }
        _ => "",
    }
}

impl Error {
    /// A failure as an HTTP response.
    pub fn from_answer(http: u16, retry_after: Option<Duration>, mut status: Status) -> Self {
        if status.code == 0 {
            status.code = http;
        }
        Self::Api(Box::new(ApiFailure { http: Some(http), retry_after: longer(retry_after, hint(&status)), status }))
    }

    /// A failure as an ERROR event.
    pub fn from_event(status: Status) -> Self {
        Self::Api(Box::new(ApiFailure { http: None, retry_after: hint(&status), status }))
    }

    /// A transport failure, classified by walking its causes.
    pub fn from_transport(error: &(dyn StdError + 'static)) -> Self {
        let mut kind = TransportKind::Other;
        let mut message = String::new();
        let mut next: Option<&(dyn StdError + 'static)> = Some(error);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !message.contains(&text) {
                if !message.is_empty() {
                    message.push_str(": ");
                }
                message.push_str(&text);
            }
            if let Some(found) = kind_of(cause, &text) {
                kind = found;
            }
            next = cause.source();
        }
        Self::Transport { kind, message }
    }

    /// The status, if the server sent one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(failure) => Some(&failure.status),
            _ => None,
        }
    }

    /// The code of the failure: of the status if it has one, of HTTP otherwise.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(failure) => {
                Some(if failure.status.code != 0 { failure.status.code } else { failure.http.unwrap_or_default() })
            }
            _ => None,
        }
    }

    fn reason(&self) -> &str {
        self.status().map_or("", |s| s.reason.as_str())
    }

    /// The history before the wanted point is gone (RF-7).
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), "Expired" | "Gone") || (self.reason().is_empty() && self.code() == Some(410))
    }

    /// The server has not reached the wanted point, or never will (RF-6).
    pub fn is_too_large_version(&self) -> bool {
        const TEXT: &str = "Too large resource version";
        let Some(status) = self.status() else { return false };
        let causes = status.details.as_ref().map_or(&[][..], |d| d.causes.as_slice());
        causes.iter().any(|c| c.reason == "ResourceVersionTooLarge")
            || (status.reason == "Timeout"
                && (status.message.contains(TEXT) || causes.iter().any(|c| c.message.contains(TEXT))))
    }

    /// The server is overloaded.
    pub fn is_too_many_requests(&self) -> bool {
        self.reason() == "TooManyRequests" || self.code() == Some(429)
    }

    /// The connection was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Transport { kind: TransportKind::Refused, .. })
    }

    /// An internal error of the server.
    pub fn is_internal(&self) -> bool {
        self.reason() == "InternalError" || (self.reason().is_empty() && self.code() == Some(500))
    }

    /// The object, or the resource, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound" || (self.reason().is_empty() && self.code() == Some(404))
    }

    /// The object was changed in between.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// An object of that name exists.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Not authenticated, or not allowed.
    pub fn is_denied(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// The connection ended in the middle; a watch resumes from here.
    pub fn is_broken_connection(&self) -> bool {
        matches!(self, Self::Transport { .. })
    }

    /// The server was not reached, or the connection broke: the same request may succeed later. Not true of certificate
    /// problems.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Transport { kind, .. } if *kind != TransportKind::Tls)
    }

    /// The delay that the server requested.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(failure) => failure.retry_after,
            _ => None,
        }
    }
}

fn hint(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

fn longer(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.max(b)
}

fn kind_of(cause: &(dyn StdError + 'static), text: &str) -> Option<TransportKind> {
    if let Some(io) = cause.downcast_ref::<io::Error>() {
        match io.kind() {
            io::ErrorKind::ConnectionRefused => return Some(TransportKind::Refused),
            io::ErrorKind::TimedOut => return Some(TransportKind::Timeout),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                return Some(TransportKind::Eof);
            }
            _ => {}
        }
    }
    // rustls, hyper and hyper-util are below kube's own error type: their types cannot be named here, so their texts are
    // matched.
    if text.contains("certificate") || text.contains("UnknownIssuer") || text.contains("tls handshake") {
        return Some(TransportKind::Tls);
    }
    if text.contains("unexpected EOF") || text.contains("connection closed") || text.contains("end of file") {
        return Some(TransportKind::Eof);
    }
    if text.contains("timed out") {
        return Some(TransportKind::Timeout);
    }
    None
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_answer(status.code, None, *status),
            kube::Error::SerdeError(e) => Self::Decode { what: "the answer", message: e.to_string() },
            kube::Error::InferConfig(_) | kube::Error::InferKubeconfig(_) | kube::Error::TlsRequired => {
                Self::Config(format!("cannot load the client configuration: {error}"))
            }
            other => Self::from_transport(&other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(status: serde_json::Value) -> Error {
        Error::from_event(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn rf_06_too_large_version_by_cause_or_by_words() {
        let by_cause = json!({"code":504,"reason":"Timeout","message":"x","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}});
        assert!(event(by_cause).is_too_large_version());
        let by_words = json!({"code":504,"reason":"Timeout","message":"Too large resource version: 9, current: 5"});
        assert!(event(by_words).is_too_large_version());
        let by_cause_words = json!({"code":504,"reason":"Timeout","message":"x","details":{"causes":[{"message":"Too large resource version"}]}});
        assert!(event(by_cause_words).is_too_large_version());
        let other_timeout = json!({"code":504,"reason":"Timeout","message":"slow"});
        assert!(!event(other_timeout).is_too_large_version());
        let wrong_reason = json!({"code":500,"reason":"InternalError","message":"Too large resource version"});
        assert!(!event(wrong_reason).is_too_large_version());
    }

    #[test]
    fn rf_07_expired_and_gone_are_both_expired() {
        for reason in ["Expired", "Gone"] {
            assert!(event(json!({"code":410,"reason":reason})).is_expired());
        }
        assert!(event(json!({"code":410})).is_expired());
        assert!(!event(json!({"code":410,"reason":"Conflict"})).is_expired());
    }

    #[test]
    fn better_12_retry_hint_is_the_longer_of_header_and_details() {
        let status: Status =
            serde_json::from_value(json!({"code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":7}}))
                .unwrap();
        let error = Error::from_answer(429, Some(Duration::from_secs(3)), status);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert!(error.is_too_many_requests());
    }

    #[test]
    fn transport_failures_are_classified_by_their_cause() {
        let refused = Error::from_transport(&io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(refused.is_refused());
        assert!(refused.to_string().contains("is the server running"));
        let tls = Error::from_transport(&io::Error::other("invalid peer certificate: UnknownIssuer"));
        assert!(matches!(tls, Error::Transport { kind: TransportKind::Tls, .. }));
    }
}
