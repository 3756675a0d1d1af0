//! Applies the defaults of a schema to absent fields, and to nulls that are not allowed.

use machinery::json::{Text, Value};

use super::structural::{Constant, Schema};

/// Most bytes of JSON that defaults add to one object. Every item of a list gets the defaults of its schema, so that a short body
/// could become very large. An object with more than this is larger than any that can be stored, and its write is refused.
const BYTES_MAX: usize = 4 << 20;

pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    Filling { bytes_left: BYTES_MAX }.fill(value, schema);
}

struct Filling {
    bytes_left: usize,
}

impl Filling {
    fn fill(&mut self, value: &mut Value, schema: &Schema) {
        if !schema.fills || self.bytes_left == 0 {
            return;
        }
        match value {
            Value::Object(map) => {
                for at in &schema.defaulted {
                    let Some((name, property)) = schema.properties.get(*at as usize) else { continue };
                    let Some(Constant(default)) = property.default.as_deref() else { continue };
                    match map.get_mut(name) {
                        None => {
                            if self.take(name, default) {
                                map.insert(name.clone(), default.clone());
                            }
                        }
                        Some(value) if value.is_null() && !property.nullable => {
                            if self.take("", default) {
                                *value = default.clone();
                            }
                        }
                        Some(_) => {}
                    }
                    if self.bytes_left == 0 {
                        return;
                    }
                }
                for (name, value) in map.iter_mut() {
                    if let Some(known) = schema.property(name) {
                        self.fill(value, known);
                    } else if let Some(rest) = schema.rest() {
                        self.fill_null(value, rest);
                        self.fill(value, rest);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items.as_deref() {
                    for item in items {
                        self.fill_null(item, schema);
                        self.fill(item, schema);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_null(&mut self, value: &mut Value, schema: &Schema) {
        if let (Value::Null, false, Some(Constant(default))) = (&*value, schema.nullable, schema.default.as_deref())
            && self.take("", default)
        {
            *value = default.clone();
        }
    }

    /// Counts a default that is added. None is added once the bytes are used up.
    fn take(&mut self, name: &str, default: &Value) -> bool {
        let can = self.bytes_left > 0;
        self.bytes_left = self.bytes_left.saturating_sub(name.len() + json_bytes_min(default));
        can
    }
}

/// The bytes that a value has as JSON, or fewer.
fn json_bytes_min(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Raw(text) => text.len(),
        Value::Array(items) => 2 + items.iter().map(json_bytes_min).sum::<usize>(),
        Value::Object(map) => {
            let member = |(name, value): (&Text, &Value)| name.len() + 3 + json_bytes_min(value);
            2 + map.iter().map(member).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn defaults_come_at_every_depth_and_are_filled_themselves() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "default": {}, "properties": {
            "n": {"type": "integer", "default": 3},
            "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "d"}},
            "may": {"type": "string", "nullable": true, "default": "x"},
        }}}}));
        let mut object = json!({});
        fill(&mut object, &schema);
        assert_eq!(object, json!({"spec": {"n": 3, "may": "x"}}));
        let mut object = json!({"spec": {"n": null, "may": null, "l": [{}, {"p": "UDP"}], "m": {"k": null}}});
        fill(&mut object, &schema);
        assert_eq!(object, json!({"spec": {"n": 3, "may": null, "l": [{"p": "TCP"}, {"p": "UDP"}], "m": {"k": "d"}}}));
    }

    #[test]
    fn what_defaults_add_is_bounded() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {"l": {"type": "array", "items": {
            "type": "object", "properties": {"d": {"type": "string", "default": "x".repeat(1000)}}}}}}));
        let items: Value = (0..100_000).map(|_| json!({})).collect();
        let mut object = json!({"l": items});
        fill(&mut object, &schema);
        let bytes = object.to_string().len();
        assert!(bytes > BYTES_MAX && bytes < 2 * BYTES_MAX, "{bytes}");
    }
}
