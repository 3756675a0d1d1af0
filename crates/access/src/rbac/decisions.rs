//! Decisions that one state of the index has made already: a request like one before it costs a comparison of its texts.
//!
//! They belong to a state that never changes and are dropped with it, so a decision is never older than the roles and bindings.
//! Only what is allowed is kept: a refusal has a text to write, which costs more than the search.
//!
//! ```text
//!   get pods/log in n by alice of devs  ─►  key  alice·get··pods·log·n·devs·system:authenticated  ─►  slot by hash  ─►  reason
//! ```

use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use foldhash::fast::RandomState;
use machinery::json::Text;

use crate::authorizer::{Attributes, What};

/// Decisions that are kept. A new one replaces the one in its slot.
const SLOTS: usize = 1024;
/// Longest key that is kept: a client chooses its texts.
const KEY_BYTES_MAX: usize = 256;
/// Ends each text of a key. It occurs in no text.
const END: u8 = 0xff;

/// What requests are decided by, as long as no rule names objects.
pub(super) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl Key {
    pub(super) const EMPTY: Key = Key { bytes: [0; KEY_BYTES_MAX], len: 0 };

    /// Makes this the key of a request. Returns false for paths, and for what is too long.
    pub(super) fn set(&mut self, attributes: &Attributes<'_>) -> bool {
        let What::Resource(about) = &attributes.what else { return false };
        let user = attributes.user;
        self.len = 0;
        let parts = [&user.name, attributes.verb, about.group, about.resource, about.subresource, about.namespace];
        parts.into_iter().all(|part| self.add(part)) && user.groups.iter().all(|group| self.add(group))
    }

    fn add(&mut self, part: &str) -> bool {
        let end = self.len + part.len();
        let Some(place) = self.bytes.get_mut(self.len..=end) else { return false };
        if let Some((last, text)) = place.split_last_mut() {
            text.copy_from_slice(part.as_bytes());
            *last = END;
        }
        self.len = end + 1;
        true
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The decisions of one state of the index.
#[derive(Default)]
pub(super) struct Decisions {
    /// None until the first one is kept.
    slots: OnceLock<Box<[ArcSwapOption<Known>]>>,
    hasher: RandomState,
}

struct Known {
    key: Box<[u8]>,
    reason: Text,
}

impl Decisions {
    fn at(&self, key: &Key) -> usize {
        self.hasher.hash_one(key.bytes()) as usize % SLOTS
    }

    /// The reason why such a request was allowed.
    pub(super) fn reason(&self, key: &Key) -> Option<Text> {
        let slot = self.slots.get()?.get(self.at(key))?.load();
        slot.as_ref().filter(|known| *known.key == *key.bytes()).map(|known| known.reason.clone())
    }

    pub(super) fn keep(&self, key: &Key, reason: &Text) {
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| ArcSwapOption::empty()).collect());
        slots[self.at(key)].store(Some(Arc::new(Known { key: key.bytes().into(), reason: reason.clone() })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorizer::ResourceAttributes;
    use crate::identity::User;

    fn key(name: &str, groups: &[&str], namespace: &str) -> Option<Key> {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let user = User { name: name.to_owned(), groups, ..User::default() };
        let about = ResourceAttributes { resource: "pods", namespace, ..ResourceAttributes::default() };
        let mut key = Key::EMPTY;
        key.set(&Attributes { user: &user, verb: "get", what: What::Resource(about) }).then_some(key)
    }

    #[test]
    fn keys_differ_where_users_or_requests_do() {
        let keys = [
            key("a", &["g"], "n"),
            key("a", &["g"], ""),
            key("a", &["g", "h"], "n"),
            key("a", &["gh"], "n"),
            key("a", &[], "n"),
            key("ag", &[], "n"),
            key("a", &["g", ""], "n"),
        ];
        for (at, one) in keys.iter().enumerate() {
            let one = one.as_ref().expect("a short key");
            let same = keys.iter().flatten().filter(|other| other.bytes() == one.bytes()).count();
            assert_eq!(same, 1, "{at}");
        }
        assert!(key(&"x".repeat(KEY_BYTES_MAX), &[], "n").is_none(), "long texts are decided on each time");
    }

    #[test]
    fn a_decision_is_found_by_its_own_key_only() {
        let decisions = Decisions::default();
        let (one, other) = (key("a", &[], "n").expect("a key"), key("b", &[], "n").expect("a key"));
        assert_eq!(decisions.reason(&one), None);
        decisions.keep(&one, &"because".into());
        assert_eq!(decisions.reason(&one).as_deref(), Some("because"));
        assert_eq!(decisions.reason(&other), None);
        for number in 0..3 * SLOTS {
            decisions.keep(&key(&number.to_string(), &[], "n").expect("a key"), &"another".into());
        }
        let slots = decisions.slots.get().expect("slots");
        assert_eq!(slots.len(), SLOTS, "the memory is bounded");
        assert_ne!(decisions.reason(&one).as_deref(), Some("another"));
    }
}
