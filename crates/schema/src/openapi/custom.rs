//! OpenAPI definitions of a custom kind and its list.

use serde_json::{Map, Value, json};

use super::definitions::{Definitions, LIST_META, OBJECT_META, PLACE, describe};
use crate::kind::Kind;

/// Schemas are cut off at this depth.
const DEPTH_MAX: usize = 64;

const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// `stable.example.com`, `v1`, `CronTab`: `com.example.stable.v1.CronTab`.
pub(super) fn name(kind: &Kind, what: &str) -> String {
    let mut parts: Vec<&str> = kind.gvk.group.split('.').collect();
    parts.reverse();
    parts.extend([&*kind.gvk.version, what]);
    parts.join(".")
}

/// Returns the schema of the kind as it was declared.
pub(super) fn schema(kind: &Kind) -> Option<Value> {
    kind.definition.as_ref()?.open_api_schema().map(Value::from)
}

/// Returns the definition of the kind; without a schema, an object of any content.
pub(super) fn object(kind: &Kind, definitions: &Definitions) -> Value {
    let mut object = match schema(kind) {
        Some(schema) => embedded(&schema, definitions, 0),
        None => json!({"x-kubernetes-preserve-unknown-fields": true}),
    };
    resource(&mut object, definitions, false);
    object["type"] = "object".into();
    object["x-kubernetes-group-version-kind"] = kinds(kind, &kind.gvk.kind);
    object
}

/// Returns the definition of the list kind.
pub(super) fn list(kind: &Kind, definitions: &Definitions) -> Value {
    let item = name(kind, &kind.gvk.kind);
    let mut list = json!({
        "description": format!("{} is a list of {}", kind.list_kind, kind.gvk.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {
                "description": format!("List of {}. More info: {CONVENTIONS}", kind.plural),
                "type": "array",
                "items": {"$ref": format!("{PLACE}{item}")},
            },
            "kind": {"type": "string"},
            "metadata": {"$ref": format!("{PLACE}{LIST_META}")},
        },
        "x-kubernetes-group-version-kind": kinds(kind, &kind.list_kind),
    });
    let properties = &mut list["properties"];
    for field in ["apiVersion", "kind"] {
        describe(&mut properties[field], definitions.common_text(field));
    }
    describe(&mut properties["metadata"], definitions.field_text("List", "metadata"));
    list
}

fn kinds(kind: &Kind, name: &str) -> Value {
    json!([{"group": kind.gvk.group, "kind": name, "version": kind.gvk.version}])
}

/// Adds apiVersion, kind and metadata.
fn resource(object: &mut Value, definitions: &Definitions, required: bool) {
    if !object["properties"].is_object() {
        object["properties"] = json!({});
    }
    let Some(properties) = object["properties"].as_object_mut() else { return };
    for field in ["apiVersion", "kind"] {
        let mut text = json!({"type": "string"});
        describe(&mut text, definitions.common_text(field));
        properties.insert(field.to_owned(), text);
    }
    let mut meta = json!({"$ref": format!("{PLACE}{OBJECT_META}")});
    describe(&mut meta, definitions.common_text("metadata"));
    properties.insert("metadata".to_owned(), meta);
    properties.sort_keys();
    if required {
        let mut names: Vec<Value> = object["required"].as_array().cloned().unwrap_or_default();
        for field in ["kind", "apiVersion"] {
            if !names.iter().any(|name| name == field) {
                names.push(field.into());
            }
        }
        object["required"] = names.into();
    }
}

/// Returns a schema as it was declared; embedded objects get apiVersion, kind and metadata.
fn embedded(schema: &Value, definitions: &Definitions, depth: usize) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    if depth > DEPTH_MAX {
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    let below = |schema: &Value| embedded(schema, definitions, depth + 1);
    let mut shown: Map<String, Value> = Map::with_capacity(map.len());
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let mut properties: Map<String, Value> =
                    properties.iter().map(|(name, property)| (name.clone(), below(property))).collect();
                properties.sort_keys();
                properties.into()
            }
            ("items" | "additionalProperties" | "not", Value::Object(_)) => below(value),
            _ => value.clone(),
        };
        shown.insert(key.clone(), value);
    }
    let is_set = |key: &str| map.get(key).and_then(Value::as_bool) == Some(true);
    if is_set("x-kubernetes-int-or-string") && !shown.contains_key("anyOf") {
        shown.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    shown.sort_keys();
    let is_resource = is_set("x-kubernetes-embedded-resource");
    let mut shown = Value::Object(shown);
    if is_resource {
        resource(&mut shown, definitions, true);
    }
    shown
}
