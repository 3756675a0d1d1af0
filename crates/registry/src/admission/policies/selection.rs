//! Which policies, bindings and params apply to a request, in the order of their names.

use std::sync::Arc;

use machinery::json::{Map, Value};
use machinery::{GroupVersionKind, Status};

use super::super::matching::{Index, Matched, Unmatched};
use super::super::plugin::{Attributes, States};
use super::Policies;
use super::compiled::{Binding, Policy};
use super::params::{self, Param};
use super::table::Bound;
use crate::collections::NAMESPACES;
use crate::read::view;

/// A policy under one of its bindings, for one request.
pub(super) struct Invocation {
    pub(super) policy: Arc<Policy>,
    pub(super) binding: Arc<Binding>,
    pub(super) matched: Arc<Matched>,
    /// Empty if the binding has nothing to do.
    pub(super) params: Vec<Param>,
}

/// The objects of a request by the version that rules name; usually one.
#[derive(Default)]
pub(super) struct ShownStates(Vec<(GroupVersionKind, Option<Value>, Option<Value>)>);

impl ShownStates {
    /// The objects in the version that a rule names, made on first use.
    pub(super) async fn get<'s>(
        &'s mut self,
        policies: &Policies,
        attributes: &Attributes<'_>,
        matched: &Matched,
        states: States<'_>,
    ) -> Result<States<'s>, Status> {
        let gvk = matched.kind(attributes);
        let at = match self.0.iter().position(|(known, ..)| known == gvk) {
            Some(at) => at,
            None => {
                let (old, new) = policies.versions.shown(attributes, matched, states).await?;
                self.0.push((gvk.clone(), old, new));
                self.0.len() - 1
            }
        };
        let found = self.0.get(at);
        let (old, new) = found.map_or((None, None), |(_, old, new)| (old.as_ref(), new.as_ref()));
        Ok(States::new(old, new))
    }
}

/// A policy or binding that cannot be used.
pub(super) struct Misconfigured {
    pub(super) policy: Arc<Policy>,
    pub(super) binding: Option<Arc<Binding>>,
    pub(super) why: String,
}

impl Misconfigured {
    /// Why, as refusals show it.
    pub(super) fn text(&self) -> String {
        let what = if self.binding.is_some() { "binding" } else { "policy" };
        format!("failed to configure {what}: {}", self.why)
    }
}

/// One step of looking at a policy.
pub(super) enum Found {
    Applies(Invocation),
    Misconfigured(Misconfigured),
    Unmatched(Arc<Policy>, Option<Arc<Binding>>, Unmatched),
}

impl Policies {
    /// Looks at all policies that may apply to a request.
    pub(super) async fn select(
        &self,
        index: &Index<Bound>,
        attributes: &Attributes<'_>,
        states: States<'_>,
    ) -> Vec<Found> {
        let mut all = Vec::new();
        for bound in index.candidates(attributes) {
            self.select_bound(&bound, attributes, states, &mut all).await;
        }
        all
    }

    async fn select_bound(&self, bound: &Bound, attributes: &Attributes<'_>, states: States<'_>, all: &mut Vec<Found>) {
        let policy = || Arc::clone(&bound.policy);
        let misconfigured = |binding: Option<&Arc<Binding>>, why: String| {
            Found::Misconfigured(Misconfigured { policy: policy(), binding: binding.cloned(), why })
        };
        let matched = match self.matcher.find(&bound.policy.criteria, attributes, states).await {
            Err(status) => return all.push(misconfigured(None, status.message)),
            Ok(Err(why)) => return all.push(Found::Unmatched(policy(), None, why)),
            Ok(Ok(matched)) => Arc::new(matched),
        };
        let kind = bound.policy.param_kind.as_ref().map(|kind| kind.find(&self.matcher.kinds())).transpose();
        let kind = match kind {
            Ok(kind) => kind,
            Err(why) => return all.push(misconfigured(None, why)),
        };
        for binding in &bound.bindings {
            if let Some(criteria) = &binding.criteria {
                match self.matcher.find(criteria, attributes, states).await {
                    Err(status) => {
                        all.push(misconfigured(Some(binding), status.message));
                        continue;
                    }
                    Ok(Err(why)) => {
                        all.push(Found::Unmatched(policy(), Some(Arc::clone(binding)), why));
                        continue;
                    }
                    Ok(Ok(_)) => {}
                }
            }
            let of = (&*bound.policy, &**binding);
            all.push(match params::collect(&self.storage, kind.as_ref(), of, attributes.namespace()) {
                Err(why) => misconfigured(Some(binding), why),
                Ok(params) => Found::Applies(Invocation {
                    policy: policy(),
                    binding: Arc::clone(binding),
                    matched: Arc::clone(&matched),
                    params,
                }),
            });
        }
    }

    /// The namespace of a request as expressions see it; null for requests without one, and for namespaces themselves.
    pub(super) async fn namespace(&self, attributes: &Attributes<'_>) -> Result<Value, Status> {
        let name = attributes.namespace();
        if name.is_empty() || attributes.target.kind.collection == NAMESPACES {
            return Ok(Value::Null);
        }
        match self.storage.current_named(NAMESPACES, None, name).await? {
            Some(item) => Ok(shown_namespace(&view::parse(&item)?)),
            None => Err(Status::not_found(&machinery::GroupResource::new("", "namespaces"), name)),
        }
    }
}

/// The members of a namespace that expressions can read.
fn shown_namespace(namespace: &Value) -> Value {
    const HIDDEN: [&str; 3] = ["managedFields", "ownerReferences", "selfLink"];
    let mut metadata = namespace["metadata"].as_object().cloned().unwrap_or_default();
    for member in HIDDEN {
        metadata.shift_remove(member);
    }
    let mut shown = Map::new();
    shown.insert("metadata", metadata.into());
    shown.insert("spec", namespace["spec"].clone());
    shown.insert("status", namespace["status"].clone());
    shown.into()
}
