//! The query string of a request: pairs of names and values, and their conversion to booleans and numbers (spec 01 §2).
//!
//! Decoded here and not by a form library because of the reference's treatment of malformed parts: a pair with a bad
//! escape or a semicolon is dropped, the rest is used.

use std::num::IntErrorKind;

use crate::Status;
use crate::go_text::quote;

/// The pairs, in the order of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses the text after the `?`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut pairs = Vec::new();
        for pair in text.split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(name), Some(value)) = (decode(name), decode(value)) {
                pairs.push((name, value));
            }
        }
        Query { pairs }
    }

    /// A query of these pairs, which need no decoding.
    #[must_use]
    pub fn from_pairs(pairs: Vec<(String, String)>) -> Self {
        Query { pairs }
    }

    /// Returns the first value of a parameter; later ones are ignored.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Iterates over all values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// Returns a parameter as [`truth`]; `None` if it is absent.
    #[must_use]
    pub fn truth(&self, name: &str) -> Option<bool> {
        self.get(name).map(truth)
    }

    /// Returns a parameter as a signed number; the error is the 400 response.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        self.get(name).map(|text| parse_i64(text).map_err(Status::bad_request)).transpose()
    }
}

/// Parses a boolean: only `0` and `false` in any case are false; the empty string is true.
#[must_use]
pub fn truth(value: &str) -> bool {
    !(value == "0" || value.eq_ignore_ascii_case("false"))
}

/// Parses `pretty` more strictly: any unknown word is false.
#[must_use]
pub fn strict_truth(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Parses a signed number; the error is that of Go's `ParseInt`.
pub fn parse_i64(text: &str) -> Result<i64, String> {
    text.parse().map_err(|e: std::num::ParseIntError| parse_error("ParseInt", text, e.kind()))
}

/// Parses an unsigned number; the error is that of Go's `ParseUint`.
pub fn parse_u64(text: &str) -> Result<u64, String> {
    if text.starts_with('+') {
        return Err(parse_error("ParseUint", text, &IntErrorKind::InvalidDigit));
    }
    text.parse().map_err(|e: std::num::ParseIntError| parse_error("ParseUint", text, e.kind()))
}

fn parse_error(function: &str, text: &str, kind: &IntErrorKind) -> String {
    let why = match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

/// Decodes `%41` and `+`. Bytes that are not UTF-8 become replacement characters.
fn decode(text: &str) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                out.push((high * 16 + low) as u8);
            }
            byte => out.push(byte),
        }
    }
    Some(match String::from_utf8(out) {
        Ok(text) => text,
        Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_the_first_wins() {
        let query = Query::parse("a=1&a=2&b=x+y%2Fz&c&d=%zz&e;f=1&&=g&%C3%A9=%ff");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), Some("x y/z"));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.get("d"), None, "a bad escape drops the pair");
        assert_eq!(query.get("f"), None, "a semicolon drops the pair");
        assert_eq!(query.get("é"), Some("\u{fffd}"));
    }

    #[test]
    fn truth_values_of_the_watch_parameter() {
        for (text, want) in [("0", false), ("false", false), ("False", false), ("FALSE", false)] {
            assert_eq!(truth(text), want);
        }
        for text in ["", "1", "true", "no", "00", "f"] {
            assert!(truth(text), "{text}");
        }
        assert!(strict_truth("T"));
        assert!(!strict_truth("yes"));
    }

    #[test]
    fn numbers_say_why_not() {
        let query = Query::parse("limit=abc&n=99999999999999999999&ok=-5&empty=");
        let message = |name| query.integer(name).map_err(|status| status.message);
        assert_eq!(message("limit"), Err("strconv.ParseInt: parsing \"abc\": invalid syntax".to_owned()));
        assert_eq!(
            message("n"),
            Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned())
        );
        assert_eq!(message("empty"), Err("strconv.ParseInt: parsing \"\": invalid syntax".to_owned()));
        assert_eq!(message("ok"), Ok(Some(-5)));
        assert_eq!(message("none"), Ok(None));
        assert_eq!(parse_u64("-1"), Err("strconv.ParseUint: parsing \"-1\": invalid syntax".to_owned()));
        assert_eq!(parse_u64("+1"), Err("strconv.ParseUint: parsing \"+1\": invalid syntax".to_owned()));
    }
}
