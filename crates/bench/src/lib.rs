//! Measurements of dogwatch and of any other server that has a kubeconfig, together with the floor of the same run where there
//! is one: ratios count, machines are noisy.
//!
//! - [`scenario`]: the scenarios, [`sizes`]: their sizes, [`run`]: their execution
//! - `stage`, `own_server`, `pod`, `definition`: the measured server and the objects in it
//! - `load_driver`, `watchers`: load; `wire`, `frames`: requests over TLS without decoding; [`target`]: the address and
//!   credentials of the server
//! - [`floor`]: a program that only writes; [`process`]: processor time and memory by the system
//! - [`sample`], [`report`]: figures; [`compare`], [`plot`]: comparison of two reports
//! - [`store`]: the embedded store against a bare SQLite writer

pub mod compare;
mod definition;
pub mod floor;
mod frames;
mod load_driver;
mod own_server;
pub mod plot;
mod pod;
pub mod process;
mod progress;
pub mod report;
pub mod run;
pub mod sample;
pub mod scenario;
pub mod sizes;
mod stage;
pub mod store;
pub mod target;
pub mod trouble;
mod watchers;
mod wire;

pub use stage::{Options, Sink};
pub use wire::Protocol;
