//! Simulated nodes, and what a cluster does about nodes.
//!
//! The nodes themselves, as one program:
//!
//! - `fleet`: all nodes; what is due for each pod, lease and node, and the writes
//! - `register`, `machines`: the Node objects
//! - `steps`: what is next for a pod; `status`: what is written then; `agenda`: when
//! - [`stages`], `behaviour`: what can be chosen, for all pods and for one
//! - `addresses`: the addresses of pods
//!
//! The controllers:
//!
//! - `lifecycle`: nodes that fall silent, their conditions and taints, with `zones` for how fast
//! - `evictions`: pods that do not tolerate the taints of their node
//! - `pod_gc`: pods that nobody else removes

mod addresses;
mod agenda;
mod behaviour;
pub(crate) mod evictions;
pub(crate) mod fleet;
pub(crate) mod lifecycle;
mod machines;
pub(crate) mod pod_gc;
mod register;
pub mod stages;
mod status;
mod steps;
mod zones;

use std::sync::Arc;

use client::store::{Store, pods_by_node};
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod};

/// Files pods by their node, whoever did so first.
fn file_by_node(pods: &Store<Pod>) {
    let _ = pods_by_node(pods);
}

/// The pods of a node; none if nobody filed them.
fn pods_on(pods: &Store<Pod>, node: &str) -> Vec<Arc<Pod>> {
    pods.snapshot().by_index("spec.nodeName", &node.to_owned()).unwrap_or_default()
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// What an event about a node points at.
fn node_reference(name: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}
