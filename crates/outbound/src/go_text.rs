//! The texts of Go's network and TLS packages for failures of the system and of rustls.

use std::io;
use std::net::SocketAddr;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::error::{Error, ErrorKind};
use crate::trust::Distrust;

/// A failed `connect`.
pub(crate) fn dial(address: SocketAddr, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
        _ => ErrorKind::Connection,
    };
    Error::new(kind, format!("dial tcp {address}: connect: {}", system(error)))
}

/// A name without an address.
pub(crate) fn no_such_host(host: &str) -> Error {
    Error::new(ErrorKind::Resolution, format!("dial tcp: lookup {host}: no such host"))
}

/// A failure to read or write a connection, TLS included.
pub(crate) fn transport(error: &io::Error) -> Error {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return tls(error);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(ErrorKind::Closed, "EOF"),
        _ => Error::new(ErrorKind::Closed, system(error)),
    }
}

/// A failure of a TLS session.
fn tls(error: &rustls::Error) -> Error {
    let text = match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => match other.0.downcast_ref::<Distrust>() {
            Some(distrust) => format!("tls: failed to verify certificate: {distrust}"),
            None => format!("tls: failed to verify certificate: x509: {other}"),
        },
        rustls::Error::InvalidCertificate(why) => format!("tls: failed to verify certificate: x509: {why}"),
        rustls::Error::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        // What a server without TLS answers to a handshake is an HTTP response.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        other => format!("tls: {other}"),
    };
    Error::new(ErrorKind::Tls, text)
}

/// A failed exchange.
pub(crate) fn exchange(error: &hyper::Error) -> Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            return transport(inner);
        }
        source = inner.source();
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return Error::new(ErrorKind::Closed, "EOF");
    }
    if error.is_parse() {
        return Error::new(ErrorKind::Protocol, format!("net/http: HTTP/1.x transport connection broken: {error}"));
    }
    Error::new(ErrorKind::Protocol, error.to_string())
}

/// The system's own words, in lower case and without a number.
fn system(error: &io::Error) -> String {
    let known = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::TimedOut => "connection timed out",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::BrokenPipe => "broken pipe",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::AddrNotAvailable => "cannot assign requested address",
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            return text.to_ascii_lowercase();
        }
    };
    known.to_owned()
}

fn alert_text(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::CloseNotify => "close notify",
        AlertDescription::UnexpectedMessage => "unexpected message",
        AlertDescription::BadRecordMac => "bad record MAC",
        AlertDescription::RecordOverflow => "record overflow",
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::IllegalParameter => "illegal parameter",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::AccessDenied => "access denied",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::InternalError => "internal error",
        AlertDescription::MissingExtension => "missing extension",
        AlertDescription::UnsupportedExtension => "unsupported extension",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::CertificateRequired => "certificate required",
        AlertDescription::NoApplicationProtocol => "no application protocol",
        other => return format!("alert({})", u8::from(other)),
    };
    text.to_owned()
}
