//! The behaviour suite: one named check for each guarantee of the contract, run against every engine.
//!
//! An engine's test file provides a fixture, and the macro defines one test for each check:
//!
//! ```text
//! async fn fixture() -> store::suite::Fixture {
//!     store::suite::Fixture::new(store::memory::MemoryStore::default())
//! }
//! store::behaviour_suite!(fixture);
//! ```
//!
//! - [`order`]: one order for everything
//! - [`optimistic`]: a write succeeds only if the key is unchanged
//! - [`watch`]: every change once, in order, with no gap
//! - [`list`]: pages, and states at exact revisions
//! - [`compaction`]: removed and retained history, and the errors of reads below the floor
//! - [`fork`]: stores that begin as another one was
//! - [`input`]: accepted and refused keys and values
//!
//! Checks assume neither absolute nor consecutive revisions: an engine may start at any revision and skip some.

pub mod compaction;
pub mod fork;
pub mod input;
pub mod list;
pub mod optimistic;
pub mod order;
pub mod watch;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;

use crate::contract::{Changes, ListQuery, Store, VALUE_BYTES_MAX};
use crate::entry::{Change, Snapshot};
use crate::key::{Key, Prefix};

/// Runs every check against the engine that `$fixture` (an `async fn() -> Fixture`) creates, each as a test of its own.
#[macro_export]
macro_rules! behaviour_suite {
    ($fixture:ident) => {
        $crate::behaviour_suite!(@tests $fixture;
            order: [
                every_write_gets_a_revision_of_its_own,
                later_writes_have_greater_revisions,
                the_current_revision_is_that_of_the_last_acknowledged_write,
                reads_see_every_acknowledged_write,
                a_refused_write_changes_nothing,
                several_writes_are_one_after_the_other_in_the_log,
                a_write_among_several_needs_the_current_revision,
            ];
            optimistic: [
                a_taken_key_cannot_be_created_and_the_current_entry_is_returned,
                an_update_needs_the_current_revision_and_returns_the_current_entry,
                a_delete_needs_the_current_revision_and_returns_the_current_entry,
                an_absent_key_cannot_be_updated_or_deleted,
                a_deleted_key_can_be_created_again,
                of_racing_updates_exactly_one_wins,
                of_racing_creates_exactly_one_wins,
            ];
            watch: [
                every_change_comes_once_in_order_with_what_was_before,
                a_watch_resumes_after_any_revision,
                a_watch_misses_nothing_of_concurrent_writers,
                a_watch_sees_its_prefix_and_nothing_else,
                a_slow_watch_misses_nothing_and_delays_no_other,
                a_batch_says_how_far_it_reaches,
                progress_comes_while_the_log_moves_elsewhere,
                progress_comes_while_nothing_happens,
                a_list_followed_by_a_watch_has_no_gap,
                a_watch_of_the_future_is_refused,
                a_watch_ends_when_the_store_closes,
            ];
            list: [
                entries_come_in_the_order_of_their_keys,
                a_prefix_bounds_a_list,
                pages_join_to_the_whole_and_count_what_remains,
                a_page_may_start_after_any_text,
                every_retained_revision_can_be_listed_exactly,
                pages_at_one_revision_ignore_later_writes,
                a_list_of_the_future_is_refused,
            ];
            compaction: [
                what_is_current_stays,
                the_oldest_revision_follows,
                older_states_are_compacted_and_later_ones_exact,
                a_watch_from_before_is_compacted_and_later_ones_complete,
                a_deleted_key_stays_deleted_and_revisions_go_on,
                compacting_again_is_harmless,
                the_future_cannot_be_compacted,
            ];
            fork: [
                a_fork_begins_as_its_origin_and_both_go_on_by_themselves,
                an_older_state_can_be_forked,
                a_watch_of_the_origin_resumes_in_the_fork,
                what_cannot_be_read_cannot_be_forked,
                an_older_state_can_be_restored_by_new_revisions,
            ];
            input: [
                a_key_of_the_longest_length_works,
                keys_are_any_text,
                an_empty_value_is_a_value,
                values_are_any_bytes,
                the_largest_value_works_and_a_larger_one_is_refused,
                an_empty_store_answers,
                statistics_count_objects,
                a_closed_store_refuses_politely,
            ];
        );
    };
    (@tests $fixture:ident; $($module:ident: [$($check:ident,)*];)*) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                $crate::suite::$module::$check(super::$fixture().await).await;
            })*
        })*
    };
}

/// Time limit of a check for anything that the contract guarantees: far longer than any machine needs.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// An engine to check. Nothing else may write to it or compact it.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    /// The configured limit on the size of a value.
    pub value_bytes_max: usize,
    /// Directories and processes that must live as long as the store.
    _keep: Box<dyn Any + Send>,
}

impl Fixture {
    pub fn new(store: impl Store) -> Self {
        Fixture { store: Arc::new(store), value_bytes_max: VALUE_BYTES_MAX, _keep: Box::new(()) }
    }

    /// Keeps a temporary directory or a server process for as long as the check runs.
    #[must_use]
    pub fn keeping(mut self, keep: impl Any + Send) -> Self {
        self._keep = Box::new(keep);
        self
    }

    /// Creates a pod; `key` is its namespace and name.
    async fn create(&self, key: &str, value: &str) -> Revision {
        self.store.create(pod(key), text(value)).await.expect("the key is free")
    }

    async fn update(&self, key: &str, value: &str, expected: Revision) -> Revision {
        self.store.update(pod(key), text(value), expected).await.expect("the revision is current")
    }

    async fn delete(&self, key: &str, expected: Revision) -> Revision {
        self.store.delete(pod(key), expected).await.expect("the revision is current")
    }

    async fn list(&self, query: ListQuery) -> Snapshot {
        self.store.list(query).await.expect("the list is readable")
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Changes {
        self.store.watch(Prefix::new(prefix), after).await.expect("the revision is retained")
    }

    /// The revision before the first write: the start for a watch of everything.
    async fn initial_revision(&self) -> Revision {
        self.store.current_revision().await.expect("a fresh store answers")
    }

    /// Writes a short history on a few keys. Returns each revision with the state after it.
    async fn history(&self) -> Vec<(Revision, State)> {
        let mut history = vec![(self.initial_revision().await, State::new())];
        let mut revisions: BTreeMap<String, Revision> = BTreeMap::new();
        for step in 0..40_u32 {
            let key = format!("a/{}", step * 7 % 5);
            let value = format!("value {step}");
            let mut state = history.last().expect("there is a beginning").1.clone();
            let revision = match revisions.get(&key).copied() {
                None => self.create(&key, &value).await,
                Some(expected) if step % 4 == 3 => self.delete(&key, expected).await,
                Some(expected) => self.update(&key, &value, expected).await,
            };
            if revisions.contains_key(&key) && step % 4 == 3 {
                revisions.remove(&key);
                state.remove(pod(&key).as_str());
            } else {
                revisions.insert(key.clone(), revision);
                state.insert(pod(&key).as_str().to_owned(), (revision, value));
            }
            history.push((revision, state));
        }
        history
    }
}

/// The state at one revision: key to (revision, value).
type State = BTreeMap<String, (Revision, String)>;

fn state_of(snapshot: &Snapshot) -> State {
    let entries = snapshot.entries.iter();
    entries.map(|entry| (entry.key.as_str().to_owned(), (entry.revision, lossy(&entry.value)))).collect()
}

/// A key of the collection that most checks use, from a namespace and a name.
fn pod(name: &str) -> Key {
    key(&format!("core/pods/{name}"))
}

fn key(text: &str) -> Key {
    Key::new(text).expect("the suite uses well-formed keys")
}

fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// The next `count` changes of a watch, in any number of batches.
async fn take(changes: &mut Changes, count: usize) -> Vec<Change> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let batch = tokio::time::timeout(TIME_LIMIT, changes.next()).await.unwrap_or_else(|_| {
            panic!("only {} of {count} changes arrived within {TIME_LIMIT:?}", taken.len());
        });
        taken.extend(batch.expect("the watch is open").expect("the watch is sound").changes);
    }
    assert_eq!(taken.len(), count, "more changes than were made: {taken:?}");
    taken
}

/// Every change of a watch up to and including `revision`.
async fn take_until(changes: &mut Changes, revision: Revision) -> Vec<Change> {
    let mut taken = Vec::new();
    loop {
        let batch = tokio::time::timeout(TIME_LIMIT, changes.next()).await.expect("the watch reaches the revision");
        let batch = batch.expect("the watch is open").expect("the watch is sound");
        taken.extend(batch.changes);
        if batch.revision >= revision {
            return taken;
        }
    }
}

/// A change as (revision, key, value, previous revision), for comparing and printing.
fn brief(change: &Change) -> (Revision, String, Option<String>, Option<Revision>) {
    (
        change.revision,
        change.key.as_str().to_owned(),
        change.value.as_deref().map(lossy),
        change.previous.as_ref().map(|previous| previous.revision),
    )
}
