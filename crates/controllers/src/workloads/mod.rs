//! Controllers that turn a description of pods into pods.
//!
//! - `cron_job`: a job at each time of a schedule
//! - `daemon_set`: one pod on every node
//! - `deployment`: one template after another, by replica sets
//! - `job`: pods until enough have succeeded
//! - `replicas`: so many pods of one template (ReplicaSet, ReplicationController)
//! - `stateful_set`: pods with names and claims of their own
//! - `ttl`: jobs that are removed some time after they have finished

pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod replicas;
pub(crate) mod stateful_set;
pub(crate) mod ttl;
