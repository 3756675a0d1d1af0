//! An object while it is worked on: a JSON value whose parts are shared, so that a copy costs a pointer.
//!
//! A write holds several states of one object (as stored, as shown, as patched, as it will be), which are the same but for
//! a few members. Here a list or a map is copied when it is changed and shared until then, so a state costs what it changes,
//! and parts that are the same memory are known to be equal without a look inside. Members keep the order of the wire.
//!
//! The names and signatures are those of `serde_json::Value`. What differs is the memory: short texts, empty lists and
//! empty maps need none of their own, a member is found without a hash of its name.
//!
//! - `list`, `map`: the two containers
//! - `read`, `write`: from and to text, through serde
//! - `unread`: parts of a stored object that stay text until somebody looks
//! - `convert`, `compare`: from Rust values, and against them
//! - `place`: members by name and items by number

mod compare;
mod convert;
mod list;
mod map;
mod place;
mod read;
mod unread;
mod write;

pub use list::List;
pub use map::Map;
pub use place::Place;
pub use read::{from_slice, from_slice_noting, from_str};
pub use serde_json::Number;
/// Text that is short (23 bytes) or shared: copying it allocates nothing.
pub use smol_str::SmolStr as Text;
pub use unread::from_stored;
pub use write::{to_string, write, write_text};

/// For the macro alone.
#[doc(hidden)]
pub use serde_json::json as plain_json;

/// A value written as JSON, with Rust expressions in it: `json!({"name": name})`.
#[macro_export]
#[doc(hidden)]
macro_rules! json_value {
    ($($json:tt)+) => { $crate::json::Value::from($crate::json::plain_json!($($json)+)) };
}
pub use crate::json_value as json;

/// Any JSON value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(Text),
    Array(List),
    Object(Map),
    /// JSON text that is carried without being read: see [`from_stored`]. Equal to what it says.
    Raw(std::sync::Arc<str>),
}

static NULL: Value = Value::Null;

impl Value {
    /// The member of a map or the item of a list.
    #[must_use]
    pub fn get<P: Place>(&self, place: P) -> Option<&Value> {
        place.of(self)
    }

    pub fn get_mut<P: Place>(&mut self, place: P) -> Option<&mut Value> {
        place.of_mut(self)
    }

    /// The value at a JSON pointer (RFC 6901).
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        steps(pointer)?.try_fold(self, |at, step| match at {
            Value::Object(map) => map.get(&step),
            Value::Array(list) => list.get(number(&step)?),
            _ => None,
        })
    }

    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        steps(pointer)?.try_fold(self, |at, step| match at {
            Value::Object(map) => map.get_mut(&step),
            Value::Array(list) => list.get_mut(number(&step)?),
            _ => None,
        })
    }

    /// Leaves null and gives what was there.
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    #[must_use]
    pub fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }

    #[must_use]
    pub fn is_array(&self) -> bool {
        matches!(self, Value::Array(_))
    }

    #[must_use]
    pub fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Value::Number(_))
    }

    #[must_use]
    pub fn is_boolean(&self) -> bool {
        matches!(self, Value::Bool(_))
    }

    #[must_use]
    pub fn is_i64(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_i64())
    }

    #[must_use]
    pub fn is_u64(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_u64())
    }

    #[must_use]
    pub fn is_f64(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_f64())
    }

    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    #[must_use]
    pub fn as_number(&self) -> Option<&Number> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }

    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number().and_then(Number::as_i64)
    }

    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_number().and_then(Number::as_u64)
    }

    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        self.as_number().and_then(Number::as_f64)
    }

    #[must_use]
    pub fn as_array(&self) -> Option<&Vec<Value>> {
        if let Value::Array(list) = self { Some(list) } else { None }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Value::Array(list) = self { Some(list) } else { None }
    }

    #[must_use]
    pub fn as_object(&self) -> Option<&Map> {
        if let Value::Object(map) = self { Some(map) } else { None }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Value::Object(map) = self { Some(map) } else { None }
    }

    /// What raw text says; other values are themselves.
    #[must_use]
    pub fn told(&self) -> std::borrow::Cow<'_, Value> {
        match self {
            // It came out of a reader or of a writer of JSON.
            Value::Raw(text) => std::borrow::Cow::Owned(from_str(text).unwrap_or_default()),
            value => std::borrow::Cow::Borrowed(value),
        }
    }

    /// Reads all raw text in it.
    pub fn tell(&mut self) {
        if !self.has_raw() {
            return;
        }
        match self {
            Value::Raw(_) => *self = self.told().into_owned(),
            Value::Array(items) => items.iter_mut().for_each(Value::tell),
            Value::Object(members) => members.values_mut().for_each(Value::tell),
            _ => {}
        }
    }

    fn has_raw(&self) -> bool {
        match self {
            Value::Raw(_) => true,
            Value::Array(items) => items.iter().any(Value::has_raw),
            // What is not read yet was never raw.
            Value::Object(members) => members.unread_text().is_none() && members.values().any(Value::has_raw),
            _ => false,
        }
    }

    /// Makes each member that is identical to that of `known` the same memory as that.
    pub fn share_members(&mut self, known: &Value) {
        let (Value::Object(members), Value::Object(known)) = (self, known) else { return };
        if members.is_same(known) {
            return;
        }
        for (name, value) in members.iter_mut() {
            if let Some(known) = known.get(name)
                && (known.is_object() || known.is_array())
                && !value.is_same(known)
                && value.is_identical(known)
            {
                *value = known.clone();
            }
        }
    }

    /// Sorts the members of all maps by name.
    pub fn sort_all_objects(&mut self) {
        match self {
            Value::Array(items) => items.iter_mut().for_each(Value::sort_all_objects),
            Value::Object(map) => {
                map.sort_keys();
                map.values_mut().for_each(Value::sort_all_objects);
            }
            _ => {}
        }
    }
}

fn steps(pointer: &str) -> Option<impl Iterator<Item = std::borrow::Cow<'_, str>>> {
    let rest = if pointer.is_empty() { None } else { Some(pointer.strip_prefix('/')?) };
    Some(
        rest.into_iter().flat_map(|rest| rest.split('/')).map(|step| {
            if step.contains('~') { step.replace("~1", "/").replace("~0", "~").into() } else { step.into() }
        }),
    )
}

fn number(step: &str) -> Option<usize> {
    if step.starts_with('+') || (step.starts_with('0') && step.len() > 1) { None } else { step.parse().ok() }
}

#[cfg(test)]
mod tests;
