//! `Expectations`: what a controller has asked for and not yet seen.
//!
//! A controller that creates three pods and looks at its store at once may find none of them and create three more.
//! So it writes down what it expects before it acts, and decides nothing new about that object until the watch has
//! shown it all (or five minutes have passed: a lost event must not stop it for ever). Status updates go on meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Key;

/// Expectations that are not met within this time are given up.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What is expected of the children of each object.
#[derive(Default)]
pub struct Expectations {
    entries: Mutex<HashMap<Key, Expected>>,
}

struct Expected {
    creations: i64,
    /// Deletions are told apart by UID: one object is seen twice, when it begins to be deleted and when it is gone.
    deletions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// Nothing is expected.
    pub fn new() -> Self {
        Self::default()
    }

    /// So many children of `key` are about to be created. Replaces what was expected before.
    pub fn expect_creations(&self, key: &Key, count: usize) {
        self.set(key, i64::try_from(count).unwrap_or(i64::MAX), HashSet::new());
    }

    /// The children with these UIDs are about to be deleted. Replaces what was expected before.
    pub fn expect_deletions<'a>(&self, key: &Key, uids: impl IntoIterator<Item = &'a str>) {
        self.set(key, 0, uids.into_iter().map(str::to_owned).collect());
    }

    fn set(&self, key: &Key, creations: i64, deletions: HashSet<String>) {
        self.entries.lock().insert(key.clone(), Expected { creations, deletions, since: Instant::now() });
    }

    /// The watch showed a new child, or its creation failed.
    pub fn creation_observed(&self, key: &Key) {
        if let Some(expected) = self.entries.lock().get_mut(key) {
            expected.creations -= 1;
        }
    }

    /// The watch showed that this child is being deleted or is gone, or its deletion failed. Counts once.
    pub fn deletion_observed(&self, key: &Key, uid: &str) {
        if let Some(expected) = self.entries.lock().get_mut(key) {
            expected.deletions.remove(uid);
        }
    }

    /// True if nothing is expected any more, nothing ever was, or it took too long.
    pub fn satisfied(&self, key: &Key) -> bool {
        self.entries.lock().get(key).is_none_or(|expected| {
            (expected.creations <= 0 && expected.deletions.is_empty()) || expected.since.elapsed() > TIMEOUT
        })
    }

    /// The object is gone.
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
