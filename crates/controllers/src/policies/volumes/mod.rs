//! Claims and volumes find each other.
//!
//! - `matching`: which volume satisfies a claim
//! - `claims`: a claim is bound, waits, or gets a volume made for it
//! - `phases`: the phase of a volume during and after the life of its claim, and its reclaim
//!
//! There is no storage behind it. Volumes of classes with a provisioner are created here, for any provisioner: a
//! stand-in, so that claims end in Bound as they would with storage.

mod claims;
mod matching;
mod phases;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::Resource as _;

use crate::context::Context;

/// Set on a claim when binding is complete, and never before.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Set on either side where the controller chose the other.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Set on a volume that was made for its claim.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Set on a claim by the scheduler when it has a node for the first consumer.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const YES: &str = "yes";
const COMPONENT: &str = "persistentvolume-controller";

/// Runs the binder until the context's stop.
pub(crate) async fn run(context: Context) {
    tokio::join!(claims::run(context.clone()), phases::run(context));
}

/// True if the claim reference of a volume names this claim. One that was bound by hand has no UID.
fn belongs_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(to) = claim_of(volume) else { return false };
    to.name == claim.metadata.name
        && to.namespace == claim.metadata.namespace
        && (to.uid.as_deref().unwrap_or_default().is_empty() || to.uid == claim.metadata.uid)
}

fn claim_of(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    claim.object_ref(&())
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}
