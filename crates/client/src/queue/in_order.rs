//! `InOrderQueue`: changes in strict order of arrival, relists and resyncs as one element each.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Delta, KnownObjects, Population};
use crate::reflector::{Target, TargetError};
use crate::{Key, Object};

/// Elements that may wait before the producer does. Reached only if the consumer stands still.
const CAPACITY: usize = 2000;
/// Distinct keys that are processed together.
const BATCH: usize = 1000;

/// Changes in strict order of arrival, for one producer and one consumer.
///
/// Nothing is merged, so a delete and a re-creation stay two events. The bound is on the number of elements: a full
/// queue makes the reflector wait, and the server's history waits with it.
pub struct InOrderQueue<K> {
    state: Mutex<State<K>>,
    filled: Notify,
    drained: Notify,
    known: Arc<dyn KnownObjects<K>>,
    capacity: usize,
}

struct State<K> {
    elements: VecDeque<Delta<K>>,
    population: Population,
    closed: bool,
}

/// Changes that may be applied together: distinct keys, or one whole-set element.
pub struct Batch<K> {
    /// The changes, in order.
    pub deltas: Vec<Delta<K>>,
    /// They belong to the first population.
    pub initial: bool,
}

impl<K: Object> InOrderQueue<K> {
    /// An empty queue in front of `known`.
    pub fn new(known: Arc<dyn KnownObjects<K>>) -> Self {
        Self::with_capacity(known, CAPACITY)
    }

    /// The same with another bound.
    pub fn with_capacity(known: Arc<dyn KnownObjects<K>>, capacity: usize) -> Self {
        let state = State { elements: VecDeque::new(), population: Population::default(), closed: false };
        Self { state: Mutex::new(state), filled: Notify::new(), drained: Notify::new(), known, capacity }
    }

    /// Waits for room, then appends. After `close` the change is refused.
    pub async fn push(&self, delta: Delta<K>) -> Result<(), TargetError> {
        loop {
            let drained = self.drained.notified();
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
                    self.filled.notify_one();
                    return Ok(());
                }
            }
            drained.await;
        }
    }

    /// Waits for a batch, and has it processed before the population counts it as done. False once the queue is
    /// closed and empty.
    pub async fn pop_with(&self, mut process: impl FnMut(Batch<K>)) -> bool {
        loop {
            let filled = self.filled.notified();
            if self.try_pop_with(&mut process) {
                return true;
            }
            {
                let state = self.state.lock();
                if state.closed && state.elements.is_empty() {
                    return false;
                }
            }
            filled.await;
        }
    }

    /// The same for a batch that is there; false if none is.
    pub fn try_pop_with(&self, process: impl FnOnce(Batch<K>)) -> bool {
        let Some(batch) = self.state.lock().take_batch() else { return false };
        self.drained.notify_one();
        let whole_sets = batch.deltas.iter().filter(|d| matches!(d, Delta::ReplacedAll(_))).count();
        process(batch);
        self.state.lock().population.processed(whole_sets);
        true
    }

    /// True once the first whole set was processed, or if a single change came before any set.
    pub fn has_synced(&self) -> bool {
        self.state.lock().population.is_complete()
    }

    /// Elements waiting.
    pub fn len(&self) -> usize {
        self.state.lock().elements.len()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes nothing more; what waits is still handed out.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }
}

impl<K: Object> State<K> {
    fn take_batch(&mut self) -> Option<Batch<K>> {
        let initial = !self.population.is_complete();
        // The usual case: there is nothing to be distinct from.
        if self.elements.len() == 1 {
            return Some(Batch { deltas: self.elements.pop_front().into_iter().collect(), initial });
        }
        let mut deltas = Vec::new();
        let mut keys: HashSet<Key> = HashSet::new();
        while deltas.len() < BATCH {
            let Some(next) = self.elements.front() else { break };
            let Some(key) = next.key() else {
                // A whole set, a resync or a bookmark goes alone.
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

impl<K: Object> Target<K> for InOrderQueue<K> {
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

    async fn pop(queue: &InOrderQueue<ConfigMap>) -> (Vec<String>, bool) {
        let mut out = (Vec::new(), false);
        queue
            .pop_with(|batch| {
                out = (batch.deltas.iter().map(|d| format!("{d:?}")).collect(), batch.initial);
            })
            .await;
        out
    }

    #[tokio::test]
    async fn order_is_strict_and_a_batch_has_distinct_keys() {
        let queue = InOrderQueue::new(Arc::new(()));
        for delta in [Delta::Added(map("a@1")), Delta::Added(map("b@2")), Delta::Updated(map("a@3")), Delta::SyncAll] {
            queue.push(delta).await.unwrap();
        }
        assert_eq!(pop(&queue).await.0, ["Added(a@1)", "Added(b@2)"]);
        assert_eq!(pop(&queue).await.0, ["Updated(a@3)"]);
        assert_eq!(pop(&queue).await.0, ["SyncAll"]);
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
        assert_eq!(pop(&queue).await.0, ["Deleted(a@2)"]);
        assert_eq!(pop(&queue).await.0, ["Added(a@3)"]);
    }

    #[tokio::test]
    async fn has_synced_only_after_the_first_set_was_processed() {
        let queue = InOrderQueue::new(Arc::new(()));
        assert!(!queue.has_synced(), "nothing came yet");
        queue.push(set(&[])).await.unwrap();
        assert!(!queue.has_synced(), "an empty set still has to be processed");
        queue.pop_with(|_| assert!(!queue.has_synced(), "not while it is being processed")).await;
        assert!(queue.has_synced());
    }

    #[tokio::test]
    async fn has_synced_at_once_if_a_change_came_first() {
        let queue = InOrderQueue::new(Arc::new(()));
        queue.push(Delta::Added(map("a@1"))).await.unwrap();
        assert!(queue.has_synced());
        assert!(!pop(&queue).await.1);
    }

    #[tokio::test]
    async fn initial_is_true_for_the_first_set_only() {
        let queue = InOrderQueue::new(Arc::new(()));
        queue.push(set(&["a@1"])).await.unwrap();
        queue.push(set(&["a@1"])).await.unwrap();
        assert!(pop(&queue).await.1);
        assert!(!pop(&queue).await.1);
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
        pop(&queue).await;
        producer.await.unwrap().unwrap();
        assert_eq!(queue.len(), 1);
    }

    #[tokio::test]
    async fn a_closed_queue_hands_out_what_it_has() {
        let queue = InOrderQueue::new(Arc::new(()));
        queue.push(Delta::Added(map("a@1"))).await.unwrap();
        queue.close();
        assert!(queue.push(Delta::Added(map("b@1"))).await.is_err());
        assert!(queue.pop_with(|_| ()).await);
        assert!(!queue.pop_with(|_| ()).await);
    }
}
