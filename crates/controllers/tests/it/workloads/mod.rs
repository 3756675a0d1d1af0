//! Workload controllers, with the test as scheduler and node where exact sequences matter.

mod cron_job;
mod daemon_set;
mod deployment;
mod faults;
mod history;
mod job;
mod replicas;
pub(crate) mod stage;
mod stateful_set;
mod waking;
