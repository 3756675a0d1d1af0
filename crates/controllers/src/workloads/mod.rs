//! Controllers that turn a description of pods into pods.
//!
//! - `daemon_set`: one pod on every node
//! - `deployment`: one template after another, by replica sets
//! - `replicas`: so many pods of one template (ReplicaSet, ReplicationController)
//! - `stateful_set`: pods with names and claims of their own

pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod replicas;
pub(crate) mod stateful_set;
