//! Authentication: finds the user of a request by client certificate, bearer token or WebSocket token.
//!
//! - [`certificate`]: the subject of a client certificate
//! - [`tokens`]: the static token file
//! - [`accounts`]: tokens of service accounts
//! - [`impersonation`]: requests on behalf of another user
//!
//! A wrong credential is a 401, even where anonymous requests are allowed; an `Authorization` header other than a bearer
//! token is ignored.

pub mod accounts;
pub mod certificate;
pub mod impersonation;
pub mod tokens;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use jiff::Timestamp;
use machinery::status::Status;

use crate::request::authentication::accounts::{AccountTokens, TokenVerdict};
use crate::request::authentication::tokens::Tokens;
use crate::wire::peer::{ClientCertificate, Peer};
use access::identity::User;

/// Prefix of the WebSocket subprotocol that carries a bearer token of a browser.
pub const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Finds the user of a request. Shared by all connections.
#[derive(Debug, Default)]
pub struct Authenticator {
    pub tokens: Tokens,
    pub accounts: Option<AccountTokens>,
    /// Whether a request without credentials is from `system:anonymous` or refused.
    pub anonymous: bool,
}

impl Authenticator {
    /// Returns the user of a request, or 401.
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer, now: Timestamp) -> Result<Arc<User>, Status> {
        let mut wrong = false;
        match &peer.certificate {
            Some(ClientCertificate::Verified(user)) => return Ok(Arc::clone(user)),
            Some(ClientCertificate::Refused) => wrong = true,
            None => {}
        }
        if let Some(token) = bearer(headers) {
            match self.token(token, None, now) {
                Ok((user, _)) => return Ok(user),
                Err(_) => wrong = true,
            }
        }
        match websocket_token(headers) {
            Some(Ok(token)) => match self.token(&token, None, now) {
                Ok((user, _)) => return Ok(user),
                Err(_) => wrong = true,
            },
            Some(Err(())) => wrong = true,
            None => {}
        }
        if wrong || !self.anonymous { Err(Status::unauthorized()) } else { Ok(self.tokens.anonymous()) }
    }

    /// Returns the user of a bearer token, and for which of the audiences (this server's, if none are given) it is valid;
    /// otherwise the reason why it is not.
    pub fn token(&self, token: &str, audiences: Option<&[String]>, now: Timestamp) -> TokenVerdict {
        let own = self.accounts.as_ref().map(AccountTokens::audiences).unwrap_or_default();
        let wanted = audiences.unwrap_or(own);
        if let Some(user) = self.tokens.user(token) {
            // A token of the file is valid for this server only.
            let common: Vec<String> = wanted.iter().filter(|one| own.contains(one)).cloned().collect();
            if !wanted.is_empty() && common.is_empty() {
                return Err("invalid bearer token".to_owned());
            }
            return Ok((user, common));
        }
        match self.accounts.as_ref().and_then(|accounts| accounts.user(token, wanted, now)) {
            Some(verdict) => verdict.map_err(|why| format!("[invalid bearer token, {why}]")),
            None => Err("invalid bearer token".to_owned()),
        }
    }
}

/// The token of `Authorization: Bearer …`; any other scheme is ignored.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The token among the subprotocols. There must be another one, which the handshake can agree on.
fn websocket_token(headers: &HeaderMap) -> Option<Result<String, ()>> {
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
        (1, 1..) => {
            let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Some(decoded.filter(|token| !token.is_empty()).ok_or(()))
        }
        _ => Some(Err(())),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator() -> Authenticator {
        let tokens = Tokens::parse("sesame,alice,7,\"devs,ops\"\n", std::path::Path::new("tokens")).unwrap();
        Authenticator { tokens, accounts: None, anonymous: true }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
    }

    fn name(pairs: &[(&'static str, &str)]) -> Result<String, u16> {
        authenticator()
            .authenticate(&headers(pairs), &Peer::default(), Timestamp::UNIX_EPOCH)
            .map(|user| user.name.clone())
            .map_err(|status| status.code)
    }

    #[test]
    fn no_token_a_known_one_and_a_wrong_one() {
        assert_eq!(name(&[]), Ok("system:anonymous".to_owned()));
        assert_eq!(name(&[("authorization", "Bearer sesame")]), Ok("alice".to_owned()));
        assert_eq!(name(&[("authorization", "bearer sesame")]), Ok("alice".to_owned()));
        assert_eq!(name(&[("authorization", "Bearer nope")]), Err(401));
        assert_eq!(name(&[("authorization", "Basic eDp5")]), Ok("system:anonymous".to_owned()));
        assert_eq!(name(&[("authorization", "Bearer ")]), Ok("system:anonymous".to_owned()));
    }

    #[test]
    fn a_request_without_credentials_is_refused_unless_anonymous_is_allowed() {
        let mut authenticator = authenticator();
        authenticator.anonymous = false;
        assert_eq!(
            authenticator.authenticate(&HeaderMap::new(), &Peer::default(), Timestamp::UNIX_EPOCH).unwrap_err().code,
            401
        );
    }

    #[test]
    fn a_verified_certificate_comes_first_and_a_refused_one_is_wrong() {
        let root = Arc::new(User { name: "root".to_owned(), ..User::default() });
        let bad_token = headers(&[("authorization", "Bearer nope")]);
        let peer = Peer { certificate: Some(ClientCertificate::Verified(root)), ..Peer::default() };
        assert_eq!(authenticator().authenticate(&bad_token, &peer, Timestamp::UNIX_EPOCH).unwrap().name, "root");
        let peer = Peer { certificate: Some(ClientCertificate::Refused), ..Peer::default() };
        assert_eq!(
            authenticator().authenticate(&HeaderMap::new(), &peer, Timestamp::UNIX_EPOCH).unwrap_err().code,
            401
        );
        let token = headers(&[("authorization", "Bearer sesame")]);
        assert_eq!(authenticator().authenticate(&token, &peer, Timestamp::UNIX_EPOCH).unwrap().name, "alice");
    }

    #[test]
    fn a_websocket_carries_its_token_as_a_subprotocol_beside_another() {
        let token = format!("{WEBSOCKET_BEARER}{}", URL_SAFE_NO_PAD.encode("sesame"));
        let ask = |protocols: &str| {
            name(&[("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-protocol", protocols)])
        };
        assert_eq!(ask(&format!("{token}, v4.channel.k8s.io")), Ok("alice".to_owned()));
        assert_eq!(ask(&token), Err(401));
        assert_eq!(ask(&format!("{token}, {token}, x")), Err(401));
        assert_eq!(ask(&format!("{WEBSOCKET_BEARER}!!, x")), Err(401));
        assert_eq!(ask("x"), Ok("system:anonymous".to_owned()));
        // Without an upgrade it is only a header.
        assert_eq!(name(&[("sec-websocket-protocol", &token)]), Ok("system:anonymous".to_owned()));
    }
}
