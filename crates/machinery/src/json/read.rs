//! Parsing of JSON text, and conversion from anything else that serde deserialises.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::check::check_parses;
use super::map::SCANNED_MAX;
use super::{Map, Number, Text, Value};

/// Parses JSON text. The last of several members of one name counts.
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

/// Parses all of an object in the form of the store, but for `fieldsV1` of its managers.
pub(super) fn stored_object(text: &[u8]) -> Result<Value, serde_json::Error> {
    parse(text, Position::Object).map(|(value, _)| value)
}

/// Parses the metadata of an object in the form of the store.
pub(super) fn stored_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Reader { state: &mut ReadState::default(), position: Position::Metadata }.deserialize(deserializer)
}

/// As [`from_slice`]; also returns whether some map has two members of one name.
pub fn from_slice_noting_duplicates(text: &[u8]) -> Result<(Value, bool), serde_json::Error> {
    parse(text, Position::Elsewhere)
}

fn parse(text: &[u8], position: Position) -> Result<(Value, bool), serde_json::Error> {
    let mut state = ReadState::default();
    let reader = Reader { state: &mut state, position };
    // Checking the whole text at once is cheaper than each string in it.
    let value = match std::str::from_utf8(text) {
        Ok(text) => parse_whole(serde_json::Deserializer::from_str(text), reader),
        Err(_) => parse_whole(serde_json::Deserializer::from_slice(text), reader),
    }?;
    Ok((value, state.duplicates))
}

fn parse_whole<'de, R: serde_json::de::Read<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
    reader: Reader<'_>,
) -> Result<Value, serde_json::Error> {
    let value = reader.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader { state: &mut ReadState::default(), position: Position::Elsewhere }.deserialize(deserializer)
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

/// The position of a value in an object, as far as it is needed to find the text that stays unparsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Object,
    Metadata,
    Managers,
    Manager,
    Fields,
    Elsewhere,
}

impl Position {
    fn member(self, name: &str) -> Position {
        match (self, name) {
            (Position::Object, "metadata") => Position::Metadata,
            (Position::Metadata, "managedFields") => Position::Managers,
            (Position::Manager, "fieldsV1") => Position::Fields,
            _ => Position::Elsewhere,
        }
    }

    fn item(self) -> Position {
        if self == Position::Managers { Position::Manager } else { Position::Elsewhere }
    }
}

/// State shared by the readers of one text.
#[derive(Default)]
struct ReadState {
    /// Some map has two members of one name.
    duplicates: bool,
    /// Members and items of the containers that are still open. Each container is allocated once, at its final size.
    members: Vec<(Text, Value)>,
    items: Vec<Value>,
}

struct Reader<'a> {
    state: &'a mut ReadState,
    position: Position,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.position == Position::Fields {
            let text = <&serde_json::value::RawValue>::deserialize(deserializer)?;
            check_parses(text.get()).map_err(D::Error::custom)?;
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
        let (from, position) = (self.state.items.len(), self.position.item());
        while let Some(item) = items.next_element_seed(Reader { state: self.state, position })? {
            self.state.items.push(item);
        }
        Ok(Value::Array(self.state.items.drain(from..).collect()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Reader { state, position } = self;
        let from = state.members.len();
        while let Some(name) = members.next_key_seed(MemberName)? {
            let position = position.member(&name);
            let value = members.next_value_seed(Reader { state, position })?;
            // Up to `SCANNED_MAX` names are compared one by one, more of them with a hash index at the end.
            if state.members.len() - from < SCANNED_MAX
                && let Some((_, before)) = state.members[from..].iter_mut().find(|(known, _)| *known == name)
            {
                *before = value;
                state.duplicates = true;
                continue;
            }
            state.members.push((name, value));
        }
        let count = state.members.len() - from;
        let all = state.members.drain(from..);
        if count <= SCANNED_MAX {
            return Ok(Value::Object(Map::from_distinct(all.collect())));
        }
        let map: Map = all.collect();
        state.duplicates |= map.len() < count;
        Ok(Value::Object(map))
    }
}

/// Deserialises the name of a member; short ones need no allocation.
pub(super) struct MemberName;

impl<'de> DeserializeSeed<'de> for MemberName {
    type Value = Text;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberName {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Text, E> {
        Ok(Text::new(name))
    }
}
