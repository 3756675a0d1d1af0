//! The writes of one run. Each is remembered with the version it returned, so that the next run for the same object begins
//! when the stores show it: no run decides on what an earlier one has changed (RS-3, RS-14).
//!
//! A deletion that takes time answers with the object as it is from then on, and counts like any other write.

use std::sync::Arc;

use client::controller::Writes;
use client::informer::SharedInformer;
use client::{Error, Key, Object, ResourceVersion};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::Value;

use super::claim::Namespaced;
use super::owners::{name, namespace, uid};

/// Follows the store of a kind, so that writes to it are waited for.
pub(crate) fn follow<K: Object + Resource<DynamicType = ()>>(writes: &Writes, informer: &SharedInformer<K>) {
    writes.follow(&K::plural(&()), informer.store());
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

    /// Creates an object in the namespace it says.
    pub(crate) async fn create<K: Namespaced>(&self, object: &K) -> Result<K, Error> {
        let created = self.api(object).create(&PostParams::default(), object).await?;
        Ok(self.wrote(created))
    }

    /// Writes an object whole, unless somebody else did meanwhile.
    pub(crate) async fn replace<K: Namespaced>(&self, mut object: K) -> Result<K, Error> {
        object.meta_mut().managed_fields = None;
        let written = self.api(&object).replace(name(&object), &PostParams::default(), &object).await?;
        Ok(self.wrote(written))
    }

    /// Writes the status of an object, unless somebody else wrote the object meanwhile.
    pub(crate) async fn replace_status<K: Namespaced>(&self, mut object: K) -> Result<K, Error> {
        object.meta_mut().managed_fields = None;
        let written = self.api(&object).replace_status(name(&object), &PostParams::default(), &object).await?;
        Ok(self.wrote(written))
    }

    /// Changes part of an object by a strategic merge.
    pub(crate) async fn patch<K: Namespaced>(&self, object: &K, patch: Value) -> Result<K, Error> {
        let patch = Patch::Strategic(patch);
        let written = self.api(object).patch(name(object), &PatchParams::default(), &patch).await?;
        Ok(self.wrote(written))
    }

    /// Deletes an object.
    pub(crate) async fn delete<K: Namespaced>(&self, object: &K, how: &DeleteParams) -> Result<(), Error> {
        if let Some(left) = self.api(object).delete(name(object), how).await?.left() {
            self.wrote(left);
        }
        Ok(())
    }

    /// The object as the server has it now.
    pub(crate) async fn read<K: Namespaced>(&self, object: &K) -> Result<Option<K>, Error> {
        Ok(self.api(object).get_opt(name(object)).await?)
    }

    /// Remembers what the server answered to a write.
    pub(crate) fn wrote<K: Namespaced>(&self, object: K) -> K {
        let version = object.meta().resource_version.clone().unwrap_or_default();
        self.writes.record(&self.key, &self.uid, &K::plural(&()), ResourceVersion::from(version));
        object
    }

    fn api<K: Namespaced>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace(object))
    }
}
