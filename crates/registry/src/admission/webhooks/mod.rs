//! Admission webhooks.
//!
//! - [`client`]: how one is called

pub mod client;
