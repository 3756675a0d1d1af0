//! Simulated nodes, and the controllers of nodes.
//!
//! The nodes themselves, as one program:
//!
//! - `fleet`: all nodes; the due steps of pods, leases and nodes, and their writes
//! - `register`, `machines`: the Node objects; `admission`: the pods that a node refuses
//! - `steps`: the next step of a pod; `status`: its write; `agenda`: its time
//! - [`kwok`], `fleet_stages`: the files of KWOK, and pods and nodes that follow them
//! - [`stages`], `behaviour`: the settings, for all pods and for one
//! - [`containers`]: logs of containers, results of commands, answers at ports
//! - [`processes`]: what runs in containers, their files and probes; [`shell`]: the commands of containers
//! - [`usage`]: what containers and nodes use
//! - `restarts`: whether and when a container that ended starts again
//! - `pace`: how fast stages follow each other
//! - `addresses`: the addresses of pods; `events`: events that nodes report
//!
//! The controllers:
//!
//! - `lifecycle`: silent nodes, their conditions and taints, with `zones` for the rate of evictions
//! - `evictions`: pods that do not tolerate the taints of their node
//! - `pod_gc`: pods that no other controller removes

mod addresses;
mod admission;
mod agenda;
mod behaviour;
pub mod containers;
mod events;
pub(crate) mod evictions;
pub(crate) mod fleet;
mod fleet_stages;
pub mod kwok;
pub(crate) mod lifecycle;
mod machines;
mod pace;
pub(crate) mod pod_gc;
pub mod processes;
mod register;
mod restarts;
pub mod shell;
pub mod stages;
mod status;
mod steps;
pub mod usage;
mod zones;

use std::sync::Arc;

use client::store::{Store, pods_by_node};
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod};

/// Adds the index of pods by node, unless another controller did.
fn file_by_node(pods: &Store<Pod>) {
    let _ = pods_by_node(pods);
}

/// The pods of a node; none without the index.
fn pods_on(pods: &Store<Pod>, node: &str) -> Vec<Arc<Pod>> {
    pods.snapshot().by_index("spec.nodeName", &node.to_owned()).unwrap_or_default()
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// The reference that events about a node carry.
fn node_reference(name: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}
