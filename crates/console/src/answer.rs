//! Answers the requests for the page's files and tokens.
//!
//! The files need no credentials and hold no secrets. A page of another site can neither frame them nor obtain a token: a name
//! that resolves to this machine is refused by its `Host`, a request of another origin by its `Origin`.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use std::net::IpAddr;

use crate::{Console, files};

/// Where the page is.
pub const PATH: &str = "/console/";
/// Longest accepted body of a request for a token.
pub const TOKEN_REQUEST_BYTES_MAX: usize = 1024;

const TOKEN_PATH: &str = "/console/token";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Scripts and styles of this server only, connections to it only, and no markup made from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'";
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether a path belongs to the page.
#[must_use]
pub fn is_own_path(path: &str) -> bool {
    path.starts_with(PATH) || path == PATH.trim_end_matches('/')
}

impl Console {
    /// Answers a request for a path of the page. `now` is in seconds since 1970.
    #[must_use]
    pub fn answer(&self, request: &Request<Bytes>, now: i64) -> Response<Bytes> {
        let mut response = self.respond(request, now);
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn respond(&self, request: &Request<Bytes>, now: i64) -> Response<Bytes> {
        let (headers, path) = (request.headers(), request.uri().path());
        // HTTP/2 has the host in the address of the request.
        let host = request.uri().authority().map(http::uri::Authority::as_str);
        let host = host.or_else(|| headers.get(header::HOST)?.to_str().ok()).unwrap_or_default();
        if headers.get_all(header::HOST).iter().count() > 1 || !self.is_own_name(host) {
            return refusal(StatusCode::FORBIDDEN, "this name is not one of the server's: see --tls-san");
        }
        match (request.method(), path) {
            (&Method::POST, TOKEN_PATH) if !is_same_origin(headers, host) => {
                refusal(StatusCode::FORBIDDEN, "tokens are not for pages of other origins")
            }
            (&Method::POST, TOKEN_PATH) => self.token(request, now),
            (&Method::GET | &Method::HEAD, "/console") => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
                response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(PATH));
                response
            }
            (&Method::GET | &Method::HEAD, _) => file(path.strip_prefix(PATH).unwrap_or_default(), headers),
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "the console has files to get, and tokens to post for"),
        }
    }

    /// Exchanges the code of a link, or renews the token in the header.
    fn token(&self, request: &Request<Bytes>, now: i64) -> Response<Bytes> {
        let bearer = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = match bearer.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) => self.visitors().renew(token, now),
            None => {
                std::str::from_utf8(request.body()).ok().and_then(|code| self.visitors().exchange(code.trim(), now))
            }
        };
        let Some(token) = token else {
            return refusal(StatusCode::UNAUTHORIZED, "this link was used already, or is too old");
        };
        let body = serde_json::json!({ "token": token, "seconds": crate::visitors::TOKEN_SECONDS });
        let mut response = Response::new(Bytes::from(body.to_string()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn is_own_name(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
            _ => host,
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|own| name.eq_ignore_ascii_case(own))
    }
}

/// Whether a request was sent by a page of this host, or by no page at all. Pages cannot change these headers.
#[must_use]
pub fn is_same_origin(headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text(&header::ORIGIN);
    let origin = origin.map(|origin| origin.strip_prefix("https://").or(origin.strip_prefix("http://")));
    origin.is_none_or(|origin| origin == Some(host))
        && text(&SEC_FETCH_SITE).is_none_or(|site| matches!(site, "same-origin" | "none"))
}

fn file(path: &str, headers: &HeaderMap) -> Response<Bytes> {
    let Some(file) = files::find(path) else { return refusal(StatusCode::NOT_FOUND, "the console has no such file") };
    let mut response = Response::new(Bytes::new());
    let head = response.headers_mut();
    head.insert(header::ETAG, HeaderValue::from_static(file.etag));
    // The browser asks each time whether the file is still the same: another version of the server may be at this address.
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    head.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == file.etag)) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
    if accepts_gzip(headers) {
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        *response.body_mut() = Bytes::from_static(file.gzip);
    } else {
        *response.body_mut() = file.plain();
    }
    response
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|one| one.trim() == "gzip")
}

fn refusal(code: StatusCode, why: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{why}\n")));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
