//! The effect of a pod's claims on its placement.

use client::Key;
use client::store::Store;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;

use super::volumes::VolumePlace;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The readable sets that claims are judged by.
#[derive(Clone)]
pub(super) struct Claims {
    pub(super) claims: Store<PersistentVolumeClaim>,
    pub(super) classes: Store<StorageClass>,
    pub(super) volumes: Store<PersistentVolume>,
}

/// The state of a pod's claims.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All are bound, or there are none.
    Ready,
    /// These are bound once they know the node.
    Waiting(Vec<Key>),
    /// One cannot be used, in the words of the reference.
    Unusable(String),
}

impl Claims {
    pub(super) fn judge(&self, pod: &Pod) -> Verdict {
        let mut waiting = Vec::new();
        let mut immediate = false;
        for name in claim_names(pod) {
            let key = Key::new(pod.metadata.namespace.as_deref(), &name);
            let Some(claim) = self.claims.get(&key) else {
                return Verdict::Unusable(format!("persistentvolumeclaim \"{name}\" not found"));
            };
            if claim.metadata.deletion_timestamp.is_some() {
                return Verdict::Unusable(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            }
            if is_bound(&claim) {
                continue;
            }
            if self.waits_for_a_consumer(&claim) {
                waiting.push(key);
            } else {
                immediate = true;
            }
        }
        match (immediate, waiting.is_empty()) {
            (true, _) => Verdict::Unusable("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            (false, true) => Verdict::Ready,
            (false, false) => Verdict::Waiting(waiting),
        }
    }

    /// Where the bound volumes of a pod can be reached.
    pub(super) fn places(&self, pod: &Pod) -> Vec<VolumePlace> {
        let claims = claim_names(pod).into_iter();
        let claims = claims.filter_map(|name| self.claims.get(&Key::new(pod.metadata.namespace.as_deref(), &name)));
        let volume = |claim: std::sync::Arc<PersistentVolumeClaim>| {
            let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref())?;
            self.volumes.get(&Key::new(None, name))
        };
        claims.filter(|claim| is_bound(claim)).filter_map(volume).map(|volume| VolumePlace::of(&volume)).collect()
    }

    fn waits_for_a_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
        let class = self.classes.get(&Key::new(None, class));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    /// The annotation of a claim with the node of its consumer.
    pub(super) fn selected(node: &str) -> serde_json::Value {
        serde_json::json!({"metadata": {"annotations": {SELECTED_NODE: node}}})
    }

    pub(super) fn all_bound(&self, keys: &[Key]) -> bool {
        keys.iter().all(|key| self.claims.get(key).is_some_and(|claim| is_bound(&claim)))
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_some_and(|name| !name.is_empty())
        && claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// The claims a pod names, and those made for its ephemeral volumes.
fn claim_names(pod: &Pod) -> Vec<String> {
    let own = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let name = |volume: &k8s_openapi::api::core::v1::Volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{own}-{}", volume.name)),
    };
    volumes.iter().filter_map(name).collect()
}
