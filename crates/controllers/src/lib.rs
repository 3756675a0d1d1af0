//! The workload side of the loop: controllers that wake up by their watches until what is equals what should be.
//!
//! ```text
//!   Deployment ──► deployment ──► ReplicaSet ──► replicaset ──► Pod ──► scheduler ──► node ──► Running
//!                  controller                    controller             (binding)     (status)
//! ```
//!
//! Nothing here knows the server: every controller is a program on crate `client` and would run against any Kubernetes
//! API server. [`manager::run`] starts those that [`Settings`] selects.
//!
//! - [`manager`]: the table of controllers, their start and the election
//! - [`settings`]: choices and intervals
//! - `identities`: the users as which they write; `context`: what each controller receives
//! - `reconciling`: running a controller; `writer`, `requests`: writing to the API server
//! - `conditions`, `discovery`, `json`, `owners`, `placement`, `pods`, `selectors`: rules that several controllers share
//! - `workloads`: deployment, replicaset, replicationcontroller, statefulset, daemonset, job, cronjob, ttl-after-finished
//! - `scheduler`: from a pod to a binding
//! - [`nodes`]: simulated nodes, their leases and the stages of their pods; node lifecycle, taint eviction, pod GC
//! - `cleanup`: garbage collector, namespaces
//! - `services`: endpoints and endpointslices
//! - `accounts`: service accounts, their tokens, the root certificate
//! - `certificate_requests`: approving, signing and removing certificate requests
//! - `policies`: claims and volumes, disruption budgets
//! - `autoscaling`: the size of workloads by what their pods use

mod accounts;
mod autoscaling;
mod certificate_requests;
mod cleanup;
mod conditions;
mod context;
mod discovery;
mod identities;
mod json;
pub mod manager;
pub mod metrics;
pub mod nodes;
mod owners;
mod placement;
mod pods;
mod policies;
mod reconciling;
mod requests;
mod scheduler;
mod selectors;
mod services;
pub mod settings;
mod workloads;
mod writer;

pub use accounts::token_secrets::{TokenOrder, TokenSigner};
pub use certificate_requests::signing::{Order, Signer};
pub use client::workqueue::{KeyState, Queues};
pub use identities::{ActingNode, Clients, Identity};
pub use nodes::stages::Stages;
pub use settings::{Selection, Settings};
