//! Validation of the keywords of a definition's schema: their positions and their values.

use std::collections::HashSet;

use cel::pattern::Pattern;
use machinery::field_error::{BadValue, FieldError, Path};
use machinery::json::Value;

use super::keywords::{Rare, children};
use super::{Errors, known_format};
use crate::walk::Walk as _;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The position of a schema.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    root: bool,
    /// Within the metadata of an object.
    meta: bool,
    /// The reason why a default is not allowed.
    no_default: Option<&'a str>,
}

pub(super) fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    walk(schema, path, Place { root: true, ..Place::default() }, errors);
}

/// Returns whether a schema has keywords that a structural schema cannot have.
pub(super) fn is_unsupported(schema: &Value) -> bool {
    let own = schema.as_object().into_iter().flatten().any(|(keyword, value)| match keyword.as_str() {
        "items" => value.is_array(),
        "id" | "$ref" | "$schema" | "patternProperties" | "dependencies" | "additionalItems" | "definitions" => {
            !is_zero(value)
        }
        _ => false,
    });
    own || children(schema).any(is_unsupported)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Collects the unknown formats in a schema.
pub(super) fn formats(schema: &Value, found: &mut Vec<String>) {
    let format = schema.text("format");
    if !format.is_empty() && !known_format(schema.text("type"), format) {
        found.push(format.to_owned());
    }
    children(schema).for_each(|child| formats(child, found));
}

/// Collects the patterns in a schema.
pub(super) fn patterns(schema: &Value, found: &mut Vec<Pattern>) {
    let pattern = schema.text("pattern");
    if !pattern.is_empty() {
        found.push(Pattern::new(pattern));
    }
    children(schema).for_each(|child| patterns(child, found));
}

fn walk(schema: &Value, path: &Path<'_>, place: Place<'_>, errors: &mut Errors) {
    if !schema.is_object() {
        return;
    }
    let rare = Rare::new(schema);
    keywords(schema, path, place, rare, errors);
    let below = Place { root: false, ..place };
    let rest = schema.at("additionalProperties");
    let properties = schema.at("properties").as_object().filter(|properties| !properties.is_empty());
    if properties.is_some() && (rest.is_object() || rest.as_bool() == Some(false)) {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(path.child("additionalProperties"), why));
    }
    if rest.is_object() {
        let inside = Some("inside additionalProperties applying to object metadata").filter(|_| place.meta);
        let below = Place { no_default: inside.or(place.no_default), ..below };
        walk(rest, &path.child("additionalProperties"), below, errors);
    }
    let list = path.child("properties");
    let resource = place.root || rare.extensions && schema.flag("x-kubernetes-embedded-resource") == Some(true);
    for (name, property) in properties.into_iter().flatten() {
        let meta = resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        let reason = (meta && place.root).then(|| format!("in top-level {name}"));
        let below = Place { meta: meta || below.meta, no_default: reason.as_deref().or(below.no_default), ..below };
        walk(property, &list.key(name), below, errors);
    }
    if rare.alternatives {
        walk(schema.at("not"), &path.child("not"), below, errors);
        for keyword in ["allOf", "oneOf", "anyOf"] {
            let list = path.child(keyword);
            for (i, part) in schema.list(keyword).iter().enumerate() {
                walk(part, &list.index(i), below, errors);
            }
        }
    }
    walk(schema.at("items"), &path.child("items"), below, errors);
    if rare.extensions {
        extensions(schema, path, errors);
    }
}

fn keywords(schema: &Value, path: &Path<'_>, place: Place<'_>, rare: Rare, errors: &mut Errors) {
    let kind = schema.text("type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("type"), kind, TYPES));
    }
    let mut forbid = |keyword: &str, why: &str| errors.push(FieldError::forbidden(path.child(keyword), why));
    if let Some(reason) = place.no_default
        && schema.has("default")
    {
        forbid("default", &format!("must not be set {reason}"));
    }
    let unsupported = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
    for keyword in unsupported.into_iter().filter(|_| rare.unsupported) {
        if schema.get(keyword).is_some_and(|value| !is_zero(value)) {
            forbid(keyword, &format!("{keyword} is not supported"));
        }
    }
    if kind == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if schema.at("items").as_array().is_some_and(|items| !items.is_empty()) {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.meta && rare.extensions && schema.flag("x-kubernetes-embedded-resource") == Some(true) {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if schema.flag("uniqueItems") == Some(true) {
        forbid("uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
}

/// Checks the `x-kubernetes-*` keywords for the merge of lists and maps.
fn extensions(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = schema.text("type");
    if schema.flag("x-kubernetes-preserve-unknown-fields") == Some(false) {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, false, "must be true or undefined"));
    }
    if let Some(map_type) = schema.at("x-kubernetes-map-type").as_str() {
        needs_type(kind, "object", "must be object if x-kubernetes-map-type is specified", path, errors);
        if !matches!(map_type, "atomic" | "granular") {
            let path = path.child("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(path, map_type, ["atomic", "granular"]));
        }
    }
    let items = schema.at("items");
    let list_type = schema.at("x-kubernetes-list-type").as_str();
    let items_path = path.child("items");
    if list_type.is_some() && kind != "array" {
        needs_type(kind, "array", "must be array if x-kubernetes-list-type is specified", path, errors);
    } else if list_type == Some("set") && items.is_object() {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let of_items = items.at("x-kubernetes-list-type");
        match items.text("type") {
            "array" if of_items.as_str().is_some_and(|list_type| list_type != "atomic") => {
                errors.push(FieldError::invalid(items_path.child("x-kubernetes-list-type"), of_items, why));
            }
            "object" if items.text("x-kubernetes-map-type") != "atomic" => {
                errors.push(FieldError::invalid(items_path.child("x-kubernetes-map-type"), of_items, why));
            }
            _ => {}
        }
    }
    if let Some(other) = list_type.filter(|known| !matches!(*known, "atomic" | "set" | "map")) {
        let path = path.child("x-kubernetes-list-type");
        errors.push(FieldError::not_supported(path, other, ["atomic", "set", "map"]));
    }
    let keys = schema.list("x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        let path = path.child("x-kubernetes-list-type");
        errors.push(match list_type {
            None => FieldError::required(path, why),
            Some(other) => FieldError::invalid(path, other, why),
        });
    }
    if list_type == Some("map") {
        list_map(schema, keys, path, errors);
    }
    if let Some(list_type) = list_type.filter(|known| matches!(*known, "set" | "map"))
        && items.is_object()
    {
        keys_are_there(items, list_type, keys, &items_path, errors);
    }
}

fn needs_type(kind: &str, wanted: &str, why: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("type");
    if kind.is_empty() {
        errors.push(FieldError::required(path, why));
    } else if kind != wanted {
        errors.push(FieldError::invalid(path, kind, why));
    }
}

fn list_map(schema: &Value, keys: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let (items, items_path) = (schema.at("items"), path.child("items"));
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_path, why));
    }
    if items.is_null() {
        errors.push(FieldError::required(items_path, "must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    if !items.is_object() {
        let why = "must only have a single schema if x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(items_path, items, why));
        return;
    }
    if items.text("type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(items_path.child("type"), items.text("type"), why));
        return;
    }
    let mut seen = HashSet::new();
    for key in keys {
        let name = key.as_str().unwrap_or_default();
        let all: BadValue = schema.at("x-kubernetes-list-map-keys").into();
        match items.at("properties").as_object().and_then(|properties| properties.get(name)) {
            Some(property) if matches!(property.text("type"), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let path = items_path.child("properties");
                errors.push(FieldError::invalid(path.key(name).child("type"), items.text("type"), why));
            }
            Some(_) => {}
            None => {
                let why = "entries must all be names of item properties";
                errors.push(FieldError::invalid(keys_path, all.clone(), why));
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(keys_path, all, "must not contain duplicate entries"));
        }
    }
}

/// Checks that items are not nullable, and that the keys of a list map are required or have defaults.
fn keys_are_there(items: &Value, list_type: &str, keys: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if items.flag("nullable") == Some(true) {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(path.child("nullable"), why));
    }
    if list_type != "map" {
        return;
    }
    let required: HashSet<&Value> = items.list("required").iter().collect();
    for key in keys {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.at("properties").as_object().and_then(|all| all.get(name)) else { continue };
        let list = path.child("properties");
        let path = list.key(name);
        if !required.contains(key) && !property.has("default") {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(path.child("default"), why));
        }
        if property.flag("nullable") == Some(true) {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(path.child("nullable"), why));
        }
    }
}
