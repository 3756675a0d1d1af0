//! What several controllers say the same way.
//!
//! - `conditions`: the list of conditions in a status
//! - `owners`: controller references, and finding what somebody controls
//! - `claim`: which objects belong to an owner: keep, adopt, release
//! - `pods`: what a pod's status means (active, ready, available), pods from templates
//! - `template`: comparing and naming pod templates
//! - `history`: the templates a workload had, as ControllerRevisions
//! - `batches`: many writes, carefully at first
//! - `placement`: taints, tolerations and node selectors
//! - `resources`: what the server serves, as it says itself
//! - `running`: starting a controller on its informers
//! - `writer`: the writes of one run, remembered until the stores show them

pub(crate) mod batches;
pub(crate) mod claim;
pub(crate) mod conditions;
pub(crate) mod history;
pub(crate) mod owners;
pub(crate) mod placement;
pub(crate) mod pods;
pub(crate) mod resources;
pub(crate) mod running;
pub(crate) mod template;
pub(crate) mod writer;
