//! Equality of values, with each other and with Rust values.

use std::hash::{Hash, Hasher};

use super::{List, Map, Text, Value};

impl Value {
    /// Returns whether two values are equal and their members are in the same order.
    #[must_use]
    pub fn is_identical(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Array(a), Value::Array(b)) => {
                a.is_same(b) || (a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_identical(b)))
            }
            (Value::Object(a), Value::Object(b)) => {
                let same = |((name_a, a), (name_b, b)): ((&Text, &Value), (&Text, &Value))| {
                    name_a == name_b && a.is_identical(b)
                };
                a.is_same(b) || (a.len() == b.len() && a.iter().zip(b).all(same))
            }
            (Value::Raw(a), Value::Raw(b)) => a == b,
            (Value::Raw(text), other) | (other, Value::Raw(text)) => **text == *other.to_string(),
            _ => self == other,
        }
    }

    /// Returns whether both are the same list or map in memory, and so identical.
    #[must_use]
    pub fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Array(a), Value::Array(b)) => a.is_same(b),
            (Value::Object(a), Value::Object(b)) => a.is_same(b),
            _ => false,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => a == b,
            // Both were written by this crate, which has one form for each value.
            (Value::Raw(a), Value::Raw(b)) => a == b,
            (Value::Raw(_), _) | (_, Value::Raw(_)) => *self.parsed() == *other.parsed(),
            _ => false,
        }
    }
}

impl Eq for Value {}

/// Equal values have equal hashes, so that long lists of values are searched by hash.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Value::Raw(_) = self {
            return self.parsed().hash(state);
        }
        std::mem::discriminant(self).hash(state);
        match self {
            Value::Null | Value::Raw(_) => {}
            Value::Bool(value) => value.hash(state),
            Value::Number(number) => number.hash(state),
            Value::String(text) => text.hash(state),
            Value::Array(items) => {
                items.len().hash(state);
                items.iter().for_each(|item| item.hash(state));
            }
            Value::Object(members) => {
                members.len().hash(state);
                let mut sorted: Vec<(&Text, &Value)> = members.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                sorted.hash(state);
            }
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl Eq for List {}

/// The order of the members does not matter.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        if self.is_same(other) {
            return true;
        }
        if self.len() != other.len() {
            return false;
        }
        self.iter().enumerate().all(|(at, (name, value))| match other.get_index(at) {
            Some((there, other)) if there == name => value == other,
            _ => other.get(name).is_some_and(|other| value == other),
        })
    }
}

impl Eq for Map {}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(*other)
    }
}

impl PartialEq<String> for Value {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == Some(other.as_str())
    }
}

impl PartialEq<Value> for str {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

impl PartialEq<Value> for &str {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

impl PartialEq<Value> for String {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

impl PartialEq<bool> for Value {
    fn eq(&self, other: &bool) -> bool {
        self.as_bool() == Some(*other)
    }
}

impl PartialEq<f64> for Value {
    fn eq(&self, other: &f64) -> bool {
        self.as_f64() == Some(*other)
    }
}

macro_rules! equal_to_numbers {
    ($($signed:ty)* ; $($unsigned:ty)*) => {
        $(impl PartialEq<$signed> for Value {
            fn eq(&self, other: &$signed) -> bool {
                self.as_i64() == i64::try_from(*other).ok()
            }
        })*
        $(impl PartialEq<$unsigned> for Value {
            fn eq(&self, other: &$unsigned) -> bool {
                self.as_u64() == u64::try_from(*other).ok()
            }
        })*
    };
}

equal_to_numbers!(i8 i16 i32 i64 isize ; u8 u16 u32 u64 usize);
