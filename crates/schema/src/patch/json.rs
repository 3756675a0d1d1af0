//! JSON patch (RFC 6902): a list of operations, each on a path.
//!
//! Written by hand because the reference's library accepts more than the standard and the crate `json-patch`, and clients rely
//! on it: `replace` of a missing key adds it, negative indices count from the end, a missing value is null, `copy` of a missing
//! key copies null.

use machinery::go_json::json_kind;
use machinery::json::{DEPTH_MAX, List, Map, Value};

use super::{PatchError, Patched, Target};
use crate::decode;
use tree::Node;

mod reason;
mod tree;

pub use reason::reason;

/// Most operations of a patch; more are refused.
const OPERATIONS_MAX: usize = 10_000;

/// Most bytes that `copy` may add.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Applies the operations in order; the first that fails fails the patch.
pub fn apply(target: &Target<'_>, current: &Value, patch: &[u8]) -> Result<Patched, PatchError> {
    let Operations { operations, complaints } = read(patch, target.is_strict())?;
    let value = run_all(current, &operations, false).ok_or(PatchError::Unprocessable)?;
    target.decode(value, current, complaints, || run_all(current, &operations, true).unwrap_or_default())
}

/// Applies the operations to an object whose fields are not known, so that the result is not decoded.
pub fn apply_untyped(current: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let Operations { operations, .. } = read(patch, false)?;
    run_all(current, &operations, false).ok_or(PatchError::Unprocessable)
}

/// The operations of a patch, and the complaints of strict decoding.
struct Operations {
    operations: List,
    complaints: Vec<String>,
}

fn read(patch: &[u8], is_strict: bool) -> Result<Operations, PatchError> {
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
    Ok(Operations { operations, complaints })
}

/// More operations than this get all text of the object parsed first, so that it is not parsed by each of them.
const UNPARSED_OPERATIONS_MAX: usize = 16;

/// Most nodes that are visited to determine the depth of what is moved.
const MEASURED_MAX: usize = 4 << 20;

/// Runs the operations. With `sorted`, changed objects are sorted, as in the reference.
fn run_all(current: &Value, operations: &[Value], sorted: bool) -> Option<Value> {
    let mut root = current.clone();
    if operations.len() > UNPARSED_OPERATIONS_MAX {
        root.parse_raw();
    }
    let mut root = Node::Value(root);
    if sorted {
        root.open();
    }
    let mut run = Run { copied: 0, measurable: MEASURED_MAX, sorted };
    for operation in operations {
        let Value::Object(operation) = operation else { continue };
        run.operation(&mut root, operation)?;
    }
    Some(root.close(sorted))
}

struct Run {
    /// Bytes that `copy` added.
    copied: usize,
    /// What is left of [`MEASURED_MAX`].
    measurable: usize,
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
    fn operation(&mut self, root: &mut Node, operation: &Map) -> Option<()> {
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        match text("op")? {
            "add" => add(root, text("path")?, value()),
            "remove" => {
                let (place, key) = find(root, text("path")?)?;
                remove(place, &key).map(|_| ())
            }
            "replace" => {
                let path = text("path")?;
                if path.is_empty() {
                    let value = value();
                    *root = Node::Value((value.is_object() || value.is_array()).then_some(value)?);
                    return Some(());
                }
                let value = nestable(path, Node::Value(value()), &mut usize::MAX.clone())?;
                let (place, key) = find(root, path)?;
                match place {
                    Node::Map(map) => map.insert(&key, value),
                    Node::List(items) => {
                        let at = index(&key, items.len())?;
                        *items.get_mut(at)? = value;
                    }
                    Node::Value(_) => return None,
                }
                Some(())
            }
            "move" => {
                let (from, path) = (text("from")?, text("path"));
                let (place, key) = find(root, from)?;
                let moved = remove(place, &key)?;
                let path = path?;
                // What does not get deeper is not measured: a large value may be moved many times.
                let is_deeper = depth(path) > depth(from);
                let moved = if is_deeper { nestable(path, moved, &mut self.measurable)? } else { moved };
                insert(root, path, moved)
            }
            "copy" => {
                let copy = self.get(root, text("from")?)?.into_value();
                self.copied +=
                    if copy.is_null() { 0 } else { serde_json::to_vec(&copy).map_or(0, |bytes| bytes.len()) };
                if self.copied > COPIED_BYTES_MAX {
                    return None;
                }
                add(root, text("path")?, copy)
            }
            "test" => {
                let path = text("path")?;
                let wanted = operation.get("value").unwrap_or(&Value::Null);
                if path.is_empty() {
                    return root.equals(wanted).then_some(());
                }
                self.get(root, path)?.equals(wanted).then_some(())
            }
            _ => None,
        }
    }

    /// Returns the value at a path; a missing member is null. With `sorted`, objects along the path count as changed.
    fn get<'v>(&self, root: &'v mut Node, path: &str) -> Option<Found<'v>> {
        if self.sorted {
            find(root, path)?;
        }
        let mut keys = keys(path)?;
        let last = keys.pop()?;
        let mut place = Found::Node(root);
        for key in keys {
            place = place.step(&key)?;
            if !place.is_container() {
                return None;
            }
        }
        match (place.is_map(), place.step(&last)) {
            (_, Some(found)) => Some(found),
            (true, None) => Some(Found::Value(&Value::Null)),
            (false, None) => None,
        }
    }
}

/// Puts a value of the patch, or a copy, at a path.
fn add(root: &mut Node, path: &str, value: Value) -> Option<()> {
    let node = nestable(path, Node::Value(value), &mut usize::MAX.clone())?;
    insert(root, path, node)
}

/// Returns the value if the object can be nested that deep at the path. Otherwise what is stored could not be parsed again, and
/// recursion over it could exhaust the stack: copies of a field into itself double the depth with each operation.
fn nestable(path: &str, node: Node, budget: &mut usize) -> Option<Node> {
    (depth(path) + node.depth(budget)? <= DEPTH_MAX).then_some(node)
}

/// A value that an operation reads.
#[derive(Clone, Copy)]
enum Found<'v> {
    Node(&'v Node),
    Value(&'v Value),
}

impl<'v> Found<'v> {
    /// Returns the member or the item of a key.
    fn step(self, key: &str) -> Option<Found<'v>> {
        match self {
            Found::Node(Node::Value(value)) | Found::Value(value) => match value {
                Value::Object(map) => map.get(key).map(Found::Value),
                Value::Array(items) => items.get(index(key, items.len())?).map(Found::Value),
                _ => None,
            },
            Found::Node(Node::Map(map)) => map.get(key).map(Found::Node),
            Found::Node(Node::List(items)) => items.get(index(key, items.len())?).map(Found::Node),
        }
    }

    fn is_map(self) -> bool {
        matches!(self, Found::Node(Node::Map(_) | Node::Value(Value::Object(_))) | Found::Value(Value::Object(_)))
    }

    fn is_container(self) -> bool {
        match self {
            Found::Node(node) => node.is_container(),
            Found::Value(value) => value.is_object() || value.is_array(),
        }
    }

    fn equals(self, wanted: &Value) -> bool {
        match self {
            Found::Node(node) => node.equals(wanted),
            Found::Value(value) => value == wanted,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Found::Node(node) => node.to_value(),
            Found::Value(value) => value.clone(),
        }
    }
}

/// Returns the depth at which a path puts a value.
fn depth(path: &str) -> usize {
    path.matches('/').count()
}

/// Returns the keys of a path. Text before the first slash is ignored.
fn keys(path: &str) -> Option<Vec<String>> {
    let mut keys = path.split('/');
    keys.next()?;
    Some(keys.map(|key| key.replace("~1", "/").replace("~0", "~")).collect())
}

/// Returns the container of a path's last key, opened like all above it, and the key.
fn find<'v>(root: &'v mut Node, path: &str) -> Option<(&'v mut Node, String)> {
    let mut keys = keys(path)?;
    let last = keys.pop()?;
    let mut place = root.open();
    for key in keys {
        place = match place {
            Node::Map(map) => map.get_mut(&key)?,
            Node::List(items) => {
                let at = index(&key, items.len())?;
                items.get_mut(at)?
            }
            Node::Value(_) => return None,
        };
        if !place.is_container() {
            return None;
        }
        place.open();
    }
    Some((place, last))
}

/// Puts a value at a path.
fn insert(root: &mut Node, path: &str, node: Node) -> Option<()> {
    let (place, key) = find(root, path)?;
    match place {
        Node::Map(map) => map.insert(&key, node),
        Node::List(items) if key == "-" => items.push(node),
        Node::List(items) => {
            let at = index(&key, items.len() + 1)?;
            if at > items.len() {
                return None;
            }
            items.insert(at, node);
        }
        Node::Value(_) => return None,
    }
    Some(())
}

fn remove(place: &mut Node, key: &str) -> Option<Node> {
    match place {
        Node::Map(map) => map.remove(key),
        Node::List(items) => {
            let at = index(key, items.len())?;
            items.remove(at)
        }
        Node::Value(_) => None,
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
