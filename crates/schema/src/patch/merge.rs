//! RFC 7386: an object laid over another; null deletes.

use machinery::go_json::json_kind;
use machinery::json::{Map, Value};

use super::{PatchError, Patched, Target, duplicates};
use crate::decode;

/// Lays `patch` over `current`.
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
    let Value::Object(below) = current else {
        return Err(PatchError::Malformed("Invalid JSON Document".to_owned()));
    };
    let shown = || {
        let mut shown = below.clone();
        lay(&mut shown, overlay.clone(), true);
        Value::Object(shown)
    };
    let mut value = below.clone();
    lay(&mut value, overlay.clone(), false);
    target.decode(Value::Object(value), current, complaints, shown)
}

/// `sorted`: what is touched comes out sorted, as it does from the reference.
fn lay(below: &mut Map, above: Map, sorted: bool) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (_, Value::Null) => {
                below.shift_remove(&key);
            }
            (Some(Value::Object(below)), Value::Object(above)) => lay(below, above, sorted),
            // Something there is replaced as it is sent; where there was nothing, nulls mean nothing.
            (Some(old), value @ Value::Array(_)) if !old.is_null() && old.is_object() => *old = value,
            (_, mut value) => {
                prune(&mut value);
                below.insert(key, value);
            }
        }
    }
    if sorted {
        below.sort_keys();
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
