//! `Expectations`: writes of a controller that its watch has not shown yet.
//!
//! For users of the crate who port controllers from Kubernetes; [`Writes`](crate::controller::Writes) does the same by
//! version and without counting.
//!
//! A controller that creates three pods and reads its store at once may find none of them and create three more. So it
//! records what it expects before it acts, and decides nothing new about that object until the watch has shown all of it (or
//! five minutes have passed: a lost event must not stop it for ever). Status updates go on meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Key;

/// Time after which an unmet expectation is dropped.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Expected creations and deletions of the children of each object.
///
/// ```
/// use client::Key;
/// use client::expectations::Expectations;
///
/// let expectations = Expectations::new();
/// let owner = Key::new(Some("default"), "web");
/// expectations.expect_creations(&owner, 1);
/// assert!(!expectations.satisfied(&owner));
/// expectations.creation_observed(&owner);
/// assert!(expectations.satisfied(&owner));
/// ```
#[derive(Default)]
pub struct Expectations {
    entries: Mutex<HashMap<Key, Expected>>,
}

struct Expected {
    creations: i64,
    /// UIDs, since one deletion is seen twice: when it begins and when the object is gone.
    deletions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// Creates an empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects the creation of `count` children of `key`. Replaces earlier expectations.
    pub fn expect_creations(&self, key: &Key, count: usize) {
        self.set(key, i64::try_from(count).unwrap_or(i64::MAX), HashSet::new());
    }

    /// Expects the deletion of the children with these UIDs. Replaces earlier expectations.
    pub fn expect_deletions<'a>(&self, key: &Key, uids: impl IntoIterator<Item = &'a str>) {
        self.set(key, 0, uids.into_iter().map(str::to_owned).collect());
    }

    fn set(&self, key: &Key, creations: i64, deletions: HashSet<String>) {
        self.entries.lock().insert(key.clone(), Expected { creations, deletions, since: Instant::now() });
    }

    /// Counts a creation that the watch showed, or that failed.
    pub fn creation_observed(&self, key: &Key) {
        if let Some(expected) = self.entries.lock().get_mut(key) {
            expected.creations -= 1;
        }
    }

    /// Counts a deletion that the watch showed (as begun or done), or that failed. Each UID counts once.
    pub fn deletion_observed(&self, key: &Key, uid: &str) {
        if let Some(expected) = self.entries.lock().get_mut(key) {
            expected.deletions.remove(uid);
        }
    }

    /// True if all expectations are met, none were recorded, or they are too old.
    pub fn satisfied(&self, key: &Key) -> bool {
        self.entries.lock().get(key).is_none_or(|expected| {
            (expected.creations <= 0 && expected.deletions.is_empty()) || expected.since.elapsed() > TIMEOUT
        })
    }

    /// Drops the expectations of a deleted object.
    pub fn forget(&self, key: &Key) {
        self.entries.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new(Some("n"), "rs")
    }

    #[tokio::test(start_paused = true)]
    async fn ct_expectations_are_met_by_observation() {
        let expectations = Expectations::new();
        assert!(expectations.satisfied(&key()), "nothing was recorded");
        expectations.expect_creations(&key(), 2);
        expectations.creation_observed(&key());
        assert!(!expectations.satisfied(&key()));
        expectations.creation_observed(&key());
        assert!(expectations.satisfied(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn ct_expectations_count_a_deletion_once_per_uid() {
        let expectations = Expectations::new();
        expectations.expect_deletions(&key(), ["a", "b"]);
        expectations.deletion_observed(&key(), "a"); // deletionTimestamp was set
        expectations.deletion_observed(&key(), "a"); // and now it is gone
        assert!(!expectations.satisfied(&key()));
        expectations.deletion_observed(&key(), "b");
        assert!(expectations.satisfied(&key()));
    }

    #[tokio::test(start_paused = true)]
    async fn ct_expectations_are_given_up_after_five_minutes() {
        let expectations = Expectations::new();
        expectations.expect_creations(&key(), 1);
        tokio::time::advance(Duration::from_secs(299)).await;
        assert!(!expectations.satisfied(&key()));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(expectations.satisfied(&key()));
        expectations.expect_creations(&key(), 1);
        expectations.forget(&key());
        assert!(expectations.satisfied(&key()));
    }
}
