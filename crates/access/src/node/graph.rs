//! Which nodes an object belongs to: the paths from secrets, config maps, claims, accounts and volumes over pods to nodes.
//!
//! Only the first step of each path is stored, with its reverse. A question takes at most three steps: secret, volume,
//! claim, node.

use std::collections::{HashMap, HashSet};

use parking_lot::RwLock;

use super::references::{Kind, Pod, Volume};

type Name = (String, String);

/// The paths of all pods, volumes, attachments and slices.
#[derive(Debug, Default)]
pub struct Graph(RwLock<Edges>);

#[derive(Debug, Default)]
struct Edges {
    pods: HashMap<Name, Pod>,
    /// For each object, the number of its pods on each node.
    nodes: HashMap<(Kind, String, String), HashMap<String, usize>>,
    volumes: HashMap<String, Volume>,
    /// For each secret, the volumes that name it.
    secret_volumes: HashMap<Name, HashSet<String>>,
    attachments: HashMap<String, String>,
    slices: HashMap<String, String>,
}

impl Graph {
    /// Adds or replaces a pod; without a node it is removed.
    pub fn set_pod(&self, namespace: &str, name: &str, pod: Option<Pod>) {
        let key = (namespace.to_owned(), name.to_owned());
        // Most updates of a pod leave its references as they are.
        if self.0.read().pods.get(&key) == pod.as_ref() {
            return;
        }
        let edges = &mut *self.0.write();
        if let Some(old) = edges.pods.remove(&key) {
            for (kind, object) in old.objects {
                let object = (kind, namespace.to_owned(), object);
                if let Some(nodes) = edges.nodes.get_mut(&object) {
                    if let Some(pods) = nodes.get_mut(&old.node) {
                        *pods -= 1;
                        if *pods == 0 {
                            nodes.remove(&old.node);
                        }
                    }
                    if nodes.is_empty() {
                        edges.nodes.remove(&object);
                    }
                }
            }
        }
        if let Some(pod) = pod {
            for (kind, object) in &pod.objects {
                let nodes = edges.nodes.entry((*kind, namespace.to_owned(), object.clone())).or_default();
                *nodes.entry(pod.node.clone()).or_default() += 1;
            }
            edges.pods.insert(key, pod);
        }
    }

    /// Adds or replaces a volume; without a claim it is removed.
    pub fn set_volume(&self, name: &str, volume: Option<Volume>) {
        if self.0.read().volumes.get(name) == volume.as_ref() {
            return;
        }
        let edges = &mut *self.0.write();
        for secret in edges.volumes.remove(name).into_iter().flat_map(|old| old.secrets) {
            if let Some(volumes) = edges.secret_volumes.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    edges.secret_volumes.remove(&secret);
                }
            }
        }
        if let Some(volume) = volume {
            for secret in &volume.secrets {
                edges.secret_volumes.entry(secret.clone()).or_default().insert(name.to_owned());
            }
            edges.volumes.insert(name.to_owned(), volume);
        }
    }

    /// Adds or replaces an attachment of a volume; without a node it is removed.
    pub fn set_attachment(&self, name: &str, node: Option<&str>) {
        set(&mut self.0.write().attachments, name, node);
    }

    /// Adds or replaces a slice of a node's devices; without a node it is removed.
    pub fn set_slice(&self, name: &str, node: Option<&str>) {
        set(&mut self.0.write().slices, name, node);
    }

    /// Removes everything of one kind of source, before all of its objects are added again.
    pub fn clear(&self, source: Source) {
        let edges = &mut *self.0.write();
        match source {
            Source::Pods => {
                edges.pods.clear();
                edges.nodes.clear();
            }
            Source::Volumes => {
                edges.volumes.clear();
                edges.secret_volumes.clear();
            }
            Source::Attachments => edges.attachments.clear(),
            Source::Slices => edges.slices.clear(),
        }
    }

    /// Whether a pod is bound to a node.
    #[must_use]
    pub fn has_pod(&self, node: &str, namespace: &str, name: &str) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.read().pods.get(&key).is_some_and(|pod| pod.node == node)
    }

    /// Whether a pod of the node leads to an object.
    #[must_use]
    pub fn leads_to(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let edges = self.0.read();
        if edges.used_on(node, kind, namespace, name) {
            return true;
        }
        if kind != Kind::Secret {
            return false;
        }
        let volumes = edges.secret_volumes.get(&(namespace.to_owned(), name.to_owned()));
        volumes.into_iter().flatten().any(|volume| edges.volume_on(node, volume))
    }

    /// Whether a pod of the node leads to a volume through its claim.
    #[must_use]
    pub fn has_volume(&self, node: &str, volume: &str) -> bool {
        self.0.read().volume_on(node, volume)
    }

    #[must_use]
    pub fn has_attachment(&self, node: &str, attachment: &str) -> bool {
        self.0.read().attachments.get(attachment).is_some_and(|found| found == node)
    }

    #[must_use]
    pub fn has_slice(&self, node: &str, slice: &str) -> bool {
        self.0.read().slices.get(slice).is_some_and(|found| found == node)
    }
}

/// A kind whose objects make the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Pods,
    Volumes,
    Attachments,
    Slices,
}

impl Edges {
    fn used_on(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let object = (kind, namespace.to_owned(), name.to_owned());
        self.nodes.get(&object).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn volume_on(&self, node: &str, volume: &str) -> bool {
        self.volumes.get(volume).is_some_and(|volume| {
            let (namespace, claim) = &volume.claim;
            self.used_on(node, Kind::Claim, namespace, claim)
        })
    }
}

fn set(map: &mut HashMap<String, String>, name: &str, node: Option<&str>) {
    match node.filter(|node| !node.is_empty()) {
        Some(node) => map.insert(name.to_owned(), node.to_owned()),
        None => map.remove(name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, objects: &[(Kind, &str)]) -> Option<Pod> {
        let objects = objects.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        Some(Pod { node: node.to_owned(), objects })
    }

    #[test]
    fn az_135_objects_follow_the_pods_that_lead_to_them() {
        let graph = Graph::default();
        graph.set_pod("a", "p", pod("n", &[(Kind::Secret, "s")]));
        graph.set_pod("a", "q", pod("n", &[(Kind::Secret, "s")]));
        graph.set_pod("a", "r", pod("m", &[(Kind::Secret, "s")]));
        assert!(graph.leads_to("n", Kind::Secret, "a", "s"));
        assert!(graph.leads_to("m", Kind::Secret, "a", "s"));
        assert!(!graph.leads_to("n", Kind::Secret, "b", "s"));
        assert!(!graph.leads_to("n", Kind::ConfigMap, "a", "s"));
        graph.set_pod("a", "p", None);
        assert!(graph.leads_to("n", Kind::Secret, "a", "s"), "another pod of the node still leads there");
        graph.set_pod("a", "q", pod("n", &[]));
        assert!(!graph.leads_to("n", Kind::Secret, "a", "s"));
        assert!(graph.leads_to("m", Kind::Secret, "a", "s"));
        assert!(graph.has_pod("n", "a", "q"));
        assert!(!graph.has_pod("m", "a", "q"));
        graph.clear(Source::Pods);
        assert!(!graph.leads_to("m", Kind::Secret, "a", "s"));
    }

    #[test]
    fn az_135_volumes_and_their_secrets_are_reached_through_the_claim() {
        let graph = Graph::default();
        let volume = |claim: &str| {
            let claim = ("a".to_owned(), claim.to_owned());
            Some(Volume { claim, secrets: vec![("b".to_owned(), "key".to_owned())] })
        };
        graph.set_volume("v", volume("claim"));
        assert!(!graph.has_volume("n", "v"));
        graph.set_pod("a", "p", pod("n", &[(Kind::Claim, "claim")]));
        assert!(graph.has_volume("n", "v"));
        assert!(graph.leads_to("n", Kind::Secret, "b", "key"));
        assert!(!graph.leads_to("m", Kind::Secret, "b", "key"));
        graph.set_volume("v", volume("other"));
        assert!(!graph.has_volume("n", "v"));
        assert!(!graph.leads_to("n", Kind::Secret, "b", "key"));
        graph.set_volume("v", volume("claim"));
        graph.set_volume("v", None);
        assert!(!graph.leads_to("n", Kind::Secret, "b", "key"));
        graph.set_attachment("att", Some("n"));
        assert!(graph.has_attachment("n", "att") && !graph.has_attachment("m", "att"));
        graph.set_attachment("att", None);
        assert!(!graph.has_attachment("n", "att"));
    }
}
