//! What other objects say about a write: whether it may be made, and what it gets from them.
//!
//! One file a question, in the order they are asked:
//!
//! - `namespaces`: is the namespace there, and not ending; which names may not go
//! - `limit_ranges`: what containers and claims get and may ask for
//! - `service_accounts`: which account a pod runs as, and its token
//! - `pod_security`: what a namespace allows its pods
//! - `priority`, `runtime_class`: what a pod gets from the classes it names
//! - `default_class`: the class of claims and ingresses that name none
//! - `claim_resize`: whether a claim may grow
//! - `certificates`: who asks for a certificate
//!
//! Each looks at its own small collection first (a lock and a
//! length): a cluster without limits, quotas and labels pays nothing for them.

mod certificates;
mod claim_resize;
mod default_class;
mod limit_ranges;
mod namespaces;
mod pod_security;
mod priority;
mod runtime_class;
mod service_accounts;

use machinery::Status;
use machinery::json::Value;

use crate::registry::Registry;
use crate::request::{Context, Target};

impl Registry {
    /// Changes a new object before it is validated, or refuses it.
    pub(crate) async fn admit_create(&self, target: &Target, object: &mut Value, ctx: &Context) -> Result<(), Status> {
        if let Some(namespace) = target.namespace.as_deref().filter(|_| target.kind.namespaced) {
            self.admit_into_namespace(target, object, namespace).await?;
        }
        match target.kind.collection.as_str() {
            "core/pods" => {
                self.fill_from_limit_ranges(target, object);
                self.find_service_account(target, object).await?;
                self.resolve_priority(target, object).await?;
                self.find_runtime_class(target, object).await?;
            }
            "core/persistentvolumeclaims" => self.choose_storage_class(object),
            "networking.k8s.io/ingresses" => self.choose_ingress_class(object),
            "certificates.k8s.io/certificatesigningrequests" => certificates::sign_with(object, ctx),
            _ => {}
        }
        Ok(())
    }

    /// Looks at a new object that is valid. What it takes from quotas is the caller's next question.
    pub(crate) fn approve_create(&self, target: &Target, object: &Value, ctx: &Context) -> Result<(), Status> {
        match target.kind.collection.as_str() {
            "core/pods" => {
                self.check_limit_ranges(target, object)?;
                self.check_pod_security(target, None, object, ctx)
            }
            "core/persistentvolumeclaims" => self.check_limit_ranges(target, object),
            "core/namespaces" => self.check_security_labels(target, None, object, ctx),
            _ => self.check_pod_security(target, None, object, ctx),
        }
    }

    /// Looks at the next state of an object that is valid, through whichever subresource.
    pub(crate) fn approve_update(
        &self,
        target: &Target,
        subresource: Option<&str>,
        old: &Value,
        new: &Value,
        ctx: &Context,
    ) -> Result<(), Status> {
        match (target.kind.collection.as_str(), subresource) {
            ("core/pods", Some("resize")) => {
                if !crate::meta::is_deleting(old) {
                    self.check_limit_ranges(target, new)?;
                }
                self.check_pod_security(target, Some(old), new, ctx)
            }
            ("core/pods", None | Some("ephemeralcontainers")) => self.check_pod_security(target, Some(old), new, ctx),
            (_, Some(_)) => Ok(()),
            ("core/persistentvolumeclaims", None) => {
                self.check_claim_resize(target, old, new)?;
                if crate::meta::is_deleting(old) { Ok(()) } else { self.check_limit_ranges(target, new) }
            }
            ("core/namespaces", None) => self.check_security_labels(target, Some(old), new, ctx),
            (_, None) => self.check_pod_security(target, Some(old), new, ctx),
        }
    }
}

/// Several objections as one text.
fn joined(mut whys: Vec<String>) -> Option<String> {
    let mut seen = std::collections::HashSet::new();
    whys.retain(|why| seen.insert(why.clone()));
    match whys.len() {
        0 => None,
        1 => whys.pop(),
        _ => Some(format!("[{}]", whys.join(", "))),
    }
}
