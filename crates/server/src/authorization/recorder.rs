//! What users did and tried, for the roles that they need.
//!
//! Each combination of user, verb, resource and namespace is kept once, with the time of its last request and the names of its
//! objects while they are few. Members of `system:masters` are not recorded: they need no role, and their requests stay as cheap
//! as they are.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use access::authorizer::{Attributes, What};
use access::explain::{Action, Usage};
use access::identity::{UNAUTHENTICATED, User};
use parking_lot::RwLock;

/// Combinations that are kept; later ones are only counted.
const ACTIONS_MAX: usize = 50_000;
/// Longest combination that is kept: a client chooses its parts.
const ACTION_BYTES_MAX: usize = 2_048;
/// Names of objects that are kept of one combination. More of them are no use in a role.
const NAMES_MAX: usize = 20;
/// Longest name of an object that is kept; no object has a longer one.
const NAME_BYTES_MAX: usize = 253;
/// Texts of refusals that are kept for strict users.
const REFUSALS_MAX: usize = 1_000;

/// Records what users did.
#[derive(Default)]
pub struct Recorder {
    hasher: foldhash::quality::RandomState,
    /// By the hash of the combination.
    seen: RwLock<HashMap<u64, Seen, foldhash::fast::RandomState>>,
    left_out: AtomicU64,
    /// Users whose refusals are kept as texts, with those texts.
    strict: RwLock<HashMap<String, Vec<String>>>,
}

struct Seen {
    user: Arc<User>,
    action: Action,
    /// Seconds since 1970 of the last request of each kind; zero is never.
    allowed: AtomicI64,
    refused: AtomicI64,
    /// The names of the objects, sorted. None if a request named no object, or if there were too many.
    names: RwLock<Option<Vec<Box<str>>>>,
}

/// The record of a user.
#[derive(Debug, Default)]
pub struct Record {
    /// None if the user did nothing in the time.
    pub usage: Option<Usage>,
    /// Combinations of all users that were left out because there were too many.
    pub left_out: u64,
}

impl Recorder {
    /// Records a request that was decided at `now`, in seconds since 1970.
    ///
    /// Requests without credentials are left out: they have no roles, and their senders could fill the record.
    pub fn record(&self, attributes: &Attributes<'_>, allowed: bool, now: i64) {
        if attributes.user.in_group(UNAUTHENTICATED) {
            return;
        }
        let key = self.key(attributes);
        if let Some(seen) = self.seen.read().get(&key) {
            seen.mark(allowed, now);
            seen.add_name(name(attributes));
            return;
        }
        self.add(key, attributes, allowed, now);
    }

    fn key(&self, attributes: &Attributes<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        attributes.user.name.hash(&mut hasher);
        attributes.verb.hash(&mut hasher);
        match &attributes.what {
            What::Path(path) => path.hash(&mut hasher),
            What::Resource(about) => {
                for part in [about.group, about.resource, about.subresource, about.namespace] {
                    part.hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    fn add(&self, key: u64, attributes: &Attributes<'_>, allowed: bool, now: i64) {
        let action = action(attributes);
        let texts = [&action.verb, &action.group, &action.resource, &action.namespace, &action.path];
        let user = attributes.user;
        let user_bytes = user.name.len()
            + user.groups.iter().map(String::len).sum::<usize>()
            + user.extra.values().flatten().map(String::len).sum::<usize>();
        let bytes = user_bytes + texts.iter().map(|text| text.len()).sum::<usize>();
        let mut all = self.seen.write();
        if all.len() >= ACTIONS_MAX || bytes > ACTION_BYTES_MAX {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let seen = all.entry(key).or_insert_with(|| Seen {
            user: Arc::new(attributes.user.clone()),
            action,
            allowed: AtomicI64::new(0),
            refused: AtomicI64::new(0),
            names: RwLock::new(Some(Vec::new())),
        });
        seen.mark(allowed, now);
        seen.add_name(name(attributes));
    }

    /// What a user did and tried from `start` on, in seconds since 1970.
    #[must_use]
    pub fn usage(&self, name: &str, start: i64) -> Record {
        let (mut user, mut allowed, mut refused) = (None, Vec::new(), Vec::new());
        for seen in self.seen.read().values().filter(|seen| seen.user.name == name) {
            // Allowed once is enough, whatever came before or after.
            let done = seen.allowed.load(Ordering::Relaxed);
            let tried = seen.refused.load(Ordering::Relaxed);
            match (done >= start.max(1), tried >= start.max(1)) {
                (true, _) => allowed.push(seen.action()),
                (false, true) => refused.push(seen.action()),
                (false, false) => continue,
            }
            user.get_or_insert_with(|| Arc::clone(&seen.user));
        }
        allowed.sort_unstable();
        refused.sort_unstable();
        let usage = user.map(|user| Usage { user: (*user).clone(), allowed, refused });
        Record { usage, left_out: self.left_out.load(Ordering::Relaxed) }
    }

    /// Keeps the texts of this user's refusals from now on.
    pub fn keep_refusals(&self, user: &str) {
        self.strict.write().entry(user.to_owned()).or_default();
    }

    /// Adds the text of a refusal, if those of the user are kept.
    pub fn refused(&self, user: &str, message: &str) {
        if !self.strict.read().contains_key(user) {
            return;
        }
        if let Some(messages) = self.strict.write().get_mut(user)
            && messages.len() < REFUSALS_MAX
        {
            messages.push(message.to_owned());
        }
    }

    /// The refusals that were kept, of all users for whom they are.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.strict.read().values().flatten().cloned().collect()
    }
}

impl Seen {
    fn mark(&self, allowed: bool, now: i64) {
        let last = if allowed { &self.allowed } else { &self.refused };
        last.store(now, Ordering::Relaxed);
    }

    /// Adds the name of an object; an empty one is a request for any object.
    fn add_name(&self, name: &str) {
        match &*self.names.read() {
            None => return,
            Some(names) if names.binary_search_by(|held| (**held).cmp(name)).is_ok() => return,
            Some(_) => {}
        }
        let mut names = self.names.write();
        let Some(held) = &mut *names else { return };
        if name.is_empty() || name.len() > NAME_BYTES_MAX || held.len() >= NAMES_MAX {
            *names = None;
        } else if let Err(at) = held.binary_search_by(|held| (**held).cmp(name)) {
            held.insert(at, name.into());
        }
    }

    fn action(&self) -> Action {
        let names = self.names.read().iter().flatten().map(|name| name.to_string()).collect();
        Action { names, ..self.action.clone() }
    }
}

/// The object of a request; empty if it names none.
fn name<'a>(attributes: &Attributes<'a>) -> &'a str {
    match &attributes.what {
        What::Path(_) => "",
        What::Resource(about) => about.name,
    }
}

fn action(attributes: &Attributes<'_>) -> Action {
    let text = |text: &str| text.to_owned();
    match &attributes.what {
        What::Path(path) => Action {
            verb: text(attributes.verb),
            group: String::new(),
            resource: String::new(),
            namespace: String::new(),
            path: text(path),
            names: Vec::new(),
        },
        What::Resource(about) => Action {
            verb: text(attributes.verb),
            group: text(about.group),
            resource: access::explain::manifest::full(about),
            namespace: text(about.namespace),
            path: String::new(),
            names: Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use access::authorizer::ResourceAttributes;

    use super::*;

    fn about<'a>(resource: &'a str, namespace: &'a str) -> What<'a> {
        What::Resource(ResourceAttributes { resource, namespace, ..ResourceAttributes::default() })
    }

    #[test]
    fn ba_5_actions_are_kept_once_with_their_time() {
        let recorder = Recorder::default();
        let alice = User { name: "alice".to_owned(), ..User::default() }.authenticated();
        let bob = User { name: "bob".to_owned(), ..User::default() };
        for (user, verb, what, allowed, now) in [
            (&alice, "get", about("pods", "n"), true, 10),
            (&alice, "get", about("pods", "n"), false, 12),
            (&alice, "list", about("pods", "n"), false, 14),
            (&alice, "get", What::Path("/metrics"), true, 16),
            (&bob, "get", about("secrets", "n"), true, 18),
        ] {
            recorder.record(&Attributes { user, verb, what }, allowed, now);
        }
        let usage = recorder.usage("alice", 0).usage.unwrap();
        assert_eq!(usage.user, alice);
        let verbs = |actions: &[Action]| -> Vec<String> { actions.iter().map(|action| action.verb.clone()).collect() };
        assert_eq!(usage.allowed.len(), 2, "allowed once is allowed");
        assert_eq!(verbs(&usage.refused), ["list"]);
        let later = recorder.usage("alice", 12).usage.unwrap();
        assert_eq!(verbs(&later.refused), ["get", "list"], "only what came later counts");
        assert_eq!(later.allowed[0].path, "/metrics");
        assert!(recorder.usage("alice", 17).usage.is_none());
        assert!(recorder.usage("carol", 0).usage.is_none());
    }

    #[test]
    fn ba_5_names_of_objects_are_kept_while_they_are_few() {
        let recorder = Recorder::default();
        let alice = User { name: "alice".to_owned(), ..User::default() };
        let act = |verb: &str, name: &str| {
            let about = ResourceAttributes { resource: "configmaps", namespace: "n", name, ..Default::default() };
            recorder.record(&Attributes { user: &alice, verb, what: What::Resource(about) }, true, 1);
        };
        for name in ["b", "a", "b"] {
            act("get", name);
        }
        act("patch", "a");
        act("patch", "");
        for number in 0..=NAMES_MAX {
            act("delete", &number.to_string());
        }
        let usage = recorder.usage("alice", 0).usage.unwrap();
        let names: Vec<(&str, usize)> =
            usage.allowed.iter().map(|action| (action.verb.as_str(), action.names.len())).collect();
        assert_eq!(names, [("delete", 0), ("get", 2), ("patch", 0)]);
        assert_eq!(usage.allowed[1].names, ["a", "b"]);
    }

    #[test]
    fn ba_5_the_record_is_bounded() {
        let recorder = Recorder::default();
        let alice = User { name: "alice".to_owned(), ..User::default() };
        let long = "x".repeat(ACTION_BYTES_MAX);
        recorder.record(&Attributes { user: &alice, verb: "get", what: about(&long, "n") }, true, 1);
        for number in 0..ACTIONS_MAX + 10 {
            let namespace = number.to_string();
            recorder.record(&Attributes { user: &alice, verb: "get", what: about("pods", &namespace) }, true, 1);
        }
        let record = recorder.usage("alice", 0);
        assert_eq!(record.left_out, 11);
        assert_eq!(record.usage.unwrap().allowed.len(), ACTIONS_MAX);
    }

    #[test]
    fn ba_5_requests_without_credentials_and_very_large_users_are_not_recorded() {
        let recorder = Recorder::default();
        let large = User { name: "large".to_owned(), groups: vec!["g".repeat(ACTION_BYTES_MAX)], ..User::default() };
        for user in [&User::anonymous(), &large] {
            recorder.record(&Attributes { user, verb: "get", what: about("pods", "n") }, false, 1);
            assert!(recorder.usage(&user.name, 0).usage.is_none(), "{}", user.name);
        }
    }

    #[test]
    fn ba_6_refusals_of_strict_users_are_kept() {
        let recorder = Recorder::default();
        recorder.refused("alice", "before");
        recorder.keep_refusals("alice");
        recorder.refused("alice", "first");
        recorder.refused("bob", "not his");
        assert_eq!(recorder.refusals(), ["first"]);
    }
}
