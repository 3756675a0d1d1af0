//! Interning of compiled schema parts: equal parts share one allocation.
//!
//! Definitions are repetitive: hundreds of fields have a handful of distinct schemas, and whole blocks (a pod template,
//! a selector, a reference) occur in many places.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Values interned so far. Lives only while a schema is compiled.
pub struct Interner<T>(HashSet<Arc<T>>);

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Interner(HashSet::new())
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// Returns the shared allocation that is equal to `value`.
    pub fn share(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.0.get(&value) {
            return Arc::clone(known);
        }
        let value = Arc::new(value);
        self.0.insert(Arc::clone(&value));
        value
    }

    /// Like [`Interner::share`], for a value that becomes a part of another interned value.
    pub fn intern(&mut self, value: T) -> Interned<T> {
        Interned(self.share(value))
    }
}

/// A value from an [`Interner`], compared and hashed by address, so that neither visits the nested values.
///
/// Values from different interners are never equal.
#[derive(Debug)]
pub struct Interned<T>(Arc<T>);

impl<T> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Interned<T> {}

impl<T> Hash for Interned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_are_the_same_memory() {
        let mut interner = Interner::default();
        let (a, b, other) =
            (interner.share("a".to_owned()), interner.share("a".to_owned()), interner.share("b".to_owned()));
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &other));
        assert!(interner.intern("a".to_owned()) == interner.intern("a".to_owned()));
        assert!(interner.intern("a".to_owned()) != interner.intern("b".to_owned()));
    }
}
