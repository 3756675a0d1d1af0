//! Fields that a request cannot write: the server resets them, so the sender does not own them.

use machinery::GroupVersionKind;
use machinery::json::json;

use super::set::Set;

/// Selects the paths of a change that count.
#[derive(Clone, Debug)]
pub(super) enum Filter {
    All,
    Without(Set),
    Only(&'static [&'static [&'static str]]),
}

impl Filter {
    pub(super) fn apply(&self, set: Set) -> Set {
        match self {
            Filter::All => set,
            Filter::Without(reset) => set.without(reset),
            Filter::Only(patterns) => set.only(patterns),
        }
    }

    /// Returns the members of the object that it drops entirely, if that is all it does.
    pub(super) fn whole_members(&self) -> Option<Vec<&str>> {
        match self {
            Filter::All => Some(Vec::new()),
            Filter::Without(reset) => reset.whole_fields(),
            Filter::Only(_) => None,
        }
    }

    /// Returns the filter of requests to a kind or to a subresource of it (empty: the object itself).
    ///
    /// `has_status` is used for custom kinds only.
    pub(super) fn new(gvk: &GroupVersionKind, subresource: &str, custom: bool, has_status: bool) -> Filter {
        let without = |fields: machinery::json::Value| match Set::decode(&fields) {
            Ok(set) => Filter::Without(set),
            Err(_) => Filter::All,
        };
        if custom {
            return match subresource {
                "" if has_status => without(json!({"f:status": {}})),
                "status" => without(json!({"f:metadata": {}, "f:spec": {}})),
                _ => Filter::All,
            };
        }
        match (&*gvk.kind, subresource) {
            ("Pod", "ephemeralcontainers") => Filter::Only(&[&["spec", "ephemeralContainers"]]),
            // The reference intends resources and resizePolicy only, but records everything in a container.
            ("Pod", "resize") => Filter::Only(&[&["spec", "containers", "*"], &["spec", "initContainers", "*"]]),
            ("Namespace", "finalize") => without(json!({"f:status": {}})),
            ("CertificateSigningRequest", "") => without(json!({"f:spec": {}, "f:status": {}})),
            ("CertificateSigningRequest", "status") => without(json!({"f:spec": {}, "f:status": {"f:conditions": {}}})),
            ("CertificateSigningRequest", "approval") => {
                without(json!({"f:spec": {}, "f:status": {"f:certificate": {}}}))
            }
            ("Deployment", "status") => without(json!({"f:spec": {}, "f:metadata": {"f:labels": {}}})),
            ("Pod", "status") => {
                without(json!({"f:spec": {}, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}}))
            }
            (
                "ValidatingAdmissionPolicy"
                | "FlowSchema"
                | "PriorityLevelConfiguration"
                | "ServiceCIDR"
                | "ResourceClaim"
                | "VolumeAttachment"
                | "APIService",
                "status",
            ) => without(json!({"f:spec": {}, "f:metadata": {}})),
            (kind, "") if resets_status(kind) => without(json!({"f:status": {}})),
            (kind, "status") if resets_status(kind) => without(json!({"f:spec": {}})),
            _ => Filter::All,
        }
    }
}

/// Returns whether the status of a kind is written through its status subresource only.
fn resets_status(kind: &str) -> bool {
    matches!(
        kind,
        "APIService"
            | "CronJob"
            | "CustomResourceDefinition"
            | "DaemonSet"
            | "Deployment"
            | "FlowSchema"
            | "HorizontalPodAutoscaler"
            | "Ingress"
            | "Job"
            | "Namespace"
            | "Node"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "Pod"
            | "PodDisruptionBudget"
            | "PriorityLevelConfiguration"
            | "ReplicaSet"
            | "ReplicationController"
            | "ResourceClaim"
            | "ResourceQuota"
            | "Service"
            | "ServiceCIDR"
            | "StatefulSet"
            | "ValidatingAdmissionPolicy"
            | "VolumeAttachment"
    )
}
