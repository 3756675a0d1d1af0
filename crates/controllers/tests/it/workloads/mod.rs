//! Workload controllers, with the test as scheduler and node where exact sequences matter.

mod deployment;
mod replicas;
mod stage;
