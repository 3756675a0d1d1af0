//! Values as Go prints them in messages and bodies: quoted strings and JSON.
//!
//! Clients and tests compare these texts, so a quoted name in a message must equal the output of `%q`, and JSON must
//! escape `<`, `>` and `&` as Go's encoder does.

use std::fmt::Write as _;
use std::io;

use crate::json::Value;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

/// Returns a string in double quotes, escaped as Go's `%q` does.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                // Writing to a String cannot fail.
                let _ = match code {
                    0..0x80 => write!(out, "\\x{code:02x}"),
                    0x80..0x10000 => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
    out
}

/// Returns whether a character is a letter, mark, number, punctuation, symbol or the ASCII space.
///
/// Uses the standard library's table for debug output, with a letter in front, because at the start of a string it
/// would escape combining marks as well.
#[must_use]
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    let mut buffer = [b'a'; 5];
    let len = 1 + c.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..len]).unwrap_or_default();
    text.escape_debug().nth(1) == Some(c)
}

/// Formats a number as Go's `%v` does: `1.0` is `1`, and the exponent form begins at a million.
#[must_use]
pub fn number(n: &serde_json::Number) -> String {
    match n.as_f64() {
        Some(f) if n.is_f64() => float(f),
        _ => n.to_string(),
    }
}

pub(crate) fn float(f: f64) -> String {
    let magnitude = f.abs();
    if f == 0.0 || (1e-4..1e6).contains(&magnitude) {
        return format!("{f}");
    }
    let text = format!("{f:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// Returns Go's name for the type of a decoded value.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) | Value::Raw(_) => "map[string]interface {}",
    }
}

/// Returns compact JSON with the escapes of Go's encoder, so that bodies agree byte for byte.
#[must_use]
pub fn json(value: &Value) -> String {
    // Only ASCII escapes are added to what serde_json wrote as UTF-8.
    String::from_utf8(json_bytes(value)).unwrap_or_default()
}

/// As [`json`], for anything that serialises.
#[must_use]
pub fn json_bytes<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, GoFormatter);
    match value.serialize(&mut serializer) {
        Ok(()) => out,
        // Only maps with other keys than strings fail; none of the types here has one.
        Err(_) => b"null".to_vec(),
    }
}

/// Formatter of serde_json's compact form plus Go's escapes for `<`, `>`, `&`, U+2028 and U+2029.
pub struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, tail) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let Some(c) = tail.chars().next() else { break };
            write!(writer, "\\u{:04x}", u32::from(c))?;
            rest = &tail[c.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn quoting_follows_go() {
        for (input, want) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("tab\tnl\nbell\u{7}", r#""tab\tnl\nbell\a""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("é世界", "\"é世界\""),
            ("a\u{301}", "\"a\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{a0}\u{200b}", r#""\u00a0\u200b""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(input), want);
        }
    }

    #[test]
    fn json_escapes_html_as_go_does() {
        assert_eq!(json(&json!({"a": "<b>&\u{2028}\n\""})), "{\"a\":\"\\u003cb\\u003e\\u0026\\u2028\\n\\\"\"}");
    }

    #[test]
    fn numbers_print_without_needless_fraction() {
        for (input, want) in
            [(json!(1.0), "1"), (json!(1.5), "1.5"), (json!(-3), "-3"), (json!(1234567.5), "1.2345675e+06")]
        {
            let Value::Number(n) = input else { panic!("a number") };
            assert_eq!(number(&n), want);
        }
        assert_eq!(float(0.000_01), "1e-05");
    }
}
