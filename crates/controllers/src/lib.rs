//! The workload side of the loop: controllers that wake up by their watches until what is equals what should be.
//!
//! ```text
//!   Deployment ──► deployment ──► ReplicaSet ──► replicaset ──► Pod ──► scheduler ──► node ──► Running
//!                  controller                    controller             (binding)     (status)
//! ```
//!
//! Nothing here knows the server: every controller is a program on crate `client` and would run against any Kubernetes
//! API server. [`manager::run`] starts those that [`Settings`] asks for.
//!
//! - [`manager`]: which controllers there are, how they are started and who leads
//! - [`settings`]: what can be chosen, and every interval
//! - `context`: what each controller is given
//! - `parts`: what several controllers say the same way (conditions, owners, pods)
//! - `workloads`: deployment, replicaset, replicationcontroller, statefulset, daemonset, job, cronjob, ttl-after-finished
//! - `scheduler`: from a pod to a binding
//! - [`nodes`]: simulated nodes, their leases and the stages of their pods; node lifecycle, taint eviction, pod GC
//! - `cleanup`: garbage collector, namespaces
//! - `services`: endpoints and endpointslices
//! - `accounts`: service accounts, their tokens, the root certificate
//! - `send`: requests of which only the outcome counts
//! - `policies`: claims and volumes, disruption budgets, quota status, autoscaler status

mod accounts;
mod cleanup;
mod context;
pub mod manager;
pub mod nodes;
mod parts;
mod policies;
mod scheduler;
mod send;
mod services;
pub mod settings;
mod workloads;

pub use context::Clients;
pub use nodes::stages::Stages;
pub use settings::{Selection, Settings};
