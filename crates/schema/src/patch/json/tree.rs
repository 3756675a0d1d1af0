//! The object that a JSON patch changes, in a form in which each operation costs about the same however large its lists and maps
//! are: a patch may have ten thousand operations, and a list hundreds of thousands of items.
//!
//! A container is opened when an operation first changes something in it; everything else stays the shared value that it is.

use std::collections::HashMap;

use machinery::json::{Map, Text, Value};

/// Up to this many members, names are compared one by one.
const SCANNED_MAX: usize = 24;

/// A part of the object.
pub(super) enum Node {
    Value(Value),
    Map(OpenMap),
    List(OpenList),
}

/// The members of an opened map, in order.
#[derive(Default)]
pub(super) struct OpenMap {
    /// `None` was removed.
    members: Vec<Option<(Text, Node)>>,
    /// Positions by name, if there were many members at some time.
    index: Option<HashMap<Text, usize>>,
    len: usize,
}

/// The items of an opened list, in chunks of bounded length.
#[derive(Default)]
pub(super) struct OpenList {
    chunks: Vec<Vec<Node>>,
    len: usize,
}

const CHUNK_MAX: usize = 128;

impl Node {
    /// Opens a container for changes; other values stay as they are.
    pub(super) fn open(&mut self) -> &mut Node {
        if let Node::Value(value) = self {
            match value.take() {
                Value::Object(map) => *self = Node::Map(map.into_iter().collect()),
                Value::Array(items) => *self = Node::List(Vec::from(items).into_iter().collect()),
                other => *value = other,
            }
        }
        self
    }

    /// Returns the value; opened maps are sorted if `sorted`.
    pub(super) fn close(self, sorted: bool) -> Value {
        match self {
            Node::Value(value) => value,
            Node::Map(map) => {
                let members = map.members.into_iter().flatten().map(|(name, node)| (name, node.close(sorted)));
                let mut map = Map::from_distinct(members.collect());
                if sorted {
                    map.sort_keys();
                }
                Value::Object(map)
            }
            Node::List(list) => {
                let items = list.chunks.into_iter().flatten().map(|node| node.close(sorted));
                Value::Array(items.collect())
            }
        }
    }

    /// Returns a copy of the value.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Node::Value(value) => value.clone(),
            Node::Map(map) => {
                let members = map.members.iter().flatten().map(|(name, node)| (name.clone(), node.to_value()));
                Value::Object(Map::from_distinct(members.collect()))
            }
            Node::List(list) => Value::Array(list.chunks.iter().flatten().map(Node::to_value).collect()),
        }
    }

    pub(super) fn is_container(&self) -> bool {
        matches!(self, Node::Map(_) | Node::List(_) | Node::Value(Value::Object(_) | Value::Array(_)))
    }

    /// Compares with a value; the cost is bounded by the size of that value.
    pub(super) fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Node::Value(own), value) => own == value,
            (Node::Map(map), Value::Object(members)) => {
                let same = |(name, node): &(Text, Node)| members.get(name).is_some_and(|value| node.equals(value));
                map.len == members.len() && map.members.iter().flatten().all(same)
            }
            (Node::List(list), Value::Array(items)) => {
                list.len == items.len()
                    && list.chunks.iter().flatten().zip(items.iter()).all(|(node, item)| node.equals(item))
            }
            _ => false,
        }
    }

    /// Returns the depth of nested containers. Takes one from `budget` for each node; `None` when that is used up.
    pub(super) fn depth(&self, budget: &mut usize) -> Option<usize> {
        fn of_value(value: &Value, budget: &mut usize) -> Option<usize> {
            *budget = budget.checked_sub(1)?;
            let mut deepest = 0;
            match value {
                Value::Array(items) => {
                    for item in items {
                        deepest = deepest.max(of_value(item, budget)?);
                    }
                }
                Value::Object(members) => {
                    for value in members.values() {
                        deepest = deepest.max(of_value(value, budget)?);
                    }
                }
                Value::Raw(text) => {
                    *budget = budget.checked_sub(text.len())?;
                    return Some(value.depth());
                }
                _ => return Some(0),
            }
            Some(deepest + 1)
        }
        let mut deepest = 0;
        match self {
            Node::Value(value) => return of_value(value, budget),
            Node::Map(map) => {
                for (_, node) in map.members.iter().flatten() {
                    deepest = deepest.max(node.depth(budget)?);
                }
            }
            Node::List(list) => {
                for node in list.chunks.iter().flatten() {
                    deepest = deepest.max(node.depth(budget)?);
                }
            }
        }
        *budget = budget.checked_sub(1)?;
        Some(deepest + 1)
    }
}

impl FromIterator<(Text, Value)> for OpenMap {
    fn from_iter<I: IntoIterator<Item = (Text, Value)>>(members: I) -> Self {
        let members: Vec<_> = members.into_iter().map(|(name, value)| Some((name, Node::Value(value)))).collect();
        let mut map = OpenMap { len: members.len(), members, index: None };
        map.index_if_large();
        map
    }
}

impl OpenMap {
    fn index_if_large(&mut self) {
        if self.index.is_none() && self.members.len() > SCANNED_MAX {
            let names =
                self.members.iter().enumerate().filter_map(|(at, member)| Some((member.as_ref()?.0.clone(), at)));
            self.index = Some(names.collect());
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self.members.iter().position(|member| member.as_ref().is_some_and(|(known, _)| known == name)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.members[self.position(name)?].as_ref().map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let at = self.position(name)?;
        self.members[at].as_mut().map(|(_, node)| node)
    }

    /// Sets a member, at its present position or last.
    pub(super) fn insert(&mut self, name: &str, node: Node) {
        if let Some(known) = self.get_mut(name) {
            *known = node;
            return;
        }
        if let Some(index) = &mut self.index {
            index.insert(name.into(), self.members.len());
        }
        self.members.push(Some((name.into(), node)));
        self.len += 1;
        self.index_if_large();
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Node> {
        let at = self.position(name)?;
        if let Some(index) = &mut self.index {
            index.remove(name);
        }
        self.len -= 1;
        self.members[at].take().map(|(_, node)| node)
    }
}

impl FromIterator<Value> for OpenList {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        let mut list = OpenList::default();
        for item in items {
            list.push(Node::Value(item));
        }
        list
    }
}

impl OpenList {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the chunk of an index and the index in it.
    fn position(&self, mut at: usize) -> Option<(usize, usize)> {
        for (number, chunk) in self.chunks.iter().enumerate() {
            if at < chunk.len() {
                return Some((number, at));
            }
            at -= chunk.len();
        }
        None
    }

    pub(super) fn get(&self, at: usize) -> Option<&Node> {
        let (chunk, at) = self.position(at)?;
        self.chunks[chunk].get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Node> {
        let (chunk, at) = self.position(at)?;
        self.chunks[chunk].get_mut(at)
    }

    pub(super) fn push(&mut self, node: Node) {
        self.len += 1;
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK_MAX => last.push(node),
            _ => self.chunks.push(vec![node]),
        }
    }

    /// Inserts an item before an index that is at most the length.
    pub(super) fn insert(&mut self, at: usize, node: Node) {
        let Some((number, at)) = self.position(at) else { return self.push(node) };
        self.len += 1;
        let chunk = &mut self.chunks[number];
        chunk.insert(at, node);
        if chunk.len() > CHUNK_MAX {
            let rest = chunk.split_off(CHUNK_MAX / 2);
            self.chunks.insert(number + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Node> {
        let (number, at) = self.position(at)?;
        self.len -= 1;
        let node = self.chunks[number].remove(at);
        if self.chunks[number].is_empty() {
            self.chunks.remove(number);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_changed_like_a_vector() {
        let mut vector: Vec<Value> = (0..5000).map(Value::from).collect();
        let mut list: OpenList = vector.iter().cloned().collect();
        let mut state = 7usize;
        for number in 0..4000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 20) % (vector.len() + 1);
            if state >> 60 & 1 == 0 && at < vector.len() {
                assert_eq!(list.remove(at).map(|node| node.close(false)), Some(vector.remove(at)));
            } else {
                list.insert(at, Node::Value(Value::from(number)));
                vector.insert(at, Value::from(number));
            }
        }
        assert_eq!(list.len(), vector.len());
        assert!(list.get(17).is_some_and(|node| node.equals(&vector[17])));
        assert_eq!(Node::List(list).close(false), Value::Array(vector.into()));
    }

    #[test]
    fn a_map_keeps_the_order_of_its_members() {
        let mut map: OpenMap = (0..30).map(|at| (Text::new(format!("k{at}")), Value::from(at))).collect();
        assert!(map.remove("k3").is_some() && map.remove("k3").is_none());
        map.insert("k5", Node::Value(Value::Null));
        map.insert("k3", Node::Value(Value::Null));
        let closed = Node::Map(map).close(false);
        let names: Vec<&str> = closed.as_object().unwrap().keys().map(Text::as_str).collect();
        assert_eq!((names.len(), names[3], names[4], names[29]), (30, "k4", "k5", "k3"));
    }
}
