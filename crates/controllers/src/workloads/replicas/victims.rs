//! Which pods go first when there are too many (RS-7).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::owners::uid;
use crate::pods;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pods to delete: `count` of `active`, the least worth keeping first. `related` are the pods that count as company on
/// a node.
pub(crate) fn choose(active: &[Arc<Pod>], related: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    if count >= active.len() {
        return active.to_vec();
    }
    if count == 0 {
        return Vec::new();
    }
    let mut company: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *company.entry(pods::node(pod).unwrap_or_default()).or_default() += 1;
    }
    let company_of = |pod: &Pod| company.get(pods::node(pod).unwrap_or_default()).copied().unwrap_or(0);
    let mut ranked: Vec<(Worth<'_>, &Arc<Pod>)> =
        active.iter().map(|pod| (Worth::of(pod, company_of(pod), now), pod)).collect();
    ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
    ranked.into_iter().take(count).map(|(_, pod)| pod.clone()).collect()
}

/// What speaks for keeping a pod, most important first; the least goes first.
///
/// Times count by powers of two only, so that the victims of a scale-down are spread over pods of about the same age.
/// Kubernetes decides such a tie by UID at once; that is no order (of three pods each may go before the next), so here the
/// UID decides last.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth<'a> {
    assigned: bool,
    phase: u8,
    ready: bool,
    cost: i32,
    company: Reverse<usize>,
    ready_for: Age,
    restarts: Reverse<i32>,
    age: Age,
    uid: &'a str,
}

impl<'a> Worth<'a> {
    fn of(pod: &'a Pod, company: usize, now: Timestamp) -> Self {
        let ready = pods::is_ready(pod);
        Self {
            assigned: pods::node(pod).is_some(),
            phase: match pods::phase(pod) {
                "Pending" => 0,
                "Unknown" => 1,
                _ => 2,
            },
            ready,
            cost: cost(pod),
            company: Reverse(company),
            ready_for: if ready { Age::since(pods::ready_since(pod), now) } else { Age(None) },
            restarts: Reverse(pods::restarts(pod)),
            age: Age::since(pod.metadata.creation_timestamp.as_ref().map(|time| time.0), now),
            uid: uid(pod),
        }
    }
}

/// A time that has passed, by its power of two in nanoseconds. An unknown one counts as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Age(Option<u32>);

impl Age {
    fn since(begin: Option<Timestamp>, now: Timestamp) -> Self {
        let passed = begin.map(|begin| now.as_nanosecond() - begin.as_nanosecond());
        Self(passed.and_then(|nanos| u128::try_from(nanos).ok()).and_then(u128::checked_ilog2))
    }
}

fn cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(COST));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: i64 = 1_000_000;

    fn pod(uid: &str, overlay: Value) -> Arc<Pod> {
        let seconds = |age: i64| Timestamp::from_second(NOW - age).unwrap().to_string();
        let text = |name: &str, default: &str| overlay[name].as_str().unwrap_or(default).to_owned();
        let number = |name: &str, default: i64| overlay[name].as_i64().unwrap_or(default);
        let ready = overlay["ready"].as_bool().unwrap_or(true);
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {
                    "uid": uid,
                    "creationTimestamp": seconds(number("age", 1000)),
                    "annotations": {COST: number("cost", 0).to_string()},
                },
                "spec": {"containers": [], "nodeName": text("node", "n")},
                "status": {
                    "phase": text("phase", "Running"),
                    "conditions": [{
                        "type": "Ready",
                        "status": if ready { "True" } else { "False" },
                        "lastTransitionTime": seconds(number("readyFor", 1000)),
                    }],
                    "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": ready, "restartCount": number("restarts", 0)}],
                },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn rs_7_what_goes_first() {
        let plain = json!({});
        // In each row the first goes before the second, whatever their UIDs.
        let rows = [
            (json!({"node": ""}), json!({"phase": "Pending"})),
            (json!({"phase": "Pending"}), json!({"phase": "Unknown"})),
            (json!({"phase": "Unknown"}), json!({"ready": false})),
            (json!({"ready": false, "cost": 9}), plain.clone()),
            (json!({"cost": -1}), plain.clone()),
            (plain.clone(), json!({"cost": 1, "node": "busy"})),
            (json!({"node": "busy", "readyFor": 5000}), plain.clone()),
            (json!({"readyFor": 10}), json!({"restarts": 9})),
            (json!({"restarts": 2}), json!({"age": 10})),
            (json!({"age": 10}), plain.clone()),
        ];
        let now = Timestamp::from_second(NOW).unwrap();
        let related = vec![pod("x", json!({"node": "busy"})), pod("y", json!({"node": "busy"})), pod("z", json!({}))];
        for (first, second) in rows {
            for (a, b) in [("a", "b"), ("b", "a")] {
                let pods = [pod(b, second.clone()), pod(a, first.clone())];
                let chosen = choose(&pods, &related, 1, now);
                assert_eq!(uid(&*chosen[0]), a, "{first} before {second}");
            }
        }
    }

    #[test]
    fn rs_7_about_the_same_age_is_decided_by_uid() {
        let now = Timestamp::from_second(NOW).unwrap();
        let pods = [pod("b", json!({"readyFor": 1000})), pod("a", json!({"readyFor": 1001}))];
        assert_eq!(uid(&*choose(&pods, &[], 1, now)[0]), "a");
        assert_eq!(choose(&pods, &[], 2, now).len(), 2);
        assert!(choose(&pods, &[], 0, now).is_empty());
    }
}
