//! Writing of JSON text, and conversion to anything else that serde serialises.

use std::fmt;

use serde::ser::{Serialize, Serializer};

use super::{List, Map, Value};

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(number) => number.serialize(serializer),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => items.serialize(serializer),
            Value::Object(members) => members.serialize(serializer),
            Value::Raw(_) => self.parsed().serialize(serializer),
        }
    }
}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, value)| (name.as_str(), value)))
    }
}

/// Appends compact JSON.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_plain(number, out),
        Value::String(text) => write_text(text, out),
        Value::Raw(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) if members.unread_text().is_some() => {
            out.extend_from_slice(members.unread_text().unwrap_or_default());
        }
        Value::Object(members) => {
            out.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write(value, out);
            }
            out.push(b'}');
        }
    }
}

/// Appends a string in quotes. Most strings have nothing to escape.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    if has_escapes(text.as_bytes()) {
        write_plain(text, out);
    } else {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    }
}

/// Returns whether the bytes include a quote, a backslash or a control character. Checks eight bytes at a time.
fn has_escapes(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const TOPS: u64 = ONES << 7;
    // A byte below the bound borrows from its top bit, which was not set.
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let odd = |word: u64| {
        let (quote, backslash) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
        (below(word, 0x20) | below(quote, 1) | below(backslash, 1)) & TOPS
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut found = words.iter().fold(0, |found, word| found | odd(u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        let mut word = [b' '; 8];
        word[..rest.len()].copy_from_slice(rest);
        found |= odd(u64::from_le_bytes(word));
    }
    found != 0
}

/// Writes a scalar as `serde_json` does.
fn write_plain<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Writing to memory cannot fail, and neither can serialising a number or a string.
    serde_json::to_writer(out, value).expect("a scalar serialises into memory");
}

/// Returns compact JSON.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::with_capacity(128);
    write(value, &mut out);
    String::from_utf8(out).expect("JSON of texts is UTF-8")
}

/// Compact JSON, or indented with `{:#}`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            f.write_str(&serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?)
        } else {
            f.write_str(&to_string(self))
        }
    }
}
