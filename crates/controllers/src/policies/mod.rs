//! Promises about objects, kept: volumes for claims, room for disruptions.
//!
//! - `protection`: finalizers of claims and volumes that are in use
//! - `volumes`: claims are bound to volumes, and volumes are made and reclaimed
//! - `disruption`: the number of pods of a budget that may be evicted
//!
//! Resource quotas are counted by the server itself: it takes from them with every write, so there is one owner.

pub(crate) mod disruption;
pub(crate) mod protection;
pub(crate) mod volumes;
