//! Validates an object of a custom kind: schema, embedded objects, lists, scale, and rules in CEL.

use machinery::field_error::{BadValue, FieldError, Path};
use machinery::field_errors::Errors;
use machinery::json::Value;
use machinery::object_meta::{MetaRules, validate_object_meta};
use machinery::{GroupVersion, names};

use super::definition::{Definition, Version};
use super::structural::Schema;
use super::{lists, validate};

/// The field of an error about the whole object.
const NO_FIELD: &str = "<nil>";
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                           complete validation";

/// Validates a new object, except for its metadata.
pub(crate) fn validate_create(definition: &Definition, object: &Value) -> Errors {
    let version = definition.version();
    let mut errors = Errors::from(validate::validate(&version.schema, object, None));
    scale(definition, object, &["spec", "status"], &mut errors);
    embedded(&version.schema, object, &Path::root(), &mut errors);
    errors.extend(lists::duplicates(&version.schema, object));
    // A new object has no unchanged fields, hence no warnings.
    rules(version, object, None, &mut errors, &mut Vec::new());
    errors
}

/// Validates a changed object; errors of unchanged values are ignored.
pub(crate) fn validate_update(definition: &Definition, new: &Value, old: &Value, warnings: &mut Vec<String>) -> Errors {
    let version = definition.version();
    let mut errors = Errors::from(validate::validate(&version.schema, new, Some(old)));
    scale(definition, new, &["spec", "status"], &mut errors);
    changed(version, new, old, errors, warnings)
}

/// Validates a write to `/status`: only the status is checked against the schema.
pub(crate) fn validate_status_update(
    definition: &Definition,
    new: &Value,
    old: &Value,
    warnings: &mut Vec<String>,
) -> Errors {
    let version = definition.version();
    let mut errors = Errors::new();
    if let (Some(schema), Some(status)) = (version.schema.property("status"), new.get("status")) {
        errors.extend(within("status", validate::validate(schema, status, old.get("status"))));
    }
    scale(definition, new, &["status"], &mut errors);
    changed(version, new, old, errors, warnings)
}

/// Prefixes the fields of errors of a part. The texts still name the part alone, like those of Kubernetes.
fn within(path: &str, errors: Vec<FieldError>) -> Vec<FieldError> {
    let placed = |mut error: FieldError| {
        error.field = match error.field.as_str() {
            NO_FIELD => path.to_owned(),
            field if field.starts_with('[') => format!("{path}{field}"),
            field => format!("{path}.{field}"),
        };
        error
    };
    errors.into_iter().map(placed).collect()
}

/// Runs the checks that follow the schema. A failed rule on an unchanged value is a warning.
fn changed(version: &Version, new: &Value, old: &Value, mut errors: Errors, warnings: &mut Vec<String>) -> Errors {
    embedded(&version.schema, new, &Path::root(), &mut errors);
    if lists::duplicates(&version.schema, old).is_empty() {
        errors.extend(lists::duplicates(&version.schema, new));
    }
    rules(version, new, Some(old), &mut errors, warnings);
    errors
}

fn rules(version: &Version, new: &Value, old: Option<&Value>, errors: &mut Errors, warnings: &mut Vec<String>) {
    if version.rules.is_empty() {
        return;
    }
    if errors.iter().any(validate::blocks_rules) {
        errors.push(FieldError::invalid(NO_FIELD, Value::Null, NOT_CHECKED));
    } else {
        let outcome = version.rules.check(new, old);
        errors.extend(outcome.errors);
        warnings.extend(outcome.warnings);
    }
}

/// Checks that replica counts are non-negative integers.
fn scale(definition: &Definition, object: &Value, parts: &[&str], errors: &mut Errors) {
    let Some(scale) = &definition.scale else { return };
    for path in [&scale.spec_replicas, &scale.status_replicas] {
        if !path.first().is_some_and(|first| parts.contains(&first.as_str())) {
            continue;
        }
        let Some(value) = path.iter().try_fold(object, |at, name| at.get(name)) else { continue };
        let field = format!(".{}", path.join("."));
        match value.as_i64() {
            None => {
                let found = machinery::go_text::type_name(value);
                let why =
                    format!("{field} accessor error: {} is of the type {found}, expected int64", value_text(value));
                errors.push(FieldError::invalid(field, 0, why));
            }
            Some(count) if count < 0 => {
                errors.push(FieldError::invalid(field, count, "should be a non-negative integer"));
            }
            Some(count) if count > i64::from(i32::MAX) => {
                let why = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(field, count, why));
            }
            Some(_) => {}
        }
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        other => machinery::go_text::json(other),
    }
}

/// Checks kind, apiVersion and metadata of embedded objects.
fn embedded(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !schema.embeds {
        return;
    }
    match value {
        Value::Object(map) => {
            if schema.embedded {
                embedded_object(value, path, errors);
            }
            for (name, value) in map {
                if let Some(known) = schema.property(name) {
                    embedded(known, value, &path.child(name), errors);
                } else if let Some(rest) = schema.rest() {
                    embedded(rest, value, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    embedded(of, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Checks one embedded object, or the default of one.
pub(crate) fn embedded_object(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match object.get(name) {
            None => errors.push(FieldError::required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(path, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if GroupVersion::parse(text).is_none() {
                    errors.push(FieldError::invalid(path, text, format!("unexpected GroupVersion string: {text}")));
                }
            }
            Some(Value::String(text)) => {
                let why = names::dns1035_label(&text.to_lowercase());
                if !why.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {}", why.join(","));
                    errors.push(FieldError::invalid(path, text, why));
                }
            }
            Some(other) => errors.push(FieldError::invalid(path, BadValue::from(other), "must be a string")),
        }
    }
    if let Some(metadata @ Value::Object(_)) = object.get("metadata") {
        let mut metadata = metadata.clone();
        if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
            // Unlike objects of the API, it may have no name.
            metadata["name"] = "fakename".into();
        }
        let namespaced = metadata.get("namespace").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        let rules = MetaRules { name: names::NameRule::PathSegment, namespaced, known_finalizers_only: false };
        let at = String::from(path);
        errors.extend(validate_object_meta(&metadata, &rules).into_iter().map(|mut error| {
            if !at.is_empty() {
                error.field = format!("{at}.{}", error.field);
            }
            error
        }));
    }
}

/// Validates a pruned default against its schema.
pub(crate) fn validate_default(source: &Value, default: &Value, path: &Path<'_>, errors: &mut Errors) {
    let schema = Schema::compile(source);
    let mut pruned = default.clone();
    super::prune::prune_part(&mut pruned, &schema);
    if pruned != *default {
        errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
    }
    let before = errors.len();
    let mut coerced = default.clone();
    match super::embedded::coerce_at(&mut coerced, &schema, path) {
        Err(error) => errors.push(error),
        Ok(()) => embedded(&schema, &coerced, path, errors),
    }
    let extend = |errors: &mut Errors, found: Vec<FieldError>| {
        if !found.is_empty() {
            errors.extend(within(&path.to_string(), found));
        }
    };
    if errors.len() == before {
        extend(errors, validate::validate(&schema, default, None));
    }
    if errors.len() == before
        && let Ok(rules) = cel::Validator::compile(source, "")
    {
        extend(errors, rules.validate(default, None));
    }
}

/// Checks that an object with metadata could be embedded.
pub(crate) fn validate_embedded(object: &Value, errors: &mut Errors) {
    let mut object = object.clone();
    if let Value::Object(map) = &mut object
        && let Err(why) = super::embedded::metadata(map, super::embedded::Malformed::Refused)
    {
        errors.push(FieldError::invalid("metadata", Value::Null, why));
        return;
    }
    embedded_object(&object, &Path::root(), errors);
}
