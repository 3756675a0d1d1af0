//! The lab, as clients of the API see it.

mod faults;
mod group;
mod seeing;
mod streams;
mod wire;
mod checkpoints;
mod world;
mod worlds;
