//! The parts of a URL, and the messages for what is not one, as Go's `net/url` finds them.

use machinery::field_error::{FieldError, Path};
use machinery::go_text::quote;

use super::Errors;

/// The parts of a URL that a rule may refuse.
struct Parts<'a> {
    scheme: String,
    host: &'a str,
    user: Option<&'a str>,
    query: &'a str,
    fragment: &'a str,
}

/// Checks the URL of a webhook: HTTPS, with a host, and nothing but a path behind it.
pub(super) fn webhook_url(errors: &mut Errors, path: &Path<'_>, url: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let parts = match parse(url) {
        Ok(parts) => parts,
        Err(why) => {
            let why = format!("url must be a valid URL: parse {}: {why}{FORM}", quote(url));
            errors.push(FieldError::required(path, why));
            return;
        }
    };
    if parts.scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(path, parts.scheme.as_str(), why));
    }
    if parts.host.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some(user) = parts.user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !parts.fragment.is_empty() {
        errors.push(FieldError::invalid(path, parts.fragment, "fragments are not permitted in the URL"));
    }
    if !parts.query.is_empty() {
        errors.push(FieldError::invalid(path, parts.query, "query parameters are not permitted in the URL"));
    }
}

fn parse(url: &str) -> Result<Parts<'_>, String> {
    let (text, fragment) = url.split_once('#').unwrap_or((url, ""));
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut parts = Parts { scheme: scheme.to_lowercase(), host: "", user: None, query, fragment };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(parts);
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let mut path = rest;
    if let Some(after) = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
        let (authority, remaining) = after.find('/').map_or((after, ""), |at| after.split_at(at));
        path = remaining;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_host(host)?;
        parts.host = host;
        parts.user = user;
    }
    escapes(path)?;
    escapes(fragment)?;
    Ok(parts)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let valid =
        port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !valid {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    if let Some(c) = host.chars().find(|c| matches!(c, ' ' | '\\' | '^' | '`' | '{' | '|' | '}')) {
        return Err(format!("invalid character {} in host name", quote(&c.to_string())));
    }
    escapes(host)
}

/// Checks that each percent sign is followed by two hexadecimal digits.
fn escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let end = text.len().min(at + 3);
            let shown = text.get(at..end).unwrap_or("%");
            return Err(format!("invalid URL escape {}", quote(shown)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> Vec<String> {
        let mut errors = Errors::default();
        webhook_url(&mut errors, &Path::new("url"), url);
        errors.iter().map(FieldError::body).collect()
    }

    #[test]
    fn each_part_is_named() {
        let form = "; desired format: https://host[/path]";
        assert_eq!(refused("https://x.example.com:9443/a"), [""; 0]);
        assert_eq!(
            refused("https://u:p@x.example.com/a?b#c"),
            [
                "Invalid value: \"u:p\": user information is not permitted in the URL",
                "Invalid value: \"c\": fragments are not permitted in the URL",
                "Invalid value: \"b\": query parameters are not permitted in the URL",
            ]
        );
        assert_eq!(
            refused("x"),
            [
                format!("Invalid value: \"\": 'https' is the only allowed URL scheme{form}"),
                format!("Invalid value: \"\": host must be specified{form}"),
            ]
        );
        assert_eq!(
            refused("100%"),
            [format!("Required value: url must be a valid URL: parse \"100%\": invalid URL escape \"%\"{form}")]
        );
        assert_eq!(refused("a:b:c").len(), 2, "a scheme that is not HTTPS, and no host");
    }
}
