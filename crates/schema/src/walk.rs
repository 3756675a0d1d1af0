//! Reading and filling JSON objects by field name. Nothing here fails on odd JSON: what is not there, or is of another
//! type, reads as absent.

use machinery::json::{Map, Value};

static NULL: Value = Value::Null;

/// Reads; a path is field names joined by dots.
pub(crate) trait Walk {
    /// What stands at a path; null when it is not there.
    fn at(&self, path: &str) -> &Value;

    /// A string; empty when it is not there.
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

    /// Something other than null stands there.
    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }
}

impl Walk for Value {
    fn at(&self, path: &str) -> &Value {
        let (mut at, mut path) = (self, path);
        // Paths are short: a search made for long texts costs more than it finds.
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

/// The fields of one object.
pub(crate) type Fields = Map;

/// Fills what a client left out.
pub(crate) trait Fill {
    /// Sets a field that is absent or null.
    fn fill(&mut self, name: &str, value: impl Into<Value>);

    /// Sets a field that is absent, null, an empty string, zero, or an empty list or object.
    fn fill_empty(&mut self, name: &str, value: impl Into<Value>);

    /// The object in a field.
    fn child(&mut self, name: &str) -> Option<&mut Fields>;

    /// The object in a field, made if it is absent. None when something else stands there.
    fn child_or_new(&mut self, name: &str) -> Option<&mut Fields>;

    /// The objects of a list in a field.
    fn items(&mut self, name: &str) -> impl Iterator<Item = &mut Fields>;

    /// A string; empty when it is not there.
    fn word(&self, name: &str) -> &str;

    /// The field is there and not null.
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

/// Absent, null, or the zero of its type.
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
