//! dogwatch as a library: the server in the same process, and what its command line is made of.
//!
//! - [`testing`]: a server for a test, with no socket and nothing on disk
//! - [`engine`]: the one place that names a storage backend
//! - [`cluster`]: store, registry and HTTP service put together
//! - [`background`]: the controllers beside it
//! - [`up`]: the server as a program; [`commands`]: the small client
//! - [`args`]: what can be said on the command line; [`failure`]: what is said when it goes wrong

pub mod args;
pub mod background;
pub mod cluster;
pub mod commands;
pub mod engine;
pub mod failure;
pub mod testing;
pub mod up;
