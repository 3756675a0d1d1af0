//! Formats of strings and numbers in schemas.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use machinery::names;
use regex::Regex;

/// A format that is checked. Unknown formats are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Format {
    /// The name in the schema.
    pub(crate) name: Box<str>,
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    /// Index in [`TEXTS`].
    Text(u8),
    Int32,
    Int64,
    Float,
    Double,
}

/// Reports whether a text has a format.
type Check = fn(&str) -> bool;

/// Formats of strings, by name without dashes.
const TEXTS: [(&str, Check); 26] = [
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())),
    ("byte", |text| base64::engine::general_purpose::STANDARD.decode(text).is_ok()),
    ("cidr", cidr),
    ("creditcard", credit_card),
    ("date", |text| text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()),
    ("datetime", date_time),
    ("duration", duration),
    ("email", email),
    ("hexcolor", |text| {
        let digits = text.strip_prefix('#').unwrap_or(text);
        matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    }),
    ("hostname", hostname),
    ("ipv4", |text| text.parse::<Ipv4Addr>().is_ok()),
    ("ipv6", |text| text.parse::<Ipv6Addr>().is_ok()),
    ("isbn", |text| isbn10(text) || isbn13(text)),
    ("isbn10", isbn10),
    ("isbn13", isbn13),
    ("k8slongname", |text| names::dns1123_subdomain(text).is_empty()),
    ("k8sshortname", |text| names::dns1123_label(text).is_empty()),
    ("mac", mac),
    ("password", |_| true),
    ("rgbcolor", |text| RGB.is_match(text)),
    ("ssn", |text| SSN.is_match(text)),
    ("uri", uri),
    ("uuid", |text| uuid(text, None)),
    ("uuid3", |text| uuid(text, Some('3'))),
    ("uuid4", |text| uuid(text, Some('4'))),
    ("uuid5", |text| uuid(text, Some('5'))),
];

/// A pattern of this file.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of this file: a test compiles it")
}

static RGB: LazyLock<Regex> = LazyLock::new(|| {
    const PART: &str = r"\s*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])\s*";
    pattern(&format!(r"^rgb\({PART},{PART},{PART}\)$"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static CARD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});
static LABEL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9\p{S}\p{L}-]{0,61}[a-zA-Z0-9\p{S}\p{L}])?$"));

impl Format {
    /// Returns the format for a type; `None` if it is not checked.
    pub(crate) fn for_type(kind: &str, name: &str) -> Option<Format> {
        let which = match (kind, name) {
            ("integer", "int32") => Which::Int32,
            ("integer", "int64") => Which::Int64,
            ("number", "float") => Which::Float,
            ("number", "double") => Which::Double,
            ("" | "string", _) => {
                let plain = name.replace('-', "");
                Which::Text(TEXTS.iter().position(|(known, _)| *known == plain)?.try_into().ok()?)
            }
            _ => return None,
        };
        Some(Format { name: name.into(), which })
    }

    /// Reports whether the format applies to strings.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.which, Which::Text(_))
    }

    pub(crate) fn admits(&self, text: &str) -> bool {
        match self.which {
            Which::Text(at) => TEXTS[usize::from(at)].1(text),
            _ => true,
        }
    }
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits_number) = bits.parse::<u8>() else { return false };
    let most = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    bits_number <= most && bits.bytes().all(|b| b.is_ascii_digit())
}

fn credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let digit = u32::from(digit - b'0') * if at % 2 == 1 { 2 } else { 1 };
            if digit > 9 { digit - 9 } else { digit }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// RFC 3339; zone and seconds are optional.
fn date_time(text: &str) -> bool {
    text.len() >= 4
        && (text.parse::<jiff::Timestamp>().is_ok()
            || text.contains(['T', 't', ' ']) && text.parse::<jiff::civil::DateTime>().is_ok())
}

/// `1h30m`, `-1.5s`, `22 ns`, `3 days`
fn duration(text: &str) -> bool {
    const UNITS: [&str; 29] = [
        "ns",
        "nano",
        "nanos",
        "nanosecond",
        "nanoseconds",
        "us",
        "µs",
        "μs",
        "micro",
        "micros",
        "ms",
        "milli",
        "millis",
        "millisecond",
        "milliseconds",
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "m",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hr",
        "hour",
        "hours",
    ];
    const LONG: [&str; 6] = ["d", "day", "days", "w", "week", "weeks"];
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    // A single number may have a space before its unit; several parts need short units without spaces.
    let mut at = rest;
    let mut parts = 0;
    while !at.is_empty() {
        let digits = at.len() - at.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        if digits == 0 || at[..digits].parse::<f64>().is_err() {
            return false;
        }
        at = at[digits..].trim_start();
        let letters = at.len() - at.trim_start_matches(char::is_alphabetic).len();
        let unit = &at[..letters];
        if !UNITS.contains(&unit) && !LONG.contains(&unit) {
            return false;
        }
        parts += 1;
        at = &at[letters..];
    }
    parts > 0
}

fn email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(at), Some(inside)) => &inside[at + 1..],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atoms = |part: &str| {
        let plain = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
        !part.is_empty() && part.split('.').all(|atom| !atom.is_empty() && atom.chars().all(plain))
    };
    let quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    (quoted || atoms(local)) && (atoms(domain) || domain.starts_with('[') && domain.ends_with(']'))
}

fn hostname(text: &str) -> bool {
    if text.is_empty() || text.len() > 255 {
        return false;
    }
    let labels: Vec<&str> = text.split('.').collect();
    labels.iter().all(|label| label.chars().count() <= 63 && LABEL.is_match(label))
        && (labels.len() == 1
            || labels.last().is_some_and(|last| last.chars().count() >= 2 && last.chars().all(char::is_alphabetic)))
}

fn isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (at, digit) in digits.iter().enumerate() {
        let value = match digit {
            'X' if at == 9 => 10,
            digit => match digit.to_digit(10) {
                Some(value) => value,
                None => return false,
            },
        };
        sum += (10 - at as u32) * value;
    }
    sum.is_multiple_of(11)
}

fn isbn13(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let values: Option<Vec<u32>> = digits.iter().map(|digit| digit.to_digit(10)).collect();
    let Some(values) = values.filter(|values| values.len() == 13) else { return false };
    let sum: u32 = values.iter().enumerate().map(|(at, value)| if at % 2 == 0 { *value } else { value * 3 }).sum();
    sum.is_multiple_of(10)
}

/// MAC address: six, eight or twenty bytes in groups of one (colons or dashes) or two (dots).
fn mac(text: &str) -> bool {
    let hex = |group: &str, length: usize| group.len() == length && group.bytes().all(|b| b.is_ascii_hexdigit());
    [(':', 2, [6, 8, 20]), ('-', 2, [6, 8, 20]), ('.', 4, [3, 4, 10])].iter().any(|(separator, length, counts)| {
        let groups: Vec<&str> = text.split(*separator).collect();
        counts.contains(&groups.len()) && groups.iter().all(|group| hex(group, *length))
    })
}

/// Request target: an absolute URI or an absolute path.
fn uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    match text.split_once(':') {
        None => false,
        Some((scheme, rest)) => {
            let mut letters = scheme.chars();
            let named = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
                && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            let escapes = rest
                .split('%')
                .skip(1)
                .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
            named && !rest.is_empty() && escapes
        }
    }
}

fn uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::with_capacity(32);
    let mut at = 0;
    for c in text.chars() {
        match c {
            // Each of the first four groups may be followed by a dash.
            '-' if matches!(digits.len(), 8 | 12 | 16 | 20) && at != digits.len() => at = digits.len(),
            c if c.is_ascii_hexdigit() => digits.push(c),
            _ => return false,
        }
    }
    let nth = |at: usize| digits.chars().nth(at).unwrap_or_default().to_ascii_lowercase();
    digits.len() == 32
        && version.is_none_or(|version| nth(12) == version && (version == '3' || "89ab".contains(nth(16))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_each_format() {
        for (format, good, bad) in [
            ("bsonobjectid", "507f1f77bcf86cd799439011", "x"),
            ("byte", "aGk=", "%%%"),
            ("cidr", "10.0.0.0/8", "1.2.3.4"),
            ("creditcard", "4111111111111111", "1"),
            ("date", "2020-12-01", "2020-13-01"),
            ("date-time", "2020-01-01T00:00:00Z", "x"),
            ("duration", "1h30m", "five"),
            ("duration", "22 ns", "1 fortnight"),
            ("email", "a@b.example", "nope"),
            ("hexcolor", "#ff0000", "red"),
            ("hostname", "ok.example", "a_b"),
            ("ipv4", "1.2.3.4", "1.2.3.400"),
            ("ipv6", "::1", "1.2.3.4"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("isbn10", "0321751043", "1"),
            ("mac", "00:11:22:33:44:55", "zz"),
            ("password", "y", ""),
            ("rgbcolor", "rgb(1,2,3)", "red"),
            ("ssn", "111-22-3333", "x"),
            ("uri", "http://x/y", "no uri"),
            ("uuid", "a987fbc9-4bed-3078-8f07-9141ba07c9f3", "x"),
            ("uuid4", "57b73598-8764-4ad0-a76a-679bb6640eb1", "a987fbc9-4bed-3078-cf07-9141ba07c9f3"),
            ("k8s-short-name", "ok-name", "Bad_Name"),
            ("k8s-long-name", "ok.name", "Bad..Name"),
        ] {
            let checked = Format::for_type("string", format).unwrap();
            assert!(checked.admits(good), "{format} {good}");
            assert!(checked.admits(bad) == (format == "password"), "{format} {bad}");
        }
        assert!(Format::for_type("string", "nonsense").is_none() && Format::for_type("object", "date").is_none());
        assert!(Format::for_type("integer", "int32").is_some_and(|format| !format.is_text()));
    }
}
