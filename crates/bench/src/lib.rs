//! Measurements of dogwatch and of any other server that has a kubeconfig, beside the floor of the same run where there is
//! one: ratios count, machines are noisy.
//!
//! - [`scenario`]: what can be measured, [`sizes`] how much of it; [`run`] does it
//! - `stage`, `own`, `pod`, `definition`: the server at hand, one of our own, what is put into it
//! - `calls`, `watchers`: load; `wire`, `frames`: the same over TLS without decoding; [`target`]: where to
//! - [`floor`]: the program that does nothing but write; [`process`]: what the system accounts
//! - [`sample`], [`report`]: figures; [`compare`], [`plot`]: two reports beside each other
//! - [`store`]: the embedded store against a bare SQLite writer

mod calls;
pub mod compare;
mod definition;
pub mod floor;
mod frames;
mod own;
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
