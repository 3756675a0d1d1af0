//! JSON merge patch (RFC 7386): merges an object into another; null deletes.

use std::collections::HashSet;

use machinery::go_json::json_kind;
use machinery::json::{Map, Value};

use super::{PatchError, Patched, Target, duplicates};
use crate::decode;

/// Merges `patch` into `current`.
pub fn apply(target: &Target<'_>, current: &Value, patch: &[u8]) -> Result<Patched, PatchError> {
    const BAD: &str = "Invalid JSON Patch";
    let refuse = |error: String| {
        PatchError::Malformed(if target.is_strict() {
            format!("error decoding patch: {error}")
        } else {
            BAD.to_owned()
        })
    };
    let document = decode::json::parse(patch).map_err(refuse)?;
    let overlay = match document.value {
        Value::Object(overlay) => overlay,
        Value::Null => return Err(PatchError::Malformed(BAD.to_owned())),
        other => {
            let word = json_kind(&other);
            return Err(refuse(format!(
                "json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
            )));
        }
    };
    let complaints = duplicates(patch, document.has_duplicates && target.is_strict());
    let Value::Object(base) = current else {
        return Err(PatchError::Malformed("Invalid JSON Document".to_owned()));
    };
    let shown = || {
        let mut shown = base.clone();
        merge_into(&mut shown, overlay.clone(), true);
        Value::Object(shown)
    };
    let mut value = base.clone();
    merge_into(&mut value, overlay.clone(), false);
    target.decode(Value::Object(value), current, complaints, shown)
}

/// Merges `patch` into `base`. With `sorted`, changed objects are sorted, as in the reference.
fn merge_into(base: &mut Map, patch: Map, sorted: bool) {
    // Removed at once in the end: each removal from a large map would move all members behind it.
    let mut removed = HashSet::new();
    for (key, value) in patch {
        match (base.get_mut(&key), value) {
            (None, Value::Null) => {}
            (Some(_), Value::Null) => {
                removed.insert(key);
            }
            (Some(Value::Object(base)), Value::Object(patch)) => merge_into(base, patch, sorted),
            // An existing value is replaced by the list as it is sent; in a new value, nulls are dropped.
            (Some(old), value @ Value::Array(_)) if !old.is_null() && old.is_object() => *old = value,
            (_, mut value) => {
                prune(&mut value);
                base.insert(key, value);
            }
        }
    }
    if !removed.is_empty() {
        base.retain(|key, _| !removed.contains(key));
    }
    if sorted {
        base.sort_keys();
    }
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune);
            map.sort_keys();
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}
