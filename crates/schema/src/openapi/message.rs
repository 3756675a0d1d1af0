//! Encodes parts of documents as protobuf messages of gnostic (`openapi.v2` and `openapi.v3`).
//!
//! A message is described by keys, numbers and types. Keys that start with `x-` are extensions. Untyped values are sent
//! as YAML text, of which JSON is a subset. Keys without a field are omitted.

use serde_json::Value;

use crate::protobuf::wire::{Wire, put_bytes, put_message, put_tag, put_varint};

type Encode = fn(&Value, &mut Vec<u8>);

/// The encoding of a key.
enum Part {
    Text,
    Flag,
    Whole,
    Number,
    Texts,
    /// A string in a nested message.
    Wrapped,
    Any,
    Anys,
    One(Encode),
    Many(Encode),
    /// A message with named values.
    Named(Encode),
}

use Part::{Any, Anys, Flag, Many, Named, Number, One, Text, Texts, Whole, Wrapped};

fn nested(out: &mut Vec<u8>, number: u32, content: impl FnOnce(&mut Vec<u8>)) {
    let written: Result<(), std::convert::Infallible> = put_message(out, number, |out| {
        content(out);
        Ok(())
    });
    let Ok(()) = written;
}

/// Writes a map entry: a name and a message.
pub(super) fn named(out: &mut Vec<u8>, number: u32, name: &str, content: impl FnOnce(&mut Vec<u8>)) {
    nested(out, number, |out| {
        put_bytes(out, 1, name.as_bytes());
        nested(out, 2, content);
    });
}

fn any(value: &Value, out: &mut Vec<u8>) {
    put_bytes(out, 2, format!("{value}\n").as_bytes());
}

fn flag(out: &mut Vec<u8>, number: u32, value: bool) {
    put_tag(out, number, Wire::Varint);
    put_varint(out, u64::from(value));
}

fn double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_tag(out, number, Wire::Fixed64);
    out.extend(value.to_bits().to_le_bytes());
}

fn fields(value: &Value, out: &mut Vec<u8>, parts: &[(&str, u32, Part)], extensions: u32) {
    let Some(map) = value.as_object() else { return };
    for (key, number, part) in parts {
        let Some(value) = map.get(*key) else { continue };
        let number = *number;
        let texts = || value.as_array().into_iter().flatten().filter_map(Value::as_str);
        let all = || value.as_array().into_iter().flatten();
        match part {
            Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
            Flag => flag(out, number, value.as_bool() == Some(true)),
            Whole => {
                put_tag(out, number, Wire::Varint);
                put_varint(out, value.as_u64().unwrap_or_default());
            }
            Number => double(out, number, value.as_f64().unwrap_or_default()),
            Texts => texts().for_each(|text| put_bytes(out, number, text.as_bytes())),
            Wrapped => nested(out, number, |out| put_bytes(out, 1, value.as_str().unwrap_or_default().as_bytes())),
            Any => nested(out, number, |out| any(value, out)),
            Anys => all().for_each(|value| nested(out, number, |out| any(value, out))),
            One(encode) => nested(out, number, |out| encode(value, out)),
            Many(encode) => all().for_each(|value| nested(out, number, |out| encode(value, out))),
            Named(encode) => nested(out, number, |out| {
                for (name, value) in value.as_object().into_iter().flatten() {
                    named(out, 1, name, |out| encode(value, out));
                }
            }),
        }
    }
    for (key, value) in map.iter().filter(|(key, _)| key.starts_with("x-")) {
        named(out, extensions, key, |out| any(value, out));
    }
}

/// Writes a named list of strings, for a security requirement.
fn string_array(value: &Value, out: &mut Vec<u8>) {
    for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
        put_bytes(out, 1, text.as_bytes());
    }
}

fn security_requirement(value: &Value, out: &mut Vec<u8>) {
    for (name, scopes) in value.as_object().into_iter().flatten() {
        named(out, 1, name, |out| string_array(scopes, out));
    }
}

/// Version 2.
pub(super) mod v2 {
    use super::*;

    /// Writes a document without paths and definitions.
    pub(in super::super) fn document(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("swagger", 1, Text),
            ("info", 2, One(info)),
            ("parameters", 10, Named(parameter)),
            ("security", 12, Many(security_requirement)),
            ("securityDefinitions", 13, Named(security_definition)),
        ];
        fields(value, out, &parts, 16);
    }

    fn info(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("title", 1, Text), ("version", 2, Text)], 7);
    }

    fn security_definition(value: &Value, out: &mut Vec<u8>) {
        let parts = [("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)];
        nested(out, 2, |out| fields(value, out, &parts, 5));
    }

    pub(in super::super) fn schema(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("$ref", 1, Text),
            ("format", 2, Text),
            ("title", 3, Text),
            ("description", 4, Text),
            ("default", 5, Any),
            ("multipleOf", 6, Number),
            ("maximum", 7, Number),
            ("exclusiveMaximum", 8, Flag),
            ("minimum", 9, Number),
            ("exclusiveMinimum", 10, Flag),
            ("maxLength", 11, Whole),
            ("minLength", 12, Whole),
            ("pattern", 13, Text),
            ("maxItems", 14, Whole),
            ("minItems", 15, Whole),
            ("uniqueItems", 16, Flag),
            ("maxProperties", 17, Whole),
            ("minProperties", 18, Whole),
            ("required", 19, Texts),
            ("enum", 20, Anys),
            ("additionalProperties", 21, One(additional)),
            ("type", 22, Wrapped),
            ("items", 23, One(items)),
            ("allOf", 24, Many(schema)),
            ("properties", 25, Named(schema)),
            ("externalDocs", 29, One(external_docs)),
            ("example", 30, Any),
        ];
        fields(value, out, &parts, 31);
    }

    fn external_docs(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("description", 1, Text), ("url", 2, Text)], 3);
    }

    fn additional(value: &Value, out: &mut Vec<u8>) {
        match value.as_bool() {
            Some(allowed) => flag(out, 2, allowed),
            None => nested(out, 1, |out| schema(value, out)),
        }
    }

    fn items(value: &Value, out: &mut Vec<u8>) {
        nested(out, 1, |out| schema(value, out));
    }

    pub(in super::super) fn path(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("get", 2, One(operation)),
            ("put", 3, One(operation)),
            ("post", 4, One(operation)),
            ("delete", 5, One(operation)),
            ("options", 6, One(operation)),
            ("head", 7, One(operation)),
            ("patch", 8, One(operation)),
            ("parameters", 9, Many(parameter_or_reference)),
        ];
        fields(value, out, &parts, 10);
    }

    fn operation(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("tags", 1, Texts),
            ("description", 3, Text),
            ("operationId", 5, Text),
            ("produces", 6, Texts),
            ("consumes", 7, Texts),
            ("parameters", 8, Many(parameter_or_reference)),
            ("responses", 9, Named(response)),
            ("schemes", 10, Texts),
        ];
        fields(value, out, &parts, 13);
    }

    fn response(value: &Value, out: &mut Vec<u8>) {
        let parts = [("description", 1, Text), ("schema", 2, One(items))];
        nested(out, 1, |out| fields(value, out, &parts, 5));
    }

    fn parameter_or_reference(value: &Value, out: &mut Vec<u8>) {
        match value.get("$ref") {
            Some(_) => nested(out, 2, |out| fields(value, out, &[("$ref", 1, Text)], 0)),
            None => nested(out, 1, |out| parameter(value, out)),
        }
    }

    fn parameter(value: &Value, out: &mut Vec<u8>) {
        match value["in"].as_str() {
            Some("body") => {
                let parts = [
                    ("description", 1, Text),
                    ("name", 2, Text),
                    ("in", 3, Text),
                    ("required", 4, Flag),
                    ("schema", 5, One(schema)),
                ];
                nested(out, 1, |out| fields(value, out, &parts, 6));
            }
            // A path parameter has one field fewer, which shifts the numbers after it.
            Some("path") => {
                let parts = [
                    ("required", 1, Flag),
                    ("in", 2, Text),
                    ("description", 3, Text),
                    ("name", 4, Text),
                    ("type", 5, Text),
                    ("uniqueItems", 19, Flag),
                ];
                nested(out, 2, |out| nested(out, 4, |out| fields(value, out, &parts, 22)));
            }
            _ => {
                let parts = [
                    ("required", 1, Flag),
                    ("in", 2, Text),
                    ("description", 3, Text),
                    ("name", 4, Text),
                    ("type", 6, Text),
                    ("uniqueItems", 20, Flag),
                ];
                nested(out, 2, |out| nested(out, 3, |out| fields(value, out, &parts, 23)));
            }
        }
    }
}

/// Version 3.
pub(super) mod v3 {
    use super::*;

    /// Writes a document without paths and components.
    pub(in super::super) fn document(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("openapi", 1, Text), ("info", 2, One(info))], 9);
    }

    fn info(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("title", 1, Text), ("version", 6, Text)], 7);
    }

    /// Writes the other components.
    pub(in super::super) fn components(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("securitySchemes", 7, Named(security_scheme))], 10);
    }

    fn security_scheme(value: &Value, out: &mut Vec<u8>) {
        let parts = [("type", 1, Text), ("description", 2, Text), ("name", 3, Text), ("in", 4, Text)];
        nested(out, 1, |out| fields(value, out, &parts, 9));
    }

    pub(in super::super) fn schema_or_reference(value: &Value, out: &mut Vec<u8>) {
        match value.get("$ref") {
            Some(_) => nested(out, 2, |out| fields(value, out, &[("$ref", 1, Text)], 0)),
            None => nested(out, 1, |out| schema(value, out)),
        }
    }

    fn schema(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("nullable", 1, Flag),
            ("externalDocs", 6, One(external_docs)),
            ("example", 7, Any),
            ("title", 9, Text),
            ("multipleOf", 10, Number),
            ("maximum", 11, Number),
            ("exclusiveMaximum", 12, Flag),
            ("minimum", 13, Number),
            ("exclusiveMinimum", 14, Flag),
            ("maxLength", 15, Whole),
            ("minLength", 16, Whole),
            ("pattern", 17, Text),
            ("maxItems", 18, Whole),
            ("minItems", 19, Whole),
            ("uniqueItems", 20, Flag),
            ("maxProperties", 21, Whole),
            ("minProperties", 22, Whole),
            ("required", 23, Texts),
            ("enum", 24, Anys),
            ("type", 25, Text),
            ("allOf", 26, Many(schema_or_reference)),
            ("oneOf", 27, Many(schema_or_reference)),
            ("anyOf", 28, Many(schema_or_reference)),
            ("not", 29, One(schema)),
            ("items", 30, One(items)),
            ("properties", 31, Named(schema_or_reference)),
            ("additionalProperties", 32, One(additional)),
            ("default", 33, One(default)),
            ("description", 34, Text),
            ("format", 35, Text),
        ];
        fields(value, out, &parts, 36);
    }

    fn external_docs(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("description", 1, Text), ("url", 2, Text)], 3);
    }

    /// Writes a number, a bool or a string; for other values the message is empty.
    fn default(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Number(number) => double(out, 1, number.as_f64().unwrap_or_default()),
            Value::Bool(truth) => flag(out, 2, *truth),
            Value::String(text) => put_bytes(out, 3, text.as_bytes()),
            _ => {}
        }
    }

    fn additional(value: &Value, out: &mut Vec<u8>) {
        match value.as_bool() {
            Some(allowed) => flag(out, 2, allowed),
            None => items(value, out),
        }
    }

    fn items(value: &Value, out: &mut Vec<u8>) {
        nested(out, 1, |out| schema_or_reference(value, out));
    }

    pub(in super::super) fn path(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("get", 4, One(operation)),
            ("put", 5, One(operation)),
            ("post", 6, One(operation)),
            ("delete", 7, One(operation)),
            ("options", 8, One(operation)),
            ("head", 9, One(operation)),
            ("patch", 10, One(operation)),
            ("parameters", 13, Many(parameter)),
        ];
        fields(value, out, &parts, 14);
    }

    fn operation(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("tags", 1, Texts),
            ("description", 3, Text),
            ("operationId", 5, Text),
            ("parameters", 6, Many(parameter)),
            ("requestBody", 7, One(request_body)),
            ("responses", 8, One(responses)),
        ];
        fields(value, out, &parts, 13);
    }

    fn responses(value: &Value, out: &mut Vec<u8>) {
        for (code, answer) in value.as_object().into_iter().flatten() {
            named(out, 2, code, |out| {
                let parts = [("description", 1, Text), ("content", 3, Named(media))];
                nested(out, 1, |out| fields(answer, out, &parts, 5));
            });
        }
    }

    fn media(value: &Value, out: &mut Vec<u8>) {
        fields(value, out, &[("schema", 1, One(schema_or_reference))], 5);
    }

    fn request_body(value: &Value, out: &mut Vec<u8>) {
        let parts = [("content", 2, Named(media)), ("required", 3, Flag)];
        nested(out, 1, |out| fields(value, out, &parts, 4));
    }

    fn parameter(value: &Value, out: &mut Vec<u8>) {
        let parts = [
            ("name", 1, Text),
            ("in", 2, Text),
            ("description", 3, Text),
            ("required", 4, Flag),
            ("schema", 10, One(schema_or_reference)),
        ];
        nested(out, 1, |out| fields(value, out, &parts, 14));
    }
}
