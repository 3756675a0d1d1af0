//! Recordings: every change of a server's objects in a file, and a server that shows them again.
//!
//! - `file`: the format, see docs/storage-format.md
//! - `recorder`: writes what a running server does; `player`: a store that can only be read, and the changes that it is played

mod file;
mod player;
mod recorder;

pub(crate) use file::{Header, Recording};
pub(crate) use player::Player;
pub(crate) use recorder::Recorder;
