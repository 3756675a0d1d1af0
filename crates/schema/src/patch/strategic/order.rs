//! The order of a merged list: items of the patch in the order of the patch, the others at their previous positions.

use std::collections::HashSet;

use machinery::json::Value;

use super::super::PatchError;
use super::go_value::go_value;
use super::index::{Positions, identity, values};
use super::{DIRECTIVE, SET_ORDER, no_merge_key, unmapped, wrong_type};

/// Splits a list into the items that are in `by` and the others.
pub(super) fn partition(
    list: Vec<Value>,
    by: &[Value],
    key: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let (mut inside, mut outside) = (Vec::with_capacity(list.len()), Vec::new());
    let listed: HashSet<&Value> = match key {
        None => by.iter().collect(),
        Some(key) => values(by, key),
    };
    for item in list {
        let is_inside = match key {
            None => listed.contains(&item),
            Some(key) => {
                let Value::Object(map) = &item else { return Err(wrong_type("map[string]interface {}", &item)) };
                let value = map.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                listed.contains(value)
            }
        };
        if is_inside { inside.push(item) } else { outside.push(item) }
    }
    Ok((inside, outside))
}

/// Sorts `patched` by `patch_order` and `others` by `server_order`, and merges the two.
pub(super) fn in_order(
    mut patched: Vec<Value>,
    mut others: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = key {
        for item in patched.iter().chain(patch_order).chain(&others).chain(server_order) {
            let Value::Object(map) = item else { return Err(wrong_type("map[string]interface {}", item)) };
            if !map.contains_key(key) {
                return Err(no_merge_key(item, key));
            }
        }
    }
    let (in_patch, on_server) = (Positions::new(patch_order, key), Positions::new(server_order, key));
    patched.sort_by_cached_key(|item| in_patch.get(item).unwrap_or(usize::MAX));
    others.sort_by_cached_key(|item| on_server.get(item).unwrap_or(usize::MAX));
    let mut merged = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), patched.peek()) {
            (None, None) => return Ok(merged),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(patched)) => {
                let places = (on_server.get(other), on_server.get(patched));
                matches!(places, (Some(other), Some(patched)) if other < patched)
            }
        };
        merged.extend(if other_first { others.next() } else { patched.next() });
    }
}

/// Checks that the items of a patch are in the order that the patch itself requests.
pub(super) fn check(patch: &[Value], wanted: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut items: Vec<&Value> = Vec::with_capacity(patch.len());
    for item in patch {
        if key.is_some() && !item.is_object() {
            return Err(wrong_type("map[string]interface {}", item));
        }
        let is_deletion = key.is_some() && item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
        if !is_deletion {
            items.push(item);
        }
    }
    let (mut at, mut place) = (0, 0);
    while at < items.len() && place < wanted.len() {
        if items[at].get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        if let Some(key) = key {
            for item in [items[at], &wanted[place]] {
                let Value::Object(map) = item else { return Err(wrong_type("map[string]interface {}", item)) };
                if !map.contains_key(key) {
                    return Err(no_merge_key(item, key));
                }
            }
        }
        if identity(items[at], key) == identity(&wanted[place], key) {
            at += 1;
        }
        place += 1;
    }
    if at < items.len() && place >= wanted.len() {
        let list = |items: &[Value]| go_value(&Value::Array(items.to_vec().into()));
        return Err(unmapped(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
            list(patch),
            list(wanted)
        )));
    }
    Ok(())
}
