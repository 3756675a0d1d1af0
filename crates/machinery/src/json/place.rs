//! Members by name and items by number: `value["spec"]["containers"][0]`.

use std::ops;

use super::{Map, NULL, Text, Value};

/// What names a member of a map or an item of a list.
pub trait Place {
    fn of(self, value: &Value) -> Option<&Value>;
    fn of_mut(self, value: &mut Value) -> Option<&mut Value>;
    /// As `of_mut`, where a member that is not there becomes null.
    ///
    /// # Panics
    /// If the value is no map (null becomes one), or the list is shorter.
    fn of_made(self, value: &mut Value) -> &mut Value;
}

impl Place for &str {
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_object()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn of_made(self, value: &mut Value) -> &mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => map.entry(self).or_insert(Value::Null),
            _ => panic!("no member {self:?} in what is no map"),
        }
    }
}

impl Place for &String {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn of_made(self, value: &mut Value) -> &mut Value {
        self.as_str().of_made(value)
    }
}

impl Place for &Text {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn of_made(self, value: &mut Value) -> &mut Value {
        self.as_str().of_made(value)
    }
}

impl Place for usize {
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_array()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_array_mut()?.get_mut(self)
    }

    fn of_made(self, value: &mut Value) -> &mut Value {
        match value {
            Value::Array(items) => &mut items[self],
            _ => panic!("no item {self} in what is no list"),
        }
    }
}

/// What is not there is null.
impl<P: Place> ops::Index<P> for Value {
    type Output = Value;

    fn index(&self, place: P) -> &Value {
        place.of(self).unwrap_or(&NULL)
    }
}

impl<P: Place> ops::IndexMut<P> for Value {
    fn index_mut(&mut self, place: P) -> &mut Value {
        place.of_made(self)
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
