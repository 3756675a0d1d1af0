//! Lists that are sets or maps: duplicates, and pairing of new items with old ones.

use std::collections::HashMap;

use machinery::field_error::{FieldError, Path};
use machinery::field_errors::Errors;
use machinery::go_text;
use machinery::json::{Map, Value};

use super::structural::{Listing, Schema};

/// Reports duplicate items of sets and maps anywhere in an object.
#[must_use]
pub(crate) fn duplicates(schema: &Schema, object: &Value) -> Errors {
    let mut errors = Errors::new();
    walk(schema, object, &Path::root(), &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(known) = schema.property(name) {
                    walk(known, value, &path.child(name), errors);
                } else if let Some(rest) = schema.rest() {
                    walk(rest, value, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.listing {
                Listing::Atomic => {}
                Listing::Set => report_duplicates(items.iter().cloned(), path, errors),
                Listing::Map(keys) => {
                    let stray = items.iter().position(|item| !item.is_object() && !item.is_null());
                    match stray {
                        Some(at) => {
                            let why = "must be an object for an array of list-type map";
                            errors.push(FieldError::invalid(path.index(at), &items[at], why));
                        }
                        None => {
                            report_duplicates(items.iter().map(|item| Value::Object(key_of(keys, item))), path, errors)
                        }
                    }
                }
            }
            if let Some(of) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    walk(of, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Reports the second item of each group of equal items.
fn report_duplicates(items: impl Iterator<Item = Value>, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(canonical(&item)).or_default();
        *times += 1;
        if *times == 2 {
            errors.push_with(|| FieldError::duplicate(path.index(index), item));
        }
    }
}

/// Returns a text that is the same for equal values, whatever the order of their fields.
fn canonical(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    go_text::json(&value)
}

fn key_of(keys: &[Box<str>], item: &Value) -> Map {
    let get = |key: &str| item.get(key).map(|value| (key.to_owned(), value.clone()));
    let mut key: Map = keys.iter().filter_map(|key| get(key)).collect();
    key.sort_keys();
    key
}

/// The old items of a list, looked up by the keys of new ones.
pub(crate) struct Partners<'a> {
    keys: &'a [Box<str>],
    by_key: HashMap<String, &'a Value>,
}

impl<'a> Partners<'a> {
    /// Indexes the old items of a list that is a map; empty for other lists.
    pub(crate) fn new(schema: &'a Schema, old: Option<&'a Value>) -> Self {
        let (Listing::Map(keys), Some(Value::Array(old))) = (&schema.listing, old) else {
            return Partners { keys: &[], by_key: HashMap::new() };
        };
        let mut by_key = HashMap::with_capacity(old.len());
        for item in old {
            by_key.entry(canonical(&Value::Object(key_of(keys, item)))).or_insert(item);
        }
        Partners { keys, by_key }
    }

    pub(crate) fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&canonical(&Value::Object(key_of(self.keys, item)))).copied()
    }
}

/// Reports whether a value is unchanged; the order of a list that is a map does not matter.
pub(crate) fn same(schema: &Schema, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(before), Value::Array(after)) => {
            if before.len() != after.len() {
                return false;
            }
            if !super::validate::pairs(&schema.listing) {
                return before == after;
            }
            let (partners, of) = (Partners::new(schema, Some(old)), schema.items.as_deref());
            after.iter().all(|item| match (partners.find(item), of) {
                (Some(partner), Some(of)) => same(of, partner, item),
                _ => false,
            })
        }
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && after.iter().all(|(name, value)| match (before.get(name), schema.property(name).or(schema.rest())) {
                    (Some(old), Some(known)) => same(known, old, value),
                    // Values without a schema count as changed.
                    _ => false,
                })
        }
        (old, new) => old == new,
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn sets_and_maps_hold_nothing_twice() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"],
                    "items": {"type": "object", "properties": {"n": {"type": "string"}, "p": {"type": "integer"}}}}}}));
        let object = json!({"set": ["a", "b", "a", "a"], "map": [{"n": "a"}, {"n": "a", "p": 1}, {"p": 1, "n": "a"}]});
        let errors: Vec<String> = duplicates(&schema, &object).iter().map(ToString::to_string).collect();
        assert_eq!(errors, [r#"set[2]: Duplicate value: "a""#, r#"map[2]: Duplicate value: {"n":"a","p":1}"#]);
    }

    #[test]
    fn items_of_a_map_may_change_places() {
        let schema = Schema::compile(&json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}));
        assert!(same(&schema, &json!([{"k": "a"}, {"k": "b"}]), &json!([{"k": "b"}, {"k": "a"}])));
        assert!(!same(&schema, &json!([{"k": "a"}, {"k": "b"}]), &json!([{"k": "a"}, {"k": "c"}])));
    }
}
