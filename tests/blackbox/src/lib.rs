//! What the black-box tests stand on: a server process, client processes read line by line, and a hand that writes.
//!
//! - [`server`]: the built binary, started on a free port with a data directory of its own
//! - [`etcd`]: a store that servers can share
//! - [`process`]: a child process whose lines can be waited for
//! - [`tools`]: where kubectl and the client programs are
//! - [`wire`]: requests and answers with nothing hidden
//! - [`writer`]: changes pods while a client under test watches
//!
//! Nothing here knows a crate of the project: only its command line and what it says on the wire.

pub mod etcd;
pub mod process;
pub mod server;
pub mod tools;
pub mod wire;
pub mod writer;

pub use etcd::Etcd;
pub use process::{Process, run};
pub use server::Server;
pub use wire::Wire;
pub use writer::Writer;
