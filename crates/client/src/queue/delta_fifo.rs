//! `DeltaFifo`: keys in order of their first waiting change; all changes of a key are popped together.
//!
//! For users of the crate who port code from client-go: informers use [`InOrderQueue`](super::InOrderQueue).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Certainty, Deletion, Delta, KnownObjects, Population, Replacement, Staged};
use crate::reflector::{Target, TargetError};
use crate::{Key, Object};

/// The changes of objects, grouped by key.
///
/// Unlike in client-go, the changes of a key are compacted while they wait: an update replaces the update before it, and a
/// deletion replaces everything before it. So memory is bounded by the number of keys, however slow the consumer is;
/// [`DeltaFifo::keeping_all`] keeps every change instead.
pub struct DeltaFifo<K> {
    state: Mutex<State<K>>,
    filled: Notify,
    known: Arc<dyn KnownObjects<K>>,
    compact: bool,
}

struct State<K> {
    order: VecDeque<Key>,
    deltas: HashMap<Key, Vec<Delta<K>>>,
    population: Population,
    closed: bool,
}

/// The result of one pop.
#[derive(Debug)]
pub struct PoppedDeltas<K: Object> {
    /// The key of the object.
    pub key: Key,
    /// Its changes, oldest first.
    pub deltas: Vec<Delta<K>>,
    /// True for changes of the first population.
    pub initial: bool,
}

impl<K: Object> DeltaFifo<K> {
    /// An empty queue in front of `known`.
    pub fn new(known: Arc<dyn KnownObjects<K>>) -> Self {
        let state =
            State { order: VecDeque::new(), deltas: HashMap::new(), population: Population::default(), closed: false };
        Self { state: Mutex::new(state), filled: Notify::new(), known, compact: true }
    }

    /// Keeps every change of a key, as client-go does. Memory then grows with the changes and not with the keys.
    pub fn keeping_all(mut self) -> Self {
        self.compact = false;
        self
    }

    /// Queues an addition.
    pub fn add(&self, object: Arc<K>) {
        self.change(object.object_key(), Delta::Added(object));
    }

    /// Queues an update.
    pub fn update(&self, object: Arc<K>) {
        self.change(object.object_key(), Delta::Updated(object));
    }

    /// Queues a deletion. Dropped if the key neither waits nor is known.
    pub fn delete(&self, deletion: Deletion<K>) {
        let mut state = self.state.lock();
        state.population.begin_with_change();
        let key = deletion.key.clone();
        if state.deltas.contains_key(&key) || self.known.get(&key).is_some() {
            self.enqueue(&mut state, key, Delta::Deleted(deletion));
        }
    }

    /// Queues a whole set: one Replaced for each object, then a tombstone for every other key that waits or is known.
    pub fn replace(&self, set: Replacement<K>) {
        let mut state = self.state.lock();
        let mut elements = 0;
        let mut missing: Vec<Deletion<K>> = Vec::new();
        for (key, deltas) in &state.deltas {
            if !set.items.contains_key(key) {
                let newest = deltas.iter().rev().find_map(|delta| delta.object().cloned());
                missing.push(tombstone(key, newest));
            }
        }
        for key in self.known.keys() {
            if !set.items.contains_key(&key) && !state.deltas.contains_key(&key) {
                missing.push(tombstone(&key, self.known.get(&key)));
            }
        }
        for (key, staged) in set.items {
            let delta = match staged {
                Staged::Object(object) => Delta::Replaced(object),
                Staged::Undecodable(undecodable) => Delta::Undecodable(undecodable),
                Staged::Ahead => continue,
            };
            elements += 1;
            self.enqueue(&mut state, key, delta);
        }
        missing.sort_by(|a, b| a.key.cmp(&b.key));
        elements += missing.len();
        for deletion in missing {
            self.enqueue(&mut state, deletion.key.clone(), Delta::Deleted(deletion));
        }
        state.population.begin_with_set(elements);
    }

    /// Queues a Sync for every known object for which nothing waits.
    pub fn resync(&self) {
        let mut state = self.state.lock();
        for key in self.known.keys() {
            if !state.deltas.contains_key(&key)
                && let Some(object) = self.known.get(&key)
            {
                self.enqueue(&mut state, key, Delta::Sync(object));
            }
        }
    }

    /// Waits for a key with changes and passes them to `process`, under the lock of the queue: nothing can be pushed
    /// meanwhile. `None` once the queue is closed and empty.
    pub async fn pop_with<R>(&self, process: impl FnOnce(PoppedDeltas<K>) -> R) -> Option<R> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                let initial = !state.population.is_complete();
                if let Some(key) = state.order.pop_front() {
                    let deltas = state.deltas.remove(&key).unwrap_or_default();
                    state.population.processed(1);
                    return Some(process(PoppedDeltas { key, deltas, initial }));
                }
                if state.closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// True once the first whole set was popped, or if a single change was pushed before any set.
    pub fn has_synced(&self) -> bool {
        self.state.lock().population.is_complete()
    }

    /// The number of keys that wait.
    pub fn len(&self) -> usize {
        self.state.lock().order.len()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses further changes; those that wait can still be popped.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    fn change(&self, key: Key, delta: Delta<K>) {
        let mut state = self.state.lock();
        state.population.begin_with_change();
        self.enqueue(&mut state, key, delta);
    }

    fn enqueue(&self, state: &mut State<K>, key: Key, delta: Delta<K>) {
        if state.closed {
            return;
        }
        let waiting = state.deltas.entry(key.clone()).or_default();
        let is_new = waiting.is_empty();
        waiting.push(delta);
        merge_deletions(waiting);
        if self.compact {
            compact(waiting);
        }
        if is_new {
            state.order.push_back(key);
        }
        self.filled.notify_one();
    }
}

fn tombstone<K>(key: &Key, object: Option<Arc<K>>) -> Deletion<K> {
    Deletion { key: key.clone(), object, certainty: Certainty::Inferred }
}

/// Merges two deletions in a row. An observed one is kept, since it carries the true last state.
fn merge_deletions<K>(deltas: &mut Vec<Delta<K>>) {
    let n = deltas.len();
    if n < 2 {
        return;
    }
    if let (Delta::Deleted(older), Delta::Deleted(_)) = (&deltas[n - 2], &deltas[n - 1]) {
        let drop = if older.certainty == Certainty::Inferred { n - 2 } else { n - 1 };
        deltas.remove(drop);
    }
}

/// Leaves at most two deltas of a key: the last deletion, and the newest state after it. An object that was added and then
/// changed is still an addition, with the newer state.
fn compact<K>(deltas: &mut Vec<Delta<K>>) {
    if let Some(last) = deltas.iter().rposition(|delta| matches!(delta, Delta::Deleted(_))) {
        deltas.drain(..last);
    }
    let after = usize::from(matches!(deltas.first(), Some(Delta::Deleted(_))));
    if deltas.len() > after + 1 {
        let first_is_add = matches!(deltas[after], Delta::Added(_));
        deltas.drain(after..deltas.len() - 1);
        if first_is_add && let Some(object) = deltas.last().and_then(Delta::object).cloned() {
            deltas[after] = Delta::Added(object);
        }
    }
}

impl<K: Object> Target<K> for DeltaFifo<K> {
    fn apply(&self, delta: Delta<K>) -> BoxFuture<'_, Result<(), TargetError>> {
        match delta {
            Delta::Added(object) => self.add(object),
            Delta::Updated(object) => self.update(object),
            Delta::Deleted(deletion) => self.delete(deletion),
            Delta::ReplacedAll(set) => self.replace(set),
            Delta::SyncAll => self.resync(),
            Delta::Undecodable(undecodable) => {
                self.change(undecodable.raw.key.clone(), Delta::Undecodable(undecodable));
            }
            delta @ (Delta::Replaced(_) | Delta::Sync(_) | Delta::Ahead(_)) => {
                if let Some(key) = delta.key() {
                    self.change(key, delta);
                }
            }
            Delta::Bookmark(_) => {}
        }
        futures::future::ready(Ok(())).boxed()
    }

    fn known(&self, key: &Key) -> Option<Arc<K>> {
        self.known.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::object;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::collections::BTreeMap;

    struct Has(BTreeMap<Key, Arc<ConfigMap>>);

    impl KnownObjects<ConfigMap> for Has {
        fn get(&self, key: &Key) -> Option<Arc<ConfigMap>> {
            self.0.get(key).cloned()
        }
        fn keys(&self) -> Vec<Key> {
            self.0.keys().cloned().collect()
        }
    }

    fn map(text: &str) -> Arc<ConfigMap> {
        Arc::new(ConfigMap::from_raw(&object(text)).unwrap())
    }

    fn has(texts: &[&str]) -> Arc<Has> {
        Arc::new(Has(texts.iter().map(|t| map(t)).map(|o| (Key::of(&*o), o)).collect()))
    }

    fn set(texts: &[&str]) -> Replacement<ConfigMap> {
        let items = texts.iter().map(|t| map(t)).map(|o| (Key::of(&*o), Staged::Object(o))).collect();
        Replacement { items, version: "9".into(), history_reset: false }
    }

    fn gone(text: &str) -> Deletion<ConfigMap> {
        let object = map(text);
        Deletion { key: Key::of(&*object), object: Some(object), certainty: Certainty::Observed }
    }

    async fn pop(fifo: &DeltaFifo<ConfigMap>) -> String {
        fifo.pop_with(|popped| format!("{:?}", popped.deltas)).await.unwrap()
    }

    #[tokio::test]
    async fn keys_come_in_order_of_their_first_change_with_all_changes() {
        let fifo = DeltaFifo::new(has(&[])).keeping_all();
        fifo.add(map("a@1"));
        fifo.add(map("b@2"));
        fifo.update(map("a@3"));
        assert_eq!(pop(&fifo).await, "[Added(a@1), Updated(a@3)]");
        assert_eq!(pop(&fifo).await, "[Added(b@2)]");
    }

    #[tokio::test]
    async fn memory_is_bounded_by_the_number_of_keys() {
        let fifo = DeltaFifo::new(has(&["a@0"]));
        for version in 1..1000 {
            fifo.update(map(&format!("a@{version}")));
            if version % 7 == 0 {
                fifo.delete(gone(&format!("a@{version}")));
                fifo.add(map(&format!("a@{version}")));
            }
        }
        assert_eq!(pop(&fifo).await, "[Deleted(a@994), Added(a@999)]");
    }

    #[tokio::test]
    async fn dq_02_delete_and_recreate_between_pops_is_one_popped_group() {
        let fifo = DeltaFifo::new(has(&["a@1#old"])).keeping_all();
        fifo.delete(gone("a@2#old"));
        fifo.add(map("a@3#new"));
        assert_eq!(pop(&fifo).await, "[Deleted(a@2), Added(a@3)]");
    }

    #[tokio::test]
    async fn adjacent_deletions_merge_and_the_observed_one_wins() {
        let fifo = DeltaFifo::new(has(&["a@1"])).keeping_all();
        fifo.delete(gone("a@2"));
        fifo.replace(set(&[]));
        assert_eq!(pop(&fifo).await, "[Deleted(a@2)]", "the older is kept, it was observed");
        let fifo = DeltaFifo::new(has(&["a@1"])).keeping_all();
        fifo.replace(set(&[]));
        fifo.delete(gone("a@2"));
        assert_eq!(pop(&fifo).await, "[Deleted(a@2)]", "the older was a tombstone, the newer wins");
    }

    #[tokio::test]
    async fn delete_of_an_unknown_key_is_dropped() {
        let fifo = DeltaFifo::new(has(&[]));
        fifo.delete(gone("a@2"));
        assert!(fifo.is_empty());
        assert!(fifo.has_synced());
    }

    #[tokio::test]
    async fn replace_emits_replaced_then_tombstones_with_the_newest_state() {
        let fifo = DeltaFifo::new(has(&["a@1", "b@1", "c@1"])).keeping_all();
        fifo.update(map("b@5"));
        fifo.replace(set(&["a@2"]));
        assert_eq!(pop(&fifo).await, "[Updated(b@5), Deleted?(b@5)]");
        assert_eq!(pop(&fifo).await, "[Replaced(a@2)]");
        assert_eq!(pop(&fifo).await, "[Deleted?(c@1)]");
    }

    #[tokio::test]
    async fn dq_03_a_tombstone_has_a_key_even_without_an_object() {
        let delta: Delta<ConfigMap> = Delta::Deleted(tombstone(&Key::parse("n/a").unwrap(), None));
        assert_eq!(delta.key().unwrap().as_str(), "n/a");
        assert!(delta.object().is_none());
    }

    #[tokio::test]
    async fn has_synced_counts_items_and_tombstones_of_the_first_set() {
        let fifo = DeltaFifo::new(has(&["x@1"]));
        fifo.replace(set(&["a@1"]));
        assert!(!fifo.has_synced());
        assert!(fifo.pop_with(|popped| popped.initial).await.unwrap());
        assert!(!fifo.has_synced(), "the tombstone is still there");
        assert!(fifo.pop_with(|popped| popped.initial).await.unwrap());
        assert!(fifo.has_synced());
        let empty = DeltaFifo::new(has(&[]));
        empty.replace(set(&[]));
        assert!(empty.has_synced(), "an empty first set is complete at once");
    }

    #[tokio::test]
    async fn resync_skips_keys_that_wait() {
        let fifo = DeltaFifo::new(has(&["a@1", "b@1"]));
        fifo.update(map("a@2"));
        fifo.resync();
        assert_eq!(pop(&fifo).await, "[Updated(a@2)]");
        assert_eq!(pop(&fifo).await, "[Sync(b@1)]");
        assert!(fifo.is_empty());
    }

    #[tokio::test]
    async fn closed_reports_only_when_empty() {
        let fifo = DeltaFifo::new(has(&[]));
        fifo.add(map("a@1"));
        fifo.close();
        assert_eq!(pop(&fifo).await, "[Added(a@1)]");
        assert!(fifo.pop_with(|_| ()).await.is_none());
    }
}
