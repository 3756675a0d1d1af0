//! Reading and changing fields of JSON objects. Nothing fails on unexpected JSON: a value of another type counts as
//! absent.

use machinery::json::{Map, Value};

static NULL: Value = Value::Null;

/// Read access; a path is field names joined by dots.
pub(crate) trait Walk {
    /// Returns the value at a path; null if it is absent.
    fn at(&self, path: &str) -> &Value;

    /// Returns a string; empty if it is absent.
    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn int(&self, path: &str) -> Option<i64> {
        self.at(path).as_i64()
    }

    fn flag(&self, path: &str) -> Option<bool> {
        self.at(path).as_bool()
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn map(&self, path: &str) -> Option<&Map> {
        self.at(path).as_object()
    }

    /// Reports whether the value is present and not null.
    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }
}

impl Walk for Value {
    fn at(&self, path: &str) -> &Value {
        let (mut at, mut path) = (self, path);
        // Paths are short: a byte loop is faster than a search for long texts.
        loop {
            let Some(map) = at.as_object().filter(|map| map.may_hold(path)) else { return &NULL };
            let dot = path.as_bytes().iter().position(|byte| *byte == b'.');
            let name = &path[..dot.unwrap_or(path.len())];
            match map.get(name) {
                Some(next) => at = next,
                None => return &NULL,
            }
            match dot {
                Some(dot) => path = &path[dot + 1..],
                None => return at,
            }
        }
    }
}

/// The fields of an object.
pub(crate) type Fields = Map;

/// Sets fields that a client left out.
pub(crate) trait Fill {
    /// Sets a field if it is absent or null.
    fn fill(&mut self, name: &str, value: impl Into<Value>);

    /// Sets a field if it is absent, null, an empty string, zero, or an empty list or object.
    fn fill_empty(&mut self, name: &str, value: impl Into<Value>);

    /// Returns the object in a field.
    fn child(&mut self, name: &str) -> Option<&mut Fields>;

    /// Returns the object in a field, created if it is absent; `None` if the field has another type.
    fn child_or_new(&mut self, name: &str) -> Option<&mut Fields>;

    /// Returns the objects of a list in a field.
    fn items(&mut self, name: &str) -> impl Iterator<Item = &mut Fields>;

    /// Returns a string; empty if it is absent.
    fn word(&self, name: &str) -> &str;

    /// Reports whether the field is present and not null.
    fn given(&self, name: &str) -> bool;
}

impl Fill for Fields {
    fn fill(&mut self, name: &str, value: impl Into<Value>) {
        if !self.given(name) {
            self.insert(name, value.into());
        }
    }

    fn fill_empty(&mut self, name: &str, value: impl Into<Value>) {
        if is_empty(self.get(name)) {
            self.insert(name, value.into());
        }
    }

    fn child(&mut self, name: &str) -> Option<&mut Fields> {
        self.get_mut(name).and_then(Value::as_object_mut)
    }

    fn child_or_new(&mut self, name: &str) -> Option<&mut Fields> {
        if !self.given(name) {
            self.insert(name, Value::Object(Map::new()));
        }
        self.child(name)
    }

    fn items(&mut self, name: &str) -> impl Iterator<Item = &mut Fields> {
        self.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
    }

    fn word(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn given(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_null())
    }
}

/// Reports whether a value is absent, null, or the zero of its type.
pub(crate) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Bool(truth)) => !truth,
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Raw(text)) => &**text == "{}",
    }
}
