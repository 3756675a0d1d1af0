//! Keys: paths of segments, compared byte by byte.
//!
//! `core/pods/default/web-0`, `apps/deployments/default/web`, `core/nodes/n1`. The first two segments are the key's
//! *collection*: history is kept and removed collection by collection, so that busy leases never displace the history of
//! quiet pods.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::error::KeyError;

/// The longest key an engine accepts, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// A checked key: one to [`KEY_BYTES_MAX`] bytes, at least three segments, none empty, no NUL. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// A key orders and hashes as its text does, so that maps of keys can be searched by text.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Key {
    /// Validates a key.
    pub fn new(key: impl AsRef<str>) -> Result<Self, KeyError> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: key.len(), max: KEY_BYTES_MAX });
        }
        let mut segments = 0;
        for segment in key.split('/') {
            if segment.is_empty() || segment.contains('\0') {
                return Err(KeyError::Malformed { key: key.to_owned() });
            }
            segments += 1;
        }
        if segments < 3 {
            return Err(KeyError::Malformed { key: key.to_owned() });
        }
        Ok(Key(key.into()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first two segments, without the slash after them: `core/pods`.
    #[must_use]
    pub fn collection(&self) -> &str {
        let mut slashes = self.0.match_indices('/').map(|(at, _)| at);
        // A checked key has at least two slashes.
        let end = slashes.nth(1).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

/// The scope of a list or watch: everything (`""`), a collection (`core/pods/`), or part of one (`core/pods/default/`).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// Every key of the store.
    #[must_use]
    pub fn everything() -> Self {
        Prefix::default()
    }

    /// A prefix is compared as bytes; end it with `/` unless half a segment is meant.
    #[must_use]
    pub fn new(prefix: impl AsRef<str>) -> Self {
        Prefix(prefix.as_ref().into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        key.as_str().starts_with(&*self.0)
    }

    /// The single collection of this prefix (`core/pods` for `core/pods/default/`); `None` if it may span several.
    #[must_use]
    pub fn collection(&self) -> Option<&str> {
        let mut slashes = self.0.match_indices('/').map(|(at, _)| at);
        slashes.nth(1).map(|end| &self.0[..end])
    }

    /// Whether keys of this collection (`core/pods`) can have the prefix.
    #[must_use]
    pub fn may_hold(&self, collection: &str) -> bool {
        let (prefix, name) = (self.0.as_bytes(), collection.as_bytes());
        let shared = prefix.len().min(name.len());
        prefix[..shared] == name[..shared] && prefix.get(shared).is_none_or(|next| *next == b'/')
    }

    /// A string greater than every key with this prefix; `None` for the empty prefix.
    #[must_use]
    pub fn end(&self) -> Option<String> {
        // Keys are UTF-8 and U+10FFFF is not used in them: the greatest scalar closes the range and stays a str.
        if self.0.is_empty() { None } else { Some(format!("{}\u{10FFFF}", self.0)) }
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({:?})", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_collection() {
        assert_eq!(Key::new("core/pods/default/a").unwrap().collection(), "core/pods");
        assert_eq!(Key::new("core/nodes/n1").unwrap().collection(), "core/nodes");
    }

    #[test]
    fn bad_keys_are_refused_with_a_reason() {
        assert!(matches!(Key::new(""), Err(KeyError::Empty)));
        assert!(matches!(Key::new("core/pods"), Err(KeyError::Malformed { .. })));
        assert!(matches!(Key::new("core//pods/a"), Err(KeyError::Malformed { .. })));
        assert!(matches!(Key::new(format!("core/pods/{}", "x".repeat(1024))), Err(KeyError::TooLong { .. })));
        assert!(Key::new(format!("core/pods/{}", "x".repeat(1014))).is_ok());
    }

    #[test]
    fn a_prefix_knows_the_collections_it_may_hold() {
        for (prefix, collection, expected) in [
            ("", "core/pods", true),
            ("core/", "core/pods", true),
            ("core/pod", "core/pods", true),
            ("core/pods", "core/pods", true),
            ("core/pods/", "core/pods", true),
            ("core/pods/default/", "core/pods", true),
            ("core/podst", "core/pods", false),
            ("core/pods/", "core/podtemplates", false),
            ("apps/", "core/pods", false),
        ] {
            assert_eq!(Prefix::new(prefix).may_hold(collection), expected, "{prefix:?} and {collection:?}");
        }
    }

    #[test]
    fn a_prefix_ends_after_its_last_key() {
        let prefix = Prefix::new("core/pods/a/");
        let end = prefix.end().unwrap();
        assert!("core/pods/a/zzz" < end.as_str() && end.as_str() < "core/pods/a0");
        assert_eq!(prefix.collection(), Some("core/pods"));
        assert_eq!(Prefix::new("core/").collection(), None);
        assert_eq!(Prefix::everything().end(), None);
    }
}
