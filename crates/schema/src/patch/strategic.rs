//! Strategic merge patch: a merge patch that uses the type. Lists merge by the key that their field declares, and directives in
//! the patch control the rest: `$patch`, `$retainKeys`, `$setElementOrder/<field>`, `$deleteFromPrimitiveList/<field>`.

pub(crate) mod go_value;
mod index;
mod order;

use std::collections::{HashMap, HashSet};

use machinery::go_json::json_kind;
use machinery::go_text::type_name;
use machinery::json::{Map, Text, Value};

use super::{PatchError, Patched, Target, duplicates};
use crate::decode;
use crate::decode::coerce::{Words, coerce};
use crate::facts::{Field, Form, NodeId, Shapes};
use go_value::go_value;
use index::without_duplicates;
use order::{in_order, partition};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList";

type Object = Map;

/// Merges `patch` into `current`. Not for custom kinds: their types declare no merge keys.
pub fn apply(target: &Target<'_>, current: &Value, patch: &[u8]) -> Result<Patched, PatchError> {
    let document = decode::json::parse(patch).map_err(PatchError::Malformed)?;
    let mut overlay = match document.value {
        Value::Object(overlay) => overlay,
        Value::Null => Object::new(),
        other => {
            let word = json_kind(&other);
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
            )));
        }
    };
    let mut complaints = duplicates(patch, document.has_duplicates && target.is_strict());
    let base = current.as_object().cloned().unwrap_or_default();
    let shapes = target.ty.shapes();
    let merged = Merge { shapes }.maps(base, &mut overlay, Some(target.ty.root()))?;
    let mut value = Value::Object(merged);
    let shown = || go_value(&Value::Object(overlay.clone()));
    let findings = coerce(target.ty, &mut value, Some(current), Words::Converter)
        .map_err(|detail| PatchError::Invalid { value: shown(), detail })?;
    decode::name(&mut value, target.gvk);
    if target.is_strict() {
        complaints.extend(findings.unknown.iter().map(|path| format!("unknown field {path:?}")));
    }
    target.finish(value, complaints, shown)
}

fn malformed(what: &str) -> PatchError {
    PatchError::Malformed(format!("invalid patch format of {what}"))
}

fn unmapped(message: impl Into<String>) -> PatchError {
    PatchError::Unmapped(message.into())
}

pub(super) fn no_merge_key(item: &Value, key: &str) -> PatchError {
    unmapped(format!("map: {} does not contain declared merge key: {key}", go_value(item)))
}

/// Returns Go's name for the type of an unexpected value.
fn go_type(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { type_name(value) }
}

fn wrong_type(wanted: &str, value: &Value) -> PatchError {
    unmapped(format!("expected a {wanted}, but received a {}", go_type(value)))
}

fn as_list(value: &Value) -> Result<&Vec<Value>, PatchError> {
    value.as_array().ok_or_else(|| wrong_type("[]interface {}", value))
}

/// Returns the class of a value; values of different classes do not merge.
fn value_class(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(number) if number.is_f64() => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) | Value::Raw(_) => 6,
    }
}

/// The merge behaviour that a field declares.
struct Declared<'a> {
    node: NodeId,
    merges: bool,
    replaces: bool,
    key: Option<&'a str>,
}

struct Merge<'a> {
    shapes: &'a Shapes,
}

impl<'a> Merge<'a> {
    /// Returns the declaration of a field. `node` is `None` below free-form values.
    fn field(&self, node: Option<NodeId>, name: &str) -> Result<Declared<'a>, PatchError> {
        let Some(id) = node else {
            return Err(unmapped("merging an object in json but data type is not struct, instead is: interface"));
        };
        let node = self.shapes.node(id);
        let owner = node.name.rsplit('.').next().unwrap_or_default();
        let missing = || unmapped(format!("unable to find api field in struct {owner} for the json field {name:?}"));
        let object = match &node.form {
            Form::Object(object) if object.rest.is_none() => object,
            Form::Object(_) => {
                return Err(unmapped("merging an object in json but data type is not struct, instead is: map"));
            }
            Form::List(_) => {
                return Err(unmapped("merging an object in json but data type is not struct, instead is: slice"));
            }
            _ => return Err(missing()),
        };
        let folded = || object.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let field: &Field = object.field(name).or_else(folded).ok_or_else(missing)?;
        Ok(Declared {
            node: field.node,
            merges: field.strategy().merge,
            replaces: field.strategy().replace,
            key: field.strategy().merge_key.as_deref(),
        })
    }

    /// As [`Merge::field`], for a field that must be a list; its node is that of the items.
    fn list_field(&self, node: Option<NodeId>, name: &str) -> Result<Declared<'a>, PatchError> {
        let declared = self.field(node, name)?;
        match &self.shapes.node(declared.node).form {
            Form::List(list) => Ok(Declared { node: list.item, ..declared }),
            _ => Err(unmapped("expected slice or array type, but got: struct")),
        }
    }

    /// Merges a patch into an object, and removes the directives from the patch.
    fn maps(&self, mut base: Object, patch: &mut Object, node: Option<NodeId>) -> Result<Object, PatchError> {
        if let Some(directive) = patch.get(DIRECTIVE) {
            return match directive.as_str() {
                Some("replace") => {
                    patch.shift_remove(DIRECTIVE);
                    Ok(patch.clone())
                }
                Some("delete") => Ok(Object::new()),
                _ => Err(bad_directive(directive, patch)),
            };
        }
        retain_keys(&mut base, patch)?;
        self.set_orders(&mut base, patch, node)?;
        let keys: Vec<Text> = patch.keys().cloned().collect();
        // Removed at once in the end: each removal from a large map would move all members behind it.
        let mut removed: HashSet<Text> = HashSet::new();
        let mut put_again = Object::new();
        for key in keys {
            let (name, is_deletion) = match key.strip_prefix(DELETE_PRIMITIVES) {
                Some(rest) => (rest.strip_prefix('/').ok_or_else(|| malformed("primitive list"))?, true),
                None => (key.as_str(), false),
            };
            let Some(value) = patch.get_mut(&key) else { continue };
            if value.is_null() {
                put_again.shift_remove(name);
                removed.insert(name.into());
                continue;
            }
            // A name has two keys at most: itself, and that of `$deleteFromPrimitiveList`.
            let base = if removed.contains(name) { &mut put_again } else { &mut base };
            let is_alike = base.get(name).is_some_and(|old| value_class(old) == value_class(value));
            if !is_alike {
                if !is_deletion {
                    discard_nulls(value);
                    put(base, name, without_directives(value.clone()));
                }
                continue;
            }
            match value {
                Value::Object(patch) => {
                    let declared = self.field(node, name)?;
                    let merged = if declared.replaces {
                        patch.clone()
                    } else {
                        let Some(Value::Object(old)) = base.get_mut(name).map(Value::take) else { continue };
                        self.maps(old, patch, Some(declared.node))?
                    };
                    base.insert(name.to_owned(), Value::Object(merged));
                }
                Value::Array(patch) => {
                    let declared = self.list_field(node, name)?;
                    let Some(Value::Array(old)) = base.get_mut(name).map(Value::take) else { continue };
                    let merged = self.lists(old.into(), patch, &declared, is_deletion)?;
                    base.insert(name.to_owned(), Value::Array(merged.into()));
                }
                value => put(base, name, without_directives(value.clone())),
            }
        }
        if !removed.is_empty() {
            base.retain(|name, _| !removed.contains(name));
            base.extend(put_again);
        }
        Ok(base)
    }

    /// Applies `$setElementOrder/<field>`: merges the field's list and sorts it.
    fn set_orders(&self, base: &mut Object, patch: &mut Object, node: Option<NodeId>) -> Result<(), PatchError> {
        if !patch.keys().any(|key| key.starts_with(SET_ORDER)) {
            return Ok(());
        }
        let mut orders = Vec::new();
        patch.retain(|key, value| {
            let is_order = key.starts_with(SET_ORDER);
            if is_order {
                orders.push((key.clone(), value.take()));
            }
            !is_order
        });
        for (key, wanted) in orders {
            let wanted = as_list(&wanted)?;
            let name = key.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/'));
            let name = name.ok_or_else(|| malformed("setElementOrder list"))?;
            let old = base.get(name).map(as_list).transpose()?.cloned();
            let new = patch.get(name).map(as_list).transpose()?.cloned();
            let declared = self.list_field(node, name)?;
            order::check(new.as_deref().unwrap_or_default(), wanted, declared.key)?;
            let merged = match (&old, &new) {
                (None, None) => continue,
                (Some(old), None) => old.clone(),
                (None, Some(new)) => match without_directives(Value::Array(new.clone().into())) {
                    Some(Value::Array(kept)) => kept.into(),
                    _ => continue,
                },
                (Some(old), Some(new)) => self.lists(old.clone(), &mut new.clone(), &declared, false)?,
            };
            let old = old.unwrap_or_default();
            let new = new.unwrap_or_default();
            let (listed, others) = partition(merged, wanted, declared.key)?;
            let is_map = is_list_of_maps(&[&old, &new])?;
            let sorted = in_order(listed, others, wanted, &old, declared.key.filter(|_| is_map))?;
            base.insert(name.to_owned(), Value::Array(sorted.into()));
            patch.shift_remove(name);
        }
        Ok(())
    }

    fn lists(
        &self,
        old: Vec<Value>,
        patch: &mut [Value],
        declared: &Declared<'a>,
        is_deletion: bool,
    ) -> Result<Vec<Value>, PatchError> {
        if !declared.merges && !is_deletion {
            return Ok(patch.to_vec());
        }
        if old.is_empty() && patch.is_empty() {
            return Ok(old);
        }
        if !is_list_of_maps(&[&old, patch])? {
            if is_deletion {
                let gone: HashSet<&Value> = patch.iter().collect();
                return Ok(old.into_iter().filter(|item| !gone.contains(item)).collect());
            }
            let merged = without_duplicates(old.iter().chain(patch.iter()).cloned().collect());
            let (patched, others) = partition(merged, patch, None)?;
            return in_order(patched, others, patch, &old, None);
        }
        let Some(key) = declared.key else {
            return Err(unmapped("cannot merge lists without merge key for struct"));
        };
        let (mut merged, mut patch) = special_items(old, patch, key)?;
        let old = merged.clone();
        let mut positions: HashMap<Value, usize> = HashMap::with_capacity(old.len() + patch.len());
        for (at, item) in old.iter().enumerate() {
            if let Some(value) = item.get(key) {
                positions.entry(value.clone()).or_insert(at);
            }
        }
        for item in &mut patch {
            let Value::Object(patch) = item else { continue };
            let Some(value) = patch.get(key).cloned() else { return Err(no_merge_key(item, key)) };
            let at = *positions.entry(value).or_insert(merged.len());
            match merged.get_mut(at).map(Value::take) {
                // The merge keeps the value of the key.
                Some(Value::Object(old)) => merged[at] = Value::Object(self.maps(old, patch, Some(declared.node))?),
                _ => merged.push(item.clone()),
            }
        }
        let (patched, others) = partition(merged, &patch, Some(key))?;
        in_order(patched, others, &patch, &old, Some(key))
    }
}

fn bad_directive(directive: &Value, map: &Object) -> PatchError {
    let shown = match directive {
        Value::String(text) => text.to_string(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Array(_) | Value::Object(_) => go_value(directive),
        other => format!("%!s({}={})", go_type(other), go_value(other)),
    };
    unmapped(format!("unknown patch type: {shown} in map: {}", go_value(&Value::Object(map.clone()))))
}

/// Applies `$retainKeys`: fields that are not listed are removed; fields that are sent must be listed.
fn retain_keys(base: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(retained) = patch.shift_remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(malformed("retainKeys")) };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_listed = |key: &str| retained.contains(key);
    for (key, value) in patch.iter() {
        if !value.is_null() && !key.starts_with(DELETE_PRIMITIVES) && !key.starts_with(SET_ORDER) && !is_listed(key) {
            return Err(malformed("retainKeys"));
        }
    }
    base.retain(|key, _| is_listed(key));
    Ok(())
}

/// Applies the items with a directive; returns the list to merge into, and the patch without those items.
fn special_items(mut old: Vec<Value>, patch: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut replaces = false;
    let mut deleted = HashSet::new();
    for item in patch {
        let Value::Object(map) = item else { continue };
        let Some(directive) = map.get(DIRECTIVE) else {
            rest.push(item.clone());
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = map.get(key).ok_or_else(|| no_merge_key(item, key))?;
                deleted.insert(value);
            }
            Some("replace") => replaces = true,
            Some("merge") => return Err(unmapped("merging lists cannot yet be specified in the patch")),
            _ => return Err(bad_directive(directive, map)),
        }
    }
    if replaces {
        return Ok((rest, Vec::new()));
    }
    if !deleted.is_empty() {
        old.retain(|other| other.get(key).is_none_or(|value| !deleted.contains(value)));
    }
    Ok((old, rest))
}

/// Returns whether lists hold objects; all items must be of one class.
fn is_list_of_maps(lists: &[&[Value]]) -> Result<bool, PatchError> {
    let mut first = None;
    for item in lists.iter().copied().flatten() {
        match first {
            None if item.is_array() => return Err(PatchError::Unprocessable),
            None => first = Some(item),
            Some(other) if value_class(other) != value_class(item) => {
                let shown: Vec<String> =
                    lists.iter().map(|list| go_value(&Value::Array(list.to_vec().into()))).collect();
                return Err(unmapped(format!("list element types are not identical: [{}]", shown.join(" "))));
            }
            Some(_) => {}
        }
    }
    first.map(Value::is_object).ok_or_else(|| unmapped("no elements in any of the given slices"))
}

fn put(base: &mut Object, name: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            base.insert(name.to_owned(), value);
        }
        None => {
            base.shift_remove(name);
        }
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Removes objects with a directive; `None` if the value is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => Some(Value::Object(
            map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}
