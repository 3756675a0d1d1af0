//! The reason why a patch does not apply, in the words of the library of the reference. It is part of the errors of webhooks and
//! policies; a client's own patch is refused without a reason.

use machinery::json::Value;

use super::{index, keys, run_all};

const MISSING: &str = "missing value";
const INVALID_INDEX: &str = "invalid index referenced";

/// The reason why a patch that was refused does not apply to an object.
#[must_use]
pub fn reason(current: &Value, patch: &[u8]) -> String {
    let unknown = || "the patch does not apply".to_owned();
    let Ok(document) = crate::decode::json::parse(patch) else { return unknown() };
    let Value::Array(operations) = document.value else { return unknown() };
    let mut before = current.clone();
    for operation in operations.iter() {
        match run_all(&before, std::slice::from_ref(operation), false) {
            Some(after) => before = after,
            None => return of_operation(&before, operation),
        }
    }
    unknown()
}

fn of_operation(root: &Value, operation: &Value) -> String {
    let text = |member: &str| operation[member].as_str();
    let Some(op) = text("op") else { return format!("Unexpected kind: {}", text("op").unwrap_or("unknown")) };
    let wrapped = |text: String, cause: &str| format!("{text}: {cause}");
    if !matches!(op, "add" | "remove" | "replace" | "move" | "test" | "copy") {
        return format!("Unexpected kind: {op}");
    }
    if matches!(op, "move" | "copy") {
        let Some(from) = text("from") else {
            return wrapped(format!("{op} operation failed to decode from"), MISSING);
        };
        let Some((place, key)) = find(root, from) else {
            return wrapped(format!("{op} operation does not apply: doc is missing from path: {from}"), MISSING);
        };
        let refused = if op == "move" { remove(place, &key) } else { get(place, &key) };
        if let Some(cause) = refused {
            let at = if op == "move" {
                format!("error in move for path: '{key}'")
            } else {
                format!("error in copy for from: '{from}'")
            };
            return wrapped(at, &cause);
        }
    }
    let Some(path) = text("path") else { return wrapped(format!("{op} operation failed to decode path"), MISSING) };
    let Some((place, key)) = find(root, path) else {
        let why = match op {
            "add" | "remove" => format!("{op} operation does not apply: doc is missing path: \"{path}\""),
            "replace" => format!("replace operation does not apply: doc is missing path: {path}"),
            "test" => format!("test operation does not apply: is missing path: {path}"),
            _ => format!("{op} operation does not apply: doc is missing destination path: {path}"),
        };
        return wrapped(why, MISSING);
    };
    match op {
        "remove" => wrapped(format!("error in remove for path: '{path}'"), &remove(place, &key).unwrap_or_default()),
        "replace" if get(place, &key).is_some() => {
            wrapped(format!("replace operation does not apply: doc is missing key: {path}"), MISSING)
        }
        "test" => match get(place, &key) {
            Some(cause) => wrapped(format!("error in test for path: '{path}'"), &cause),
            None => wrapped(format!("testing path {path} failed"), "test failed"),
        },
        "copy" => wrapped("error while adding value during copy".to_owned(), &add(place, &key)),
        "move" => wrapped(format!("error in move for path: '{path}'"), &add(place, &key)),
        _ => wrapped(format!("error in {op} for path: '{path}'"), &add(place, &key)),
    }
}

/// The container of a path's last key, and the key.
fn find<'v>(root: &'v Value, path: &str) -> Option<(&'v Value, String)> {
    let mut keys = keys(path)?;
    let last = keys.pop()?;
    let mut place = root;
    for key in keys {
        place = match place {
            Value::Array(items) => items.get(index(&key, items.len())?)?,
            other => other.get(key.as_str())?,
        };
        if !place.is_object() && !place.is_array() {
            return None;
        }
    }
    Some((place, last))
}

/// Why a key cannot be read.
fn get(place: &Value, key: &str) -> Option<String> {
    match place {
        Value::Array(items) => out_of_range(key, items.len()),
        _ => None,
    }
}

/// Why a key cannot be removed.
fn remove(place: &Value, key: &str) -> Option<String> {
    match place {
        Value::Array(items) => out_of_range(key, items.len()),
        other => other.get(key).is_none().then(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
    }
}

/// Why nothing can be added at a key.
fn add(place: &Value, key: &str) -> String {
    match place {
        Value::Array(items) => match key.parse::<i64>() {
            Err(_) => {
                format!("value was not a proper array index: '{key}': strconv.Atoi: parsing {key:?}: invalid syntax")
            }
            Ok(_) => out_of_range(key, items.len() + 1).unwrap_or_else(|| "invalid state detected".to_owned()),
        },
        _ => "the object would be too large".to_owned(),
    }
}

fn out_of_range(key: &str, length: usize) -> Option<String> {
    match key.parse::<i64>() {
        Err(_) => Some(format!("strconv.Atoi: parsing {key:?}: invalid syntax")),
        Ok(at) => {
            let outside = index(key, length).is_none_or(|at| at >= length);
            outside.then(|| format!("Unable to access invalid index: {at}: {INVALID_INDEX}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn refused_operations_have_a_reason() {
        let object = json!({"data": {"k": "v"}, "list": [1]});
        for (operation, why) in [
            (
                json!({"op": "replace", "path": "/data/none/x", "value": 1}),
                "replace operation does not apply: doc is missing path: /data/none/x: missing value",
            ),
            (
                json!({"op": "add", "path": "/a/b", "value": 1}),
                "add operation does not apply: doc is missing path: \"/a/b\": missing value",
            ),
            (
                json!({"op": "remove", "path": "/data/x"}),
                "error in remove for path: '/data/x': Unable to remove nonexistent key: x: missing value",
            ),
            (json!({"op": "test", "path": "/data/k", "value": "w"}), "testing path /data/k failed: test failed"),
            (
                json!({"op": "add", "path": "/list/5", "value": 1}),
                "error in add for path: '/list/5': Unable to access invalid index: 5: invalid index referenced",
            ),
            (
                json!({"op": "remove", "path": "/list/1"}),
                "error in remove for path: '/list/1': Unable to access invalid index: 1: invalid index referenced",
            ),
            (
                json!({"op": "copy", "from": "/a/b", "path": "/c"}),
                "copy operation does not apply: doc is missing from path: /a/b: missing value",
            ),
            (
                json!({"op": "move", "from": "/nope", "path": "/c"}),
                "error in move for path: 'nope': Unable to remove nonexistent key: nope: missing value",
            ),
            (json!({"op": "merge", "path": "/data/x", "value": 1}), "Unexpected kind: merge"),
        ] {
            let patch = json!([{"op": "add", "path": "/first", "value": 1}, operation]).to_string();
            assert_eq!(reason(&object, patch.as_bytes()), why, "{patch}");
        }
    }
}
