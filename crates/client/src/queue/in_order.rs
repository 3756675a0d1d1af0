//! `InOrderQueue`: changes in strict order of arrival, relists and resyncs as one element each.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Delta, KnownObjects, Population};
use crate::reflector::{Target, TargetError};
use crate::{Key, Stored};

/// Capacity in elements.
const CAPACITY: usize = 2000;
/// Distinct keys that are processed together.
const BATCH: usize = 1000;

/// Changes in strict order of arrival, for one producer and one consumer.
///
/// Nothing is merged, so a delete and a re-creation stay two events. The producer waits while the queue is full. The consumer
/// polls: in an informer both are one future, which pops after each step of the reflector, so that the capacity bounds what a
/// source that is always ready can push within one step.
pub struct InOrderQueue<K: ?Sized> {
    state: Mutex<State<K>>,
    /// Notified at each pop; the producer waits for it while the queue is full.
    popped: Notify,
    known: Arc<dyn KnownObjects<K>>,
    capacity: usize,
}

struct State<K: ?Sized> {
    elements: VecDeque<Delta<K>>,
    population: Population,
    closed: bool,
}

/// Changes that may be applied together: distinct keys, or one whole-set element.
pub struct Batch<K: ?Sized> {
    /// The changes, in order.
    pub deltas: Vec<Delta<K>>,
    /// True for changes of the first population.
    pub initial: bool,
}

impl<K: Stored + ?Sized> InOrderQueue<K> {
    /// An empty queue in front of `known`.
    pub fn new(known: Arc<dyn KnownObjects<K>>) -> Self {
        Self::with_capacity(known, CAPACITY)
    }

    /// The same with another capacity.
    pub fn with_capacity(known: Arc<dyn KnownObjects<K>>, capacity: usize) -> Self {
        let state = State { elements: VecDeque::new(), population: Population::default(), closed: false };
        Self { state: Mutex::new(state), popped: Notify::new(), known, capacity }
    }

    /// Waits until the queue is not full, then appends. Refuses the change after `close`.
    pub async fn push(&self, delta: Delta<K>) -> Result<(), TargetError> {
        loop {
            let popped = self.popped.notified();
            {
                let mut state = self.state.lock();
                if state.closed {
                    return Err(TargetError("the queue is closed".into()));
                }
                if state.elements.len() < self.capacity {
                    match &delta {
                        Delta::ReplacedAll(_) => state.population.begin_with_set(1),
                        Delta::Added(_) | Delta::Updated(_) | Delta::Deleted(_) | Delta::Undecodable(_) => {
                            state.population.begin_with_change();
                        }
                        _ => {}
                    }
                    state.elements.push_back(delta);
                    return Ok(());
                }
            }
            popped.await;
        }
    }

    /// Passes the next batch to `process`; the population counts it as done afterwards. False if the queue is empty.
    pub fn pop_with(&self, process: impl FnOnce(Batch<K>)) -> bool {
        let Some(batch) = self.state.lock().take_batch() else { return false };
        self.popped.notify_one();
        let whole_sets = batch.deltas.iter().filter(|d| matches!(d, Delta::ReplacedAll(_))).count();
        process(batch);
        self.state.lock().population.processed(whole_sets);
        true
    }

    /// True once the first whole set was processed, or if a single change was pushed before any set.
    pub fn has_synced(&self) -> bool {
        self.state.lock().population.is_complete()
    }

    /// The number of elements that wait.
    pub fn len(&self) -> usize {
        self.state.lock().elements.len()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses further changes; those that wait can still be popped.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.popped.notify_waiters();
    }
}

impl<K: Stored + ?Sized> State<K> {
    fn take_batch(&mut self) -> Option<Batch<K>> {
        let initial = !self.population.is_complete();
        // The usual case: a single key is distinct.
        if self.elements.len() == 1 {
            return Some(Batch { deltas: self.elements.pop_front().into_iter().collect(), initial });
        }
        let mut deltas = Vec::new();
        let mut keys: HashSet<Key> = HashSet::new();
        while deltas.len() < BATCH {
            let Some(next) = self.elements.front() else { break };
            let Some(key) = next.key() else {
                // A whole set, a resync or a bookmark is a batch of its own.
                if deltas.is_empty() {
                    deltas.extend(self.elements.pop_front());
                }
                break;
            };
            if !keys.insert(key) {
                break;
            }
            deltas.extend(self.elements.pop_front());
        }
        (!deltas.is_empty()).then_some(Batch { deltas, initial })
    }
}

impl<K: Stored + ?Sized> Target<K> for InOrderQueue<K> {
    fn apply(&self, delta: Delta<K>) -> BoxFuture<'_, Result<(), TargetError>> {
        self.push(delta).boxed()
    }

    fn known(&self, key: &Key) -> Option<Arc<K>> {
        self.known.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;
    use crate::queue::{Replacement, Staged};
    use crate::scripted::object;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::collections::BTreeMap;

    fn map(text: &str) -> Arc<ConfigMap> {
        Arc::new(ConfigMap::from_raw(&object(text)).unwrap())
    }

    fn set(texts: &[&str]) -> Delta<ConfigMap> {
        let items: BTreeMap<Key, Staged<ConfigMap>> =
            texts.iter().map(|t| map(t)).map(|o| (Key::of(&*o), Staged::Object(o))).collect();
        Delta::ReplacedAll(Replacement { items, version: "9".into(), history_reset: false })
    }

    fn pop(queue: &InOrderQueue<ConfigMap>) -> (Vec<String>, bool) {
        let mut popped = None;
        queue.pop_with(|batch| {
            popped = Some((batch.deltas.iter().map(|d| format!("{d:?}")).collect(), batch.initial));
        });
        popped.expect("a batch waits")
    }

    #[tokio::test]
    async fn order_is_strict_and_a_batch_has_distinct_keys() {
        let queue = InOrderQueue::new(Arc::new(()));
        for delta in [Delta::Added(map("a@1")), Delta::Added(map("b@2")), Delta::Updated(map("a@3")), Delta::SyncAll] {
            queue.push(delta).await.unwrap();
        }
        assert_eq!(pop(&queue).0, ["Added(a@1)", "Added(b@2)"]);
        assert_eq!(pop(&queue).0, ["Updated(a@3)"]);
        assert_eq!(pop(&queue).0, ["SyncAll"]);
    }

    #[tokio::test]
    async fn dq_02_delete_and_recreate_stay_apart() {
        let queue = InOrderQueue::new(Arc::new(()));
        let gone = super::super::Deletion {
            key: Key::parse("a").unwrap(),
            object: Some(map("a@2")),
            certainty: super::super::Certainty::Observed,
        };
        queue.push(Delta::Deleted(gone)).await.unwrap();
        queue.push(Delta::Added(map("a@3#new"))).await.unwrap();
        assert_eq!(pop(&queue).0, ["Deleted(a@2)"]);
        assert_eq!(pop(&queue).0, ["Added(a@3)"]);
    }

    #[tokio::test]
    async fn has_synced_only_after_the_first_set_was_processed() {
        let queue = InOrderQueue::new(Arc::new(()));
        assert!(!queue.has_synced(), "nothing was pushed yet");
        queue.push(set(&[])).await.unwrap();
        assert!(!queue.has_synced(), "an empty set still has to be processed");
        assert!(queue.pop_with(|_| assert!(!queue.has_synced(), "not while it is being processed")));
        assert!(queue.has_synced());
    }

    #[tokio::test]
    async fn has_synced_at_once_if_a_change_came_first() {
        let queue = InOrderQueue::new(Arc::new(()));
        queue.push(Delta::Added(map("a@1"))).await.unwrap();
        assert!(queue.has_synced());
        assert!(!pop(&queue).1);
    }

    #[tokio::test]
    async fn initial_is_true_for_the_first_set_only() {
        let queue = InOrderQueue::new(Arc::new(()));
        queue.push(set(&["a@1"])).await.unwrap();
        queue.push(set(&["a@1"])).await.unwrap();
        assert!(pop(&queue).1);
        assert!(!pop(&queue).1);
    }

    #[tokio::test]
    async fn a_full_queue_makes_the_producer_wait() {
        let queue = Arc::new(InOrderQueue::with_capacity(Arc::new(()), 1));
        queue.push(Delta::Added(map("a@1"))).await.unwrap();
        let producer = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push(Delta::Added(map("b@2"))).await }
        });
        tokio::task::yield_now().await;
        assert!(!producer.is_finished());
        pop(&queue);
        producer.await.unwrap().unwrap();
        assert_eq!(queue.len(), 1);
        let refused = tokio::spawn({
            let queue = queue.clone();
            async move { queue.push(Delta::Added(map("c@3"))).await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert!(refused.await.unwrap().is_err(), "a producer that waits learns of the close");
    }

    #[tokio::test]
    async fn a_closed_queue_hands_out_what_it_has() {
        let queue = InOrderQueue::new(Arc::new(()));
        queue.push(Delta::Added(map("a@1"))).await.unwrap();
        queue.close();
        assert!(queue.push(Delta::Added(map("b@1"))).await.is_err());
        assert!(queue.pop_with(|_| ()));
        assert!(!queue.pop_with(|_| ()));
    }
}
