//! Controllers that turn a description of pods into pods.
//!
//! - `cron_job`: a job at each time of a schedule
//! - `daemon_set`: one pod on every node
//! - `deployment`: one template after another, by replica sets
//! - `job`: pods until enough have succeeded
//! - `replicas`: a number of pods of one template (ReplicaSet, ReplicationController)
//! - `stateful_set`: pods with names and claims of their own
//! - `ttl`: removal of finished jobs
//!
//! Rules that several of them share:
//!
//! - `adoption`: which objects belong to an owner: keep, adopt, release
//! - `batches`: many writes, few at first
//! - `history`: earlier templates as ControllerRevisions; `template`: comparing and hashing pod templates

pub(crate) mod adoption;
pub(crate) mod batches;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod replicas;
pub(crate) mod stateful_set;
pub(crate) mod template;
pub(crate) mod ttl;
