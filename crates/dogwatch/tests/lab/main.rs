//! The lab, as clients of the API see it.

mod checkpoints;
mod clock;
mod commands;
mod connections;
mod each_world;
mod faults;
mod group;
mod page;
mod recording;
mod seeing;
mod settling;
mod stale;
mod streams;
mod wire;
mod world;
mod worlds;
