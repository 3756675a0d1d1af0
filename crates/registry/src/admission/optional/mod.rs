//! Plugins that run only where they are enabled.
//!
//! - `pods`: AlwaysPullImages, PodNodeSelector, ExtendedResourceToleration, LimitPodHardAntiAffinityTopology
//! - `owners`: OwnerReferencesPermissionEnforcement
//! - here, those of a few lines: DenyServiceExternalIPs, NamespaceExists, AlwaysAdmit, AlwaysDeny

mod owners;
mod pods;

use std::sync::Arc;

use machinery::json::Value;
use machinery::{GroupResource, Status};

use super::plugin::{Attributes, Decision, Operation, Options, Plugin, States};
use crate::collections::{NAMESPACES, SERVICES};
use crate::kinds::definitions::Definitions;
use crate::settings::Settings;
use crate::storage::Storage;

/// The plugins among these that are enabled.
pub(super) fn plugins(storage: &Storage, settings: &Settings, definitions: &Arc<Definitions>) -> Vec<Box<dyn Plugin>> {
    let mut plugins: Vec<Box<dyn Plugin>> = vec![
        Box::new(AlwaysAdmit),
        Box::new(NamespaceExists { storage: storage.clone() }),
        Box::new(pods::LimitPodHardAntiAffinityTopology),
        Box::new(pods::AlwaysPullImages),
        Box::new(pods::PodNodeSelector::new(storage.clone())),
        Box::new(pods::ExtendedResourceToleration),
        Box::new(owners::OwnerReferences::new(Arc::clone(&settings.authorizer), Arc::clone(definitions))),
        Box::new(DenyServiceExternalIPs),
        Box::new(AlwaysDeny),
    ];
    plugins.retain(|plugin| settings.plugins.includes(plugin.name()));
    plugins
}

/// Admits everything.
struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn concerns(&self, _: &Attributes<'_>) -> bool {
        false
    }
}

/// Refuses every write.
struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        // What the server writes of its own has no options.
        !matches!(attributes.options, Options::None)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let shown = states.new.or(states.old).unwrap_or(&Value::Null);
        Decision::Now(Err(attributes.forbidden(shown, "admission control is denying all modifications")))
    }
}

/// Refuses new external addresses of Services.
struct DenyServiceExternalIPs;

impl DenyServiceExternalIPs {
    fn check(attributes: &Attributes<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let addresses = |of: &Value| of["spec"]["externalIPs"].as_array().cloned().unwrap_or_default();
        let known = old.map(addresses).unwrap_or_default();
        if addresses(new).iter().all(|address| known.contains(address)) {
            return Ok(());
        }
        Err(attributes.forbidden(new, "Use of external IPs is denied by admission control"))
    }
}

impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, SERVICES) || attributes.writes(Operation::Update, SERVICES)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        Decision::Now(states.new.map_or(Ok(()), |new| Self::check(attributes, states.old, new)))
    }
}

/// Refuses writes to a namespace that does not exist.
struct NamespaceExists {
    storage: Storage,
}

impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Connect && attributes.target.kind.namespaced
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, _: States<'a>) -> Decision<'a> {
        Decision::later(async move {
            let namespace = attributes.target.namespace.as_deref().unwrap_or_default();
            match self.storage.current_named(NAMESPACES, None, namespace).await? {
                Some(_) => Ok(()),
                None => Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace)),
            }
        })
    }
}
