//! Controller references: who controls an object, and what somebody controls.

use std::sync::Arc;

use client::informer::SharedInformer;
use client::store::{PodController, Store};
use client::{Key, Object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

/// The reference to the one owner that controls an object.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_deref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Whether the object with this UID controls the other.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// The key of the controller, if it is of this group and kind. The version does not matter.
pub(crate) fn controller_key<O: Resource<DynamicType = ()>>(meta: &ObjectMeta) -> Option<Key> {
    let owner = controller_of(meta).filter(|owner| is_of_kind::<O>(owner))?;
    Some(Key::new(meta.namespace.as_deref(), &owner.name))
}

/// Whether a reference is to this group and kind.
pub(crate) fn is_of_kind<O: Resource<DynamicType = ()>>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    owner.kind == O::kind(&()) && group == O::group(&())
}

/// A reference that makes this object the controller, and keeps it until what it controls is gone.
pub(crate) fn reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    let meta = owner.meta();
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The UID, empty if the server gave none.
pub(crate) fn uid<O: Resource>(object: &O) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

/// The namespace, empty for cluster-scoped objects.
pub(crate) fn namespace<O: Resource>(object: &O) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

/// The name, empty if there is none.
pub(crate) fn name<O: Resource>(object: &O) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

/// The objects of a kind, filed by who controls them. Clones share the set.
pub(crate) struct Controlled<K> {
    store: Store<K>,
}

impl<K> Clone for Controlled<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone() }
    }
}

/// The name of the index; all controllers of a kind share it.
const INDEX: &str = "controller";

impl<K: Object> Controlled<K> {
    /// Files the objects of this informer. If another controller did already, nothing is done twice.
    pub(crate) fn of(informer: &SharedInformer<K>) -> Self {
        let filed = informer.add_index(INDEX, |object: &K| {
            let meta = object.meta();
            vec![match controller_of(meta) {
                Some(owner) => PodController::Uid(owner.uid.clone()),
                None => PodController::Orphan { namespace: meta.namespace.clone().unwrap_or_default() },
            }]
        });
        if let Err(error) = filed {
            tracing::trace!(%error, "objects are filed by their controllers already");
        }
        Self { store: informer.store() }
    }

    /// What the object with this UID controls.
    pub(crate) fn by(&self, uid: &str) -> Vec<Arc<K>> {
        self.get(&PodController::Uid(uid.to_owned()))
    }

    /// What nobody controls in this namespace.
    pub(crate) fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        self.get(&PodController::Orphan { namespace: namespace.to_owned() })
    }

    /// What this owner controls, and what it might adopt.
    pub(crate) fn candidates<O: Resource>(&self, owner: &O) -> Vec<Arc<K>> {
        let mut found = self.by(uid(owner));
        found.extend(self.orphans(namespace(owner)));
        found
    }

    /// All objects.
    pub(crate) fn store(&self) -> &Store<K> {
        &self.store
    }

    fn get(&self, value: &PodController) -> Vec<Arc<K>> {
        self.store.snapshot().by_index(INDEX, value).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

    #[test]
    fn the_controller_is_found_whatever_its_version() {
        let mut set = ReplicaSet::default();
        set.metadata.name = Some("web".into());
        set.metadata.uid = Some("u".into());
        let mut owner = reference(&set);
        owner.api_version = "apps/v1beta9".into();
        let meta = ObjectMeta {
            namespace: Some("n".into()),
            owner_references: Some(vec![OwnerReference { controller: None, ..owner.clone() }, owner]),
            ..ObjectMeta::default()
        };
        assert!(is_controlled_by(&meta, "u") && !is_controlled_by(&meta, "v"));
        assert_eq!(controller_key::<ReplicaSet>(&meta), Some(Key::new(Some("n"), "web")));
        assert_eq!(controller_key::<Deployment>(&meta), None);
    }
}
