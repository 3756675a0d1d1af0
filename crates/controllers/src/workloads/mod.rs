//! Controllers that turn a description of pods into pods.
//!
//! - `deployment`: one template after another, by replica sets
//! - `replicas`: so many pods of one template (ReplicaSet, ReplicationController)

pub(crate) mod deployment;
pub(crate) mod replicas;
