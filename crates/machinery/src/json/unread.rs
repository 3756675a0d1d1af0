//! Parts of a stored object that nobody has looked into yet: text until the first look, and written again as that text.
//!
//! Most writes change a few members of an object and leave the rest alone. What they leave alone is then neither read nor
//! made into text again: a large map inside of a stored object is kept as the slice of the text it stands in, and reads
//! itself, one level deep, when somebody asks for its members.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::map::{Members, hints};
use super::read::{self, Name};
use super::{Map, Text, Value, from_slice};
use crate::encoded::Malformed;
use crate::scan::Scan;

/// Smaller parts are read at once: that costs less than to come back for them.
const AT_ONCE_MAX: usize = 384;

/// Parts below this many others are read at once too, by a reader that has a limit of its own for what is nested.
const NESTED_MAX: u8 = 64;

/// A map that is text as long as nobody asks for its members.
pub(super) struct Unread {
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
            let part = Part { whole: &self.text, depth: self.depth.saturating_add(1) };
            // The reader of the whole has seen that it is JSON; a number beyond all bounds could still fail it.
            Arc::new(part.members().unwrap_or_default().into())
        })
    }

    pub(super) fn into_members(self) -> Arc<Members> {
        self.members();
        self.members.into_inner().unwrap_or_default()
    }

    /// The members, if somebody has asked for them.
    pub(super) fn read_members(&self) -> Option<&Arc<Members>> {
        self.members.get()
    }
}

/// As [`from_slice`], of an object in the form of the store. `fieldsV1` of its managers, which is a third of a text and
/// which few writes look into, stays text ([`Value::Raw`]); large maps outside of its metadata stay text until the first
/// look.
pub fn from_stored(text: &Bytes) -> Result<Value, serde_json::Error> {
    let plain = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
    // What is stepped over is checked but for half of a character in two escapes: with escapes everything is read.
    if memchr::memmem::find(text, b"\\u").is_some() {
        return read::whole_object(text);
    }
    let mut deserializer = serde_json::Deserializer::from_str(plain);
    let members = deserializer.deserialize_map(Whole(Part { whole: text, depth: 0 }))?;
    deserializer.end()?;
    Ok(Value::Object(Map::of_distinct(members)))
}

impl Value {
    /// The same value. A map keeps the text that is made of it here, and is written as that for as long as nobody changes it.
    #[must_use]
    pub fn keeping_text(self) -> Value {
        let Value::Object(map) = self else { return self };
        let mut text = Vec::with_capacity(1024);
        super::write(&Value::Object(map.clone()), &mut text);
        let members = OnceLock::from(map.into_shared_members());
        Value::Object(Map::unread(Unread { text: text.into(), depth: 0, members }))
    }
}

struct Whole<'a>(Part<'a>);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Vec<(Text, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut all: Vec<(Text, Value)> = Vec::with_capacity(8);
        while let Some(name) = members.next_key_seed(Name)? {
            let value = if name == "metadata" {
                members.next_value_seed(Metadata)?
            } else {
                let raw = members.next_value::<&RawValue>()?.get();
                self.0.value(raw.as_bytes()).map_err(A::Error::custom)?
            };
            all.push((name, value));
        }
        Ok(distinct(all))
    }
}

struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        read::metadata(deserializer)
    }
}

/// One level of a text: names, and of values what is small.
#[derive(Clone, Copy)]
struct Part<'a> {
    whole: &'a Bytes,
    depth: u8,
}

impl Part<'_> {
    /// The members of a map that is the whole text.
    fn members(self) -> Result<Vec<(Text, Value)>, serde_json::Error> {
        let mut scan = Scan::new(self.whole);
        scan.expect(b'{').map_err(malformed)?;
        let mut all: Vec<(Text, Value)> = Vec::with_capacity(8);
        while let Some(name) = scan.member(all.is_empty()).map_err(malformed)? {
            all.push((text(name)?, self.value(scan.value().map_err(malformed)?)?));
        }
        Ok(distinct(all))
    }

    fn value(self, raw: &[u8]) -> Result<Value, serde_json::Error> {
        let is_large = raw.len() > AT_ONCE_MAX && self.depth < NESTED_MAX;
        match raw.first() {
            Some(b'{') if is_large => {
                let (text, depth) = (self.whole.slice_ref(raw), self.depth);
                Ok(Value::Object(Map::unread(Unread { text, depth, members: OnceLock::new() })))
            }
            Some(b'[') if is_large => Part { depth: self.depth + 1, ..self }.items(raw),
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

/// A name from between its quotes.
fn text(name: &[u8]) -> Result<Text, serde_json::Error> {
    match std::str::from_utf8(name) {
        Ok(name) if !name.contains('\\') => Ok(Text::new(name)),
        _ => serde_json::from_slice::<String>(&[b"\"", name, b"\""].concat()).map(Text::from),
    }
}

/// Each name once: the last of several members counts. The store's own texts have no such names.
fn distinct(members: Vec<(Text, Value)>) -> Vec<(Text, Value)> {
    // As many hints as names: then they differ.
    if hints(&members).count_ones() as usize == members.len() {
        return members;
    }
    members.into_iter().collect::<Map>().into_iter().collect()
}
