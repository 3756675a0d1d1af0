//! Which volume satisfies a claim.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use super::{belongs_to, claim_of, phase};
use crate::placement::term_allows;
use crate::scheduler::amounts::units;

const STORAGE: &str = "storage";
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The class a claim asks for; empty if none.
pub(super) fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let said = claim.annotations().get(CLASS);
    let spec = claim.spec.as_ref();
    said.or(spec.and_then(|spec| spec.storage_class_name.as_ref())).map_or("", String::as_str)
}

fn class_of_volume(volume: &PersistentVolume) -> &str {
    let said = volume.annotations().get(CLASS);
    let spec = volume.spec.as_ref();
    said.or(spec.and_then(|spec| spec.storage_class_name.as_ref())).map_or("", String::as_str)
}

/// Why a volume cannot be what a claim asks for; none if it can.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let (of, asked) = (volume.spec.clone().unwrap_or_default(), claim.spec.clone().unwrap_or_default());
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name_any()));
    }
    if size(volume) < requested(claim) {
        return Some("requested PV is too small".to_owned());
    }
    if class_of_volume(volume) != class_of(claim) {
        return Some("storageClassName does not match".to_owned());
    }
    let attributes = |name: &Option<String>| name.clone().unwrap_or_default();
    if attributes(&of.volume_attributes_class_name) != attributes(&asked.volume_attributes_class_name) {
        return Some("volumeAttributesClassName does not match".to_owned());
    }
    let mode = |mode: Option<String>| mode.unwrap_or_else(|| "Filesystem".to_owned());
    if mode(of.volume_mode) != mode(asked.volume_mode) {
        return Some("incompatible volumeMode".to_owned());
    }
    let offered = of.access_modes.unwrap_or_default();
    if asked.access_modes.iter().flatten().any(|wanted| !offered.contains(wanted)) {
        return Some("incompatible accessMode".to_owned());
    }
    None
}

/// The volume that was set aside for a claim, else the smallest free one that satisfies it. `free` is false while the
/// claim must wait for a node; then only one that was set aside will do.
pub(super) fn best(
    volumes: &[Arc<PersistentVolume>],
    claim: &PersistentVolumeClaim,
    free: bool,
    node: Option<&Node>,
) -> Option<Arc<PersistentVolume>> {
    let set_aside = volumes.iter().find(|volume| belongs_to(volume, claim) && mismatch(volume, claim).is_none());
    if let Some(volume) = set_aside {
        return Some(volume.clone());
    }
    if !free {
        return None;
    }
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let selector = Selector::try_from(selector).ok()?;
    volumes
        .iter()
        .filter(|volume| claim_of(volume).is_none() && phase(volume) == "Available")
        .filter(|volume| mismatch(volume, claim).is_none() && selector.matches(volume.labels()))
        .filter(|volume| reachable(volume, node))
        .min_by_key(|volume| (size(volume), volume.name_any()))
        .cloned()
}

/// Whether a volume can be used on a node. Where no node is chosen yet, all can.
fn reachable(volume: &PersistentVolume, node: Option<&Node>) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let (Some(required), Some(node)) = (affinity.and_then(|affinity| affinity.required.as_ref()), node) else {
        return true;
    };
    required.node_selector_terms.iter().any(|term| term_allows(term, node.labels(), &node.name_any()))
}

fn size(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get(STORAGE)).map_or(0, units)
}

fn requested(claim: &PersistentVolumeClaim) -> i64 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    requests.and_then(|requests| requests.get(STORAGE)).map_or(0, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, storage: &str, more: Value) -> Arc<PersistentVolume> {
        let mut spec = json!({"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"]});
        for (member, value) in more.as_object().into_iter().flatten() {
            spec[member.as_str()] = value.clone();
        }
        let volume = json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}});
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn claim(storage: &str, more: Value) -> PersistentVolumeClaim {
        let mut spec = json!({"resources": {"requests": {"storage": storage}}, "accessModes": ["ReadWriteOnce"]});
        for (member, value) in more.as_object().into_iter().flatten() {
            spec[member.as_str()] = value.clone();
        }
        let metadata = json!({"name": "c", "namespace": "n", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn the_smallest_that_satisfies_is_taken() {
        let volumes = [
            volume("small", "1Gi", json!({})),
            volume("large", "10Gi", json!({})),
            volume("right", "5Gi", json!({})),
            volume("classy", "5Gi", json!({"storageClassName": "fast"})),
            volume("block", "5Gi", json!({"volumeMode": "Block"})),
            volume("taken", "5Gi", json!({"claimRef": {"namespace": "n", "name": "other", "uid": "x"}})),
        ];
        let named = |claim: &PersistentVolumeClaim, free: bool| {
            best(&volumes, claim, free, None).map(|volume| volume.name_any())
        };
        assert_eq!(named(&claim("4Gi", json!({})), true).as_deref(), Some("right"));
        assert_eq!(named(&claim("4Gi", json!({})), false), None);
        assert_eq!(named(&claim("4Gi", json!({"storageClassName": "fast"})), true).as_deref(), Some("classy"));
        assert_eq!(named(&claim("4Gi", json!({"volumeMode": "Block"})), true).as_deref(), Some("block"));
        assert_eq!(named(&claim("4Gi", json!({"accessModes": ["ReadWriteMany"]})), true), None);
        assert_eq!(named(&claim("20Gi", json!({})), true), None);
        let mine = [volume("mine", "9Gi", json!({"claimRef": {"namespace": "n", "name": "c"}})), volumes[2].clone()];
        let found = best(&mine, &claim("4Gi", json!({})), false, None);
        assert_eq!(found.unwrap().name_any(), "mine", "what was set aside comes first");
    }

    #[test]
    fn a_volume_says_why_it_does_not_satisfy() {
        let why =
            |volume: &PersistentVolume, claim: &PersistentVolumeClaim| mismatch(volume, claim).unwrap_or_default();
        let small = volume("v", "1Gi", json!({}));
        assert_eq!(why(&small, &claim("2Gi", json!({}))), "requested PV is too small");
        assert_eq!(why(&small, &claim("1Gi", json!({"storageClassName": "x"}))), "storageClassName does not match");
        assert_eq!(why(&small, &claim("1Gi", json!({"volumeMode": "Block"}))), "incompatible volumeMode");
        assert_eq!(why(&small, &claim("1Gi", json!({"accessModes": ["ReadOnlyMany"]}))), "incompatible accessMode");
    }
}
