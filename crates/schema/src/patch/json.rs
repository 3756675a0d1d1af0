//! JSON patch (RFC 6902): a list of operations, each on a path.
//!
//! Written by hand because the reference's library accepts more than the standard and the crate `json-patch`, and clients rely
//! on it: `replace` of a missing key adds it, negative indices count from the end, a missing value is null, `copy` of a missing
//! key copies null.

use machinery::go_json::json_kind;
use machinery::json::{List, Map, Value};

use super::{PatchError, Patched, Target};
use crate::decode;

/// Most operations of a patch; more are refused.
const OPERATIONS_MAX: usize = 10_000;

/// Most bytes that `copy` may add.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Applies the operations in order; the first that fails fails the patch.
pub fn apply(target: &Target<'_>, current: &Value, patch: &[u8]) -> Result<Patched, PatchError> {
    let is_strict = target.is_strict();
    let refuse =
        |error: String| PatchError::Malformed(if is_strict { format!("error decoding patch: {error}") } else { error });
    let document = decode::json::parse(patch).map_err(refuse)?;
    let operations = match document.value {
        Value::Array(operations) => operations,
        Value::Null => List::new(),
        other => {
            let name = if is_strict { "[]handlers.jsonPatchOp" } else { "jsonpatch.Patch" };
            return Err(refuse(format!("json: cannot unmarshal {} into Go value of type {name}", json_kind(&other))));
        }
    };
    let complaints =
        if is_strict { check(&operations, patch, document.has_duplicates).map_err(refuse)? } else { Vec::new() };
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let value = run_all(current, &operations, false).ok_or(PatchError::Unprocessable)?;
    target.decode(value, current, complaints, || run_all(current, &operations, true).unwrap_or_default())
}

/// Runs the operations. With `sorted`, changed objects are sorted, as in the reference.
fn run_all(current: &Value, operations: &[Value], sorted: bool) -> Option<Value> {
    let mut root = current.clone();
    if let Value::Object(map) = &mut root
        && sorted
    {
        map.sort_keys();
    }
    let mut run = Run { copied: 0, sorted };
    for operation in operations {
        let Value::Object(operation) = operation else { continue };
        run.operation(&mut root, operation)?;
    }
    Some(root)
}

struct Run {
    /// Bytes that `copy` added.
    copied: usize,
    sorted: bool,
}

/// Returns the complaints of strict decoding of the operations.
fn check(operations: &[Value], patch: &[u8], has_duplicates: bool) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    if has_duplicates {
        let inside = decode::json::duplicates(patch);
        complaints.extend(inside.iter().map(|path| format!("json patch duplicate field {path:?}")));
    }
    for (at, operation) in operations.iter().enumerate() {
        match operation {
            Value::Object(operation) => {
                for (key, value) in operation {
                    match (key.as_str(), value) {
                        ("value", _) | ("op" | "path" | "from", Value::String(_) | Value::Null) => {}
                        ("op" | "path" | "from", other) => {
                            return Err(format!(
                                "json: cannot unmarshal {} into Go struct field jsonPatchOp.{key} of type string",
                                json_kind(other)
                            ));
                        }
                        _ => complaints.push(format!("json patch unknown field {:?}", format!("[{at}].{key}"))),
                    }
                }
            }
            Value::Null => {}
            other => {
                return Err(format!(
                    "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                    json_kind(other)
                ));
            }
        }
    }
    Ok(complaints)
}

impl Run {
    /// Runs one operation. `None` if it does not apply; clients are not given the reason.
    fn operation(&mut self, root: &mut Value, operation: &Map) -> Option<()> {
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        match text("op")? {
            "add" => {
                let (place, key) = self.find(root, text("path")?)?;
                self.add(place, &key, value())
            }
            "remove" => {
                let (place, key) = self.find(root, text("path")?)?;
                remove(place, &key).map(|_| ())
            }
            "replace" => {
                let path = text("path")?;
                if path.is_empty() {
                    let value = value();
                    *root = (value.is_object() || value.is_array()).then_some(value)?;
                    return Some(());
                }
                let (place, key) = self.find(root, path)?;
                match place {
                    Value::Object(map) => {
                        map.insert(key, value());
                    }
                    Value::Array(items) => {
                        let at = index(&key, items.len())?;
                        *items.get_mut(at)? = value();
                    }
                    _ => return None,
                }
                Some(())
            }
            "move" => {
                let (place, key) = self.find(root, text("from")?)?;
                let moved = remove(place, &key)?;
                let (place, key) = self.find(root, text("path")?)?;
                self.add(place, &key, moved)
            }
            "copy" => {
                let (place, key) = self.find(root, text("from")?)?;
                let copy = get(place, &key)?.clone();
                self.copied +=
                    if copy.is_null() { 0 } else { serde_json::to_vec(&copy).map_or(0, |bytes| bytes.len()) };
                if self.copied > COPIED_BYTES_MAX {
                    return None;
                }
                let (place, key) = self.find(root, text("path")?)?;
                self.add(place, &key, copy)
            }
            "test" => {
                let path = text("path")?;
                let wanted = operation.get("value").unwrap_or(&Value::Null);
                if path.is_empty() {
                    return (root == wanted).then_some(());
                }
                let (place, key) = self.find(root, path)?;
                (get(place, &key)? == wanted).then_some(())
            }
            _ => None,
        }
    }

    /// Returns the container of a path's last key, and the key. Objects along the path are sorted, as in the reference.
    fn find<'v>(&self, root: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
        let mut parts = path.split('/');
        // Text before the first slash is ignored.
        parts.next()?;
        let mut parts: Vec<String> = parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        let last = parts.pop()?;
        let mut place = root;
        for part in parts {
            place = match place {
                Value::Object(map) => map.get_mut(&part)?,
                Value::Array(items) => {
                    let at = index(&part, items.len())?;
                    items.get_mut(at)?
                }
                _ => return None,
            };
            match place {
                Value::Object(map) if self.sorted => map.sort_keys(),
                Value::Object(_) | Value::Array(_) => {}
                _ => return None,
            }
        }
        Some((place, last))
    }

    fn add(&self, place: &mut Value, key: &str, value: Value) -> Option<()> {
        match place {
            Value::Object(map) => {
                map.insert(key.to_owned(), value);
                if self.sorted {
                    map.sort_keys();
                }
            }
            Value::Array(items) if key == "-" => items.push(value),
            Value::Array(items) => {
                let at = index(key, items.len() + 1)?;
                if at > items.len() {
                    return None;
                }
                items.insert(at, value);
            }
            _ => return None,
        }
        Some(())
    }
}

/// Parses an index of a list; negative ones count from the end.
fn index(text: &str, length: usize) -> Option<usize> {
    // Go accepts a sign and leading zeros.
    let at: i64 = text.strip_prefix('+').unwrap_or(text).parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let at = if at < 0 { at + length } else { at };
    usize::try_from(at).ok()
}

fn get<'v>(place: &'v Value, key: &str) -> Option<&'v Value> {
    match place {
        Value::Object(map) => Some(map.get(key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index(key, items.len())?),
        _ => None,
    }
}

fn remove(place: &mut Value, key: &str) -> Option<Value> {
    match place {
        Value::Object(map) => map.shift_remove(key),
        Value::Array(items) => {
            let at = index(key, items.len())?;
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}
