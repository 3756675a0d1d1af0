//! Sets of paths, as trees: the fields that a manager owns.
//!
//! `fieldsV1` is this tree in JSON: a leaf is `{}`; a node that is owned itself and has owned children has the member `.`.

use std::borrow::Cow;
use std::fmt;

use machinery::json::{Map, Value};
use machinery::scan;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::element::{Element, MalformedPath};
use crate::facts::{Form, NodeId, Shapes};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted by element; each is owned or has children.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    element: Element,
    /// The path up to this node is in the set.
    owned: bool,
    children: Set,
}

impl Set {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.node_mut(first);
        if rest.is_empty() {
            node.owned = true;
        } else {
            node.children.insert(rest);
        }
    }

    fn node_mut(&mut self, element: &Element) -> &mut Node {
        let at = match self.nodes.binary_search_by(|node| node.element.cmp(element)) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: element.clone(), owned: false, children: Set::default() };
                self.nodes.insert(at, node);
                at
            }
        };
        &mut self.nodes[at]
    }

    pub(super) fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
    }

    /// Adds a child that is known to be absent; [`Set::sort`] must follow.
    pub(super) fn push(&mut self, element: Element, owned: bool, children: Set) {
        if owned || !children.is_empty() {
            self.nodes.push(Node { element, owned, children });
        }
    }

    /// Sorts pushed nodes.
    pub(super) fn sort(&mut self) {
        if !self.nodes.is_sorted_by(|a, b| a.element <= b.element) {
            self.nodes.sort_unstable_by(|a, b| a.element.cmp(&b.element));
        }
        // Two items of a list may have the same keys; they are one node.
        if self.nodes.windows(2).any(|pair| pair[0].element == pair[1].element) {
            let nodes = std::mem::take(&mut self.nodes);
            for node in nodes {
                match self.nodes.last_mut() {
                    Some(last) if last.element == node.element => {
                        last.owned |= node.owned;
                        last.children.nodes.extend(node.children.nodes);
                    }
                    _ => {
                        self.sort_last();
                        self.nodes.push(node);
                    }
                }
            }
            self.sort_last();
        }
    }

    /// Sorts below the last node, which several nodes may have been joined in.
    fn sort_last(&mut self) {
        if let Some(last) = self.nodes.last_mut() {
            last.children.sort();
        }
    }

    /// Returns the union of many sets.
    pub(super) fn union_all(sets: impl IntoIterator<Item = Set>) -> Set {
        let mut all = Set { nodes: sets.into_iter().flat_map(|set| set.nodes).collect() };
        all.sort();
        all
    }

    /// Returns the names of its paths, if all are fields of the object itself.
    pub(super) fn whole_fields(&self) -> Option<Vec<&str>> {
        let names = self.nodes.iter().map(|node| match &node.element {
            Element::Field(name) if node.children.is_empty() => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }

    fn find(&self, element: &Element) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.nodes[at])
    }

    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.find(first).is_some_and(|node| if rest.is_empty() { node.owned } else { node.children.has(rest) })
    }

    /// Returns whether the path of one element is in the set, and the set below it.
    pub(super) fn child(&self, element: &Element) -> (bool, Option<&Set>) {
        match self.find(element) {
            Some(node) => (node.owned, (!node.children.is_empty()).then_some(&node.children)),
            None => (false, None),
        }
    }

    /// Returns the union with `other`.
    #[must_use]
    pub fn union(mut self, other: Set) -> Set {
        if self.is_empty() {
            return other;
        }
        let mut new = Vec::new();
        for node in other.nodes {
            match self.nodes.binary_search_by(|own| own.element.cmp(&node.element)) {
                Ok(at) => {
                    let own = &mut self.nodes[at];
                    own.owned |= node.owned;
                    own.children = std::mem::take(&mut own.children).union(node.children);
                }
                Err(_) => new.push(node),
            }
        }
        if !new.is_empty() {
            self.nodes.append(&mut new);
            // Two sorted runs: a stable sort merges them in one pass.
            self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
        }
        self
    }

    /// Returns the intersection.
    #[must_use]
    pub fn intersection(&self, other: &Set) -> Set {
        if other.nodes.len() < self.nodes.len() {
            return other.intersection(self);
        }
        let mut nodes = Vec::new();
        for node in &self.nodes {
            let Some(own) = other.find(&node.element) else { continue };
            let owned = node.owned && own.owned;
            let children = node.children.intersection(&own.children);
            if owned || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), owned, children });
            }
        }
        Set { nodes }
    }

    /// Returns whether the intersection is not empty.
    #[must_use]
    pub fn intersects(&self, other: &Set) -> bool {
        if other.nodes.len() < self.nodes.len() {
            return other.intersects(self);
        }
        self.nodes.iter().any(|node| {
            let own = other.find(&node.element);
            own.is_some_and(|own| (node.owned && own.owned) || node.children.intersects(&own.children))
        })
    }

    /// Returns whether this set is a subset of `other`.
    #[must_use]
    pub fn is_within(&self, other: &Set) -> bool {
        self.nodes.iter().all(|node| {
            let own = other.find(&node.element);
            own.is_some_and(|own| (!node.owned || own.owned) && node.children.is_within(&own.children))
        })
    }

    /// Returns the set without exactly the paths of `other`; paths below them stay.
    #[must_use]
    pub fn difference(mut self, other: &Set) -> Set {
        self.subtract(other);
        self
    }

    fn subtract(&mut self, other: &Set) {
        // The smaller set is walked: an object may have many managers, each with a few fields.
        if self.nodes.len() < other.nodes.len() {
            self.nodes.retain_mut(|own| {
                let Some(node) = other.find(&own.element) else { return true };
                own.owned &= !node.owned;
                own.children.subtract(&node.children);
                own.owned || !own.children.is_empty()
            });
            return;
        }
        let mut emptied = false;
        for node in &other.nodes {
            let Ok(at) = self.nodes.binary_search_by(|own| own.element.cmp(&node.element)) else { continue };
            let own = &mut self.nodes[at];
            own.owned &= !node.owned;
            own.children.subtract(&node.children);
            emptied |= !own.owned && own.children.is_empty();
        }
        if emptied {
            self.nodes.retain(|node| node.owned || !node.children.is_empty());
        }
    }

    /// Returns the set without the paths of `other` and everything below them.
    #[must_use]
    pub fn without(mut self, other: &Set) -> Set {
        self.nodes.retain_mut(|node| {
            let (is_out, below) = other.child(&node.element);
            if is_out {
                return false;
            }
            if let Some(below) = below {
                node.children = std::mem::take(&mut node.children).without(below);
            }
            node.owned || !node.children.is_empty()
        });
        self
    }

    /// Returns the paths at or below one of the patterns, in which `*` is any element.
    #[must_use]
    pub fn only(&self, patterns: &[&[&str]]) -> Set {
        let mut nodes = Vec::new();
        for node in &self.nodes {
            let name = if let Element::Field(name) = &node.element { name } else { "" };
            let rest: Vec<&[&str]> = patterns
                .iter()
                .filter_map(|pattern| pattern.split_first().filter(|(first, _)| **first == "*" || **first == name))
                .map(|(_, rest)| rest)
                .collect();
            if rest.iter().any(|pattern| pattern.is_empty()) {
                nodes.push(node.clone());
            } else if !rest.is_empty() {
                let children = node.children.only(&rest);
                // Ancestors of kept paths are kept too.
                if node.owned || !children.is_empty() {
                    nodes.push(Node { element: node.element.clone(), owned: node.owned, children });
                }
            }
        }
        Set { nodes }
    }

    /// Returns the set with every declared field above an owned one added, so that removing a set can remove whole fields.
    #[must_use]
    pub(super) fn with_named_fields(&self, shapes: &Shapes, id: Option<NodeId>) -> Set {
        let form = id.map(|id| &shapes.node(id).form);
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let mut is_declared = false;
            let child = match (form, &node.element) {
                (Some(Form::Object(object)), Element::Field(name)) => {
                    is_declared = object.field(name).is_some();
                    object.child(name)
                }
                (Some(Form::List(list)), Element::Key(_)) => Some(list.item),
                (Some(Form::Any { .. } | Form::Raw | Form::Either(_)), _) => id,
                _ => None,
            };
            let owned = node.owned || (is_declared && !node.children.is_empty());
            let children = node.children.with_named_fields(shapes, child);
            nodes.push(Node { element: node.element.clone(), owned, children });
        }
        Set { nodes }
    }

    /// Returns every path of the set, in order.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        fn walk(set: &Set, prefix: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
            for node in &set.nodes {
                prefix.push(node.element.clone());
                if node.owned {
                    out.push(prefix.clone());
                }
                prefix.pop();
            }
            for node in &set.nodes {
                prefix.push(node.element.clone());
                walk(&node.children, prefix, out);
                prefix.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }

    /// Encodes as `fieldsV1`: raw text, since it is not used before the next write that changes it.
    #[must_use]
    pub fn encode(&self) -> Value {
        let mut out = String::with_capacity(2048);
        self.write(false, &mut out);
        Value::Raw(out.into())
    }

    fn write(&self, owned: bool, out: &mut String) {
        out.push('{');
        let mut comma = owned && !self.is_empty();
        if comma {
            out.push_str("\".\":{}");
        }
        for node in &self.nodes {
            if std::mem::replace(&mut comma, true) {
                out.push(',');
            }
            node.element.write(out);
            out.push(':');
            node.children.write(node.owned, out);
        }
        out.push('}');
    }

    /// Parses `fieldsV1`; null is the empty set.
    pub fn decode(fields: &Value) -> Result<Set, MalformedPath> {
        match fields {
            Value::Null => Ok(Set::default()),
            Value::Object(map) => Ok(Set::decode_map(map)?.0),
            Value::Raw(text) => serde_json::from_str::<Below>(text).map(|below| below.set).map_err(|_| MalformedPath),
            _ => Err(MalformedPath),
        }
    }

    /// Returns whether some path of this set is in `fields`, a `fieldsV1` that is not parsed for it.
    pub(super) fn touches(&self, fields: &Value) -> bool {
        match fields {
            Value::Raw(text) => self.touches_text(text),
            fields => Set::decode(fields).is_ok_and(|set| self.intersects(&set)),
        }
    }

    fn touches_text(&self, fields: &str) -> bool {
        if self.nodes.len() <= SCANNED_MAX {
            return self.nodes.iter().any(|node| {
                let Some(below) = stored_below(fields, &node.element) else { return false };
                (node.owned && is_stored_owned(below)) || node.children.touches_text(below)
            });
        }
        scan::members(fields).any(|(name, below)| {
            let element = decode_stored(name).ok().flatten();
            let Some(node) = element.and_then(|element| self.find(&element)) else { return false };
            (node.owned && is_stored_owned(below)) || node.children.touches_text(below)
        })
    }

    /// Returns whether every path of this set is in `fields`, a `fieldsV1` that is not parsed for it.
    pub(super) fn is_within_stored(&self, fields: &Value) -> bool {
        match fields {
            Value::Raw(text) => self.is_within_text(text),
            fields => Set::decode(fields).is_ok_and(|set| self.is_within(&set)),
        }
    }

    fn is_within_text(&self, fields: &str) -> bool {
        let is_within =
            |node: &Node, below: &str| (!node.owned || is_stored_owned(below)) && node.children.is_within_text(below);
        if self.nodes.len() <= SCANNED_MAX {
            return self
                .nodes
                .iter()
                .all(|node| stored_below(fields, &node.element).is_some_and(|below| is_within(node, below)));
        }
        let found = scan::members(fields).filter(|(name, below)| {
            let element = decode_stored(name).ok().flatten();
            element.and_then(|element| self.find(&element)).is_some_and(|node| is_within(node, below))
        });
        found.count() == self.nodes.len()
    }

    /// Returns a stored `fieldsV1` with this set added, if that can be done in its text: only the ancestors of the new paths
    /// are parsed.
    pub(super) fn added_to_text(&self, fields: &str) -> Option<String> {
        let mut out = String::with_capacity(fields.len() + 64);
        self.add_to_text(fields, false, &mut out)?;
        Some(out)
    }

    fn add_to_text(&self, fields: &str, owned: bool, out: &mut String) -> Option<()> {
        let mut more = self.nodes.iter().peekable();
        out.push('{');
        let mut comma = owned && (!self.is_empty() || fields != "{}");
        if comma {
            out.push_str("\".\":{}");
        }
        let mut separate = |out: &mut String| {
            if std::mem::replace(&mut comma, true) {
                out.push(',');
            }
        };
        for (name, below) in scan::members(fields).filter(|(name, _)| *name != ".") {
            // Elements that a later version wrote have no position in this order.
            let element = decode_stored(name).ok()??;
            while let Some(node) = more.next_if(|node| node.element < element) {
                separate(out);
                node.element.write(out);
                out.push(':');
                node.children.write(node.owned, out);
            }
            separate(out);
            out.push('"');
            out.push_str(name);
            out.push_str("\":");
            match more.next_if(|node| node.element == element) {
                Some(node) => node.children.add_to_text(below, node.owned || is_stored_owned(below), out)?,
                None => out.push_str(below),
            }
        }
        for node in more {
            separate(out);
            node.element.write(out);
            out.push(':');
            node.children.write(node.owned, out);
        }
        out.push('}');
        Some(())
    }

    fn decode_map(map: &Map) -> Result<(Set, bool), MalformedPath> {
        let mut set = Set { nodes: Vec::with_capacity(map.len()) };
        let mut owned = map.is_empty();
        for (key, value) in map {
            if key == "." {
                owned = true;
                continue;
            }
            let Some(element) = Element::decode(key)? else { continue };
            let (children, child_owned) = match value {
                Value::Object(below) => Set::decode_map(below)?,
                Value::Null => (Set::default(), true),
                _ => return Err(MalformedPath),
            };
            set.push(element, child_owned, children);
        }
        owned |= set.is_empty();
        set.sort();
        Ok((set, owned))
    }
}

/// Up to this many elements are looked for one by one in a stored text; more of them in one pass that decodes all of it.
const SCANNED_MAX: usize = 8;

/// Decodes a name of a stored text, which has the escapes of JSON.
fn decode_stored(name: &str) -> Result<Option<Element>, MalformedPath> {
    let decoded: Cow<'_, str> = match name.contains('\\') {
        true => serde_json::from_str(&format!("\"{name}\"")).map_err(|_| MalformedPath)?,
        false => name.into(),
    };
    Element::decode(&decoded)
}

/// Returns the text below an element in a text that this server wrote.
fn stored_below<'t>(fields: &'t str, element: &Element) -> Option<&'t str> {
    let mut name = String::with_capacity(48);
    element.write(&mut name);
    let name = &name[1..name.len() - 1];
    scan::members(fields).find(|(known, _)| *known == name).map(|(_, below)| below)
}

/// Returns whether the element itself is owned, by the text below it.
fn is_stored_owned(below: &str) -> bool {
    below == "{}" || below.starts_with("{\".\":")
}

/// The set below an element, and whether it is owned itself.
struct Below {
    set: Set,
    owned: bool,
}

impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Below;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("fieldsV1")
            }

            fn visit_unit<E>(self) -> Result<Below, E> {
                Ok(Below { set: Set::default(), owned: true })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Below, A::Error> {
                let (mut set, mut owned) = (Set::default(), false);
                while let Some(name) = members.next_key::<Cow<'de, str>>()? {
                    if name == "." {
                        members.next_value::<IgnoredAny>()?;
                        owned = true;
                        continue;
                    }
                    match Element::decode(&name).map_err(|_| A::Error::custom("no path"))? {
                        Some(element) => {
                            let below = members.next_value::<Below>()?;
                            set.push(element, below.owned, below.set);
                        }
                        None => drop(members.next_value::<IgnoredAny>()?),
                    }
                }
                set.sort();
                owned |= set.is_empty();
                Ok(Below { set, owned })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn set(fields: Value) -> Set {
        Set::decode(&fields).unwrap()
    }

    #[test]
    fn fields_read_back_as_written() {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}, "f:replicas": {}}});
        assert_eq!(set(fields.clone()).encode(), fields);
        assert!(Set::decode(&json!({"x": {}})).is_err());
        assert!(Set::decode(&json!([])).is_err());
        assert_eq!(set(json!({"z:later": {}, "f:a": {}})).encode(), json!({"f:a": {}}));
    }

    #[test]
    fn sets_combine_path_by_path() {
        let a = set(json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}}));
        let b = set(json!({"f:a": {"f:x": {}, "f:y": {}}}));
        assert_eq!(a.clone().union(b.clone()).encode(), json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}}));
        assert_eq!(a.intersection(&b).encode(), json!({"f:a": {"f:x": {}}}));
        assert!(a.intersects(&b) && !a.is_within(&b) && a.is_within(&a));
        assert_eq!(a.clone().difference(&b).encode(), json!({"f:a": {}, "f:b": {}}));
        assert_eq!(b.clone().difference(&a).encode(), json!({"f:a": {"f:y": {}}}));
        assert_eq!(a.clone().without(&set(json!({"f:a": {}}))).encode(), json!({"f:b": {}}));
        assert!(a.clone().difference(&a).is_empty());
    }

    #[test]
    fn a_filter_keeps_what_lies_below_its_patterns() {
        let all =
            set(json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:resources": {
            "f:limits": {}}}}, "f:nodeName": {}}}));
        let kept = all.only(&[&["spec", "containers", "*", "resources"]]);
        assert_eq!(
            kept.encode(),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:resources": {"f:limits": {}}}}}})
        );
    }

    #[test]
    fn what_is_done_in_text_is_what_is_done_in_sets() {
        let all = [
            json!({}),
            json!({"f:a": {}}),
            json!({"f:a": {"f:x": {}}, "f:b": {}}),
            json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}}),
            json!({"f:a": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}, "k:{\"name\":\"d\\\"<\"}": {"f:image": {}}}}),
            json!({"f:a": {"k:{\"name\":\"c\",\"port\":80}": {".": {}}, "v:\"e\"": {}}, "f:0": {}}),
            json!({"f:c": {"k:{\"name\":\"b\"}": {}}, "f:a": {"f:\u{e9}\n": {}}}),
        ];
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (set(a.clone()), set(b.clone())))) {
            let Value::Raw(text) = a.encode() else { panic!("a set is written as text") };
            assert_eq!(Set::decode(&Value::Raw(text.clone())).unwrap(), a);
            let added = b.added_to_text(&text).unwrap();
            assert_eq!(Value::Raw(added.as_str().into()), a.clone().union(b.clone()).encode(), "{text} and {b:?}");
            assert_eq!(b.touches(&Value::Raw(text.clone())), b.intersects(&a), "{text} and {b:?}");
            assert_eq!(b.is_within_stored(&Value::Raw(text.clone())), b.is_within(&a), "{text} and {b:?}");
        }
    }

    #[test]
    fn paths_come_in_order() {
        let all = set(json!({"f:b": {".": {}, "f:x": {}}, "f:a": {"v:\"1\"": {}}}));
        let texts: Vec<String> =
            all.paths().iter().map(|path| path.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(texts, [".b", ".a[=\"1\"]", ".b.x"]);
    }
}
