//! JSON values that share structure: a copy costs a pointer, and a change copies only what it touches.
//!
//! A write holds several states of one object (as stored, as shown, as patched, as it will be stored), which differ in a few
//! members only. Lists and maps are copy-on-write, so a state costs what it changes, and parts that are the same memory
//! compare equal without being visited. Large parts of a stored object stay text until first use, and are written back as
//! that text. Members keep the order of the wire.
//!
//! Names and signatures are those of `serde_json::Value`, and `serde_json` parses and writes the text. It is not used for the
//! values themselves because it neither shares nor defers: each state would be a deep copy. Of the alternatives, `imbl-value`
//! shares but has no unparsed text, and `sonic-rs` has unparsed text but does not share, and is built on unsafe code.
//!
//! Short strings, empty lists and empty maps need no allocation, and a member is found without hashing its name.
//!
//! - `list`, `map`: the two containers
//! - `read`, `write`: from and to text, through serde
//! - `unread`: parts of a stored object that stay text until first use
//! - `check`: the check that such text parses
//! - `convert`, `compare`: from Rust values, and against them
//! - `index`: access to members by name and to items by number

mod check;
mod compare;
mod convert;
mod index;
mod list;
mod map;
mod read;
mod unread;
mod write;

pub use index::Index;
pub use list::List;
pub use map::Map;
pub use read::{from_slice, from_slice_noting_duplicates, from_str};
pub use serde_json::Number;
/// A string that is stored inline up to 23 bytes and shared above that: copying it allocates nothing.
pub use smol_str::SmolStr as Text;
pub use unread::from_stored;
pub use write::{to_string, write, write_text};

/// Used by the macro only.
#[doc(hidden)]
pub use serde_json::json as plain_json;

/// Builds a value from JSON with Rust expressions in it: `json!({"name": name})`.
///
/// Builds a `serde_json::Value` first and converts it: not for hot paths.
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
    /// Unparsed JSON text that is known to parse, see [`from_stored`]. Equal to the value that it parses to.
    Raw(std::sync::Arc<str>),
}

static NULL: Value = Value::Null;

impl Value {
    /// Returns the member of a map or the item of a list.
    #[must_use]
    pub fn get<I: Index>(&self, index: I) -> Option<&Value> {
        index.index_into(self)
    }

    pub fn get_mut<I: Index>(&mut self, index: I) -> Option<&mut Value> {
        index.index_into_mut(self)
    }

    /// Returns the value at a JSON pointer (RFC 6901).
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

    /// Returns the value and leaves null in its place.
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

    /// Returns the value that raw text parses to; other values are returned as they are.
    #[must_use]
    pub fn parsed(&self) -> std::borrow::Cow<'_, Value> {
        match self {
            Value::Raw(text) => std::borrow::Cow::Owned(from_str(text).expect("raw text was checked when it was made")),
            value => std::borrow::Cow::Borrowed(value),
        }
    }

    /// Parses all raw text in the value.
    pub fn parse_raw(&mut self) {
        if !self.has_raw() {
            return;
        }
        match self {
            Value::Raw(_) => *self = self.parsed().into_owned(),
            Value::Array(items) => items.iter_mut().for_each(Value::parse_raw),
            Value::Object(members) => members.values_mut().for_each(Value::parse_raw),
            _ => {}
        }
    }

    fn has_raw(&self) -> bool {
        match self {
            Value::Raw(_) => true,
            Value::Array(items) => items.iter().any(Value::has_raw),
            // Only metadata has raw text, and metadata is never kept unread.
            Value::Object(members) => members.unread_text().is_none() && members.values().any(Value::has_raw),
            _ => false,
        }
    }

    /// Replaces each member that is identical to that of `known` by a shared copy of it.
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
