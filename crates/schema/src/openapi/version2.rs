//! Converts definitions and operations to OpenAPI 2, which has one type per schema and no alternatives.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::definitions::PLACE;

/// Prefixes of references to definitions and parameters.
const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";

/// Converts a schema. Only custom kinds keep defaults, like in Kubernetes.
pub(super) fn schema(v3: &Value, defaults: bool) -> Value {
    let Some(map) = v3.as_object() else { return v3.clone() };
    let is_set = |key: &str| map.get(key).and_then(Value::as_bool) == Some(true);
    // A nullable value has no type here; clients of this version take declared properties for the only ones.
    let unknown = is_set("x-kubernetes-preserve-unknown-fields");
    let open = is_set("nullable") || unknown;
    // A whole kind stays an object, without a note that it accepts other fields.
    let is_kind = map.contains_key("x-kubernetes-group-version-kind");
    let mut shown = Map::with_capacity(map.len());
    for (key, value) in map {
        let value = match key.as_str() {
            "$ref" => reference(value),
            "allOf" => match value.as_array().map(Vec::as_slice) {
                Some([only]) if only.get("$ref").is_some() => {
                    shown.insert("$ref".to_owned(), reference(&only["$ref"]));
                    continue;
                }
                _ => continue,
            },
            // A quantity, or a number or name: both can be strings.
            "oneOf" if !map.contains_key("type") && !is_set("x-kubernetes-int-or-string") => {
                shown.insert("type".to_owned(), "string".into());
                continue;
            }
            "default" if !defaults => continue,
            "oneOf" | "anyOf" | "not" | "nullable" => continue,
            "x-kubernetes-preserve-unknown-fields" if is_kind => continue,
            "required" if unknown => continue,
            "type" if open && !is_kind => continue,
            "properties" | "items" if open => continue,
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                properties
                    .map(|(name, property)| (name.clone(), schema(property, defaults)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            "items" | "additionalProperties" => schema(value, defaults),
            _ => value.clone(),
        };
        shown.insert(key.clone(), value);
    }
    shown.into()
}

fn reference(v3: &Value) -> Value {
    let name = v3.as_str().and_then(|text| text.strip_prefix(PLACE)).unwrap_or_default();
    format!("{DEFINITIONS}{name}").into()
}

/// The parameters of a document: a few, referred to by thousands of operations.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) shown: BTreeMap<String, Value>,
    names: HashMap<String, String>,
}

impl Parameters {
    /// Returns a reference to a parameter, which is added on first use.
    fn share(&mut self, parameter: Value) -> Value {
        let text = parameter.to_string();
        let name = self.names.entry(text).or_insert_with(|| {
            let own = parameter["name"].as_str().unwrap_or_default();
            let mut name = own.to_owned();
            let mut count = 1;
            while self.shown.contains_key(&name) {
                count += 1;
                name = format!("{own}-{count}");
            }
            self.shown.insert(name.clone(), parameter);
            name
        });
        json!({"$ref": format!("{PARAMETERS}{name}")})
    }

    /// Converts the operations of a path.
    pub(super) fn path(&mut self, v3: &Value) -> Value {
        let mut item = Map::new();
        for (key, value) in v3.as_object().into_iter().flatten() {
            let value = match key.as_str() {
                "parameters" => self.list(value).into(),
                _ => self.operation(value),
            };
            item.insert(key.clone(), value);
        }
        item.into()
    }

    fn list(&mut self, v3: &Value) -> Vec<Value> {
        let all = v3.as_array().into_iter().flatten();
        all.map(|parameter| {
            let mut parameter = parameter.clone();
            if let Some(map) = parameter.as_object_mut()
                && let Some(Value::Object(schema)) = map.shift_remove("schema")
            {
                map.extend(schema);
            }
            self.share(parameter)
        })
        .collect()
    }

    fn operation(&mut self, v3: &Value) -> Value {
        let mut shown = Map::new();
        let (mut consumes, mut produces) = (vec!["*/*".to_owned()], Vec::new());
        let mut parameters = Vec::new();
        for (key, value) in v3.as_object().into_iter().flatten() {
            match key.as_str() {
                "parameters" => parameters.extend(self.list(value)),
                "requestBody" => {
                    let content = value["content"].as_object();
                    consumes = content.into_iter().flatten().map(|(media, _)| media.clone()).collect();
                    let first = content.and_then(|content| content.values().next());
                    let mut body = json!({"in": "body", "name": "body"});
                    if value["required"] == true {
                        body["required"] = true.into();
                    }
                    body["schema"] = schema(first.map_or(&Value::Null, |first| &first["schema"]), false);
                    parameters.insert(0, self.share(body));
                }
                "responses" => {
                    let mut responses = Map::new();
                    for (code, response) in value.as_object().into_iter().flatten() {
                        let mut answer = json!({"description": response["description"]});
                        if let Some(content) = response["content"].as_object() {
                            if code == "200" {
                                produces = content.keys().cloned().collect();
                            }
                            if let Some(first) = content.values().next() {
                                answer["schema"] = schema(&first["schema"], false);
                            }
                        }
                        responses.insert(code.clone(), answer);
                    }
                    shown.insert(key.clone(), responses.into());
                }
                _ => {
                    shown.insert(key.clone(), value.clone());
                }
            }
        }
        shown.insert("consumes".to_owned(), consumes.into());
        shown.insert("produces".to_owned(), produces.into());
        shown.insert("schemes".to_owned(), json!(["https"]));
        if !parameters.is_empty() {
            shown.insert("parameters".to_owned(), parameters.into());
        }
        shown.sort_keys();
        shown.into()
    }
}
