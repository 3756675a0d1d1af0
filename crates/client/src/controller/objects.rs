//! Common operations of controllers on objects: owners, finalizers, create-or-patch.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::Error;

/// An object has another controller already.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{object} is controlled by {kind} {name}")]
pub struct AlreadyOwned {
    /// The object.
    pub object: String,
    /// Its controller's kind.
    pub kind: String,
    /// Its controller's name.
    pub name: String,
}

/// Makes `owner` the controller of `object`. An object has at most one.
pub fn set_controller_reference<K: Resource>(owner: OwnerReference, object: &mut K) -> Result<(), AlreadyOwned> {
    let name = object.name_any();
    let owners = object.meta_mut().owner_references.get_or_insert_default();
    if let Some(other) = owners.iter().find(|o| o.controller == Some(true) && o.uid != owner.uid) {
        return Err(AlreadyOwned { object: name, kind: other.kind.clone(), name: other.name.clone() });
    }
    owners.retain(|o| o.uid != owner.uid);
    owners.push(OwnerReference { controller: Some(true), ..owner });
    Ok(())
}

/// The next step of a controller with a finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerStep {
    /// Add the finalizer and write the object before anything that needs cleaning up.
    AddFirst,
    /// Do the usual work.
    Work,
    /// Clean up, then remove the finalizer and write the object.
    CleanUp,
    /// The object is being deleted and this controller has nothing left to do.
    Leave,
}

/// Decides by the object's finalizers and deletion timestamp.
pub fn finalizer_step<K: Resource>(object: &K, finalizer: &str) -> FinalizerStep {
    let ours = object.finalizers().iter().any(|name| name == finalizer);
    match (object.meta().deletion_timestamp.is_some(), ours) {
        (false, false) => FinalizerStep::AddFirst,
        (false, true) => FinalizerStep::Work,
        (true, true) => FinalizerStep::CleanUp,
        (true, false) => FinalizerStep::Leave,
    }
}

/// Adds a finalizer; true if it was not there.
pub fn add_finalizer<K: Resource>(object: &mut K, finalizer: &str) -> bool {
    let finalizers = object.meta_mut().finalizers.get_or_insert_default();
    let missing = !finalizers.iter().any(|name| name == finalizer);
    if missing {
        finalizers.push(finalizer.to_owned());
    }
    missing
}

/// Removes a finalizer; true if it was there.
pub fn remove_finalizer<K: Resource>(object: &mut K, finalizer: &str) -> bool {
    let Some(finalizers) = &mut object.meta_mut().finalizers else { return false };
    let before = finalizers.len();
    finalizers.retain(|name| name != finalizer);
    finalizers.len() != before
}

/// Applies `mutate` to an object: creates it from `template` if it is absent, otherwise patches what changed. Writes nothing if
/// nothing changed. The caller retries conflicts.
pub async fn create_or_patch<K>(api: &Api<K>, template: K, mutate: impl FnOnce(&mut K)) -> Result<K, Error>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    let name = template.name_any();
    let Some(current) = api.get_opt(&name).await? else {
        let mut object = template;
        mutate(&mut object);
        return Ok(api.create(&PostParams::default(), &object).await?);
    };
    let mut wanted = current.clone();
    mutate(&mut wanted);
    let encode = |object: &K| {
        serde_json::to_value(object).map_err(|e| Error::Decode { what: "the object", message: e.to_string() })
    };
    let Some(mut patch) = merge_patch(&encode(&current)?, &encode(&wanted)?) else { return Ok(current) };
    // Without the version, the patch could undo a write in between.
    patch["metadata"]["resourceVersion"] = current.resource_version().into();
    Ok(api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?)
}

/// The merge patch (RFC 7396) from `from` to `to`; `None` if they are equal.
pub fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return Some(to.clone()) };
    let mut patch = Map::new();
    for (name, value) in to {
        match from.get(name) {
            None => {
                patch.insert(name.clone(), value.clone());
            }
            Some(old) => patch.extend(merge_patch(old, value).map(|inner| (name.clone(), inner))),
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}
