//! The lab, as clients of the API see it.

mod checkpoints;
mod faults;
mod group;
mod seeing;
mod streams;
mod wire;
mod world;
mod worlds;
