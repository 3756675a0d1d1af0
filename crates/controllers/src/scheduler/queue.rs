//! The queue of pods without a node: active ones, those that wait after a failure, and those that wait for a change.
//!
//! ```text
//!            pop                fail                      a change that may help
//!   active ───────► (tried) ───────────► parked ─────────────────────────────────────┐
//!     ▲                                     │ five minutes                           │
//!     └──────────────── backing off ◄───────┴────────────────────────────────────────┘
//!         1 s, 2 s, 4 s, … 10 s after the failure
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::Key;
use client::workqueue::{Figures, KeyState};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

/// SC-3: the first wait after a failure, and the longest.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// SC-3: longest time that a pod stays unschedulable without another attempt.
const PARKED_MAX: Duration = Duration::from_secs(300);

/// Keys that are shown to those who look at the queue.
const KEYS_SHOWN: usize = 5;

/// The changes that can make a pod schedulable. A set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Remedy(u8);

impl Remedy {
    /// A node was added or changed.
    pub(super) const NODES: Remedy = Remedy(1);
    /// A pod left its node and released its resources.
    pub(super) const ROOM: Remedy = Remedy(2);
    /// A pod was placed.
    pub(super) const COMPANY: Remedy = Remedy(4);
    /// A claim or its class changed.
    pub(super) const CLAIMS: Remedy = Remedy(8);

    pub(super) fn or(self, other: Remedy) -> Remedy {
        Remedy(self.0 | other.0)
    }

    fn helps(self, failed: Remedy) -> bool {
        self.0 & failed.0 != 0
    }
}

/// The pods without a node.
#[derive(Default)]
pub(super) struct Queue {
    waiting: HashMap<Key, Waiting>,
    /// By priority, highest first, then by arrival.
    active: BTreeSet<(std::cmp::Reverse<i32>, u64, Key)>,
    backing_off: BTreeSet<(Instant, Key)>,
    parked: BTreeSet<(Instant, Key)>,
    arrivals: u64,
}

struct Waiting {
    pod: Arc<Pod>,
    attempts: u32,
    last_failure: Option<Instant>,
    place: Place,
}

enum Place {
    Active(u64),
    BackingOff(Instant),
    Parked(Instant, Remedy),
    /// Taken out by `pop`, and being decided.
    Tried,
}

impl Queue {
    /// Adds a pod that needs a node, or its new state.
    pub(super) fn put(&mut self, key: &Key, pod: Arc<Pod>, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(key) else {
            let waiting = Waiting { pod, attempts: 0, last_failure: None, place: Place::Tried };
            self.waiting.insert(key.clone(), waiting);
            return self.activate(key);
        };
        let another = waiting.pod.metadata.uid != pod.metadata.uid;
        let changed = another || wishes_differ(&waiting.pod, &pod);
        waiting.pod = pod;
        if another {
            waiting.attempts = 0;
            waiting.last_failure = None;
        }
        match waiting.place {
            Place::Parked(..) if changed => self.release(key, now),
            // Its priority may have changed.
            Place::Active(_) if changed => {
                self.leave_place(key);
                self.activate(key);
            }
            _ => {}
        }
    }

    /// Removes a pod that needs no node any more.
    pub(super) fn remove(&mut self, key: &Key) {
        self.leave_place(key);
        self.waiting.remove(key);
    }

    /// The next pod to find a node for. It stays known until it is removed or fails.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Key, Arc<Pod>)> {
        self.advance(now);
        let (_, _, key) = self.active.pop_first()?;
        let waiting = self.waiting.get_mut(&key)?;
        waiting.place = Place::Tried;
        waiting.attempts = waiting.attempts.saturating_add(1);
        Some((key, waiting.pod.clone()))
    }

    /// Parks a pod without a node until one of these changes.
    pub(super) fn park(&mut self, key: &Key, remedy: Remedy, now: Instant) {
        self.leave_place(key);
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        waiting.last_failure = Some(now);
        waiting.place = Place::Parked(now, remedy);
        self.parked.insert((now, key.clone()));
    }

    /// Retries a pod after a failure, with backoff.
    pub(super) fn retry(&mut self, key: &Key, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        waiting.last_failure = Some(now);
        self.leave_place(key);
        self.release(key, now);
    }

    /// Activates the pods that a change in the cluster may help.
    pub(super) fn changed(&mut self, what: Remedy, now: Instant) {
        let helped = self.parked.iter().filter(|(_, key)| {
            self.waiting.get(key).is_some_and(|w| matches!(w.place, Place::Parked(_, failed) if what.helps(failed)))
        });
        let helped: Vec<Key> = helped.map(|(_, key)| key.clone()).collect();
        for key in helped {
            self.release(&key, now);
        }
    }

    /// The time of the next pod to pop.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let back = self.backing_off.first().map(|(at, _)| *at);
        let parked = self.parked.first().map(|(since, _)| *since + PARKED_MAX);
        back.into_iter().chain(parked).min()
    }

    /// How many pods may be tried now and how many wait after a failure, with some of their keys.
    pub(super) fn figures(&self) -> Figures {
        let active = self.active.iter().map(|(_, _, key)| (key, KeyState::Queued));
        let backing_off = self.backing_off.iter().map(|(at, key)| (key, KeyState::Delayed(*at)));
        let keys = active.chain(backing_off).take(KEYS_SHOWN);
        Figures {
            queued: self.active.len(),
            delayed: self.backing_off.len(),
            next_due: self.backing_off.first().map(|(at, _)| *at),
            keys: keys.map(|(key, state)| (key.to_string(), state)).collect(),
            ..Figures::default()
        }
    }

    fn advance(&mut self, now: Instant) {
        while let Some((_, key)) = self.backing_off.first().filter(|(at, _)| *at <= now).cloned() {
            self.leave_place(&key);
            self.activate(&key);
        }
        while let Some((_, key)) = self.parked.first().filter(|(since, _)| *since + PARKED_MAX <= now).cloned() {
            self.release(&key, now);
        }
    }

    /// Back to the active pods, once the wait after the last failure has passed.
    fn release(&mut self, key: &Key, now: Instant) {
        self.leave_place(key);
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        let until = waiting.last_failure.map(|at| at + backoff(waiting.attempts)).filter(|until| *until > now);
        match until {
            Some(until) => {
                waiting.place = Place::BackingOff(until);
                self.backing_off.insert((until, key.clone()));
            }
            None => self.activate(key),
        }
    }

    fn activate(&mut self, key: &Key) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        self.arrivals += 1;
        waiting.place = Place::Active(self.arrivals);
        self.active.insert((std::cmp::Reverse(priority(&waiting.pod)), self.arrivals, key.clone()));
    }

    fn leave_place(&mut self, key: &Key) {
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        match std::mem::replace(&mut waiting.place, Place::Tried) {
            // By arrival: its priority may have changed since it was added.
            Place::Active(arrival) => self.active.retain(|(_, at, _)| *at != arrival),
            Place::BackingOff(until) => {
                self.backing_off.remove(&(until, key.clone()));
            }
            Place::Parked(since, _) => {
                self.parked.remove(&(since, key.clone()));
            }
            Place::Tried => {}
        }
    }
}

/// The priority of a pod; 0 if it has none.
pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default()
}

/// True if a field that decides on the node differs.
fn wishes_differ(old: &Pod, new: &Pod) -> bool {
    old.spec != new.spec || old.metadata.labels != new.metadata.labels
}

fn backoff(attempts: u32) -> Duration {
    BACKOFF_FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(8)).min(BACKOFF_MAX)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, priority: i32) -> (Key, Arc<Pod>) {
        let value = json!({"metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"containers": [], "priority": priority}});
        (Key::new(Some("d"), name), Arc::new(serde_json::from_value(value).unwrap()))
    }

    fn popped(queue: &mut Queue, now: Instant) -> Option<String> {
        queue.pop(now).map(|(key, _)| key.name().to_owned())
    }

    #[test]
    fn sc_2_priority_first_then_arrival() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
            let (key, pod) = pod(name, priority);
            queue.put(&key, pod, now);
        }
        let order: Vec<String> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
        assert_eq!(order, ["b", "d", "a", "c"]);
    }

    #[test]
    fn sc_3_waits_double_from_one_second_to_ten() {
        let seconds: Vec<u64> = (1..7).map(|attempts| backoff(attempts).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn sc_3_a_parked_pod_comes_back_by_a_change_that_helps_and_not_before_its_wait() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, a) = pod("a", 0);
        queue.put(&key, a, now);
        queue.pop(now);
        queue.park(&key, Remedy::NODES, now);
        queue.changed(Remedy::ROOM, now);
        assert_eq!(queue.next_due(), Some(now + PARKED_MAX), "that change was of no use to it");
        queue.changed(Remedy::NODES, now);
        assert_eq!(popped(&mut queue, now), None, "it waits a second first");
        assert_eq!(queue.next_due(), Some(now + BACKOFF_FIRST));
        assert_eq!(popped(&mut queue, now + BACKOFF_FIRST).as_deref(), Some("a"));
    }

    #[test]
    fn sc_3_nobody_is_parked_for_longer_than_five_minutes() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, a) = pod("a", 0);
        queue.put(&key, a, now);
        queue.pop(now);
        queue.park(&key, Remedy::NODES, now);
        assert_eq!(popped(&mut queue, now + PARKED_MAX - Duration::from_secs(1)), None);
        assert_eq!(popped(&mut queue, now + PARKED_MAX).as_deref(), Some("a"));
    }

    #[test]
    fn a_status_write_wakes_no_parked_pod_and_a_new_wish_does() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, first) = pod("a", 0);
        queue.put(&key, first.clone(), now);
        queue.pop(now);
        queue.park(&key, Remedy::NODES, now);
        let mut same = (*first).clone();
        same.status = Some(serde_json::from_value(json!({"phase": "Pending"})).unwrap());
        queue.put(&key, Arc::new(same.clone()), now);
        assert_eq!(queue.next_due(), Some(now + PARKED_MAX));
        same.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        queue.put(&key, Arc::new(same), now);
        assert_eq!(queue.next_due(), Some(now + BACKOFF_FIRST));
    }
}
