//! Tokens in the headers of a request: `Authorization: Bearer`, and the subprotocol of a WebSocket.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};

/// Prefix of the WebSocket subprotocol that carries a bearer token of a browser.
pub const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// The warning for a token after two blanks.
pub const EXTRA_SPACE: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// What the `Authorization` header has.
#[derive(Debug, PartialEq, Eq)]
pub enum Bearer<'a> {
    /// No header, or another scheme.
    None,
    /// A token that is ignored, because there are two blanks before it.
    ExtraSpace,
    Token(Cow<'a, str>),
}

impl<'a> Bearer<'a> {
    #[must_use]
    pub fn of(headers: &'a HeaderMap) -> Self {
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Bearer::None };
        match String::from_utf8_lossy(value.as_bytes()) {
            Cow::Borrowed(value) => match parts(value) {
                None => Bearer::None,
                Some("") => Bearer::ExtraSpace,
                Some(token) => Bearer::Token(Cow::Borrowed(token)),
            },
            Cow::Owned(value) => match parts(&value) {
                None => Bearer::None,
                Some("") => Bearer::ExtraSpace,
                Some(token) => Bearer::Token(Cow::Owned(token.to_owned())),
            },
        }
    }
}

/// The token; empty if another word follows two blanks. None for another scheme and for no token.
fn parts(value: &str) -> Option<&str> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    Some(rest.split(' ').next().unwrap_or_default())
}

/// The token among the subprotocols. There must be another one, which the handshake can agree on.
#[must_use]
pub fn websocket_token(headers: &HeaderMap) -> Option<Result<String, &'static str>> {
    if !crate::wire::websocket::is_upgrade(headers) {
        return None;
    }
    let mut tokens = 0;
    let mut others = 0;
    let mut encoded = "";
    for protocol in subprotocols(headers) {
        match protocol.strip_prefix(WEBSOCKET_BEARER) {
            Some(rest) => {
                tokens += 1;
                encoded = rest;
            }
            None => others += 1,
        }
    }
    match (tokens, others) {
        (0, _) => None,
        (1, 0) => Some(Err("missing additional subprotocol")),
        (1, 1..) => {
            let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Some(decoded.filter(|token| !token.is_empty()).ok_or("invalid base64.bearer.authorization token encoding"))
        }
        _ => Some(Err("multiple base64.bearer.authorization tokens specified")),
    }
}

/// All requested subprotocols, also from repeated headers.
pub fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}
