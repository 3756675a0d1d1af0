//! Parts of a stored object that stay text until first use, and are written again as that text.
//!
//! Most writes change a few members of an object and leave the rest as it is. The rest is then neither parsed nor
//! serialised: a large map inside a stored object is kept as a slice of the object's text and parsed, one level deep, when
//! its members are first used.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::check::check_parses;
use super::map::{Members, hints};
use super::read::{self, MemberName};
use super::{Map, Text, Value, from_slice};
use crate::encoded::Malformed;
use crate::scan::Scan;

/// Parts up to this size are parsed at once, which costs less than coming back for them.
const PARSED_AT_ONCE_MAX: usize = 384;

/// Parts nested deeper than this are parsed at once too, by a parser that limits the nesting itself.
const NESTED_MAX: u8 = 64;

/// A map that is text until its members are first used.
pub(super) struct Unread {
    /// Was checked to parse, as a whole or as part of a larger text. See [`check_parses`].
    text: Bytes,
    depth: u8,
    members: OnceLock<Arc<Members>>,
}

impl Unread {
    pub(super) fn text(&self) -> &Bytes {
        &self.text
    }

    pub(super) fn members(&self) -> &Arc<Members> {
        self.members.get_or_init(|| {
            let level = Level { text: &self.text, depth: self.depth.saturating_add(1) };
            // An empty map in place of what cannot be parsed would be written as such, and the data lost.
            Arc::new(level.members().expect("a stored object is checked before its parts are kept as text").into())
        })
    }

    pub(super) fn into_members(self) -> Arc<Members> {
        Arc::clone(self.members())
    }

    /// Returns the members if they have been parsed already.
    pub(super) fn parsed_members(&self) -> Option<&Arc<Members>> {
        self.members.get()
    }
}

/// Parses an object in the form of the store, as [`from_slice`] does, but lazily: `fieldsV1` of its managers, which is a
/// third of the text and which few writes use, stays text ([`Value::Raw`]), and large maps outside of its metadata stay text
/// until first use.
///
/// Fails if any part of the object cannot be parsed, whether or not it stays text.
pub fn from_stored(text: &Bytes) -> Result<Value, serde_json::Error> {
    let plain = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
    // `RawValue` accepts half of a surrogate pair: a text with such escapes is parsed as a whole. They are rare.
    if memchr::memmem::find(text, b"\\u").is_some() {
        return read::stored_object(text);
    }
    let mut deserializer = serde_json::Deserializer::from_str(plain);
    let members = deserializer.deserialize_map(StoredObject(Level { text, depth: 0 }))?;
    deserializer.end()?;
    Ok(Value::Object(Map::from_distinct(members)))
}

impl Value {
    /// Serialises a map and keeps the text with it: an unchanged copy is written as that text.
    #[must_use]
    pub fn keeping_text(self) -> Value {
        let Value::Object(map) = self else { return self };
        let mut text = Vec::with_capacity(1024);
        super::write(&Value::Object(map.clone()), &mut text);
        let members = OnceLock::from(map.into_shared_members());
        Value::Object(Map::unread(Unread { text: text.into(), depth: 0, members }))
    }
}

struct StoredObject<'a>(Level<'a>);

impl<'de> Visitor<'de> for StoredObject<'_> {
    type Value = Vec<(Text, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut all: Vec<(Text, Value)> = Vec::with_capacity(8);
        while let Some(name) = members.next_key_seed(MemberName)? {
            let value = if name == "metadata" {
                members.next_value_seed(StoredMetadata)?
            } else {
                let raw = members.next_value::<&RawValue>()?.get();
                if raw.len() > PARSED_AT_ONCE_MAX {
                    check_parses(raw).map_err(A::Error::custom)?;
                }
                self.0.value(raw.as_bytes()).map_err(A::Error::custom)?
            };
            all.push((name, value));
        }
        Ok(distinct(all))
    }
}

struct StoredMetadata;

impl<'de> DeserializeSeed<'de> for StoredMetadata {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        read::stored_metadata(deserializer)
    }
}

/// Parses one level of a text: the names, and the values that are small.
#[derive(Clone, Copy)]
struct Level<'a> {
    text: &'a Bytes,
    depth: u8,
}

impl Level<'_> {
    /// Returns the members of a map that is the whole text.
    fn members(self) -> Result<Vec<(Text, Value)>, serde_json::Error> {
        let mut scan = Scan::new(self.text);
        scan.expect(b'{').map_err(malformed)?;
        let mut all: Vec<(Text, Value)> = Vec::with_capacity(8);
        while let Some(name) = scan.member(all.is_empty()).map_err(malformed)? {
            all.push((member_name(name)?, self.value(scan.value().map_err(malformed)?)?));
        }
        Ok(distinct(all))
    }

    fn value(self, raw: &[u8]) -> Result<Value, serde_json::Error> {
        let is_large = raw.len() > PARSED_AT_ONCE_MAX && self.depth < NESTED_MAX;
        match raw.first() {
            Some(b'{') if is_large => {
                let (text, depth) = (self.text.slice_ref(raw), self.depth);
                Ok(Value::Object(Map::unread(Unread { text, depth, members: OnceLock::new() })))
            }
            Some(b'[') if is_large => Level { depth: self.depth + 1, ..self }.items(raw),
            _ => from_slice(raw),
        }
    }

    fn items(self, raw: &[u8]) -> Result<Value, serde_json::Error> {
        let mut scan = Scan::new(raw);
        scan.expect(b'[').map_err(malformed)?;
        let mut all = Vec::new();
        while scan.item(all.is_empty()).map_err(malformed)? {
            all.push(self.value(scan.value().map_err(malformed)?)?);
        }
        Ok(Value::Array(all.into()))
    }
}

fn malformed(malformed: Malformed) -> serde_json::Error {
    serde_json::Error::custom(malformed)
}

/// Decodes a member name from between its quotes.
fn member_name(name: &[u8]) -> Result<Text, serde_json::Error> {
    match std::str::from_utf8(name) {
        Ok(name) if !name.contains('\\') => Ok(Text::new(name)),
        _ => serde_json::from_slice::<String>(&[b"\"", name, b"\""].concat()).map(Text::from),
    }
}

/// Keeps the last of several members of one name. The store's own texts have no such names.
fn distinct(members: Vec<(Text, Value)>) -> Vec<(Text, Value)> {
    // With as many hints as names, all names differ.
    if hints(&members).count_ones() as usize == members.len() {
        return members;
    }
    members.into_iter().collect::<Map>().into_iter().collect()
}
