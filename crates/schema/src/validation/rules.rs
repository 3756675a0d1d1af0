//! Rules that many kinds share. Each adds its errors; a valid value adds none.

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names::{self, Objections};

use super::Errors;
use crate::walk::Walk as _;

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const IMMUTABLE: &str = "field is immutable";

/// Adds one error for each objection to a text.
pub(super) fn objections(errors: &mut Errors, path: &Path<'_>, value: &str, why: Objections) {
    errors.extend(why.into_iter().map(|why| FieldError::invalid(path, value, why)));
}

pub(super) fn required(errors: &mut Errors, path: &Path<'_>) {
    errors.push(FieldError::required(path, ""));
}

/// Checks a required text by a rule.
pub(super) fn named(errors: &mut Errors, path: &Path<'_>, value: &str, rule: fn(&str) -> Objections) {
    if value.is_empty() {
        required(errors, path);
    } else {
        objections(errors, path, value, rule(value));
    }
}

/// Checks an optional text by a rule.
pub(super) fn optional(errors: &mut Errors, path: &Path<'_>, value: &str, rule: fn(&str) -> Objections) {
    if !value.is_empty() {
        objections(errors, path, value, rule(value));
    }
}

/// Checks that an optional number is not negative.
pub(super) fn not_negative(errors: &mut Errors, path: &Path<'_>, value: Option<i64>) {
    if let Some(value) = value.filter(|value| *value < 0) {
        errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
    }
}

/// Checks that an optional number is positive.
pub(super) fn positive(errors: &mut Errors, path: &Path<'_>, value: Option<i64>) {
    if let Some(value) = value.filter(|value| *value <= 0) {
        errors.push(FieldError::invalid(path, value, "must be greater than zero"));
    }
}

pub(super) fn between(errors: &mut Errors, path: &Path<'_>, value: Option<i64>, low: i64, high: i64) {
    if let Some(value) = value {
        for why in names::in_range(value, low, high) {
            errors.push(FieldError::invalid(path, value, why));
        }
    }
}

/// Checks ids of users and groups.
pub(super) fn id(errors: &mut Errors, path: &Path<'_>, value: Option<i64>) {
    between(errors, path, value, 0, i64::from(i32::MAX));
}

/// Checks that a text is one of a few words, listed in the given order. An empty one is a missing value.
pub(super) fn one_of(errors: &mut Errors, path: &Path<'_>, value: &str, words: &[&str]) {
    if value.is_empty() {
        required(errors, path);
    } else {
        word(errors, path, value, words);
    }
}

/// Checks that a text is one of a few words. An empty one is an unsupported value.
pub(super) fn word(errors: &mut Errors, path: &Path<'_>, value: &str, words: &[&str]) {
    if !words.contains(&value) {
        errors.push(FieldError::not_supported(path, value, words));
    }
}

/// Checks that an optional text is one of a few words.
pub(super) fn optional_word(errors: &mut Errors, path: &Path<'_>, value: &Value, words: &[&str]) {
    if let Some(value) = value.as_str() {
        word(errors, path, value, words);
    }
}

pub(super) fn immutable(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    if !same(new, old) {
        errors.push(FieldError::invalid(path, new, IMMUTABLE));
    }
}

/// Returns whether two values are equal in Go: an absent value equals an empty one.
pub(super) fn same(new: &Value, old: &Value) -> bool {
    if new.is_same(old) {
        return true;
    }
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let gone = |name: &str| !old.contains_key(name);
            old.iter().all(|(name, value)| same(new.get(name).unwrap_or(&Value::Null), value))
                && new.iter().filter(|(name, _)| gone(name)).all(|(_, value)| is_blank(value))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
        }
        (new, old) => new == old || (is_blank(new) && is_blank(old)),
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

pub(super) fn port_number(errors: &mut Errors, path: &Path<'_>, value: i64) {
    for why in names::port_number(value) {
        errors.push(FieldError::invalid(path, value, why));
    }
}

/// Checks a port by number or by name.
pub(super) fn port(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    match value {
        Value::String(name) => objections(errors, path, name, names::port_name(name)),
        other => port_number(errors, path, other.as_i64().unwrap_or(0)),
    }
}

/// Checks that an integer or a percentage is not negative.
pub(super) fn number_or_percent(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    match value {
        Value::String(text) => objections(errors, path, text, names::percent(text)),
        Value::Number(number) => not_negative(errors, path, number.as_i64()),
        _ => {}
    }
}

pub(super) fn not_more_than_all(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    if value.as_str().and_then(percentage).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value, "must not be greater than 100%"));
    }
}

/// Returns the number of `25%`.
pub(super) fn percentage(text: &str) -> Option<i64> {
    text.strip_suffix('%')?.parse().ok()
}

/// Returns whether a bound is zero in either form.
pub(super) fn is_zero_bound(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => percentage(text) == Some(0),
        _ => true,
    }
}

pub(super) fn labels(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    errors.extend(machinery::label_selector::validate_labels(Some(value), path));
}

pub(super) fn selector(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    if value.is_object() {
        errors.extend(machinery::label_selector::validate(value, path));
    }
}

/// Checks that a path has no `..`.
pub(super) fn no_backsteps(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if value.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, value, "must not contain '..'"));
    }
}

/// Checks a relative path that stays below its start.
pub(super) fn descending(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if value.starts_with('/') {
        errors.push(FieldError::invalid(path, value, "must be a relative path"));
    }
    no_backsteps(errors, path, value);
}

/// Checks a relative path that does not use a name reserved by the kubelet.
pub(super) fn unreserved(errors: &mut Errors, path: &Path<'_>, value: &str) {
    descending(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.push(FieldError::invalid(path, value, "must not start with '..'"));
    }
}

/// Checks a case-insensitive qualified name.
pub(super) fn caseless_qualified_name(value: &str) -> Objections {
    names::qualified_name(&value.to_lowercase())
}

/// Checks the metadata of a template.
pub(super) fn template_meta(errors: &mut Errors, path: &Path<'_>, metadata: &Value) {
    annotations(errors, &path.child("annotations"), metadata);
    labels(errors, &path.child("labels"), metadata.at("labels"));
}

pub(super) fn annotations(errors: &mut Errors, path: &Path<'_>, metadata: &Value) {
    let mut size = 0;
    for (key, value) in metadata.map("annotations").into_iter().flatten() {
        objections(errors, path, key, caseless_qualified_name(key));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > machinery::object_meta::ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, machinery::object_meta::ANNOTATIONS_MAX));
    }
}

/// Returns the value of an annotation.
pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.map("metadata.annotations")?.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn missing_and_empty_are_the_same() {
        assert!(same(&json!({"a": 1, "b": []}), &json!({"a": 1})));
        assert!(same(&json!({"a": 1}), &json!({"a": 1, "c": {}})));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "c": {"d": 1}})));
        assert!(!same(&json!([1]), &json!([1, 2])));
        assert!(same(&json!(null), &json!({})));
    }
}
