//! Nominations: the pods for which others are preempted, and the node that each of them waits for (SC-18, SC-19).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use client::Key;
use client::store::Store;
use k8s_openapi::api::core::v1::{Namespace, Pod};

use super::amounts::{Request, request_of};
use super::cluster::Cluster;
use super::filters::{Objection, objection};
use super::neighbours::Neighbours;
use super::queue::priority;

/// A pod that waits for its node.
struct Nominated {
    pod: Arc<Pod>,
    node: Arc<str>,
    request: Request,
    /// True once the status of the pod shows the nomination.
    written: bool,
}

/// The pods that wait for a node of their own.
#[derive(Default)]
pub(crate) struct Nominations {
    pods: HashMap<Key, Nominated>,
    nodes: HashMap<Arc<str>, BTreeSet<Key>>,
}

impl Nominations {
    pub(super) fn node_of(&self, key: &Key) -> Option<&Arc<str>> {
        self.pods.get(key).map(|nominated| &nominated.node)
    }

    pub(super) fn set(&mut self, key: &Key, pod: Arc<Pod>, node: &str) {
        self.insert(key, pod, node, false);
    }

    /// Reads the nomination from the status of a pod. A status without one ends only a nomination that it showed
    /// before: a new one is not written yet. True if this releases resources of a node.
    pub(super) fn read(&mut self, key: &Key, pod: &Arc<Pod>) -> bool {
        let old = self.pods.get(key);
        match written_node(pod) {
            Some(node) => {
                let moved = old.is_some_and(|old| &*old.node != node);
                self.insert(key, pod.clone(), node, true);
                moved
            }
            None => {
                let ended = old.is_some_and(|old| old.written || old.pod.metadata.uid != pod.metadata.uid);
                ended && self.remove(key)
            }
        }
    }

    /// Ends a nomination. True if there was one.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        let Some(old) = self.pods.remove(key) else { return false };
        if let Some(keys) = self.nodes.get_mut(&old.node) {
            keys.remove(key);
            if keys.is_empty() {
                self.nodes.remove(&old.node);
            }
        }
        true
    }

    /// The pods of lower priority that wait for a node.
    pub(super) fn below(&self, node: &str, limit: i32) -> Vec<(Key, Arc<Pod>)> {
        let keys = self.nodes.get(node).into_iter().flatten();
        let pods = keys.filter_map(|key| Some((key.clone(), self.pods.get(key)?.pod.clone())));
        pods.filter(|(_, pod)| priority(pod) < limit).collect()
    }

    /// The pods that wait for a node and go before this one.
    fn before(&self, node: &str, pod: &Pod) -> Vec<(Key, Arc<Pod>, Request)> {
        let keys = self.nodes.get(node).into_iter().flatten();
        let others = keys.filter_map(|key| Some((key, self.pods.get(key)?)));
        let others = others
            .filter(|(_, other)| priority(&other.pod) >= priority(pod) && other.pod.metadata.uid != pod.metadata.uid);
        others.map(|(key, other)| (key.clone(), other.pod.clone(), other.request.clone())).collect()
    }

    fn insert(&mut self, key: &Key, pod: Arc<Pod>, node: &str, written: bool) {
        self.remove(key);
        let node: Arc<str> = node.into();
        self.nodes.entry(node.clone()).or_default().insert(key.clone());
        let request = request_of(&pod);
        self.pods.insert(key.clone(), Nominated { pod, node, request, written });
    }
}

/// The node that the status of a pod nominates.
pub(super) fn written_node(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

/// The reason that excludes a node: first beside the pods that wait for it and go before this one, then without
/// them, since they may never arrive (SC-19). `neighbours` are those without them.
pub(super) fn objection_with_nominated(
    pod: &Pod,
    request: &Request,
    neighbours: &Neighbours,
    node: &str,
    cluster: &mut Cluster,
    namespaces: &Store<Namespace>,
) -> Option<Objection> {
    let guests = cluster.nominations.before(node, pod);
    if !guests.is_empty() {
        for (key, guest, request) in &guests {
            cluster.place(key, guest.clone(), node, request.clone(), true);
        }
        let crowded = Neighbours::of(pod, cluster, namespaces);
        let found = cluster.node(node).and_then(|node| objection(pod, request, &crowded, node, cluster));
        for (key, ..) in &guests {
            cluster.remove_pod(key);
        }
        if found.is_some() {
            return found;
        }
    }
    cluster.node(node).and_then(|node| objection(pod, request, neighbours, node, cluster))
}
