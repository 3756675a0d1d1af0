//! Impersonation: requests on behalf of another user.
//!
//! - this file reads the `Impersonate-*` headers
//! - [`modes`] checks whether the requester may: in the constrained modes, which name the request too, and in the older form

pub mod modes;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::{HeaderMap, HeaderName};
use machinery::go_text::quote;
use machinery::status::Status;

use crate::request::authentication::front_proxy::unescape;
pub use modes::{Impersonation, Mode, Modes};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The user that the headers name, as they name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Parses the headers; none without any. Headers without a user are a 400.
pub fn parse(headers: &HeaderMap) -> Result<Option<Wanted>, Status> {
    // The common case: no such header.
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        extra.entry(unescape(key)).or_default().push(text(value));
    }
    let groups = headers.get_all(GROUP).iter().map(text).collect();
    let wanted = Wanted { name: first(USER), uid: first(UID), groups, extra };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == Wanted::default() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", wanted.to_go())))
}

/// Removes the headers, so that nothing behind learns of the impersonation.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let matches = |name: &&HeaderName| {
        let name = name.as_str();
        name == USER || name == UID || name == GROUP || name.starts_with(EXTRA)
    };
    let names: Vec<HeaderName> = headers.keys().filter(matches).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

impl Wanted {
    /// Whether only a name is wanted.
    fn is_name_only(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    /// The wish as the reference prints it.
    fn to_go(&self) -> String {
        let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", ");
        let groups = match self.groups.as_slice() {
            [] => "(nil)".to_owned(),
            groups => format!("{{{}}}", list(groups)),
        };
        let mut extra = String::new();
        for (key, values) in &self.extra {
            let comma = if extra.is_empty() { "" } else { ", " };
            let _ = write!(extra, "{comma}{}:[]string{{{}}}", quote(key), list(values));
        }
        let extra = if self.extra.is_empty() { "(nil)".to_owned() } else { format!("{{{extra}}}") };
        format!(
            "&user.DefaultInfo{{Name:{}, UID:{}, Groups:[]string{groups}, Extra:map[string][]string{extra}}}",
            quote(&self.name),
            quote(&self.uid)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn headers_name_a_user() {
        assert_eq!(parse(&headers(&[("accept", "*/*")])), Ok(None));
        let wanted = parse(&headers(&[
            (USER, "a"),
            (UID, "7"),
            (GROUP, "devs"),
            (GROUP, "ops"),
            ("impersonate-extra-acme.org%2fscope", "x"),
            ("impersonate-extra-a%zz", "y"),
        ]));
        let wanted = wanted.unwrap().unwrap();
        assert_eq!((wanted.name.as_str(), wanted.uid.as_str()), ("a", "7"));
        assert_eq!(wanted.groups, ["devs", "ops"]);
        assert_eq!(wanted.extra["acme.org/scope"], ["x"]);
        assert_eq!(wanted.extra["a%zz"], ["y"]);
    }

    #[test]
    fn im_1_nothing_without_a_user() {
        let refused = |pairs: &[(&'static str, &str)]| {
            let status = parse(&headers(pairs)).unwrap_err();
            assert_eq!(status.code, 400);
            status.message
        };
        assert_eq!(
            refused(&[(GROUP, "devs")]),
            "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"devs\"}, \
             Extra:map[string][]string(nil)} without impersonating a user name"
        );
        assert_eq!(
            refused(&[(UID, "7"), ("impersonate-extra-x", "1"), (USER, "")]),
            "requested &user.DefaultInfo{Name:\"\", UID:\"7\", Groups:[]string(nil), \
             Extra:map[string][]string{\"x\":[]string{\"1\"}}} without impersonating a user name"
        );
    }

    #[test]
    fn im_15_headers_are_consumed() {
        let mut headers =
            headers(&[(USER, "a"), (UID, "7"), (GROUP, "g"), ("impersonate-extra-x", "1"), ("accept", "a")]);
        strip(&mut headers);
        assert_eq!(headers.len(), 1);
    }
}
