//! Values to text, and to anything else that serde writes.

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

/// Appends a text in quotes. Most have nothing to escape, and are looked through many bytes at a time for that.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    let needs_escape = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // Without an early end the compiler looks at 16 bytes at once.
    if text.as_bytes().iter().fold(false, |found, byte| found | needs_escape(byte)) {
        write_plain(text, out);
    } else {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    }
}

/// As serde writes it.
fn write_plain<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Memory takes every byte, and neither numbers nor texts can fail to serialise.
    serde_json::to_writer(out, value).expect("a scalar serialises into memory");
}

/// Compact JSON.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::with_capacity(128);
    write(value, &mut out);
    String::from_utf8(out).expect("JSON of texts is UTF-8")
}

/// Compact, or with `{:#}` in lines.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            f.write_str(&serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?)
        } else {
            f.write_str(&to_string(self))
        }
    }
}
