//! `Tracked`: the little of an object's metadata that the collector keeps. There is one for every object of the cluster.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use client::{Key, Object, RawObject, ResourceVersion};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::Deserialize;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// The identity of an object.
pub(super) type Uid = Arc<str>;

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) api_version: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    /// The owner waits for this dependent when it is deleted in the foreground.
    pub(super) blocks: bool,
}

impl From<&OwnerReference> for Owner {
    fn from(reference: &OwnerReference) -> Self {
        Self {
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
            blocks: reference.block_owner_deletion == Some(true),
        }
    }
}

/// The fields that the collector needs.
#[derive(Debug)]
pub(super) struct Tracked {
    key: Key,
    uid: Uid,
    version: ResourceVersion,
    owners: Arc<[Owner]>,
    /// `deletionTimestamp` is set.
    deleting: bool,
    /// Has the finalizer `orphan`.
    orphans: bool,
    /// Has the finalizer `foregroundDeletion`.
    waits: bool,
    /// Required by the client runtime, unused here.
    meta: OnceLock<Box<ObjectMeta>>,
}

impl Tracked {
    pub(super) fn uid(&self) -> &Uid {
        &self.uid
    }
    pub(super) fn key(&self) -> &Key {
        &self.key
    }
    pub(super) fn owners(&self) -> &Arc<[Owner]> {
        &self.owners
    }
    pub(super) fn is_deleting(&self) -> bool {
        self.deleting
    }
    /// Its dependents lose their reference to it before it is deleted.
    pub(super) fn is_orphaning(&self) -> bool {
        self.deleting && self.orphans
    }
    /// Its dependents are deleted before it.
    pub(super) fn is_waiting(&self) -> bool {
        self.deleting && self.waits
    }
}

#[derive(Deserialize)]
struct Body {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Object for Tracked {
    fn from_raw(raw: &RawObject) -> Result<Self, serde_json::Error> {
        let meta = serde_json::from_slice::<Body>(&raw.body)?.metadata;
        let finalizers = meta.finalizers.unwrap_or_default();
        Ok(Self {
            key: raw.key.clone(),
            uid: raw.uid.as_str().into(),
            version: raw.version.clone(),
            owners: meta.owner_references.unwrap_or_default().iter().map(Owner::from).collect(),
            deleting: meta.deletion_timestamp.is_some(),
            orphans: finalizers.iter().any(|name| name == ORPHAN),
            waits: finalizers.iter().any(|name| name == FOREGROUND),
            meta: OnceLock::new(),
        })
    }

    fn object_key(&self) -> Key {
        self.key.clone()
    }

    fn state_version(&self) -> ResourceVersion {
        self.version.clone()
    }

    fn incarnation(&self) -> &str {
        &self.uid
    }
}

impl Resource for Tracked {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }
    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }
    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }
    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }
    /// Requests metadata only.
    fn metadata_api() -> bool {
        true
    }
    fn meta(&self) -> &ObjectMeta {
        self.meta.get_or_init(|| Box::new(self.as_meta()))
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        let meta = self.meta.take().unwrap_or_else(|| Box::new(self.as_meta()));
        self.meta = OnceLock::from(meta);
        self.meta.get_mut().expect("it was set the line above")
    }
}

impl Tracked {
    fn as_meta(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.key.name().to_owned()),
            namespace: self.key.namespace().map(str::to_owned),
            uid: Some(self.uid.to_string()),
            resource_version: Some(self.version.to_string()),
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_collector_needs_is_kept() {
        let text = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7",
            "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x","foregroundDeletion"],
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"o","blockOwnerDeletion":true}]}}"#;
        let tracked = Tracked::from_raw(&RawObject::from_json(text.as_bytes().to_vec().into()).unwrap()).unwrap();
        assert!(tracked.is_deleting() && tracked.is_waiting() && !tracked.is_orphaning());
        assert_eq!(tracked.key().as_str(), "n/p");
        assert!(tracked.owners()[0].blocks);
        assert_eq!(Resource::meta(&tracked).uid.as_deref(), Some("u"));
        // One for every object of the cluster: 10 000 of them are to stay below a few megabytes.
        assert!(size_of::<Tracked>() <= 120, "{}", size_of::<Tracked>());
    }
}
