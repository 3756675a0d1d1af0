//! Front proxies: servers that authenticate users themselves and name them in headers.

use std::collections::BTreeMap;

use access::identity::User;
use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

use super::bearer::{WEBSOCKET_BEARER, subprotocols};
use crate::wire::peer::{ClientCertificate, Peer};

/// Prefix of the headers that no request keeps, whether or not there is a front proxy.
const STANDARD_PREFIX: &str = "x-remote-";

/// The headers of front proxies, and the names of those that may send them. Their authority is among the
/// [client authorities](super::authorities::ClientAuthorities).
#[derive(Clone, Debug)]
pub struct FrontProxy {
    /// Common names of the proxies' certificates; empty for any.
    pub allowed_names: Vec<String>,
    /// Names of headers in lower case; the first that is there names the user.
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl Default for FrontProxy {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        FrontProxy {
            allowed_names: Vec::new(),
            username_headers: one("x-remote-user"),
            uid_headers: one("x-remote-uid"),
            group_headers: one("x-remote-group"),
            extra_prefixes: one("x-remote-extra-"),
        }
    }
}

impl FrontProxy {
    /// The user that a front proxy names; none without its certificate or without a name.
    pub(crate) fn user(&self, headers: &HeaderMap, peer: &Peer, now: Timestamp) -> Result<Option<User>, String> {
        let Some(ClientCertificate::Presented(presented)) = &peer.certificate else { return Ok(None) };
        let name = presented.proxy(now)?;
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|allowed| allowed == name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        let name = first(headers, &self.username_headers);
        if name.is_empty() {
            return Ok(None);
        }
        let groups = self.group_headers.iter().flat_map(|header| texts(headers, header)).collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            for prefix in &self.extra_prefixes {
                let Some(key) = header.as_str().strip_prefix(prefix.as_str()) else { continue };
                extra.entry(unescape(key)).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
            }
        }
        Ok(Some(User { name, uid: first(headers, &self.uid_headers), groups, extra }.authenticated()))
    }

    /// Removes the configured headers.
    fn strip(&self, headers: &mut HeaderMap) {
        for name in self.username_headers.iter().chain(&self.uid_headers).chain(&self.group_headers) {
            headers.remove(name.as_str());
        }
        remove_with_prefixes(headers, &self.extra_prefixes);
    }
}

/// Removes credentials from the headers of an authenticated request, so that nothing behind sees them.
pub(crate) fn strip_credentials(headers: &mut HeaderMap, proxy: Option<&FrontProxy>) {
    headers.remove(http::header::AUTHORIZATION);
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        strip_websocket_token(headers);
    }
    if headers.keys().any(|name| name.as_str().starts_with(STANDARD_PREFIX)) {
        FrontProxy::default().strip(headers);
    }
    if let Some(proxy) = proxy {
        proxy.strip(headers);
    }
}

/// Keeps the subprotocols that are not tokens. Values that are not text go too: they could hide a token.
fn strip_websocket_token(headers: &mut HeaderMap) {
    let kept: Vec<&str> = subprotocols(headers).filter(|protocol| !protocol.starts_with(WEBSOCKET_BEARER)).collect();
    let kept = HeaderValue::from_str(&kept.join(", ")).ok().filter(|kept| !kept.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

fn remove_with_prefixes(headers: &mut HeaderMap, prefixes: &[String]) {
    let matches = |name: &&HeaderName| prefixes.iter().any(|prefix| name.as_str().starts_with(prefix.as_str()));
    let names: Vec<HeaderName> = headers.keys().filter(matches).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> String {
    let found = names.iter().filter_map(|name| headers.get(name.as_str())).find(|value| !value.is_empty());
    found.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

fn texts<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = String> + 'h {
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The key of an extra header: percent-decoded, or as it is if that is not possible. Names of headers are lower-case
/// already.
pub(crate) fn unescape(key: &str) -> String {
    let malformed = key.split('%').skip(1).any(|rest| {
        let digits = rest.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if malformed {
        return key.to_owned();
    }
    percent_decode_str(key).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn au_7_credentials_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-a", "b"),
            ("x-forwarded-user", "eve"),
            ("accept", "*/*"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let proxy = FrontProxy { username_headers: vec!["x-forwarded-user".to_owned()], ..FrontProxy::default() };
        strip_credentials(&mut headers, Some(&proxy));
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn au_7_tokens_among_subprotocols_are_removed() {
        let stripped = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_bytes(value).unwrap());
            }
            strip_credentials(&mut headers, None);
            let left = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
            left.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let token = format!("{WEBSOCKET_BEARER}c2VzYW1l");
        let among = format!("v5.channel.k8s.io,{token} , v4.channel.k8s.io");
        assert_eq!(stripped(&[among.as_bytes()]), ["v5.channel.k8s.io, v4.channel.k8s.io"]);
        assert_eq!(stripped(&[token.as_bytes(), b"v1"]), ["v1"], "a header of its own");
        assert_eq!(stripped(&[token.as_bytes()]), [""; 0], "no empty header");
        let hidden = [token.as_bytes(), b", \xff"].concat();
        assert_eq!(stripped(&[&hidden, b"v1"]), ["v1"], "a value that is not text");
        assert_eq!(stripped(&[b"v1"]), ["v1"]);
    }

    #[test]
    fn au_66_keys_that_cannot_be_decoded_are_kept() {
        assert_eq!(unescape("acme.com%2fproject"), "acme.com/project");
        assert_eq!(unescape("a%zz"), "a%zz");
        assert_eq!(unescape("a%2"), "a%2");
        assert_eq!(unescape(""), "");
    }
}
