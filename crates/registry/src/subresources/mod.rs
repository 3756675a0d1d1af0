//! Subresources that have a kind of their own, or do something with an object.
//!
//! - [`scale`]: the replica count of a workload
//! - [`binding`]: assigns a pod to a node
//! - [`eviction`]: deletes a pod if its disruption budget allows it
//! - [`token`]: requests for tokens of service accounts; [`token_claims`]: whether such a token still holds
//! - [`node`]: what only a node agent could serve (logs, exec, …); [`connection`]: its options as admission sees them
//!
//! `status`, `finalize`, `ephemeralcontainers`, `resize` and `approval` have the kind of the object: they are ordinary
//! updates, and the kind's strategy limits which part of the object they may change.

pub(crate) mod binding;
pub(crate) mod connection;
pub(crate) mod eviction;
pub(crate) mod node;
pub(crate) mod scale;
pub(crate) mod token;
pub(crate) mod token_claims;
