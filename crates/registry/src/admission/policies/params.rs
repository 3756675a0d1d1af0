//! The params of a binding, read from the cache: as new as every write that was answered.

use std::sync::Arc;

use machinery::json::Value;
use schema::kind::Kind;
use schema::kinds::Kinds;

use super::compiled::{Binding, ParamKind, ParamRef, Policy, Selected};
use crate::read::view;
use crate::storage::Storage;

/// One param, with the namespace and name that identify it.
#[derive(Clone, Debug, Default)]
pub(super) struct Param {
    pub(super) id: String,
    /// Null if the binding has no params.
    pub(super) value: Value,
}

impl ParamKind {
    /// The served kind, or the error for a kind that is not served.
    pub(super) fn find(&self, kinds: &Kinds) -> Result<Arc<Kind>, String> {
        let found = kinds.by_kind(&self.version.group, &self.version.version, &self.kind);
        let is_named = found.filter(|kind| kind.stored());
        is_named.cloned().ok_or_else(|| {
            let (group, version) = (&self.version.group, &self.version.version);
            format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'", self.kind)
        })
    }
}

/// The params of a policy under a binding, in the order of their names. Without any, the binding does nothing.
pub(super) fn collect(
    storage: &Storage,
    kind: Option<&Arc<Kind>>,
    (policy, binding): (&Policy, &Binding),
    namespace: &str,
) -> Result<Vec<Param>, String> {
    let (Some(_), Some(kind), Some(reference)) = (&policy.param_kind, kind, &binding.params) else {
        return Ok(vec![Param::default()]);
    };
    let namespace = place(kind, reference, namespace)?;
    let found = match &reference.selected {
        Selected::Name(name) => {
            let found = storage.cached_readable(&kind.collection, namespace, name).map_err(|status| status.message)?;
            found.into_iter().collect()
        }
        Selected::Selector(selector) => {
            storage.refuse_damaged(&kind.collection, namespace).map_err(|status| status.message)?;
            let collection = storage.cache().collection(&kind.collection);
            let snapshot = storage.cache().snapshot(&collection);
            let items = snapshot.scan(collection.name(), namespace, None);
            items.filter(|item| selector.matches_sorted(item.labels())).cloned().collect::<Vec<_>>()
        }
    };
    if found.is_empty() && reference.required {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let param = |item: Arc<cache::Item>| {
        let value = view::value(kind, &item).map_err(|status| status.message)?;
        Ok(Param { id: format!("{}/{}", item.namespace(), item.name()), value })
    };
    found.into_iter().map(param).collect()
}

/// The namespace of the params; none for kinds without one.
fn place<'a>(kind: &Kind, reference: &'a ParamRef, namespace: &'a str) -> Result<Option<&'a str>, String> {
    match (kind.namespaced, reference.namespace.as_str(), namespace) {
        (false, "", _) => Ok(None),
        (false, ..) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()),
        (true, "", "") => {
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned())
        }
        (true, "", namespace) => Ok(Some(namespace)),
        (true, own, _) => Ok(Some(own)),
    }
}
