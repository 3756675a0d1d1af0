//! URLs, parsed like Go's `net/url`.
//!
//! The `url` crate follows another standard (WHATWG): it accepts, rejects and escapes other texts, and its errors
//! differ.

use std::collections::BTreeMap;

use machinery::go_text::quote;

/// A URL; equality is that of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    path: String,
    query: Option<String>,
    fragment: String,
}

impl Url {
    /// Parses an absolute URL or an absolute path.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        let wrong = |why: String| format!("parse {}: {why}", quote(text));
        take_apart(text, true).map_err(wrong)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = take_apart(before, false).map_err(wrong)?;
        unescape(fragment, false).map_err(wrong)?;
        url.fragment = fragment.to_owned();
        Ok(url)
    }

    /// Returns the error of a text that is not a URI.
    pub(crate) fn error(text: &str) -> Option<String> {
        take_apart(text, true).err().map(|why| format!("parse {}: {why}", quote(text)))
    }

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn hostname(&self) -> &str {
        let (host, _) = split_port(&self.host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(crate) fn port(&self) -> &str {
        split_port(&self.host).1
    }

    pub(crate) fn escaped_path(&self) -> String {
        if self.path.bytes().all(is_encoded) {
            return self.path.clone();
        }
        let plain = unescape(&self.path, false).unwrap_or_else(|_| self.path.clone().into_bytes());
        if plain == b"*" {
            return "*".to_owned();
        }
        let mut escaped = String::with_capacity(plain.len());
        for byte in plain {
            if is_plain(byte) {
                escaped.push(byte as char);
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }

    /// Returns the values of each parameter; malformed pairs are skipped.
    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.as_deref().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            if pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(key), Ok(value)) = (unescape(key, true), unescape(value, true)) {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                query.entry(text(key)).or_default().push(text(value));
            }
        }
        query
    }
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') && host[at + 1..].bytes().all(|b| b.is_ascii_digit()) => {
            (&host[..at], &host[at + 1..])
        }
        _ => (host, ""),
    }
}

/// Characters of a path that are not escaped.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

fn is_encoded(byte: u8) -> bool {
    is_plain(byte) || b"!'()*[]%".contains(&byte)
}

fn unescape(text: &str, plus: bool) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digit = |i: usize| bytes.get(at + i).and_then(|b| (*b as char).to_digit(16));
                let (Some(high), Some(low)) = (digit(1), digit(2)) else {
                    let end = (at + 3).min(bytes.len());
                    let shown = String::from_utf8_lossy(&bytes[at..end]).into_owned();
                    return Err(format!("invalid URL escape {}", quote(&shown)));
                };
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            b'+' if plus => {
                out.push(b' ');
                at += 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Ok(out)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn take_apart(text: &str, request: bool) -> Result<Url, String> {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = Url {
        scheme: String::new(),
        opaque: String::new(),
        user: None,
        host: String::new(),
        path: String::new(),
        query: None,
        fragment: String::new(),
    };
    if text == "*" {
        url.path = "*".to_owned();
        return Ok(url);
    }
    let (name, rest) = scheme(text)?;
    url.scheme = name.to_ascii_lowercase();
    let (mut rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query.to_owned())),
        None => (rest, None),
    };
    url.query = query;
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if (!url.scheme.is_empty() || (!request && !rest.starts_with("///")))
        && let Some(after) = rest.strip_prefix("//")
    {
        let (authority, path) = match after.find('/') {
            Some(at) => after.split_at(at),
            None => (after, ""),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, authority),
        };
        url.host = read_host(host)?;
        if let Some(user) = &user
            && !user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b))
        {
            return Err("net/url: invalid userinfo".to_owned());
        }
        url.user = user;
        rest = path;
    }
    unescape(rest, false)?;
    url.path = rest.to_owned();
    Ok(url)
}

fn read_host(host: &str) -> Result<String, String> {
    let check_port = |port: &str| {
        if port.is_empty() || (port.starts_with(':') && port[1..].bytes().all(|b| b.is_ascii_digit())) {
            Ok(())
        } else {
            Err(format!("invalid port {} after host", quote(port)))
        }
    };
    if host.starts_with('[') {
        let end = host.rfind(']').ok_or_else(|| "missing ']' in host".to_owned())?;
        check_port(&host[end + 1..])?;
    } else if let Some(at) = host.rfind(':') {
        check_port(&host[at..])?;
    }
    for (at, c) in host.char_indices() {
        let allowed = !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
        if !allowed {
            let shown = &host[at..at + c.len_utf8()];
            return Err(format!("invalid character {} in host name", quote(shown)));
        }
        if c == '%' {
            let code = host.get(at + 1..at + 3).and_then(|code| u8::from_str_radix(code, 16).ok());
            match code {
                Some(code) if code >= 0x80 || host.starts_with('[') => {}
                _ => {
                    let shown = host.get(at..(at + 3).min(host.len())).unwrap_or("%");
                    return Err(format!("invalid URL escape {}", quote(shown)));
                }
            }
        }
    }
    Ok(String::from_utf8_lossy(&unescape(host, false).unwrap_or_default()).into_owned())
}
