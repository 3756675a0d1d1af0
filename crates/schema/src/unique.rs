//! One of each: parts of a schema that are equal are the same memory.
//!
//! Definitions repeat themselves: hundreds of fields are of a handful of kinds, and whole blocks (a pod's template, a
//! selector, a reference) stand in many places.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// What has been made so far; kept only while a schema is compiled.
pub(crate) struct Pool<T>(HashSet<Arc<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool(HashSet::new())
    }
}

impl<T: Hash + Eq> Pool<T> {
    /// The one that is equal to it.
    pub(crate) fn share(&mut self, made: T) -> Arc<T> {
        if let Some(known) = self.0.get(&made) {
            return Arc::clone(known);
        }
        let made = Arc::new(made);
        self.0.insert(Arc::clone(&made));
        made
    }

    /// The one that is equal to it, as a part of something that is shared in turn.
    pub(crate) fn unique(&mut self, made: T) -> Unique<T> {
        Unique(self.share(made))
    }
}

/// Something out of a pool, of which there is no equal in it: so two are equal if they are the same memory, and to know
/// that takes no look at what lies below. Those of two pools differ.
#[derive(Debug)]
pub(crate) struct Unique<T>(Arc<T>);

impl<T> Deref for Unique<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> PartialEq for Unique<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Unique<T> {}

impl<T> Hash for Unique<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_are_the_same_memory() {
        let mut pool = Pool::default();
        let (a, b, other) = (pool.share("a".to_owned()), pool.share("a".to_owned()), pool.share("b".to_owned()));
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &other));
        assert!(pool.unique("a".to_owned()) == pool.unique("a".to_owned()));
        assert!(pool.unique("a".to_owned()) != pool.unique("b".to_owned()));
    }
}
