//! A map that keeps the order of its members and is shared until it is changed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{Text, Value};

/// Up to this many members a name is found by looking at them all: that is faster than a hash of it.
pub(super) const SCANNED_MAX: usize = 24;

/// The members of a JSON object, in order, each name once. Changing one that is shared copies it first.
#[derive(Clone, Default)]
pub struct Map(Option<Arc<Members>>);

#[derive(Default)]
struct Members {
    all: Vec<(Text, Value)>,
    /// Where a name stands, once there are many and somebody asks. A client may send hundreds of thousands.
    #[expect(
        clippy::box_collection,
        reason = "nearly no map has an index, and it is three times as large as the rest"
    )]
    index: OnceLock<Box<HashMap<Text, usize>>>,
}

impl Clone for Members {
    fn clone(&self) -> Self {
        Members::from(self.all.clone())
    }
}

impl From<Vec<(Text, Value)>> for Members {
    fn from(all: Vec<(Text, Value)>) -> Self {
        Members { all, index: OnceLock::new() }
    }
}

impl Members {
    fn position(&self, name: &str) -> Option<usize> {
        if self.all.len() <= SCANNED_MAX {
            return self.all.iter().position(|(other, _)| other == name);
        }
        let index = || Box::new(self.all.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect());
        self.index.get_or_init(index).get(name).copied()
    }

    fn push(&mut self, name: Text, value: Value) {
        if let Some(index) = self.index.get_mut() {
            index.insert(name.clone(), self.all.len());
        }
        self.all.push((name, value));
    }

    /// For changes that move members.
    fn moved(&mut self) -> &mut Vec<(Text, Value)> {
        self.index.take();
        &mut self.all
    }
}

impl Map {
    #[must_use]
    pub const fn new() -> Self {
        Map(None)
    }

    #[must_use]
    pub fn with_capacity(members: usize) -> Self {
        if members == 0 { Map(None) } else { Map(Some(Arc::new(Vec::with_capacity(members).into()))) }
    }

    /// Of members whose names are known to differ.
    #[must_use]
    pub fn of_distinct(members: Vec<(Text, Value)>) -> Self {
        if members.is_empty() { Map(None) } else { Map(Some(Arc::new(members.into()))) }
    }

    /// Whether both are the same memory, and so equal.
    #[must_use]
    pub fn is_same(&self, other: &Map) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    fn members(&self) -> &[(Text, Value)] {
        self.0.as_ref().map_or(&[], |members| &members.all)
    }

    fn own(&mut self) -> &mut Members {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.members().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.as_ref().and_then(|members| members.position(name))
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).map(|at| &self.members()[at].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.position(name)?;
        Some(&mut self.own().all[at].1)
    }

    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// The member at a place in the order.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<(&Text, &Value)> {
        self.members().get(place).map(|(name, value)| (name, value))
    }

    /// Sets a member: where it stands, or last. Gives what was there.
    pub fn insert(&mut self, name: impl Into<Text> + AsRef<str>, value: Value) -> Option<Value> {
        match self.position(name.as_ref()) {
            Some(at) => Some(std::mem::replace(&mut self.own().all[at].1, value)),
            None => {
                self.own().push(name.into(), value);
                None
            }
        }
    }

    /// Sets a member and moves it to a place in the order.
    pub fn shift_insert(&mut self, place: usize, name: impl Into<Text> + AsRef<str>, value: Value) -> Option<Value> {
        let old = self.shift_remove(name.as_ref());
        let members = self.own().moved();
        members.insert(place.min(members.len()), (name.into(), value));
        old
    }

    /// Takes a member out; the others keep their order.
    pub fn shift_remove(&mut self, name: &str) -> Option<Value> {
        let at = self.position(name)?;
        Some(self.own().moved().remove(at).1)
    }

    /// As [`Map::shift_remove`]: there is no way to take a member out that disturbs the order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.shift_remove(name)
    }

    /// A member, to be filled if it is not there.
    pub fn entry(&mut self, name: impl Into<Text>) -> Entry<'_> {
        Entry { map: self, name: name.into() }
    }

    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.members().iter())
    }

    pub fn iter_mut(&mut self) -> IterMut<'_> {
        match &mut self.0 {
            Some(members) => IterMut(Arc::make_mut(members).all.iter_mut()),
            None => IterMut([].iter_mut()),
        }
    }

    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Text> + DoubleEndedIterator + Clone {
        self.members().iter().map(|(name, _)| name)
    }

    #[must_use]
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> + DoubleEndedIterator + Clone {
        self.members().iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Value> {
        self.iter_mut().map(|(_, value)| value)
    }

    pub fn into_values(self) -> impl ExactSizeIterator<Item = Value> {
        self.into_iter().map(|(_, value)| value)
    }

    /// Keeps the members for which the answer is yes.
    pub fn retain(&mut self, mut keep: impl FnMut(&Text, &mut Value) -> bool) {
        if self.0.is_some() {
            self.own().moved().retain_mut(|(name, value)| keep(name, value));
        }
    }

    pub fn sort_keys(&mut self) {
        if !self.members().is_sorted_by(|a, b| a.0 <= b.0) {
            self.own().moved().sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    pub fn clear(&mut self) {
        self.0 = None;
    }
}

/// See [`Map::entry`].
pub struct Entry<'a> {
    map: &'a mut Map,
    name: Text,
}

impl<'a> Entry<'a> {
    pub fn or_insert(self, value: Value) -> &'a mut Value {
        self.or_insert_with(|| value)
    }

    pub fn or_insert_with(self, make: impl FnOnce() -> Value) -> &'a mut Value {
        let found = self.map.position(&self.name);
        let members = self.map.own();
        let at = found.unwrap_or_else(|| {
            members.push(self.name, make());
            members.all.len() - 1
        });
        &mut members.all[at].1
    }
}

/// Members in order, to look at.
#[derive(Clone)]
pub struct Iter<'a>(std::slice::Iter<'a, (Text, Value)>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Text, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|(name, value)| (name, value))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Members in order, to change.
pub struct IterMut<'a>(std::slice::IterMut<'a, (Text, Value)>);

impl<'a> Iterator for IterMut<'a> {
    type Item = (&'a Text, &'a mut Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (&*name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for IterMut<'_> {}

impl IntoIterator for Map {
    type Item = (Text, Value);
    type IntoIter = std::vec::IntoIter<(Text, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map_or_else(Vec::new, |members| Arc::unwrap_or_clone(members).all).into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a Text, &'a Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a Text, &'a mut Value);
    type IntoIter = IterMut<'a>;

    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}

impl<K: Into<Text>, V: Into<Value>> Extend<(K, V)> for Map {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, members: I) {
        for (name, value) in members {
            let name: Text = name.into();
            self.insert(name, value.into());
        }
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        let members = members.into_iter();
        let mut map = Map::with_capacity(members.size_hint().0);
        map.extend(members);
        map
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
