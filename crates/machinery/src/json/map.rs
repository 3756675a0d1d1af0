//! A copy-on-write map that keeps the order of its members.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::unread::Unread;
use super::{Text, Value};

/// Up to this many members, lookup compares all names: that is faster than hashing the name.
pub(super) const SCANNED_MAX: usize = 24;

/// The members of a JSON object, in order, each name once. Changing a shared map copies it first.
#[derive(Clone, Default)]
pub struct Map {
    members: Option<Arc<Members>>,
    /// Holds the members instead of `members` until the map is changed.
    unread: Option<Arc<Unread>>,
}

#[derive(Default)]
pub(super) struct Members {
    all: Vec<(Text, Value)>,
    /// The [`hint`] bits of all names, and perhaps of some that were removed. Most lookups are for names that are absent;
    /// this answers nearly all of them.
    hints: u64,
    /// Positions by name, built at the first lookup in a large map. A client may send hundreds of thousands of members.
    #[expect(
        clippy::box_collection,
        reason = "nearly no map has an index, and it is three times as large as the rest"
    )]
    index: OnceLock<Box<HashMap<Text, usize>>>,
}

impl Clone for Members {
    fn clone(&self) -> Self {
        Members { all: self.all.clone(), hints: self.hints, index: OnceLock::new() }
    }
}

impl From<Vec<(Text, Value)>> for Members {
    fn from(all: Vec<(Text, Value)>) -> Self {
        Members { hints: hints(&all), all, index: OnceLock::new() }
    }
}

pub(super) fn hints(members: &[(Text, Value)]) -> u64 {
    members.iter().fold(0, |hints, (name, _)| hints | hint(name))
}

/// Returns one bit of 64 by the first three letters of a name. A dot ends the name, so that a dotted path has the bit of its
/// first name.
fn hint(name: &str) -> u64 {
    let letter = |at: usize| name.as_bytes().get(at).copied().unwrap_or(b'.');
    let first = letter(0);
    let second = if first == b'.' { b'.' } else { letter(1) };
    let third = if second == b'.' { b'.' } else { letter(2) };
    1 << ((first ^ second.wrapping_mul(11) ^ third.wrapping_mul(5)) & 63)
}

impl Members {
    fn position(&self, name: &str) -> Option<usize> {
        if self.hints & hint(name) == 0 {
            return None;
        }
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
        self.hints |= hint(&name);
        self.all.push((name, value));
    }

    /// Returns the entries for a change of their positions; drops the name index.
    fn entries_mut_reindexed(&mut self) -> &mut Vec<(Text, Value)> {
        self.index.take();
        &mut self.all
    }
}

impl Map {
    #[must_use]
    pub const fn new() -> Self {
        Map { members: None, unread: None }
    }

    #[must_use]
    pub fn with_capacity(members: usize) -> Self {
        Map { members: (members > 0).then(|| Arc::new(Vec::with_capacity(members).into())), unread: None }
    }

    /// Creates a map of members whose names are known to differ.
    #[must_use]
    pub fn from_distinct(members: Vec<(Text, Value)>) -> Self {
        Map { members: (!members.is_empty()).then(|| Arc::new(members.into())), unread: None }
    }

    pub(super) fn unread(unread: Unread) -> Self {
        Map { members: None, unread: Some(Arc::new(unread)) }
    }

    /// Returns the text that the map was kept as, if it is unchanged since.
    pub(super) fn unread_text(&self) -> Option<&[u8]> {
        self.unread.as_ref().map(|unread| &**unread.text())
    }

    /// Returns whether both are the same memory, and so equal.
    #[must_use]
    pub fn is_same(&self, other: &Map) -> bool {
        match (&self.unread, &other.unread) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (Some(unread), None) => other.is_parsed_from(unread),
            (None, Some(unread)) => self.is_parsed_from(unread),
            (None, None) => match (&self.members, &other.members) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            },
        }
    }

    fn is_parsed_from(&self, unread: &Unread) -> bool {
        matches!((&self.members, unread.parsed_members()), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
    }

    fn shared(&self) -> Option<&Arc<Members>> {
        match &self.unread {
            None => self.members.as_ref(),
            Some(unread) => Some(unread.members()),
        }
    }

    fn members(&self) -> &[(Text, Value)] {
        self.shared().map_or(&[], |members| &members.all)
    }

    /// Takes the members out, parsed if they were text.
    fn take_members(&mut self) -> Option<Arc<Members>> {
        let unread = self.unread.take().map(|unread| match Arc::try_unwrap(unread) {
            Ok(unread) => unread.into_members(),
            Err(shared) => Arc::clone(shared.members()),
        });
        unread.or_else(|| self.members.take())
    }

    pub(super) fn into_shared_members(mut self) -> Arc<Members> {
        self.take_members().unwrap_or_default()
    }

    fn own(&mut self) -> &mut Members {
        if self.unread.is_some() {
            self.members = self.take_members();
        }
        Arc::make_mut(self.members.get_or_insert_default())
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
        self.shared().and_then(|members| members.position(name))
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).map(|at| &self.members()[at].1)
    }

    /// Returns false if there is no member of the name that a dotted path begins with. Cheaper than a lookup.
    #[must_use]
    pub fn may_hold(&self, path: &str) -> bool {
        self.shared().is_some_and(|members| members.hints & hint(path) != 0)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.position(name)?;
        Some(&mut self.own().all[at].1)
    }

    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Returns the member at a position in the order.
    #[must_use]
    pub fn get_index(&self, index: usize) -> Option<(&Text, &Value)> {
        self.members().get(index).map(|(name, value)| (name, value))
    }

    /// Sets a member, at its present position or last. Returns the previous value.
    pub fn insert(&mut self, name: impl Into<Text> + AsRef<str>, value: Value) -> Option<Value> {
        match self.position(name.as_ref()) {
            Some(at) => Some(std::mem::replace(&mut self.own().all[at].1, value)),
            None => {
                self.own().push(name.into(), value);
                None
            }
        }
    }

    /// Sets a member and moves it to a position in the order.
    pub fn shift_insert(&mut self, index: usize, name: impl Into<Text> + AsRef<str>, value: Value) -> Option<Value> {
        let old = self.shift_remove(name.as_ref());
        let members = self.own();
        members.hints |= hint(name.as_ref());
        let members = members.entries_mut_reindexed();
        members.insert(index.min(members.len()), (name.into(), value));
        old
    }

    /// Removes a member; the others keep their order.
    pub fn shift_remove(&mut self, name: &str) -> Option<Value> {
        let at = self.position(name)?;
        Some(self.own().entries_mut_reindexed().remove(at).1)
    }

    /// As [`Map::shift_remove`]: removal always keeps the order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.shift_remove(name)
    }

    /// Returns the entry of a name, for insertion if it is absent.
    pub fn entry(&mut self, name: impl Into<Text>) -> Entry<'_> {
        Entry { map: self, name: name.into() }
    }

    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.members().iter())
    }

    pub fn iter_mut(&mut self) -> IterMut<'_> {
        if self.is_empty() { IterMut([].iter_mut()) } else { IterMut(self.own().all.iter_mut()) }
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

    /// Keeps the members for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Text, &mut Value) -> bool) {
        if !self.is_empty() {
            self.own().entries_mut_reindexed().retain_mut(|(name, value)| keep(name, value));
        }
    }

    /// Changes the members as a whole. Their names must still differ afterwards.
    pub fn rework(&mut self, change: impl FnOnce(&mut Vec<(Text, Value)>)) {
        let members = self.own();
        change(members.entries_mut_reindexed());
        members.hints = hints(&members.all);
    }

    pub fn sort_keys(&mut self) {
        if !self.members().is_sorted_by(|a, b| a.0 <= b.0) {
            self.own().entries_mut_reindexed().sort_by(|a, b| a.0.cmp(&b.0));
        }
    }

    pub fn clear(&mut self) {
        *self = Map::new();
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

/// Iterates over the members in order.
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

/// Iterates over the members in order; the values are mutable.
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

    fn into_iter(mut self) -> Self::IntoIter {
        self.take_members().map_or_else(Vec::new, |members| Arc::unwrap_or_clone(members).all).into_iter()
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
