//! The two halves of apply: merging a configuration into an object, and removing paths from an object.

use std::collections::{BTreeMap, BTreeSet};

use machinery::json::{Map, Text, Value};

use super::compare::{View, child_of, item_element, view};
use super::element::Element;
use super::set::Set;
use crate::facts::{List, NodeId, Shapes};

/// Returns the object with the configuration merged into it. The configuration must have passed [`super::check::check`].
pub(super) fn merge(shapes: &Shapes, root: NodeId, live: &Value, config: &Value) -> Value {
    Merge { shapes }.value(root, Some(live), Some(config)).unwrap_or(Value::Null)
}

struct Merge<'a> {
    shapes: &'a Shapes,
}

impl Merge<'_> {
    fn value(&self, id: NodeId, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
        let sample = config.or(live)?;
        let view = view(self.shapes, id, if sample.is_null() { live.unwrap_or(sample) } else { sample });
        let bare = |value: Option<&Value>| match value {
            None | Some(Value::Null) => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) => false,
        };
        let is_leaf = matches!(view, View::Leaf) || (bare(live) && bare(config));
        if is_leaf {
            return config.or(live).cloned();
        }
        match &view {
            View::List(list) => {
                let (live, config) = (live.and_then(Value::as_array), config.and_then(Value::as_array));
                let items = self.items(list, live.map_or(&[], Vec::as_slice), config.map_or(&[], Vec::as_slice));
                (!items.is_empty()).then_some(Value::Array(items.into()))
            }
            view => {
                let (live, config) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
                let map = self.entries(id, view, live, config);
                (!map.is_empty()).then_some(Value::Object(map))
            }
        }
    }

    fn entries(&self, id: NodeId, view: &View<'_>, live: Option<&Map>, config: Option<&Map>) -> Map {
        let mut merged = Map::new();
        let mut visit = |key: &Text, live: Option<&Value>, config: Option<&Value>| {
            let value = match child_of(view, id, key) {
                Some(child) => self.value(child, live, config),
                None => config.or(live).cloned(),
            };
            if let Some(value) = value {
                merged.insert(key.clone(), value);
            }
        };
        for (key, value) in live.into_iter().flatten() {
            visit(key, Some(value), config.and_then(|config| config.get(key)));
        }
        for (key, value) in config.into_iter().flatten() {
            if live.is_none_or(|live| !live.contains_key(key)) {
                visit(key, None, Some(value));
            }
        }
        merged
    }

    /// Returns the items of both lists: those of the configuration in its order, the others near their previous positions.
    fn items(&self, list: &List, live: &[Value], config: &[Value]) -> Vec<Value> {
        let index = |items: &[Value]| -> Vec<Option<Element>> {
            items.iter().map(|item| item_element(self.shapes, list, item).ok()).collect()
        };
        let (live_elements, config_elements) = (index(live), index(config));
        // A duplicate item of the live object is not merged but replaced.
        let mut of_live: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
        for (element, item) in live_elements.iter().zip(live) {
            if let Some(element) = element {
                of_live.entry(element).and_modify(|known| *known = None).or_insert(Some(item));
            }
        }
        let in_live = |element: &Element| of_live.get(element).copied();
        let of_config: BTreeSet<&Element> = config_elements.iter().flatten().collect();
        let in_config = |element: &Element| of_config.contains(element);
        let mut shared = config_elements.iter().flatten().filter(|element| in_live(element).is_some()).peekable();
        let mut done: BTreeSet<&Element> = BTreeSet::new();
        let mut merged = Vec::with_capacity(live.len().max(config.len()));
        let (mut left, mut right) = (0, 0);
        while left < live.len() || right < config.len() {
            let both = match (live_elements.get(left), config_elements.get(right)) {
                (Some(Some(l)), Some(Some(r))) => Some((l, r)),
                _ => None,
            };
            if let Some((l, r)) = both {
                if l == r {
                    done.insert(r);
                    merged.extend(self.value(list.item, in_live(l).flatten(), Some(&config[right])));
                    left += 1;
                    right += 1;
                    shared.next();
                    continue;
                }
                // In both lists, but not the next in the order of the configuration: it follows later.
                if in_config(l) && shared.peek().is_some_and(|next| *next != l) {
                    left += 1;
                    continue;
                }
            }
            if left < live.len() {
                match &live_elements[left] {
                    Some(element) if in_config(element) => {
                        if done.contains(element) {
                            left += 1;
                        }
                    }
                    _ => {
                        merged.extend(self.value(list.item, Some(&live[left]), None));
                        left += 1;
                        continue;
                    }
                }
            }
            if right < config.len() {
                match &config_elements[right] {
                    Some(element) => {
                        done.insert(element);
                        merged.extend(self.value(list.item, in_live(element).flatten(), Some(&config[right])));
                        if shared.peek() == Some(&element) {
                            shared.next();
                        }
                    }
                    None => merged.push(config[right].clone()),
                }
                right += 1;
            }
        }
        merged
    }
}

/// Returns the object without the paths of a set. Empty results become null.
pub(super) fn remove(shapes: &Shapes, id: NodeId, value: &Value, gone: &Set) -> Value {
    let view = view(shapes, id, value);
    match (&view, value) {
        (View::List(list), Value::Array(items)) => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let (is_gone, below) = match item_element(shapes, list, item) {
                    Ok(element) => {
                        let (is_gone, below) = gone.child(&element);
                        (is_gone, below.cloned())
                    }
                    Err(_) => (false, None),
                };
                if !is_gone {
                    kept.push(below.map_or_else(|| item.clone(), |below| remove(shapes, list.item, item, &below)));
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept.into()) }
        }
        (View::Object(_) | View::Free, Value::Object(map)) => {
            let mut kept = Map::with_capacity(map.len());
            for (key, value) in map {
                let (is_gone, below) = gone.child(&Element::field(key));
                if is_gone {
                    continue;
                }
                let value = match (below, child_of(&view, id, key)) {
                    (Some(below), Some(child)) => remove(shapes, child, value, below),
                    _ => value.clone(),
                };
                kept.insert(key.clone(), value);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (View::Leaf, Value::Array(_) | Value::Object(_)) => Value::Null,
        _ => value.clone(),
    }
}
