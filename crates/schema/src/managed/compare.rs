//! The differences of two objects, and the fields of one object, as sets of paths.
//!
//! The shape determines the depth of paths: an atomic list or object is one path, the items of a set or of a list with keys
//! are paths of their own.

use machinery::json::{Map, Value};

use smol_str::SmolStr;

use super::element::{Element, equal};
use super::set::Set;
use crate::facts::{Form, List, Listing, NodeId, Object, Shapes};

/// The paths that differ between an old and a new object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

/// The change of the field itself, not of one below it: removed, modified or added.
#[derive(Clone, Copy, Default)]
struct Here {
    removed: bool,
    modified: bool,
    added: bool,
}

/// Compares two objects of one type. Server fields of `metadata` are skipped: they have no manager.
pub(super) fn compare(shapes: &Shapes, root: NodeId, old: &Value, new: &Value) -> Comparison {
    let mut found = Comparison::default();
    Comparer { shapes }.value(root, Some(old), Some(new), 0, &mut found);
    found
}

/// Returns the paths of an object's fields.
pub(super) fn field_set(shapes: &Shapes, root: NodeId, object: &Value) -> Set {
    let mut set = Set::default();
    FieldSet { shapes }.value(root, object, &mut set);
    set
}

/// The merge behaviour of a value: that of the shape, or that of the value's type where the shape allows any.
pub(super) enum View<'a> {
    Leaf,
    List(&'a List),
    Object(&'a Object),
    /// An object of any values.
    Free,
}

pub(super) fn view<'a>(shapes: &'a Shapes, id: NodeId, value: &Value) -> View<'a> {
    match &shapes.node(id).form {
        Form::Scalar(_) => View::Leaf,
        Form::List(list) if list.listing == Listing::Atomic => View::Leaf,
        Form::List(list) => View::List(list),
        Form::Object(object) if object.atomic => View::Leaf,
        Form::Object(object) => View::Object(object),
        Form::Any { atomic: true } => View::Leaf,
        Form::Any { .. } | Form::Either(_) if value.is_object() => View::Free,
        Form::Any { .. } | Form::Raw | Form::Either(_) => View::Leaf,
    }
}

/// Returns the node of a member; below a free object that of any value.
pub(super) fn child_of(view: &View<'_>, id: NodeId, key: &str) -> Option<NodeId> {
    match view {
        View::Object(object) => object.child(key),
        View::Free => Some(id),
        _ => None,
    }
}

/// Fields of `metadata` without a manager.
pub(super) const UNMANAGED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

struct Comparer<'a> {
    shapes: &'a Shapes,
}

impl Comparer<'_> {
    fn value(
        &self,
        id: NodeId,
        old: Option<&Value>,
        new: Option<&Value>,
        depth: usize,
        found: &mut Comparison,
    ) -> Here {
        let Some(sample) = new.or(old) else { return Here::default() };
        if let (None, Some(new)) = (old, new) {
            self.added(id, new, depth, &mut found.added);
            return Here { added: true, ..Here::default() };
        }
        let view = view(self.shapes, id, sample);
        let is_leaf = match &view {
            View::Leaf => true,
            View::List(_) => is_bare(old) && is_bare(new),
            View::Object(_) | View::Free => is_bare(old) && is_bare(new),
        };
        if is_leaf {
            return match (old, new) {
                (None, _) => Here { added: true, ..Here::default() },
                (_, None) => Here { removed: true, ..Here::default() },
                (Some(old), Some(new)) => Here { modified: !equal(old, new), ..Here::default() },
            };
        }
        match &view {
            View::List(list) => {
                self.items(list, old.and_then(Value::as_array), new.and_then(Value::as_array), depth, found)
            }
            view => {
                let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                self.entries(id, view, old, new, depth, found);
            }
        }
        found.removed.sort();
        found.modified.sort();
        found.added.sort();
        let is_mixed = matches!(view, View::Free) && old.is_some_and(|old| !old.is_object() && !old.is_null());
        Here { added: old.is_none(), removed: new.is_none(), modified: is_mixed }
    }

    /// Collects everything below a value that was absent before, without a comparison.
    fn added(&self, id: NodeId, new: &Value, depth: usize, found: &mut Set) {
        let view = view(self.shapes, id, new);
        match (&view, new) {
            (View::List(list), Value::Array(items)) => {
                let groups = group(self.shapes, list, items);
                found.reserve(groups.len());
                for (element, items) in groups {
                    let mut below = Set::default();
                    if let [item] = items.as_slice() {
                        self.added(list.item, item, depth + 1, &mut below);
                    }
                    found.push(element, true, below);
                }
            }
            (View::Object(_) | View::Free, Value::Object(map)) => {
                let in_metadata = self.is_metadata(id, depth);
                found.reserve(map.len());
                for (key, value) in map {
                    if in_metadata && UNMANAGED.contains(&key.as_str()) {
                        continue;
                    }
                    let Some(child) = child_of(&view, id, key) else { continue };
                    let mut below = Set::default();
                    self.added(child, value, depth + 1, &mut below);
                    found.push(Element::Field(key.clone()), true, below);
                }
            }
            _ => return,
        }
        found.sort();
    }

    /// Returns whether a node is the object's metadata. The root is at depth 0, so its entries are at depth 1 with the type
    /// ObjectMeta.
    fn is_metadata(&self, id: NodeId, depth: usize) -> bool {
        depth == 1 && &*self.shapes.node(id).name == "v1.ObjectMeta"
    }

    fn entries(
        &self,
        id: NodeId,
        view: &View<'_>,
        old: Option<&Map>,
        new: Option<&Map>,
        depth: usize,
        found: &mut Comparison,
    ) {
        let mut visit = |key: &str, old: Option<&Value>, new: Option<&Value>, in_metadata: bool| {
            if in_metadata && UNMANAGED.contains(&key) {
                return;
            }
            if let Some(child) = child_of(view, id, key) {
                self.child(child, || Element::field(key), old, new, depth, found);
            }
        };
        let in_metadata = self.is_metadata(id, depth);
        // Two objects in their normal form mostly have the same keys in the same order: then there are no lookups.
        if let (Some(old), Some(new)) = (old, new)
            && old.len() == new.len()
            && old.keys().eq(new.keys())
        {
            for ((key, old), new) in old.iter().zip(new.values()) {
                if !old.is_identical(new) {
                    visit(key, Some(old), Some(new), in_metadata);
                }
            }
            return;
        }
        for (key, value) in new.into_iter().flatten() {
            visit(key, old.and_then(|old| old.get(key)), Some(value), in_metadata);
        }
        for (key, value) in old.into_iter().flatten() {
            if new.is_none_or(|new| !new.contains_key(key)) {
                visit(key, Some(value), None, in_metadata);
            }
        }
    }

    fn child(
        &self,
        id: NodeId,
        element: impl FnOnce() -> Element,
        old: Option<&Value>,
        new: Option<&Value>,
        depth: usize,
        found: &mut Comparison,
    ) {
        let mut below = Comparison::default();
        let here = self.value(id, old, new, depth + 1, &mut below);
        let Comparison { removed, modified, added } = below;
        let changed = [here.removed || !removed.is_empty(), here.modified || !modified.is_empty()];
        if !changed[0] && !changed[1] && !here.added && added.is_empty() {
            return;
        }
        let element = element();
        if changed[0] {
            found.removed.push(element.clone(), here.removed, removed);
        }
        if changed[1] {
            found.modified.push(element.clone(), here.modified, modified);
        }
        found.added.push(element, here.added, added);
    }

    fn items(
        &self,
        list: &List,
        old: Option<&Vec<Value>>,
        new: Option<&Vec<Value>>,
        depth: usize,
        found: &mut Comparison,
    ) {
        let old = group(self.shapes, list, old.map_or(&[], Vec::as_slice));
        let new = group(self.shapes, list, new.map_or(&[], Vec::as_slice));
        let mut mark = |element: &Element, removed: bool, modified: bool, added: bool| {
            found.removed.push(element.clone(), removed, Set::default());
            found.modified.push(element.clone(), modified, Set::default());
            found.added.push(element.clone(), added, Set::default());
        };
        // Duplicate items are not compared inside: they are one value, owned or not.
        let mut pairs = Vec::with_capacity(new.len());
        for (element, now) in &new {
            let (before, now) = (items_of(&old, element), now.as_slice());
            match (before.len(), now.len()) {
                (0 | 1, 1) => pairs.push((element, before.first().copied(), Some(now[0]))),
                (0 | 1, _) => {
                    if let Some(before) = before.first() {
                        pairs.push((element, Some(*before), None));
                    }
                    mark(element, false, false, true);
                }
                (_, 1) => {
                    pairs.push((element, None, Some(now[0])));
                    mark(element, true, false, false);
                }
                _ => {
                    let same = before.len() == now.len() && before.iter().zip(now).all(|(a, b)| equal(a, b));
                    mark(element, false, !same, false);
                }
            }
        }
        for (element, before) in &old {
            if items_of(&new, element).is_empty() {
                match before.as_slice() {
                    [before] => pairs.push((element, Some(*before), None)),
                    _ => mark(element, true, false, false),
                }
            }
        }
        for (element, before, now) in pairs {
            if let (Some(before), Some(now)) = (before, now)
                && before.is_identical(now)
            {
                continue;
            }
            self.child(list.item, || element.clone(), before, now, depth, found);
        }
    }
}

/// Returns whether a value is absent, null or empty.
pub(super) fn is_bare(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// Groups the items of a list by element, sorted. Items without an element (malformed) are skipped.
pub(super) fn group<'v>(shapes: &Shapes, list: &List, items: &'v [Value]) -> Vec<(Element, Members<'v>)> {
    let mut groups: Vec<(Element, Members<'v>)> = Vec::with_capacity(items.len());
    for item in items {
        if let Ok(element) = item_element(shapes, list, item) {
            groups.push((element, Members::One(item)));
        }
    }
    // Stable, so that items with the same element keep their order.
    if !groups.is_sorted_by(|a, b| a.0 < b.0) {
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        groups.dedup_by(|next, kept| next.0 == kept.0 && kept.1.join(&next.1));
    }
    groups
}

/// The items of one element, nearly always one.
pub(super) enum Members<'v> {
    One(&'v Value),
    Several(Vec<&'v Value>),
}

impl<'v> Members<'v> {
    pub(super) fn as_slice(&self) -> &[&'v Value] {
        match self {
            Members::One(item) => std::slice::from_ref(item),
            Members::Several(items) => items,
        }
    }

    /// Adds the items of another group of the same element. Always returns true.
    fn join(&mut self, other: &Members<'v>) -> bool {
        match self {
            Members::One(item) => *self = Members::Several([&[*item], other.as_slice()].concat()),
            Members::Several(all) => all.extend_from_slice(other.as_slice()),
        }
        true
    }
}

/// Returns the items of an element among sorted groups.
fn items_of<'g, 'v>(groups: &'g [(Element, Members<'v>)], element: &Element) -> &'g [&'v Value] {
    groups.binary_search_by(|(other, _)| other.cmp(element)).map_or(&[], |at| groups[at].1.as_slice())
}

/// Returns the element that identifies an item of a set or of a list with keys; the error is the reason why there is none.
pub(super) fn item_element(shapes: &Shapes, list: &List, item: &Value) -> Result<Element, String> {
    let Listing::Map(keys) = &list.listing else {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(Element::Value(scalar.clone())),
        };
    };
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let object = if let Form::Object(object) = &shapes.node(list.item).form { Some(object) } else { None };
    let mut element: Vec<(SmolStr, Value)> = Vec::with_capacity(keys.len());
    for key in keys {
        let preset = || object.and_then(|object| object.field(key)).and_then(|field| field.preset().cloned());
        if let Some(value) = map.get(key).cloned().or_else(preset) {
            element.push((SmolStr::new(key), value));
        }
    }
    if element.is_empty() {
        let names: Vec<String> = keys.iter().map(|key| machinery::go_text::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    element.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(element))
}

struct FieldSet<'a> {
    shapes: &'a Shapes,
}

impl FieldSet<'_> {
    /// Collects the paths below a field; returns whether the field is a path itself.
    fn value(&self, id: NodeId, value: &Value, set: &mut Set) -> bool {
        let view = view(self.shapes, id, value);
        match (&view, value) {
            (View::Leaf, _) => true,
            (View::List(list), Value::Array(items)) => {
                for (element, members) in group(self.shapes, list, items) {
                    let mut below = Set::default();
                    if let [item] = members.as_slice() {
                        self.value(list.item, item, &mut below);
                    }
                    set.push(element, true, below);
                }
                set.sort();
                false
            }
            (View::Object(_) | View::Free, Value::Object(map)) => {
                for (key, value) in map {
                    let Some(child) = child_of(&view, id, key) else { continue };
                    let mut below = Set::default();
                    let is_path = self.value(child, value, &mut below);
                    let is_declared = matches!(&view, View::Object(object) if object.field(key).is_some());
                    let is_bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                    set.push(Element::field(key), is_path || is_bare || !is_declared, below);
                }
                set.sort();
                false
            }
            _ => false,
        }
    }
}
