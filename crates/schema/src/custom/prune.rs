//! Removes fields that a schema does not declare, and nulls without a meaning.

use machinery::json::Value;

use super::structural::{Rest, Schema};

/// Largest number of unknown fields reported.
const UNKNOWN_MAX: usize = 100;
/// Longest path of one; a key may be nearly as long as the request.
const PATH_BYTES_MAX: usize = 4096;

/// Paths of removed fields.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    path: String,
    pub(crate) found: Vec<String>,
}

impl Unknown {
    fn within(&mut self, step: Step<'_>, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        match step {
            Step::Key(key) => {
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(key);
            }
            Step::Index(index) => self.path.push_str(&format!("[{index}]")),
        }
        walk(self);
        self.path.truncate(length);
    }

    fn note(&mut self, key: &str) {
        if self.found.len() < UNKNOWN_MAX {
            let above = &self.path[..self.path.floor_char_boundary(PATH_BYTES_MAX)];
            let cut = if above.len() < self.path.len() { "…" } else { "" };
            let key = &key[..key.floor_char_boundary(PATH_BYTES_MAX)];
            let path = if above.is_empty() { key.to_owned() } else { format!("{above}{cut}.{key}") };
            self.found.push(path);
        }
    }
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Prunes a whole object; its apiVersion, kind and metadata stay.
pub(crate) fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut unknown = Unknown::default();
    walk(object, Some(schema), true, &mut unknown);
    unknown.found.sort();
    unknown.found
}

/// Prunes a part of an object, which may be an embedded object itself.
pub(crate) fn prune_part(value: &mut Value, schema: &Schema) {
    walk(value, Some(schema), false, &mut Unknown::default());
}

fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

fn walk(value: &mut Value, schema: Option<&Schema>, root: bool, unknown: &mut Unknown) {
    match (value, schema) {
        (Value::Object(map), Some(schema)) => {
            let resource = root || schema.embedded;
            map.retain(|key, value| {
                if resource && is_meta(key) {
                    return true;
                }
                match (schema.property(key), &schema.rest) {
                    (Some(property), _) => {
                        unknown.within(Step::Key(key), |unknown| walk(value, Some(property), false, unknown));
                    }
                    (None, Rest::Of(rest)) => {
                        unknown.within(Step::Key(key), |unknown| walk(value, Some(rest), false, unknown));
                    }
                    // With `additionalProperties: true`, an object inside has no declared fields.
                    (None, Rest::Allowed(_)) if !schema.preserve => {
                        unknown.within(Step::Key(key), |unknown| walk(value, None, false, unknown));
                    }
                    (None, _) if schema.preserve => {}
                    (None, _) => {
                        if !is_meta(key) || !unknown.path.is_empty() {
                            unknown.note(key);
                        }
                        return false;
                    }
                }
                true
            });
        }
        (Value::Object(map), None) => {
            map.keys().for_each(|key| unknown.note(key));
            map.clear();
        }
        (Value::Array(items), Some(schema)) => {
            for (index, item) in items.iter_mut().enumerate() {
                unknown.within(Step::Index(index), |unknown| match (schema.preserve, schema.items.as_deref()) {
                    (true, None) => {}
                    (true, Some(items)) => walk_kept(item, items, unknown),
                    (false, items) => walk(item, items, false, unknown),
                });
            }
        }
        (Value::Array(items), None) => {
            for (index, item) in items.iter_mut().enumerate() {
                unknown.within(Step::Index(index), |unknown| walk(item, None, false, unknown));
            }
        }
        _ => {}
    }
}

/// Items of a list that preserves unknown fields preserve them too.
fn walk_kept(value: &mut Value, schema: &Schema, unknown: &mut Unknown) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if schema.embedded && is_meta(key) {
                    continue;
                }
                if let Some(known) = schema.property(key).or(schema.rest()) {
                    unknown.within(Step::Key(key), |unknown| walk(value, Some(known), false, unknown));
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if let Some(schema) = schema.items.as_deref() {
                    unknown.within(Step::Index(index), |unknown| walk_kept(item, schema, unknown));
                }
            }
        }
        _ => {}
    }
}

/// Removes nulls that are not allowed and have no default.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let Some(known) = schema.property(key).or(schema.rest()) else { return true };
            if value.is_null() && !known.nullable && known.default.is_none() {
                return false;
            }
            drop_nulls(value, known);
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                items.iter_mut().for_each(|item| drop_nulls(item, schema));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn pruned(schema: Value, mut object: Value) -> (Value, Vec<String>) {
        let unknown = prune(&mut object, &Schema::compile(&schema));
        (object, unknown)
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}}});
        let object = json!({"kind": "K", "metadata": {"name": "x"}, "top": 1,
            "spec": {"l": [{"a": "1", "b": 2}], "m": {"k": {"a": "1", "c": 3}}, "u": 1}});
        let (object, unknown) = pruned(schema, object);
        assert_eq!(
            object,
            json!({"kind": "K", "metadata": {"name": "x"}, "spec": {"l": [{"a": "1"}], "m": {"k": {"a": "1"}}}})
        );
        assert_eq!(unknown, ["spec.l[0].b", "spec.m.k.c", "spec.u", "top"]);
    }

    #[test]
    fn what_is_preserved_stays_and_what_is_named_below_it_is_pruned() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        let (object, _) = pruned(schema, json!({"free": {"x": 1}, "known": {"a": "1", "b": 2}}));
        assert_eq!(object, json!({"free": {"x": 1}, "known": {"a": "1"}}));
    }

    #[test]
    fn nulls_that_may_not_be_go_unless_a_default_comes() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string", "nullable": true}, "c": {"type": "string", "default": "x"}}}));
        let mut object = json!({"a": null, "b": null, "c": null});
        drop_nulls(&mut object, &schema);
        assert_eq!(object, json!({"b": null, "c": null}));
    }
}
