//! Promises about objects, kept: volumes for claims, room for disruptions, the status of autoscalers.
//!
//! - `protection`: claims and volumes that are in use do not go
//! - `volumes`: claims are bound to volumes, and volumes are made and reclaimed
//! - `disruption`: how many pods of a budget may be evicted
//! - `autoscaling`: what an autoscaler can say without a source of metrics
//!
//! Resource quotas are counted by the server itself: it takes from them with every write, so there is one owner.

pub(crate) mod autoscaling;
pub(crate) mod disruption;
pub(crate) mod protection;
pub(crate) mod volumes;
