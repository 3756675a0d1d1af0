//! dogwatch as a library: the server in the same process, and the commands of the program.
//!
//! - [`testing`]: a server for a test, with no socket and nothing on disk
//! - [`engine`]: the one place that names a storage backend
//! - [`cluster`]: store, registry and HTTP service, without listeners
//! - [`authentication`]: how a server authenticates users; [`authorization`]: its authorizers
//! - [`background`]: the controllers of a server, `queues`: what they have still to do; `worlds`: control planes beside it
//! - [`timeline`]: an object over time, as a lab has recorded it
//! - [`up`]: the server as a program; [`commands`]: a small client, and measurements
//! - `recording`: all changes of a server in a file, and a server that shows them again
//! - [`args`]: command-line arguments; [`failure`]: the error of a command

pub mod args;
pub mod assets;
pub mod authentication;
pub mod authorization;
pub mod background;
pub mod cluster;
pub mod commands;
mod containers;
pub mod engine;
pub mod failure;
mod identities;
mod lab_role;
mod page;
mod queues;
mod recording;
pub mod testing;
pub mod timeline;
pub mod up;
mod usage;
mod worlds;
