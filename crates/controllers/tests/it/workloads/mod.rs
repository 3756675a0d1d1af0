//! Workload controllers, with the test as scheduler and node where exact sequences matter.

mod daemon_set;
mod deployment;
mod replicas;
mod stage;
mod stateful_set;
