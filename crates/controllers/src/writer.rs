//! The writes of one run. Each is recorded with the version it returned, so that the next run for the same object starts
//! when the stores show it: no run decides on a state that an earlier one has changed (RS-3, RS-14).
//!
//! The response to a deletion that waits for finalizers or a grace period is the object with its deletion timestamp: recorded
//! like any other write.

use std::fmt::Debug;
use std::sync::Arc;

use client::controller::Writes;
use client::{Error, Key, ResourceVersion};
use k8s_openapi::NamespaceResourceScope;
use kube::api::DeleteParams;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::owners::{name, namespace, uid};
use crate::requests::{Api, Form};

/// A kind whose objects have a namespace and can be read and written.
pub(crate) trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Writes on behalf of one object.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    writes: Arc<Writes>,
    key: Key,
    uid: String,
}

impl Writer {
    /// For a run of this object.
    pub(crate) fn new<O: Resource>(client: &Client, writes: &Arc<Writes>, object: &O) -> Self {
        let (client, writes) = (client.clone(), writes.clone());
        Self { client, writes, key: Key::of(object), uid: uid(object).to_owned() }
    }

    /// Creates an object in the namespace that its metadata has.
    pub(crate) async fn create<K: Namespaced>(&self, object: &K) -> Result<K, Error> {
        let created = self.api(object).create(object).await?;
        Ok(self.wrote(created))
    }

    /// Writes a whole object, unless it changed since it was read.
    pub(crate) async fn replace<K: Namespaced>(&self, mut object: K) -> Result<K, Error> {
        object.meta_mut().managed_fields = None;
        let written = self.api(&object).replace(&object).await?;
        Ok(self.wrote(written))
    }

    /// Writes the status of an object, unless the object changed since it was read.
    pub(crate) async fn replace_status<K: Namespaced>(&self, mut object: K) -> Result<K, Error> {
        object.meta_mut().managed_fields = None;
        let written = self.api(&object).replace_status(&object).await?;
        Ok(self.wrote(written))
    }

    /// Changes part of an object by a strategic merge.
    pub(crate) async fn patch<K: Namespaced>(&self, object: &K, patch: Value) -> Result<K, Error> {
        let written = self.api(object).patch(name(object), Form::Strategic, &patch).await?;
        Ok(self.wrote(written))
    }

    pub(crate) async fn delete<K: Namespaced>(&self, object: &K, params: &DeleteParams) -> Result<(), Error> {
        if let Some(version) = self.api(object).delete(name(object), params).await? {
            self.record::<K>(version);
        }
        Ok(())
    }

    /// Returns the object as the server has it now.
    pub(crate) async fn read<K: Namespaced>(&self, object: &K) -> Result<Option<K>, Error> {
        self.api(object).get(name(object)).await
    }

    /// Records the response to a write.
    pub(crate) fn wrote<K: Namespaced>(&self, object: K) -> K {
        self.record::<K>(object.meta().resource_version.clone().unwrap_or_default());
        object
    }

    fn record<K: Namespaced>(&self, version: String) {
        self.writes.record(&self.key, &self.uid, &K::plural(&()), ResourceVersion::from(version));
    }

    fn api<K: Namespaced>(&self, object: &K) -> Api<K> {
        Api::namespaced(&self.client, namespace(object))
    }
}
