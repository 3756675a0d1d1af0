//! Applies the defaults of a schema to absent fields, and to nulls that are not allowed.

use machinery::json::Value;

use super::structural::{Constant, Schema};

pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    if !schema.fills {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(Constant(default)) = property.default.as_deref() else { continue };
                match map.get_mut(name) {
                    None => {
                        map.insert(name.clone(), default.clone());
                    }
                    Some(value) if value.is_null() && !property.nullable => *value = default.clone(),
                    Some(_) => {}
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(known) = schema.property(name) {
                    fill(value, known);
                } else if let Some(rest) = schema.rest() {
                    fill_null(value, rest);
                    fill(value, rest);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for item in items {
                    fill_null(item, schema);
                    fill(item, schema);
                }
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, schema: &Schema) {
    if let (Value::Null, false, Some(Constant(default))) = (&*value, schema.nullable, schema.default.as_deref()) {
        *value = default.clone();
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
}
