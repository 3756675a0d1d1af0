//! Support for the black-box tests: server processes, client processes read line by line, and a writer.
//!
//! - [`server`]: the built binary, started on a free port with a data directory of its own
//! - [`clock`]: the wall clock of this machine
//! - [`etcd`]: an etcd process that servers can share
//! - [`process`]: a child process whose lines can be waited for
//! - [`tools`]: paths of kubectl and the client programs
//! - [`wire`]: a raw HTTP client
//! - [`writer`]: changes pods while a client under test watches
//!
//! Nothing here uses a crate of the project: only its command line and its wire protocol.

pub mod clock;
pub mod etcd;
pub mod process;
pub mod server;
pub mod tools;
pub mod wire;
pub mod writer;

pub use etcd::Etcd;
pub use process::{Process, run, run_within};
pub use server::Server;
pub use wire::Wire;
pub use writer::Writer;
