//! Controllers against a server in the same process, one module a folder of the crate.

#![expect(clippy::disallowed_methods, reason = "tests wait for a server of this machine")]

mod accounts;
mod autoscaling;
mod between;
mod cleanup;
mod identities;
mod kills;
mod nodes;
mod policies;
mod preemption;
mod quiet;
mod scheduler;
mod services;
mod wiring;
mod workloads;
mod world;
