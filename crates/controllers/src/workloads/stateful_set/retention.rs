//! The retention of claims when a set is deleted or scaled down, by owner references (SS-7).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::identity::ordinals;
use crate::owners::{name, reference, uid};

/// The deletion of claims with their set, and with their pod.
fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |what: Option<&String>| what.is_some_and(|what| what == "Delete");
    let field = |pick: fn(&_) -> Option<&String>| deletes(policy.and_then(pick));
    (field(|policy| policy.when_deleted.as_ref()), field(|policy| policy.when_scaled.as_ref()))
}

fn is_about<O: Resource<DynamicType = ()>>(owner: &OwnerReference, object: &O) -> bool {
    owner.kind == O::kind(&()) && owner.api_version == O::api_version(&()) && owner.name == name(object)
}

/// True if a reference is to an earlier object of the same name.
fn is_stale<O: Resource<DynamicType = ()>>(claim: &PersistentVolumeClaim, object: &O) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners.filter(|owner| is_about(owner, object)).any(|owner| owner.uid != uid(object))
}

/// True if a claim belongs to an earlier pod of this name and will be deleted with it: a new pod must wait.
pub(super) fn belongs_to_an_earlier(pod: &Pod, claim: &PersistentVolumeClaim, set: &StatefulSet) -> bool {
    policy(set).1 && is_stale(claim, pod)
}

/// The owners that a claim should have; none if it has them.
pub(super) fn owners(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    pod: &Pod,
    ordinal: i64,
) -> Option<Vec<OwnerReference>> {
    if is_stale(claim, set) || is_stale(claim, pod) {
        // The deletion of the earlier claim or pod takes effect first.
        return None;
    }
    let (with_set, with_pod) = policy(set);
    let condemned = !ordinals(set).contains(&ordinal);
    let known = claim.metadata.owner_references.clone().unwrap_or_default();
    let is_ours = |owner: &OwnerReference| is_about(owner, set) || is_about(owner, pod);
    let mut wanted: Vec<OwnerReference> = known.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    let other_controller = wanted.iter().any(|owner| owner.controller == Some(true));
    if !other_controller {
        if with_pod && condemned {
            wanted.push(reference(pod));
        } else if with_set {
            wanted.push(reference(set));
        }
    }
    let essence = |owners: &[OwnerReference]| {
        let mut list: Vec<_> = owners.iter().map(|owner| (owner.uid.clone(), owner.controller)).collect();
        list.sort();
        list
    };
    (essence(&known) != essence(&wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(when_deleted: &str, when_scaled: &str) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": "db", "uid": "set"},
            "spec": {
                "replicas": 1, "selector": {}, "template": {},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled},
            },
        }))
        .unwrap()
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "db-0", "uid": "pod"}})).unwrap()
    }

    #[test]
    fn ss_7_owners_by_policy() {
        let claim = PersistentVolumeClaim::default();
        let rows = [
            ("Retain", "Retain", 0, None),
            ("Retain", "Retain", 5, None),
            ("Delete", "Retain", 0, Some("set")),
            ("Delete", "Retain", 5, Some("set")),
            ("Retain", "Delete", 0, None),
            ("Retain", "Delete", 5, Some("pod")),
            ("Delete", "Delete", 0, Some("set")),
            ("Delete", "Delete", 5, Some("pod")),
        ];
        for (deleted, scaled, ordinal, expected) in rows {
            let wanted = owners(&claim, &set(deleted, scaled), &pod(), ordinal);
            let uids = wanted.map(|owners| owners.into_iter().map(|owner| owner.uid).collect::<Vec<_>>());
            assert_eq!(uids, expected.map(|uid| vec![uid.to_owned()]), "{deleted} {scaled} {ordinal}");
        }
    }

    #[test]
    fn ss_7_owners_are_removed_when_the_policy_changes_and_others_are_respected() {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.owner_references = Some(vec![reference(&set("Delete", "Retain"))]);
        assert_eq!(owners(&claim, &set("Delete", "Retain"), &pod(), 0), None);
        assert_eq!(owners(&claim, &set("Retain", "Retain"), &pod(), 0), Some(vec![]));
        let other = OwnerReference {
            uid: "x".into(),
            kind: "Other".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        claim.metadata.owner_references = Some(vec![other]);
        assert_eq!(owners(&claim, &set("Delete", "Retain"), &pod(), 0), None);
        let mut earlier = pod();
        earlier.metadata.uid = Some("earlier".into());
        claim.metadata.owner_references = Some(vec![reference(&earlier)]);
        assert!(belongs_to_an_earlier(&pod(), &claim, &set("Retain", "Delete")));
        assert!(!belongs_to_an_earlier(&pod(), &claim, &set("Retain", "Retain")));
    }
}
