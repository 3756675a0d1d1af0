//! Conversion from and to Rust values.

use std::borrow::Cow;

use super::{List, Map, Number, Text, Value};

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

macro_rules! from_numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for Value {
            fn from(number: $number) -> Self {
                Value::Number(number.into())
            }
        })*
    };
}

from_numbers!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize Number);

/// Infinite and NaN become null: JSON has no such numbers.
impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Number::from_f64(number).map_or(Value::Null, Value::Number)
    }
}

macro_rules! from_texts {
    ($($text:ty)*) => {
        $(impl From<$text> for Value {
            fn from(text: $text) -> Self {
                Value::String(text.into())
            }
        })*
    };
}

from_texts!(&str String &String Text Cow<'_, str>);

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Value::Object(map)
    }
}

impl From<List> for Value {
    fn from(list: List) -> Self {
        Value::Array(list)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Value {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        Value::Object(members.into_iter().collect())
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::String(text.into()),
            serde_json::Value::Array(items) => Value::from(items),
            serde_json::Value::Object(members) => {
                let members = members.into_iter().map(|(name, value)| (name.into(), value.into()));
                Value::Object(Map::from_distinct(members.collect()))
            }
        }
    }
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => serde_json::Value::Bool(value),
            Value::Number(number) => serde_json::Value::Number(number),
            Value::String(text) => serde_json::Value::String(text.into()),
            raw @ Value::Raw(_) => raw.parsed().into_owned().into(),
            Value::Array(items) => items.into_iter().map(serde_json::Value::from).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (String::from(name), serde_json::Value::from(value))).collect()
            }
        }
    }
}
