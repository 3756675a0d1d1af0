//! An object's canonical JSON: encoded once when its write commits, shared by every reader afterwards.
//!
//! The store keeps the text *without* a resourceVersion, because the revision is not known until the write commits:
//!
//! ```text
//! {"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"…","creationTimestamp":…},"spec":…}
//! ```
//!
//! [`Encoded::from_stored`] inserts the revision after `uid`, where clients are used to seeing it, in one copy. Readers use
//! slices of that one buffer: the whole object for GET and watch events; for the items of a built-in kind's list, which
//! omit kind and apiVersion, `{` and everything from `"metadata"` on.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::Revision;
use crate::json::{self, Map, Value};

/// Members of `metadata` that precede `resourceVersion`.
const BEFORE_REVISION: [&str; 5] = ["name", "generateName", "namespace", "selfLink", "uid"];

/// The error for stored text that this project did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stored object is not in canonical form")
    }
}

impl std::error::Error for Malformed {}

/// The canonical JSON of one object at one revision.
#[derive(Clone, Debug)]
pub struct Encoded {
    json: Bytes,
    /// Offset of `"metadata":{`.
    metadata_at: u32,
}

impl Encoded {
    /// Encodes a stored text at the revision of its write. One allocation, one copy.
    pub fn from_stored(stored: &[u8], revision: Revision) -> Result<Self, Malformed> {
        let (metadata_at, splice_at) = layout(stored)?;
        let mut number = [0_u8; 24];
        let number = decimal(&mut number, revision.0);
        let leading_comma = stored[splice_at - 1] != b'{';
        let trailing_comma = stored[splice_at] != b'}' && !leading_comma;
        let mut json = Vec::with_capacity(stored.len() + number.len() + 22);
        json.extend_from_slice(&stored[..splice_at]);
        if leading_comma {
            json.push(b',');
        }
        json.extend_from_slice(b"\"resourceVersion\":\"");
        json.extend_from_slice(number);
        json.push(b'"');
        if trailing_comma {
            json.push(b',');
        }
        json.extend_from_slice(&stored[splice_at..]);
        Ok(Encoded { json: json.into(), metadata_at: u32::try_from(metadata_at).map_err(|_| Malformed)? })
    }

    /// Wraps an object that already has its revision, such as a converted one.
    pub fn from_whole(json: Bytes) -> Result<Self, Malformed> {
        let (metadata_at, _) = layout(&json)?;
        Ok(Encoded { json, metadata_at: u32::try_from(metadata_at).map_err(|_| Malformed)? })
    }

    /// Returns the metadata object alone, `{…}`.
    pub fn metadata(&self) -> Result<Bytes, Malformed> {
        let from = self.metadata_at as usize + b"\"metadata\":".len();
        let to = object_end(&self.json, from)?;
        Ok(self.json.slice(from..to))
    }

    /// Returns the same object at another revision.
    #[must_use]
    pub fn with_revision(&self, revision: Revision) -> Self {
        const BEFORE: &[u8] = b"\"resourceVersion\":\"";
        // `from_stored` wrote it, so it exists, and nothing before it can contain an unescaped quote of that form.
        let from = memchr::memmem::find(&self.json[self.metadata_at as usize..], BEFORE)
            .map(|at| self.metadata_at as usize + at + BEFORE.len())
            .expect("an encoded object carries its revision");
        let to = from + memchr::memchr(b'"', &self.json[from..]).expect("a JSON string ends");
        let mut number = [0_u8; 24];
        let number = decimal(&mut number, revision.0);
        let json = [&self.json[..from], number, &self.json[to..]].concat();
        Encoded { json: json.into(), metadata_at: self.metadata_at }
    }

    /// Returns the object with kind and apiVersion.
    #[must_use]
    pub fn whole(&self) -> &Bytes {
        &self.json
    }

    /// Returns everything from `"metadata"` to the end: a list item without kind and apiVersion is `{` and this.
    #[must_use]
    pub fn tail(&self) -> Bytes {
        self.json.slice(self.metadata_at as usize..)
    }
}

/// Finds the offset of `"metadata"` and the one at which the resourceVersion belongs (a comma, a brace, or right after `{`).
fn layout(stored: &[u8]) -> Result<(usize, usize), Malformed> {
    let mut at = expect(stored, 0, b"{\"kind\":")?;
    at = string_end(stored, at)?;
    at = expect(stored, at, b",\"apiVersion\":")?;
    at = string_end(stored, at)?;
    let metadata_at = expect(stored, at, b",")?;
    at = expect(stored, metadata_at, b"\"metadata\":{")?;
    loop {
        let member_at = if stored.get(at) == Some(&b',') { at + 1 } else { at };
        let Some(name) = BEFORE_REVISION.iter().find(|name| {
            stored.get(member_at) == Some(&b'"')
                && stored[member_at + 1..].starts_with(name.as_bytes())
                && stored[member_at + 1 + name.len()..].starts_with(b"\":")
        }) else {
            break;
        };
        at = string_end(stored, member_at + name.len() + 3)?;
    }
    if at >= stored.len() { Err(Malformed) } else { Ok((metadata_at, at)) }
}

fn expect(text: &[u8], at: usize, what: &[u8]) -> Result<usize, Malformed> {
    if text.get(at..).is_some_and(|rest| rest.starts_with(what)) { Ok(at + what.len()) } else { Err(Malformed) }
}

/// Returns the index after the JSON string that begins at `at`.
fn string_end(text: &[u8], at: usize) -> Result<usize, Malformed> {
    if text.get(at) != Some(&b'"') {
        return Err(Malformed);
    }
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..).ok_or(Malformed)?).ok_or(Malformed)?;
        if text[at] == b'"' {
            return Ok(at + 1);
        }
        at += 2;
    }
}

/// Returns the index after the JSON object that begins at `at`.
fn object_end(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    let mut depth = 0_usize;
    loop {
        at += memchr::memchr3(b'"', b'{', b'}', text.get(at..).ok_or(Malformed)?).ok_or(Malformed)?;
        match text[at] {
            b'"' => at = string_end(text, at)?,
            b'{' => {
                depth += 1;
                at += 1;
            }
            _ => {
                depth = depth.checked_sub(1).ok_or(Malformed)?;
                at += 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
        }
    }
}

fn decimal(buffer: &mut [u8; 24], mut number: u64) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

/// Writes an object in the form of the store: kind, apiVersion and metadata first, no resourceVersion.
///
/// Members of metadata that precede the resourceVersion are written first; the rest keep their order.
#[must_use]
pub fn to_stored(object: &Map) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(b"{\"kind\":");
    json::write(object.get("kind").unwrap_or(&Value::Null), &mut out);
    out.extend_from_slice(b",\"apiVersion\":");
    json::write(object.get("apiVersion").unwrap_or(&Value::Null), &mut out);
    out.extend_from_slice(b",\"metadata\":{");
    if let Some(Value::Object(metadata)) = object.get("metadata") {
        let mut first = true;
        let mut member = |out: &mut Vec<u8>, name: &str, value: &Value| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            json::write_text(name, out);
            out.push(b':');
            json::write(value, out);
        };
        for name in BEFORE_REVISION {
            if let Some(value @ Value::String(_)) = metadata.get(name) {
                member(&mut out, name, value);
            }
        }
        for (name, value) in metadata {
            if name != "resourceVersion" && !BEFORE_REVISION.contains(&name.as_str()) {
                member(&mut out, name, value);
            }
        }
    }
    out.push(b'}');
    for (name, value) in object {
        if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
            out.push(b',');
            json::write_text(name, &mut out);
            out.push(b':');
            json::write(value, &mut out);
        }
    }
    out.push(b'}');
    out
}

/// Returns the head of a JSON list of a kind: everything up to and including `"items":[`.
#[must_use]
pub fn list_head(
    list_kind: &str,
    api_version: &str,
    revision: Revision,
    continue_token: Option<&str>,
    remaining: Option<u64>,
) -> String {
    let mut head = format!(
        r#"{{"kind":{},"apiVersion":{},"metadata":{{"resourceVersion":"{revision}""#,
        quote(list_kind),
        quote(api_version)
    );
    if let Some(token) = continue_token {
        let _ = write!(head, r#","continue":{}"#, quote(token));
    }
    if let Some(remaining) = remaining {
        let _ = write!(head, r#","remainingItemCount":{remaining}"#);
    }
    head.push_str(r#"},"items":["#);
    head
}

/// Returns a string as JSON.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write_text(text, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

#[cfg(test)]
mod tests {
    use crate::json::json;

    use super::*;

    fn stored(value: &Value) -> Vec<u8> {
        to_stored(value.as_object().unwrap())
    }

    #[track_caller]
    fn check(object: &Value, want: &str) {
        let encoded = Encoded::from_stored(&stored(object), Revision(17)).unwrap();
        assert_eq!(std::str::from_utf8(encoded.whole()).unwrap(), want);
        let item = [b"{", &encoded.tail()[..]].concat();
        let mut whole: Value = serde_json::from_str(want).unwrap();
        whole.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
        assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), whole);
    }

    #[test]
    fn the_revision_stands_behind_the_uid() {
        check(
            &json!({"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"},"uid":"u","resourceVersion":"3","name":"n"},"spec":{}}),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"17","labels":{"a":"b"}},"spec":{}}"#,
        );
    }

    #[test]
    fn odd_metadata_still_takes_a_revision() {
        check(
            &json!({"kind":"K","apiVersion":"g/v1"}),
            r#"{"kind":"K","apiVersion":"g/v1","metadata":{"resourceVersion":"17"}}"#,
        );
        check(
            &json!({"kind":"K","apiVersion":"v1","metadata":{"labels":{}}}),
            r#"{"kind":"K","apiVersion":"v1","metadata":{"resourceVersion":"17","labels":{}}}"#,
        );
        check(
            &json!({"kind":"K","apiVersion":"v1","metadata":{"name":"a\"b\\"}}),
            r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"a\"b\\","resourceVersion":"17"}}"#,
        );
    }

    #[test]
    fn metadata_alone_is_a_slice() {
        let object =
            json!({"kind":"K","apiVersion":"v1","metadata":{"name":"n","labels":{"a":"}\\\"{"}},"data":{"b":"}"}});
        let encoded = Encoded::from_stored(&stored(&object), Revision(9)).unwrap();
        let metadata: Value = serde_json::from_slice(&encoded.metadata().unwrap()).unwrap();
        assert_eq!(metadata, json!({"name":"n","resourceVersion":"9","labels":{"a":"}\\\"{"}}));
        let again = Encoded::from_whole(encoded.whole().clone()).unwrap();
        assert_eq!(again.tail(), encoded.tail());
    }

    #[test]
    fn a_revision_can_be_replaced() {
        let object = json!({"kind":"K","apiVersion":"v1","metadata":{"name":"n","uid":"u","labels":{}},"data":{"resourceVersion":"5"}});
        let stored = stored(&object);
        let again = Encoded::from_stored(&stored, Revision(9)).unwrap().with_revision(Revision(1234));
        assert_eq!(again.whole(), Encoded::from_stored(&stored, Revision(1234)).unwrap().whole());
        assert_eq!(again.tail(), Encoded::from_stored(&stored, Revision(1234)).unwrap().tail());
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in ["", "{}", "[]", r#"{"kind":"Pod"}"#, r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"#] {
            assert!(Encoded::from_stored(text.as_bytes(), Revision(1)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_head_opens_a_list() {
        let head = list_head("PodList", "v1", Revision(9), Some("tok"), Some(2));
        let list: Value = serde_json::from_str(&format!("{head}]}}")).unwrap();
        assert_eq!(
            list,
            json!({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"tok","remainingItemCount":2},"items":[]})
        );
    }
}
