//! Checks that a schema is structural: every field has a type outside of alternatives, and alternatives only narrow values.

use cel::pattern::Pattern;
use machinery::field_error::{FieldError, Path};
use machinery::json::Value;

use super::Errors;
use super::keywords::Rare;
use crate::walk::Walk as _;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the errors of a whole schema, in the order of the reference.
pub(super) fn check(schema: &Value, path: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    node(schema, Level::Root, path, &mut errors);
    complete(schema, schema, path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn node(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let rare = Rare::new(schema);
    let set = |keyword: &str| rare.extensions && schema.flag(keyword) == Some(true);
    let kind = schema.text("type");
    let items = schema.at("items");
    if kind == "array" && !items.is_object() {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
    if items.is_object() {
        node(items, Level::Item, &path.child("items"), errors);
    }
    let list = path.child("properties");
    let properties = schema.at("properties").as_object();
    for (name, property) in properties.into_iter().flatten() {
        node(property, Level::Field, &list.key(name), errors);
    }
    let rest = schema.at("additionalProperties");
    if !rest.is_null() {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(path, "must not be used at the root"));
        }
        if rest.is_object() {
            node(rest, Level::Field, &path, errors);
        }
    }
    if set("x-kubernetes-int-or-string") {
        let why = "must be false if x-kubernetes-int-or-string is true";
        for keyword in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if set(keyword) {
                errors.push(FieldError::invalid(path.child(keyword), true, why));
            }
        }
    }
    let alternatives = |keyword: &str| if rare.alternatives { schema.list(keyword) } else { &[] };
    let skip_any = is_int_or_string(alternatives("anyOf"));
    let skip_first = alternatives("allOf").first().is_some_and(|first| is_int_or_string(first.list("anyOf")));
    values(schema, skip_any, skip_first, path, errors);

    let embedded = set("x-kubernetes-embedded-resource");
    let preserves = set("x-kubernetes-preserve-unknown-fields");
    let kind_path = path.child("type");
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(kind_path, why),
            kind => FieldError::invalid(kind_path, kind, why),
        });
    } else if kind.is_empty() && !preserves && !set("x-kubernetes-int-or-string") {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(kind_path, why));
    }
    if embedded && !rest.is_null() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(path.child("additionalProperties"), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(kind_path, kind, "must be object at the root"));
    }
    let is_resource = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"].into_iter().filter(|_| is_resource) {
        if let Some(property) = properties.and_then(|all| all.get(name))
            && property.text("type") != "string"
        {
            errors.push(FieldError::invalid(list.key(name).child("type"), property.text("type"), "must be string"));
        }
    }
    if let Some(metadata) = properties.filter(|_| is_resource).and_then(|all| all.get("metadata")) {
        let path = list.key("metadata");
        if metadata.text("type") != "object" {
            errors.push(FieldError::invalid(path.child("type"), metadata.text("type"), "must be object"));
        }
        if level == Level::Root && !only_names(metadata) {
            let why =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(path, why));
        }
    }
    if embedded && !preserves && properties.is_none_or(|all| all.is_empty()) {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.child("properties"), why));
    }
}

/// Returns whether a schema of metadata restricts names only.
fn only_names(metadata: &Value) -> bool {
    let mut members = metadata.as_object().into_iter().flatten();
    members.all(|(keyword, value)| match keyword.as_str() {
        "type" | "default" => true,
        "properties" => value.as_object().is_some_and(|properties| {
            properties.iter().all(|(name, _)| matches!(name.as_str(), "name" | "generateName"))
        }),
        _ => crate::walk::is_empty(Some(value)),
    })
}

/// Returns whether alternatives are those that `x-kubernetes-int-or-string` may have.
fn is_int_or_string(alternatives: &[Value]) -> bool {
    let only = |alternative: &Value, kind: &str| {
        alternative.text("type") == kind && alternative.as_object().is_some_and(|members| members.len() == 1)
    };
    matches!(alternatives, [first, second] if only(first, "integer") && only(second, "string"))
}

fn values(schema: &Value, skip_any: bool, skip_first: bool, path: &Path<'_>, errors: &mut Errors) {
    if Rare::new(schema).alternatives {
        for keyword in ["anyOf", "allOf", "oneOf"] {
            if keyword == "anyOf" && skip_any {
                continue;
            }
            let list = path.child(keyword);
            for (i, part) in schema.list(keyword).iter().enumerate() {
                nested(part, keyword == "allOf" && skip_first && i == 0, &list.index(i), errors);
            }
        }
        let not = schema.at("not");
        if not.is_object() {
            nested(not, false, &path.child("not"), errors);
        }
    }
    let pattern = schema.text("pattern");
    if !pattern.is_empty()
        && let Some(why) = Pattern::new(pattern).error()
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.child("pattern"), schema.text("pattern"), why));
    }
}

/// Checks a schema below an alternative, which may only narrow values.
fn nested(schema: &Value, skip_any: bool, path: &Path<'_>, errors: &mut Errors) {
    values(schema, skip_any, false, path, errors);
    let items = schema.at("items");
    if items.is_object() {
        nested(items, false, &path.child("items"), errors);
    }
    let list = path.child("properties");
    for (name, property) in schema.at("properties").as_object().into_iter().flatten() {
        nested(property, false, &list.key(name), errors);
    }
    let mut forbid = |keyword: &str, what: &str| {
        errors.push(FieldError::forbidden(path.child(keyword), format!("must be {what} to be structural")));
    };
    for (keyword, what) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        let there = match (what, schema.at(keyword)) {
            (_, Value::Null) => false,
            ("undefined", _) => true,
            (_, value) => !crate::walk::is_empty(Some(value)),
        };
        if there {
            forbid(keyword, what);
        }
    }
    if schema.at("properties").as_object().is_some_and(|all| all.contains_key("metadata")) {
        let why = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(list.key("metadata"), why));
    }
}

/// Checks that fields in the alternatives of the root are specified outside of them. Nested alternatives are exempt, as in the
/// reference.
fn complete(values: &Value, structure: &Value, at: &Path<'_>, by: &Path<'_>, errors: &mut Errors) {
    for keyword in ["not", "allOf", "anyOf", "oneOf"] {
        let by = by.child(keyword);
        match values.at(keyword) {
            part @ Value::Object(_) => complete_below(part, structure, at, &by, errors),
            Value::Array(parts) => {
                for (i, part) in parts.iter().enumerate() {
                    complete_below(part, structure, at, &by.index(i), errors);
                }
            }
            _ => {}
        }
    }
}

fn complete_below(values: &Value, structure: &Value, at: &Path<'_>, by: &Path<'_>, errors: &mut Errors) {
    if !structure.is_object() {
        errors.push(FieldError::required(at, format!("because it is defined in {by}")));
        return;
    }
    complete(values, structure, at, by, errors);
    let items = values.at("items");
    if items.is_object() {
        complete_below(items, structure.at("items"), &at.child("items"), &by.child("items"), errors);
    }
    let (list, listed) = (at.child("properties"), by.child("properties"));
    for (name, property) in values.at("properties").as_object().into_iter().flatten() {
        let known = structure.at("properties").as_object().and_then(|all| all.get(name));
        let (at, by) = (list.key(name), listed.key(name));
        complete_below(property, known.unwrap_or(&Value::Null), &at, &by, errors);
    }
}
