//! The indices that controllers of pods rely on (ST-12).

use k8s_openapi::api::core::v1::Pod;

use super::{Index, IndexError, Store};

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodController {
    /// The controller of this UID.
    Uid(String),
    /// No controller. Orphans are filed by namespace so that a controller can find pods to adopt.
    Orphan {
        /// The namespace of the pod.
        namespace: String,
    },
}

/// Pods by `spec.nodeName`; pods without a node are not filed.
pub fn pods_by_node(store: &Store<Pod>) -> Result<Index<Pod, String>, IndexError> {
    store.add_index("spec.nodeName", |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        node.filter(|name| !name.is_empty()).into_iter().collect()
    })
}

/// Pods by the UID of their controller.
pub fn pods_by_controller(store: &Store<Pod>) -> Result<Index<Pod, PodController>, IndexError> {
    store.add_index("podController", |pod: &Pod| {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        vec![match controller {
            Some(owner) => PodController::Uid(owner.uid.clone()),
            None => PodController::Orphan { namespace: pod.metadata.namespace.clone().unwrap_or_default() },
        }]
    })
}
