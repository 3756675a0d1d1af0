//! One step of a path to a field: a name, the keys of a list item, a value of a set, an index.

use std::cmp::Ordering;
use std::fmt;

use machinery::go_text;
use machinery::json::{self, Number, Value};
use smol_str::SmolStr;

#[derive(Clone, Debug)]
pub enum Element {
    /// `f:spec`. Most names are short enough to be stored inline.
    Field(SmolStr),
    /// `k:{"name":"c"}`: sorted by name.
    Key(Vec<(SmolStr, Value)>),
    /// `v:"example.com/finalizer"`
    Value(Value),
    /// `i:3`
    Index(i64),
}

impl Element {
    #[must_use]
    pub fn field(name: &str) -> Element {
        Element::Field(SmolStr::new(name))
    }

    /// Returns the key in `fieldsV1`.
    #[must_use]
    pub fn encode(&self) -> String {
        match self {
            Element::Field(name) => {
                let mut text = String::with_capacity(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
                text
            }
            Element::Key(keys) => {
                let mut text = String::with_capacity(32);
                text.push_str("k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    push_text(name, &mut text);
                    text.push(':');
                    match value {
                        Value::String(value) => push_text(value, &mut text),
                        value => text.push_str(&go_text::json(value)),
                    }
                }
                text.push('}');
                text
            }
            Element::Value(value) => format!("v:{}", go_text::json(value)),
            Element::Index(index) => format!("i:{index}"),
        }
    }

    /// Appends the key as JSON.
    pub(super) fn write(&self, out: &mut String) {
        let is_plain = |text: &str| text.bytes().all(is_plain);
        match self {
            Element::Field(name) => write_field(name, out),
            Element::Key(keys)
                if keys.iter().all(|(name, value)| is_plain(name) && value.as_str().is_some_and(is_plain)) =>
            {
                out.push_str("\"k:{");
                for (at, (name, value)) in keys.iter().enumerate() {
                    out.push_str(if at > 0 { ",\\\"" } else { "\\\"" });
                    out.push_str(name);
                    out.push_str("\\\":\\\"");
                    out.push_str(value.as_str().unwrap_or_default());
                    out.push_str("\\\"");
                }
                out.push_str("}\"");
            }
            other => write_escaped(&other.encode(), out),
        }
    }

    /// Parses a key of `fieldsV1`. `Ok(None)` is a kind of element that a later version may know.
    pub fn decode(text: &str) -> Result<Option<Element>, MalformedPath> {
        let Some((sort, rest)) = text.split_at_checked(2) else { return Err(MalformedPath) };
        if !sort.ends_with(':') {
            return Err(MalformedPath);
        }
        Ok(Some(match sort {
            "f:" => Element::Field(SmolStr::new(rest)),
            "v:" => Element::Value(serde_json::from_str(rest).map_err(|_| MalformedPath)?),
            "k:" => {
                let Ok(Value::Object(keys)) = serde_json::from_str(rest) else { return Err(MalformedPath) };
                let mut keys: Vec<_> = keys.into_iter().collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                Element::Key(keys)
            }
            "i:" => Element::Index(rest.parse().map_err(|_| MalformedPath)?),
            _ => return Ok(None),
        }))
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

/// Appends the key of a field as JSON.
pub(super) fn write_field(name: &str, out: &mut String) {
    if name.bytes().all(is_plain) {
        out.push_str("\"f:");
        out.push_str(name);
        out.push('"');
    } else {
        write_escaped(&format!("f:{name}"), out);
    }
}

fn write_escaped(key: &str, out: &mut String) {
    let mut text = Vec::new();
    json::write_text(key, &mut text);
    out.push_str(&String::from_utf8_lossy(&text));
}

/// Returns whether a byte needs no escape in JSON, in JSON inside a string, and in Go's JSON.
fn is_plain(byte: u8) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut byte = b' ';
        while byte <= b'~' {
            plain[byte as usize] = !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&');
            byte += 1;
        }
        plain
    };
    PLAIN[usize::from(byte)]
}

/// Appends a string as JSON. Names and keys rarely need escapes, and this runs for every list item of every write.
fn push_text(text: &str, out: &mut String) {
    if text.bytes().all(is_plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&go_text::json(&Value::String(text.into())));
    }
}

/// The error for a key of `fieldsV1` that is not a path element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedPath;

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => {
                for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
                    let order = name_a.cmp(name_b).then_with(|| compare(value_a, value_b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Element::Value(a), Element::Value(b)) => compare(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// As in messages of conflicts: `.spec`, `[name="c"]`, `[="x"]`, `[3]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", show(value))?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={}]", show(value)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quote(text),
        Value::Number(number) => go_text::number(number),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
    }
}

/// Compares in one order of all values: numbers by amount, then strings, booleans, lists, maps, null.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) | Value::Raw(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let order = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| *order != Ordering::Equal);
            order.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let sorted = |map: &machinery::json::Map| {
                let mut entries: Vec<_> = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                entries
            };
            Element::Key(sorted(a)).cmp(&Element::Key(sorted(b)))
        }
        (Value::Raw(_), _) | (_, Value::Raw(_)) => compare(&a.parsed(), &b.parsed()),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Returns whether two values are equal, numbers by amount.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn elements_read_back_as_written() {
        for text in
            ["f:spec", r#"k:{"name":"c"}"#, r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"v:"a""#, "v:1", "i:3"]
        {
            assert_eq!(Element::decode(text).unwrap().unwrap().encode(), text);
        }
        assert_eq!(Element::decode("x:future"), Ok(None));
        for malformed in ["", "f", "spec", "k:[]", "v:{", "i:x"] {
            assert_eq!(Element::decode(malformed), Err(MalformedPath), "{malformed}");
        }
    }

    #[test]
    fn conflicts_name_them_so() {
        let ports = Element::Key(vec![("containerPort".into(), json!(80)), ("protocol".into(), json!("TCP"))]);
        assert_eq!(ports.to_string(), r#"[containerPort=80,protocol="TCP"]"#);
        assert_eq!(Element::Value(json!("a")).to_string(), r#"[="a"]"#);
        assert_eq!(Element::field("a.b/c").to_string(), ".a.b/c");
    }

    #[test]
    fn one_is_one_however_written() {
        assert!(equal(&json!({"a": [1]}), &json!({"a": [1.0]})));
        assert!(!equal(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }
}
