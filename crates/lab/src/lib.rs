//! Powers over a control plane for those who test controllers.
//!
//! Everything is an object of the group `lab.dogwatch.dev`, so every Kubernetes client is a client of the lab. The objects live in a
//! registry of their own on a store in memory: they are not in the log of the cluster and do not move its revision. Each world has a lab
//! of its own; worlds and checkpoints are objects of `main`.
//!
//! - `start`: puts the lab of a world together; `registries`: its objects; `kinds`: their kinds; `rules`: what writes are checked for
//! - `faults`, `clocks`, `settlements`, `recorder`, [`worlds`], [`checkpoints`]: the powers
//! - `objects`: the kinds that are computed; `past`: revisions by time

pub mod checkpoints;
mod clocks;
mod durations;
mod faults;
pub mod kinds;
mod objects;
mod past;
mod recorder;
mod registries;
mod rules;
mod settlements;
mod start;
pub mod worlds;

pub use faults::SERVER_NAME;
pub use recorder::{REQUESTS_DEFAULT, Rows};
pub use start::{Expectations, Started, Starting, StartingBeside, start};
