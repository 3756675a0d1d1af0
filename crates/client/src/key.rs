//! `Key`: the name of an object within its kind (`namespace/name`, or `name` for cluster-scoped kinds).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use thiserror::Error;

/// The name of an object within its kind. One shared string, so a copy of a key costs a pointer.
///
/// Keys are ordered by their text: all keys of a namespace are adjacent, so that a namespace is a range of the store and not
/// a scan.
///
/// ```
/// use client::Key;
///
/// let key = Key::parse("default/web").unwrap();
/// assert_eq!((key.namespace(), key.name()), (Some("default"), "web"));
/// assert_eq!(key, Key::new(Some("default"), "web"));
/// assert_eq!(Key::new(None, "node-1").namespace(), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not an object key: expected \"name\" or \"namespace/name\"")]
pub struct InvalidKey(String);

impl Key {
    /// The key of an object in a namespace; an empty or absent namespace means cluster-scoped.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(ns) if !ns.is_empty() => Self([ns, "/", name].concat().into()),
            _ => Self(name.into()),
        }
    }

    /// Reads `namespace/name` or `name`.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let mut parts = text.split('/');
        let well_formed = match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, _) => !name.is_empty(),
            (Some(_), Some(name), None) => !name.is_empty(),
            _ => false,
        };
        if well_formed { Ok(Self(text.into())) } else { Err(InvalidKey(text.into())) }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// The namespace, if the object is in one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(ns, _)| ns)
    }

    /// The name without the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Key {
    type Err = InvalidKey;
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn st_01_key_is_namespace_slash_name_or_name() {
        assert_eq!(Key::new(Some("a"), "b").as_str(), "a/b");
        assert_eq!(Key::new(None, "b").as_str(), "b");
        assert_eq!(Key::new(Some(""), "b").as_str(), "b");
        let key = Key::parse("a/b").unwrap();
        assert_eq!((key.namespace(), key.name()), (Some("a"), "b"));
        assert_eq!(Key::parse("n").unwrap().namespace(), None);
        for bad in ["a/b/c", "a/", ""] {
            assert!(Key::parse(bad).is_err(), "{bad:?} must be refused");
        }
    }
}
