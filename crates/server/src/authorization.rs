//! The authorizers of a server: which there are, in which order, and those that ask another server.
//!
//! - [`modes`]: the modes and what a webhook needs, from flags
//! - [`file`](mod@file): the same from an `AuthorizationConfiguration`
//! - [`chain`]: the authorizers of a configuration, and how a changed file replaces them
//! - [`inspection`]: explains decisions, and [`recorder`] keeps what users did
//! - [`metrics`]: counts of decisions
//! - [`webhook`]: asks a server for each request; [`review`] is what it is sent

pub mod chain;
pub mod file;
pub mod inspection;
pub mod metrics;
pub mod modes;
pub mod recorder;
pub mod review;
pub mod webhook;

pub use inspection::Inspection;
