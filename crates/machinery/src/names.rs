//! Rules for names, label keys, label values and the like, with the words of their refusals (spec 02 §2.1).
//!
//! Each rule returns every objection to a value; an empty list means that the value is valid, and costs no allocation.

/// The objections to a value.
pub type Objections = Vec<String>;

pub const DNS_LABEL_MAX: usize = 63;
pub const DNS_SUBDOMAIN_MAX: usize = 253;
pub const LABEL_MAX: usize = 63;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The rule for the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameRule {
    /// `my-app.example`, the rule of most kinds.
    DnsSubdomain,
    /// `my-app`, no dots: namespaces and services.
    DnsLabel,
    /// `my-app` that starts with a letter.
    Dns1035Label,
    /// Anything that fits in one segment of a URL: the RBAC kinds.
    PathSegment,
}

impl NameRule {
    #[must_use]
    pub fn check(self, name: &str) -> Objections {
        match self {
            NameRule::DnsSubdomain => dns1123_subdomain(name),
            NameRule::DnsLabel => dns1123_label(name),
            NameRule::Dns1035Label => dns1035_label(name),
            NameRule::PathSegment => path_segment(name),
        }
    }

    /// Checks a `generateName`, which may end in a dash because a suffix follows.
    #[must_use]
    pub fn check_prefix(self, prefix: &str) -> Objections {
        if self == NameRule::PathSegment {
            return path_segment_prefix(prefix);
        }
        match prefix.strip_suffix('-') {
            // The reference removes the dash and the character before it, then adds a letter.
            Some(rest) if !rest.is_empty() => {
                let mut masked = rest.to_owned();
                masked.pop();
                masked.push('a');
                self.check(&masked)
            }
            _ => self.check(prefix),
        }
    }
}

/// Formats `msg (e.g. 'a',  or 'b', regex used for validation is '…')`, the double blank included.
#[must_use]
pub fn regex_objection(words: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn too_long_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

#[must_use]
pub fn dns1123_label(value: &str) -> Objections {
    let mut objections = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        objections.push(too_long(DNS_LABEL_MAX));
    }
    if !is_dns_label(value.as_bytes()) {
        objections.push(if is_dns_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_objection(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    objections
}

#[must_use]
pub fn dns1123_subdomain(value: &str) -> Objections {
    subdomain(value, too_long)
}

/// Checks a DNS subdomain whose labels may have underscores: a search path of a resolver.
#[must_use]
pub fn dns1123_subdomain_with_underscores(value: &str) -> Objections {
    const REGEX: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        label.starts_with(inner) && label.ends_with(inner) && label.chars().all(|c| inner(c) || "-_".contains(c))
    };
    let mut objections = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        objections.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if !value.split('.').all(is_label) {
        objections.push(regex_objection(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            REGEX,
            &["example.com"],
        ));
    }
    objections
}

/// Checks a DNS subdomain. For the prefix of a label key the message speaks of bytes, for names of characters.
fn subdomain(value: &str, too_long: fn(usize) -> String) -> Objections {
    let mut objections = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        objections.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if !is_dns_subdomain(value) {
        objections.push(regex_objection(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    objections
}

#[must_use]
pub fn dns1035_label(value: &str) -> Objections {
    let mut objections = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        objections.push(too_long(DNS_LABEL_MAX));
    }
    if !(is_dns_label(value.as_bytes()) && value.starts_with(|c: char| c.is_ascii_lowercase())) {
        objections.push(regex_objection(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    objections
}

/// Checks a wildcard such as `*.example.com`.
#[must_use]
pub fn wildcard_dns1123_subdomain(value: &str) -> Objections {
    let mut objections = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        objections.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if !value.strip_prefix("*.").is_some_and(is_dns_subdomain) {
        objections.push(regex_objection(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{DNS1123_SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    objections
}

/// Checks a label key, an annotation key or a finalizer: `name` or `prefix/name`.
#[must_use]
pub fn qualified_name(value: &str) -> Objections {
    let examples = ["MyName", "my.name", "123-abc"];
    let mut objections = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            objections.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_objection(LABEL_KEY_WORDS, LABEL_KEY, &examples)
            ));
            return objections;
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                objections.push("prefix part must be non-empty".to_owned());
            } else {
                let about_prefix = subdomain(prefix, too_long_bytes);
                objections.extend(about_prefix.into_iter().map(|objection| format!("prefix part {objection}")));
            }
            name
        }
    };
    if name.is_empty() {
        objections.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        objections.push(format!("name part {}", too_long_bytes(LABEL_MAX)));
    }
    if !is_label_text(name.as_bytes()) {
        objections.push(format!("name part {}", regex_objection(LABEL_KEY_WORDS, LABEL_KEY, &examples)));
    }
    objections
}

#[must_use]
pub fn label_value(value: &str) -> Objections {
    let mut objections = Vec::new();
    if value.len() > LABEL_MAX {
        objections.push(too_long_bytes(LABEL_MAX));
    }
    if !value.is_empty() && !is_label_text(value.as_bytes()) {
        objections.push(regex_objection(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    objections
}

/// Checks a name that is one segment of a URL.
#[must_use]
pub fn path_segment(value: &str) -> Objections {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

/// As [`path_segment`], for a prefix of a name.
#[must_use]
pub fn path_segment_prefix(value: &str) -> Objections {
    let banned = ["/", "%"].into_iter().filter(|banned| value.contains(banned));
    banned.map(|banned| format!("may not contain '{banned}'")).collect()
}

/// Checks a key of a ConfigMap or Secret, which may become a file name.
#[must_use]
pub fn config_map_key(value: &str) -> Objections {
    let mut objections = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        objections.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        objections.push(regex_objection(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => objections.push("must not be '.'".to_owned()),
        ".." => objections.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => objections.push("must not start with '..'".to_owned()),
        _ => {}
    }
    objections
}

/// Checks the name of a port, as in services and containers.
#[must_use]
pub fn port_name(value: &str) -> Objections {
    let mut objections = Vec::new();
    let mut object = |wrong: bool, words: &str| {
        if wrong {
            objections.push(words.to_owned());
        }
    };
    object(value.len() > 15, "must be no more than 15 characters");
    object(
        value.is_empty() || !value.bytes().all(|b| is_lower_alphanumeric(b) || b == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    object(!value.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    object(value.contains("--"), "must not contain consecutive hyphens");
    object(value.starts_with('-') || value.ends_with('-'), "must not begin or end with a hyphen");
    objections
}

#[must_use]
pub fn in_range(value: i64, low: i64, high: i64) -> Objections {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

#[must_use]
pub fn port_number(value: i64) -> Objections {
    in_range(value, 1, 65535)
}

/// Checks a percentage such as `25%`.
#[must_use]
pub fn percent(value: &str) -> Objections {
    match value.strip_suffix('%') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Vec::new(),
        _ => vec![regex_objection(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )],
    }
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_dns_label(value: &[u8]) -> bool {
    is_framed(value, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-')
}

fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(|label| is_dns_label(label.as_bytes()))
}

fn is_label_text(value: &[u8]) -> bool {
    is_framed(value, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Returns whether a value is not empty, its first and last byte meet `ends`, and all bytes meet `inside`.
fn is_framed(value: &[u8], ends: fn(u8) -> bool, inside: fn(u8) -> bool) -> bool {
    match value {
        [] => false,
        [only] => ends(*only),
        [first, middle @ .., last] => ends(*first) && ends(*last) && middle.iter().all(|b| inside(*b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBDOMAIN_OBJECTION: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const LABEL_OBJECTION: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    #[test]
    fn create_bad_names() {
        for bad in ["Upper", "under_score", "-a", "a-", "a..b", "a/b", ".", "", "é", "a.", ".a"] {
            assert_eq!(dns1123_subdomain(bad), [SUBDOMAIN_OBJECTION], "{bad}");
        }
        assert_eq!(dns1123_subdomain(&"x".repeat(254)), ["must be no more than 253 characters"]);
        for good in ["a", "0", "a-b", "a.b", "a.b-c.0", &"x".repeat(253)] {
            assert!(dns1123_subdomain(good).is_empty(), "{good}");
        }
        assert_eq!(dns1123_label("Bad_"), [LABEL_OBJECTION]);
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label(&"x".repeat(64)), ["must be no more than 63 characters"]);
        assert!(dns1035_label("a-1").is_empty());
        assert_eq!(dns1035_label("1-a").len(), 1);
    }

    #[test]
    fn names_allowed_by_rbac_kinds() {
        assert!(path_segment("system:Odd Name").is_empty());
        assert_eq!(path_segment("a/b"), ["may not contain '/'"]);
        assert_eq!(path_segment("a%b"), ["may not contain '%'"]);
        assert_eq!(path_segment(".."), ["may not be '..'"]);
    }

    #[test]
    fn label_keys_and_values_that_are_wrong() {
        assert_eq!(qualified_name("bad key"), [NAME_PART]);
        assert_eq!(qualified_name(""), ["name part must be non-empty", NAME_PART]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("UPPER.com/a"), [format!("prefix part {SUBDOMAIN_OBJECTION}")]);
        assert_eq!(qualified_name(&format!("a/{}", "x".repeat(64))), ["name part must be no more than 63 bytes"]);
        assert_eq!(
            qualified_name("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        );
        assert!(qualified_name("example.com/My_Name.1").is_empty());
        assert!(label_value("").is_empty());
        assert_eq!(label_value(&"v".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(
            label_value("bad value"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
    }

    #[test]
    fn generate_name_may_end_in_a_dash() {
        assert!(NameRule::DnsSubdomain.check_prefix("web-").is_empty());
        assert!(NameRule::DnsLabel.check_prefix("w-").is_empty());
        assert_eq!(NameRule::DnsSubdomain.check_prefix("-").len(), 1);
        assert_eq!(NameRule::DnsSubdomain.check_prefix("Web-").len(), 1);
        assert!(NameRule::PathSegment.check_prefix("..").is_empty());
    }

    #[test]
    fn keys_ports_and_percents() {
        assert!(config_map_key("a.b_c-D").is_empty());
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
        assert_eq!(config_map_key("a b").len(), 1);
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert!(percent("25%").is_empty());
        assert_eq!(percent("25").len(), 1);
    }
}
