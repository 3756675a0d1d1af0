//! Access to members by name and to items by number: `value["spec"]["containers"][0]`.

use std::ops;

use super::{Map, NULL, Text, Value};

/// The name of a map's member or the number of a list's item.
pub trait Index {
    fn index_into(self, value: &Value) -> Option<&Value>;
    fn index_into_mut(self, value: &mut Value) -> Option<&mut Value>;
    /// As `index_into_mut`, but inserts null for an absent member.
    ///
    /// # Panics
    /// If the value is not a map (null becomes one), or the list is shorter.
    fn index_or_insert(self, value: &mut Value) -> &mut Value;
}

impl Index for &str {
    fn index_into(self, value: &Value) -> Option<&Value> {
        value.as_object()?.get(self)
    }

    fn index_into_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn index_or_insert(self, value: &mut Value) -> &mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => map.entry(self).or_insert(Value::Null),
            _ => panic!("no member {self:?} in a value that is not a map"),
        }
    }
}

macro_rules! index_by_text {
    ($($text:ty)*) => {
        $(impl Index for $text {
            fn index_into(self, value: &Value) -> Option<&Value> {
                self.as_str().index_into(value)
            }

            fn index_into_mut(self, value: &mut Value) -> Option<&mut Value> {
                self.as_str().index_into_mut(value)
            }

            fn index_or_insert(self, value: &mut Value) -> &mut Value {
                self.as_str().index_or_insert(value)
            }
        })*
    };
}

index_by_text!(&String & Text);

impl Index for usize {
    fn index_into(self, value: &Value) -> Option<&Value> {
        value.as_array()?.get(self)
    }

    fn index_into_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_array_mut()?.get_mut(self)
    }

    fn index_or_insert(self, value: &mut Value) -> &mut Value {
        match value {
            Value::Array(items) => &mut items[self],
            _ => panic!("no item {self} in a value that is not a list"),
        }
    }
}

/// An absent member or item is null.
impl<I: Index> ops::Index<I> for Value {
    type Output = Value;

    fn index(&self, index: I) -> &Value {
        index.index_into(self).unwrap_or(&NULL)
    }
}

impl<I: Index> ops::IndexMut<I> for Value {
    fn index_mut(&mut self, index: I) -> &mut Value {
        index.index_or_insert(self)
    }
}

impl ops::Index<&str> for Map {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NULL)
    }
}

impl ops::IndexMut<&str> for Map {
    fn index_mut(&mut self, name: &str) -> &mut Value {
        self.entry(name).or_insert(Value::Null)
    }
}
