//! Access to the metadata of an object.

use std::collections::HashSet;

use jiff::Timestamp;
use machinery::json::{Map, Value, json};

/// The metadata of an object, added if it is missing.
pub(crate) fn of_mut(object: &mut Value) -> &mut Map {
    if !object.is_object() {
        *object = json!({});
    }
    let members = object.as_object_mut().expect("it was made an object above");
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("it was made an object above")
}

pub(crate) fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object["metadata"][member].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn deletion_timestamp(object: &Value) -> Option<Timestamp> {
    object["metadata"]["deletionTimestamp"].as_str()?.parse().ok()
}

pub(crate) fn grace_period(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        of_mut(object).shift_remove("finalizers");
    } else {
        of_mut(object).insert("finalizers", json!(finalizers));
    }
}

/// Removes duplicate owner references; returns a warning if there were any.
pub(crate) fn dedupe_owners(object: &mut Value, when: &str) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let (mut seen, mut seen_twice) = (HashSet::new(), HashSet::new());
    let (mut once, mut twice): (Vec<Value>, Vec<&str>) = (Vec::new(), Vec::new());
    for owner in owners.iter() {
        let uid = owner["uid"].as_str().unwrap_or_default();
        if seen.insert(owner) {
            once.push(owner.clone());
        } else if seen_twice.insert(uid) {
            twice.push(uid);
        }
    }
    if twice.is_empty() {
        return None;
    }
    let twice = twice.join(", ");
    *owners = once;
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {twice}"
    ))
}

/// Raises the generation, if the object has one.
pub(crate) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        of_mut(object).insert("generation", json!(generation + 1));
    }
}

/// Formats a time as objects have it: UTC, in whole seconds.
pub(crate) fn timestamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
