//! Values from text, and from anything else that serde reads.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::map::SCANNED_MAX;
use super::{Map, Number, Text, Value};

/// The value of a JSON text. The last of several members of one name counts.
pub fn from_slice(text: &[u8]) -> Result<Value, serde_json::Error> {
    // Checking the whole text at once is cheaper than each string in it.
    match std::str::from_utf8(text) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(text),
    }
}

/// As [`from_slice`].
pub fn from_str(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

/// As [`super::from_stored`], with all of it read.
pub(super) fn whole_object(text: &[u8]) -> Result<Value, serde_json::Error> {
    read(text, Place::Object).map(|(value, _)| value)
}

/// The metadata of an object in the form of the store.
pub(super) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Reader { notes: &mut Notes::default(), place: Place::Metadata }.deserialize(deserializer)
}

/// As [`from_slice`], with whether some map had a member twice.
pub fn from_slice_noting(text: &[u8]) -> Result<(Value, bool), serde_json::Error> {
    read(text, Place::Elsewhere)
}

fn read(text: &[u8], place: Place) -> Result<(Value, bool), serde_json::Error> {
    let mut notes = Notes::default();
    let reader = Reader { notes: &mut notes, place };
    // Checking the whole text at once is cheaper than each string in it.
    let value = match std::str::from_utf8(text) {
        Ok(text) => whole(serde_json::Deserializer::from_str(text), reader),
        Err(_) => whole(serde_json::Deserializer::from_slice(text), reader),
    }?;
    Ok((value, notes.duplicates))
}

fn whole<'de, R: serde_json::de::Read<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
    reader: Reader<'_>,
) -> Result<Value, serde_json::Error> {
    let value = reader.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader { notes: &mut Notes::default(), place: Place::Elsewhere }.deserialize(deserializer)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Object(map) => Ok(map),
            _ => Err(D::Error::custom("not a map")),
        }
    }
}

/// Where a reader stands, as far as it must know to find the text it leaves alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Metadata,
    Managers,
    Manager,
    Fields,
    Elsewhere,
}

impl Place {
    fn member(self, name: &str) -> Place {
        match (self, name) {
            (Place::Object, "metadata") => Place::Metadata,
            (Place::Metadata, "managedFields") => Place::Managers,
            (Place::Manager, "fieldsV1") => Place::Fields,
            _ => Place::Elsewhere,
        }
    }

    fn item(self) -> Place {
        if self == Place::Managers { Place::Manager } else { Place::Elsewhere }
    }
}

/// What is common to the reading of one text.
#[derive(Default)]
struct Notes {
    /// Some map had a member twice.
    duplicates: bool,
    /// Members and items of the containers that are not at their end yet, so that each gets memory once, of the right size.
    members: Vec<(Text, Value)>,
    items: Vec<Value>,
}

struct Reader<'a> {
    notes: &'a mut Notes,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.place == Place::Fields {
            let text = <&serde_json::value::RawValue>::deserialize(deserializer)?;
            return Ok(Value::Raw(text.get().into()));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(Text::new(value)))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let (from, place) = (self.notes.items.len(), self.place.item());
        while let Some(item) = items.next_element_seed(Reader { notes: self.notes, place })? {
            self.notes.items.push(item);
        }
        Ok(Value::Array(self.notes.items.drain(from..).collect()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Reader { notes, place } = self;
        let from = notes.members.len();
        while let Some(name) = members.next_key_seed(Name)? {
            let place = place.member(&name);
            let value = members.next_value_seed(Reader { notes, place })?;
            // Few names are compared with each other at once, many all together at the end.
            if notes.members.len() - from < SCANNED_MAX
                && let Some((_, before)) = notes.members[from..].iter_mut().find(|(known, _)| *known == name)
            {
                *before = value;
                notes.duplicates = true;
                continue;
            }
            notes.members.push((name, value));
        }
        let count = notes.members.len() - from;
        let all = notes.members.drain(from..);
        if count <= SCANNED_MAX {
            return Ok(Value::Object(Map::of_distinct(all.collect())));
        }
        let map: Map = all.collect();
        notes.duplicates |= map.len() < count;
        Ok(Value::Object(map))
    }
}

/// The name of a member: short ones need no memory of their own.
pub(super) struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Text;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Text, E> {
        Ok(Text::new(name))
    }
}
