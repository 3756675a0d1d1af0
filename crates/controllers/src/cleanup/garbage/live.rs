//! Objects as they are on the server now, and the changes that the collector makes to them.

use client::Error;
use client::retry::{RetrySteps, retry_on_conflict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use thiserror::Error as ThisError;

use super::graph::Identity;
use super::tracked::Uid;
use crate::discovery::Resources;

/// Why an object cannot be looked at.
#[derive(Debug, ThisError)]
pub(super) enum Trouble {
    /// A kind that the server does not serve; it may some day.
    #[error("the server does not serve {0}")]
    UnknownKind(String),
    /// A cluster-scoped object says that an object in a namespace owns it. That can never be resolved (GC-9).
    #[error("a cluster-scoped object cannot have an owner in a namespace")]
    NamespacedOwnerOfClusterScoped,
    #[error(transparent)]
    Api(#[from] Error),
}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Trouble::Api(error.into())
    }
}

/// Reads and changes objects of any kind, one at a time.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) client: Client,
    pub(super) resources: Arc<Resources>,
}

impl Live {
    fn api(&self, identity: &Identity) -> Result<Api<DynamicObject>, Trouble> {
        let (version, kind) = (&*identity.kind.api_version, &*identity.kind.name);
        let served = self.resources.of_kind(version, kind);
        let served = served.ok_or_else(|| Trouble::UnknownKind(format!("{version} {kind}")))?;
        let namespace = identity.key.namespace().unwrap_or_default();
        if served.namespaced && namespace.is_empty() {
            return Err(Trouble::NamespacedOwnerOfClusterScoped);
        }
        Ok(served.api(&self.client, namespace))
    }

    /// Whether the objects of this kind are in namespaces.
    pub(super) fn is_namespaced(&self, identity: &Identity) -> Result<bool, Trouble> {
        let (version, kind) = (&*identity.kind.api_version, &*identity.kind.name);
        let served = self.resources.of_kind(version, kind);
        Ok(served.ok_or_else(|| Trouble::UnknownKind(format!("{version} {kind}")))?.namespaced)
    }

    /// The metadata of the object that has this name now, whichever it is.
    pub(super) async fn get(&self, identity: &Identity) -> Result<Option<ObjectMeta>, Trouble> {
        let found = self.api(identity)?.get_metadata_opt(identity.key.name()).await?;
        Ok(found.map(|object| object.metadata))
    }

    /// Deletes this very object, unless its owners changed since they were looked at. Gone already is fine.
    pub(super) async fn delete(
        &self,
        identity: &Identity,
        looked_at: &ObjectMeta,
        policy: PropagationPolicy,
    ) -> Result<(), Trouble> {
        let version = looked_at.resource_version.clone();
        match self.delete_at(identity, version.clone(), policy.clone()).await {
            Err(error) if error.is_conflict() => {
                let Some(now) = self.get(identity).await? else { return Ok(()) };
                let same = now.uid.as_deref() == Some(&*identity.uid)
                    && now.resource_version != version
                    && now.owner_references == looked_at.owner_references;
                if !same {
                    return Err(error.into());
                }
                // Something else changed. Somebody who writes often must not keep it alive (GC-6).
                Ok(self.delete_at(identity, None, policy).await?)
            }
            other => Ok(other?),
        }
    }

    async fn delete_at(
        &self,
        identity: &Identity,
        version: Option<String>,
        policy: PropagationPolicy,
    ) -> Result<(), Error> {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions { resource_version: version, uid: Some(identity.uid.to_string()) }),
            ..DeleteParams::default()
        };
        let api = match self.api(identity) {
            Ok(api) => api,
            Err(Trouble::Api(error)) => return Err(error),
            // It was served a moment ago.
            Err(other) => return Err(Error::Config(other.to_string())),
        };
        match api.delete(identity.key.name(), &params).await.map_err(Error::from) {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Removes references to these owners.
    pub(super) async fn remove_owners(&self, identity: &Identity, owners: &[Uid]) -> Result<(), Trouble> {
        let entries: Vec<Value> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": **uid})).collect();
        let patch = json!({"metadata": {"uid": *identity.uid, "ownerReferences": entries}});
        let keep = |owner: OwnerReference| (!owners.iter().any(|uid| **uid == *owner.uid)).then_some(owner);
        self.patch_owners(identity, patch, keep).await
    }

    /// Lets the owners of an object go before it does.
    pub(super) async fn unblock_owners(&self, identity: &Identity, blocking: &[Uid]) -> Result<(), Trouble> {
        let entries: Vec<Value> =
            blocking.iter().map(|uid| json!({"uid": **uid, "blockOwnerDeletion": false})).collect();
        let patch = json!({"metadata": {"uid": *identity.uid, "ownerReferences": entries}});
        let unblocked = |owner: OwnerReference| Some(OwnerReference { block_owner_deletion: Some(false), ..owner });
        self.patch_owners(identity, patch, unblocked).await
    }

    /// Patches references; where the server cannot merge them by UID (custom resources), replaces all of them.
    async fn patch_owners(
        &self,
        identity: &Identity,
        strategic: Value,
        each: impl Fn(OwnerReference) -> Option<OwnerReference>,
    ) -> Result<(), Trouble> {
        let api = self.api(identity)?;
        let (name, params) = (identity.key.name(), PatchParams::default());
        match api.patch_metadata(name, &params, &Patch::Strategic(strategic)).await.map_err(Error::from) {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(415) => {}
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let Some(now) = self.get(identity).await? else { return Ok(()) };
        if now.uid.as_deref() != Some(&*identity.uid) {
            return Ok(());
        }
        let owners: Vec<OwnerReference> = now.owner_references.into_iter().flatten().filter_map(each).collect();
        let patch = json!({"metadata": {
            "uid": *identity.uid, "resourceVersion": now.resource_version, "ownerReferences": owners,
        }});
        match api.patch_metadata(name, &params, &Patch::Merge(patch)).await.map_err(Error::from) {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes a finalizer, if it is there.
    pub(super) async fn remove_finalizer(&self, identity: &Identity, finalizer: &str) -> Result<(), Trouble> {
        let api = self.api(identity)?;
        let name = identity.key.name();
        let attempt = || async {
            let Some(now) = api.get_metadata_opt(name).await?.map(|object| object.metadata) else { return Ok(()) };
            let held = now.finalizers.unwrap_or_default();
            if now.uid.as_deref() != Some(&*identity.uid) || !held.iter().any(|held| held == finalizer) {
                return Ok(());
            }
            let left: Vec<&String> = held.iter().filter(|held| *held != finalizer).collect();
            let patch = json!({"metadata": {"resourceVersion": now.resource_version, "finalizers": left}});
            match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(Error::from) {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(()),
            }
        };
        Ok(retry_on_conflict(RetrySteps::BACKOFF, attempt).await?)
    }
}
