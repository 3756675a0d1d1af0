//! Powers over a control plane for those who test controllers.
//!
//! Everything is an object of the group `lab.dogwatch.dev`, so every Kubernetes client is a client of the lab. The objects live in a
//! registry of their own on a store in memory: they are not in the log of the cluster and do not move its revision.

pub mod checkpoints;
mod clocks;
mod durations;
mod faults;
pub mod kinds;
mod objects;
mod past;
mod recorder;
mod settlements;
mod start;
pub mod worlds;

pub use faults::SERVER_NAME;
pub use recorder::{REQUESTS_DEFAULT, Rows};
pub use start::{Expectations, Starting, start};
