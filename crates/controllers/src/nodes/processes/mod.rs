//! What runs in the containers of simulated nodes.
//!
//! - [`PodProcesses`]: the processes and probes of one pod, followed by the clock
//! - `program`: what the command of a container means; `environment`: what its processes start with
//! - [`places`]: the files of all containers
//! - `probes`, `course`: startup, readiness and liveness

pub(in crate::nodes) mod course;
pub(in crate::nodes) mod environment;
pub mod places;
pub(in crate::nodes) mod probes;
pub(in crate::nodes) mod program;
mod running;

pub(in crate::nodes) use program::Program;
pub(in crate::nodes) use running::{Ended, PodProcesses, Seen, Sight, World};
