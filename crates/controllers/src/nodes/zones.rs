//! The rate at which nodes of a zone are evicted (NL-3): one at a time, slower when many are unhealthy, not when all are.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

/// Share of unready nodes from which a zone is partially unhealthy.
const TROUBLE_SHARE: f64 = 0.55;
const TROUBLE_MIN: usize = 3;
/// Up to this size, a zone in trouble is left alone; larger ones are emptied ten times slower.
const SMALL: usize = 50;
const SLOWER: u32 = 10;

/// The health of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Normal,
    Partial,
    Full,
}

impl State {
    pub(super) fn of(ready: usize, not_ready: usize) -> Self {
        let share = not_ready as f64 / (ready + not_ready).max(1) as f64;
        match (ready, not_ready) {
            (0, 1..) => State::Full,
            _ if not_ready >= TROUBLE_MIN && share >= TROUBLE_SHARE => State::Partial,
            _ => State::Normal,
        }
    }
}

/// The nodes of a zone that wait to be emptied.
struct Zone {
    waiting: VecDeque<String>,
    /// None: not at all.
    every: Option<Duration>,
    next: Instant,
}

/// All zones.
pub(super) struct Zones {
    /// Interval between evictions of nodes in a healthy zone.
    usual: Duration,
    zones: BTreeMap<String, Zone>,
    all_ill: bool,
}

impl Zones {
    pub(super) fn new(usual: Duration) -> Self {
        Self { usual, zones: BTreeMap::new(), all_ill: false }
    }

    /// The zone of a node.
    pub(super) fn key(node: &Node) -> String {
        let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let part = |key: &str| label(&format!("topology.kubernetes.io/{key}")).unwrap_or_default();
        format!("{}:{}", part("region"), part("zone"))
    }

    /// Adds a node to the queue of its zone.
    pub(super) fn wait(&mut self, zone: String, node: &str, now: Instant) {
        let usual = self.usual;
        let zone =
            self.zones.entry(zone).or_insert_with(|| Zone { waiting: VecDeque::new(), every: Some(usual), next: now });
        if !zone.waiting.iter().any(|known| known == node) {
            zone.waiting.push_back(node.to_owned());
        }
    }

    /// Removes a node that is healthy again or deleted.
    pub(super) fn forget(&mut self, node: &str) {
        for zone in self.zones.values_mut() {
            zone.waiting.retain(|known| known != node);
        }
    }

    /// Sets the number of ready and unready nodes of each zone. True when all zones have just become fully unhealthy: then
    /// earlier evictions are to be undone, since it is more likely that this side is cut off.
    pub(super) fn counted(&mut self, counts: &BTreeMap<String, (usize, usize)>, now: Instant) -> bool {
        let states: Vec<(&String, State, usize)> =
            counts.iter().map(|(zone, (ready, not))| (zone, State::of(*ready, *not), ready + not)).collect();
        let all_ill = !states.is_empty() && states.iter().all(|(_, state, _)| *state == State::Full);
        let entered = all_ill && !self.all_ill;
        self.all_ill = all_ill;
        let usual = self.usual;
        for (name, state, size) in states {
            let zone = self.zones.entry(name.clone()).or_insert_with(|| Zone {
                waiting: VecDeque::new(),
                every: Some(usual),
                next: now,
            });
            zone.every = match state {
                _ if all_ill => None,
                State::Normal | State::Full => Some(usual),
                State::Partial if size > SMALL => Some(usual * SLOWER),
                State::Partial => None,
            };
        }
        entered
    }

    /// The moment at which the next node is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waiting = self.zones.values().filter(|zone| zone.every.is_some() && !zone.waiting.is_empty());
        waiting.map(|zone| zone.next).min()
    }

    /// The nodes that are due.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        for zone in self.zones.values_mut() {
            if let Some(every) = zone.every
                && zone.next <= now
                && let Some(node) = zone.waiting.pop_front()
            {
                zone.next = now + every;
                due.push(node);
            }
        }
        due
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    fn counts(ready: usize, not: usize) -> BTreeMap<String, (usize, usize)> {
        [("z".to_owned(), (ready, not))].into()
    }

    #[test]
    fn nl_3_states_of_zones() {
        for (ready, not, state) in [
            (3, 0, State::Normal),
            (1, 2, State::Normal),
            (2, 3, State::Partial),
            (3, 3, State::Normal),
            (0, 1, State::Full),
            (0, 0, State::Normal),
        ] {
            assert_eq!(State::of(ready, not), state, "{ready} ready, {not} not");
        }
    }

    #[test]
    fn nl_3_one_node_in_ten_seconds() {
        let (mut zones, now) = (Zones::new(TEN), Instant::now());
        for node in ["a", "b", "b"] {
            zones.wait("z".into(), node, now);
        }
        assert_eq!(zones.due(now), ["a"]);
        assert_eq!(zones.due(now + Duration::from_secs(9)), Vec::<String>::new());
        assert_eq!(zones.due(now + TEN), ["b"]);
        assert_eq!(zones.due(now + TEN * 2), Vec::<String>::new(), "each once");
    }

    #[test]
    fn nl_3_a_zone_in_trouble_is_left_alone_or_emptied_slowly() {
        let (mut zones, now) = (Zones::new(TEN), Instant::now());
        zones.wait("z".into(), "a", now);
        zones.counted(&counts(2, 3), now);
        assert!(zones.due(now).is_empty(), "five nodes, three of them ill");
        zones.counted(&counts(40, 60), now);
        assert_eq!(zones.due(now), ["a"]);
        zones.wait("z".into(), "b", now);
        assert!(zones.due(now + TEN * 9).is_empty());
        assert_eq!(zones.due(now + TEN * 10), ["b"]);
    }

    #[test]
    fn nl_3_when_all_zones_are_down_nobody_is_emptied() {
        let (mut zones, now) = (Zones::new(TEN), Instant::now());
        zones.wait("z".into(), "a", now);
        assert!(zones.counted(&counts(0, 3), now), "it has just begun");
        assert!(!zones.counted(&counts(0, 3), now), "and goes on");
        assert!(zones.due(now).is_empty());
        zones.counted(&counts(1, 2), now);
        assert_eq!(zones.due(now), ["a"]);
    }
}
