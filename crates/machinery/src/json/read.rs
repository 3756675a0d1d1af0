//! Values from text, and from anything else that serde reads.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

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

/// Reads values and notes whether a name stood twice in a map.
pub(crate) struct Reader<'a> {
    pub(crate) duplicates: &'a mut bool,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader { duplicates: &mut false }.deserialize(deserializer)
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

/// As [`from_slice`], with whether some map had a member twice.
pub fn from_slice_noting(text: &[u8]) -> Result<(Value, bool), serde_json::Error> {
    let mut duplicates = false;
    let reader = Reader { duplicates: &mut duplicates };
    let value = match std::str::from_utf8(text) {
        Ok(text) => whole(serde_json::Deserializer::from_str(text), reader),
        Err(_) => whole(serde_json::Deserializer::from_slice(text), reader),
    }?;
    Ok((value, duplicates))
}

fn whole<'de, R: serde_json::de::Read<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
    reader: Reader<'_>,
) -> Result<Value, serde_json::Error> {
    let value = reader.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
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
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Reader { duplicates: self.duplicates })? {
            list.push(item);
        }
        Ok(Value::Array(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key_seed(Name)? {
            let value = members.next_value_seed(Reader { duplicates: self.duplicates })?;
            if map.insert(name, value).is_some() {
                *self.duplicates = true;
            }
        }
        Ok(Value::Object(map))
    }
}

/// The name of a member: short ones need no memory of their own.
struct Name;

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
