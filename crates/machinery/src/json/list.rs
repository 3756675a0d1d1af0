//! A copy-on-write list.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::Value;

/// The items of a JSON array. Used like a `Vec`; changing a shared list copies it first.
#[derive(Clone, Default)]
pub struct List(Option<Arc<Vec<Value>>>);

impl List {
    #[must_use]
    pub const fn new() -> Self {
        List(None)
    }

    /// Returns whether both are the same memory, and so equal.
    #[must_use]
    pub fn is_same(&self, other: &List) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Deref for List {
    type Target = Vec<Value>;

    fn deref(&self) -> &Vec<Value> {
        static EMPTY: Vec<Value> = Vec::new();
        match &self.0 {
            Some(items) => items,
            None => &EMPTY,
        }
    }
}

impl DerefMut for List {
    fn deref_mut(&mut self) -> &mut Vec<Value> {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl From<Vec<Value>> for List {
    fn from(items: Vec<Value>) -> Self {
        if items.is_empty() { List(None) } else { List(Some(Arc::new(items))) }
    }
}

impl From<List> for Vec<Value> {
    fn from(list: List) -> Self {
        list.0.map_or_else(Vec::new, Arc::unwrap_or_clone)
    }
}

impl FromIterator<Value> for List {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl IntoIterator for List {
    type Item = Value;
    type IntoIter = std::vec::IntoIter<Value>;

    fn into_iter(self) -> Self::IntoIter {
        Vec::from(self).into_iter()
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut List {
    type Item = &'a mut Value;
    type IntoIter = std::slice::IterMut<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
