//! The nodes and the resources in use on each, updated with every change.
//!
//! Nothing is ever summed up again: a pod is added to or subtracted from its node once, so that finding a
//! node costs only the nodes that are visited.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use client::Key;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};

use super::amounts::{Amounts, Request, units};
use super::nominations::Nominations;

/// A node and the resources in use on it.
pub(crate) struct NodeInfo {
    pub(crate) name: Arc<str>,
    pub(crate) object: Arc<Node>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Amounts,
    pub(crate) pods_max: i64,
    pub(crate) taken: Amounts,
    pub(crate) scored_cpu: i64,
    pub(crate) scored_memory: i64,
    pub(crate) pods: BTreeSet<Key>,
    /// Number of pods of each controller, by the controller's UID.
    pub(crate) families: HashMap<Arc<str>, u32>,
}

impl NodeInfo {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.object.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn read(&mut self, object: Arc<Node>) {
        let spec = object.spec.as_ref();
        let allocatable = object.status.as_ref().and_then(|status| status.allocatable.as_ref());
        self.taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        self.allocatable = Amounts::of(allocatable);
        self.pods_max = allocatable.and_then(|all| all.get("pods")).map(units).unwrap_or_default();
        self.object = object;
    }

    fn take(&mut self, key: &Key, placed: &Placed) {
        self.pods.insert(key.clone());
        self.taken.add(&placed.request.amounts);
        self.scored_cpu += placed.request.scored_cpu;
        self.scored_memory += placed.request.scored_memory;
        if let Some(family) = &placed.family {
            *self.families.entry(family.clone()).or_default() += 1;
        }
    }

    fn give_back(&mut self, key: &Key, placed: &Placed) {
        self.pods.remove(key);
        self.taken.remove(&placed.request.amounts);
        self.scored_cpu -= placed.request.scored_cpu;
        self.scored_memory -= placed.request.scored_memory;
        if let Some(family) = &placed.family
            && let Some(count) = self.families.get_mut(family)
        {
            *count -= 1;
            if *count == 0 {
                self.families.remove(family);
            }
        }
    }
}

/// A pod on its node.
pub(crate) struct Placed {
    pub(crate) pod: Arc<Pod>,
    pub(crate) node: Arc<str>,
    pub(crate) request: Request,
    family: Option<Arc<str>>,
    /// Not yet confirmed by the server (SC-2).
    assumed: bool,
    /// Its preemption was started, and may not be written yet.
    pub(crate) preempted: bool,
}

/// The nodes, and the pods on them.
#[derive(Default)]
pub(crate) struct Cluster {
    nodes: Vec<NodeInfo>,
    index: HashMap<Arc<str>, usize>,
    pods: HashMap<Key, Placed>,
    /// Pods on nodes that are not there (yet).
    strays: HashMap<Arc<str>, BTreeSet<Key>>,
    /// Pods that keep others away.
    keep_away: BTreeSet<Key>,
    /// Pods that wait for a node on which others are preempted for them.
    pub(crate) nominations: Nominations,
}

impl Cluster {
    pub(crate) fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.index.get(name).map(|at| &self.nodes[*at])
    }

    pub(crate) fn placed(&self, key: &Key) -> Option<&Placed> {
        self.pods.get(key)
    }

    pub(crate) fn all_placed(&self) -> impl Iterator<Item = &Placed> {
        self.pods.values()
    }

    /// The pods whose anti-affinity can exclude other pods.
    pub(crate) fn with_anti_affinity(&self) -> impl Iterator<Item = &Placed> {
        self.keep_away.iter().filter_map(|key| self.pods.get(key))
    }

    /// A node is there, or is different. True if that may let a pod in.
    pub(crate) fn put_node(&mut self, object: Arc<Node>) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        if let Some(at) = self.index.get(name) {
            let node = &mut self.nodes[*at];
            let old = std::mem::replace(&mut node.object, object.clone());
            node.read(object);
            return offers_differ(&old, &node.object);
        }
        let name: Arc<str> = name.into();
        let mut node = NodeInfo {
            name: name.clone(),
            object: object.clone(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Amounts::default(),
            pods_max: 0,
            taken: Amounts::default(),
            scored_cpu: 0,
            scored_memory: 0,
            pods: BTreeSet::new(),
            families: HashMap::new(),
        };
        node.read(object);
        for key in self.strays.remove(&name).unwrap_or_default() {
            if let Some(placed) = self.pods.get(&key) {
                node.take(&key, placed);
            }
        }
        self.index.insert(name, self.nodes.len());
        self.nodes.push(node);
        true
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(at) = self.index.remove(name) else { return };
        let node = self.nodes.swap_remove(at);
        if let Some(moved) = self.nodes.get(at) {
            self.index.insert(moved.name.clone(), at);
        }
        if !node.pods.is_empty() {
            self.strays.insert(node.name, node.pods);
        }
    }

    /// Adds a pod that the server shows on a node. True if it was not known there.
    pub(crate) fn put_pod(&mut self, key: &Key, pod: Arc<Pod>, node: &str, request: impl FnOnce() -> Request) -> bool {
        if let Some(placed) = self.pods.get_mut(key)
            && &*placed.node == node
            && placed.pod.metadata.uid == pod.metadata.uid
            && placed.pod.metadata.generation == pod.metadata.generation
            && placed.pod.metadata.labels == pod.metadata.labels
        {
            let news = placed.assumed;
            placed.assumed = false;
            placed.pod = pod;
            return news;
        }
        self.remove_pod(key);
        self.nominations.remove(key);
        self.place(key, pod, node, request(), false);
        true
    }

    /// SC-2: counts the pod on the node before the server confirms it, so that the next decision includes it.
    pub(crate) fn assume(&mut self, key: &Key, pod: Arc<Pod>, node: &str, request: Request) {
        self.remove_pod(key);
        self.nominations.remove(key);
        self.place(key, pod, node, request, true);
    }

    /// Removes a pod whose binding failed, unless the server shows it on a node.
    pub(crate) fn unassume(&mut self, key: &Key) {
        if self.pods.get(key).is_some_and(|placed| placed.assumed) {
            self.remove_pod(key);
        }
    }

    /// Removes a pod that was deleted or has ended. True if it was placed.
    pub(crate) fn remove_pod(&mut self, key: &Key) -> bool {
        self.take_out(key).is_some()
    }

    /// Notes that the preemption of a pod was started, or that it failed.
    pub(crate) fn set_preempted(&mut self, key: &Key, preempted: bool) {
        if let Some(placed) = self.pods.get_mut(key) {
            placed.preempted = preempted;
        }
    }

    /// Takes a pod off its node, to be put back or dropped.
    pub(crate) fn take_out(&mut self, key: &Key) -> Option<Placed> {
        let placed = self.pods.remove(key)?;
        self.keep_away.remove(key);
        match self.index.get(&placed.node) {
            Some(at) => self.nodes[*at].give_back(key, &placed),
            None => {
                if let Some(strays) = self.strays.get_mut(&placed.node) {
                    strays.remove(key);
                    if strays.is_empty() {
                        self.strays.remove(&placed.node);
                    }
                }
            }
        }
        Some(placed)
    }

    /// Counts a pod on a node.
    pub(super) fn place(&mut self, key: &Key, pod: Arc<Pod>, node: &str, request: Request, assumed: bool) {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let family = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str().into());
        // One name for all pods of a node.
        let name = self.node(node).map_or_else(|| node.into(), |node| node.name.clone());
        self.put_back(key, Placed { pod, node: name, request, family, assumed, preempted: false });
    }

    /// Puts a pod that was taken out on its node again.
    pub(crate) fn put_back(&mut self, key: &Key, placed: Placed) {
        if super::neighbours::has_anti_affinity(&placed.pod) {
            self.keep_away.insert(key.clone());
        }
        match self.index.get(&placed.node) {
            Some(at) => self.nodes[*at].take(key, &placed),
            None => {
                self.strays.entry(placed.node.clone()).or_default().insert(key.clone());
            }
        }
        self.pods.insert(key.clone(), placed);
    }
}

/// True if a field that a filter reads differs.
fn offers_differ(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    old.spec != new.spec || old.metadata.labels != new.metadata.labels || allocatable(old) != allocatable(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::amounts::request_of;
    use serde_json::json;

    fn node(name: &str) -> Arc<Node> {
        let value = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn pod(name: &str) -> (Key, Arc<Pod>) {
        let value = json!({"metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        (Key::new(Some("d"), name), Arc::new(serde_json::from_value(value).unwrap()))
    }

    fn cpu(cluster: &Cluster, name: &str) -> i64 {
        cluster.node(name).unwrap().taken.cpu
    }

    #[test]
    fn sc_2_what_is_assumed_is_taken_until_the_server_says_otherwise() {
        let mut cluster = Cluster::default();
        cluster.put_node(node("n1"));
        let (key, pod) = pod("a");
        cluster.assume(&key, pod.clone(), "n1", request_of(&pod));
        assert_eq!(cpu(&cluster, "n1"), 1000);
        cluster.unassume(&key);
        assert_eq!(cpu(&cluster, "n1"), 0);
        cluster.assume(&key, pod.clone(), "n1", request_of(&pod));
        assert!(cluster.put_pod(&key, pod.clone(), "n1", || request_of(&pod)));
        assert_eq!(cpu(&cluster, "n1"), 1000, "counted once");
        cluster.unassume(&key);
        assert_eq!(cpu(&cluster, "n1"), 1000, "it is there, whatever became of the binding");
        assert!(cluster.remove_pod(&key));
        assert_eq!(cpu(&cluster, "n1"), 0);
    }

    #[test]
    fn pods_wait_for_their_node() {
        let mut cluster = Cluster::default();
        let (key, pod) = pod("a");
        cluster.put_pod(&key, pod.clone(), "n1", || request_of(&pod));
        cluster.put_node(node("n2"));
        cluster.put_node(node("n1"));
        assert_eq!(cpu(&cluster, "n1"), 1000);
        cluster.remove_node("n2");
        assert_eq!(cpu(&cluster, "n1"), 1000, "the place of a node in the list does not matter");
        cluster.remove_node("n1");
        cluster.put_node(node("n1"));
        assert_eq!(cpu(&cluster, "n1"), 1000);
    }
}
