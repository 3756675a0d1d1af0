//! The client commands, and `bench`.
//!
//! - `remote`: the server of a kubeconfig, and the resources it serves
//! - `get`, `watch`, `apply`, `delete`: one module for each command
//! - `proxy`: plain HTTP on loopback to that server
//! - `documents`: objects in files
//! - `bench`: measurements

mod apply;
mod bench;
mod delete;
mod documents;
mod get;
mod proxy;
mod remote;
mod watch;

pub use apply::apply;
pub use bench::bench;
pub use delete::delete;
pub use get::get;
pub use proxy::proxy;
pub use watch::watch;
