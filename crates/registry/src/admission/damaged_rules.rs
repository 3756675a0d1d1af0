//! Policies, bindings and webhook configurations that cannot be read.
//!
//! What such an object forbids or changes is not known, so the writes that it might apply to are refused until the store is
//! repaired. A genuine server does the same: its admission waits until every configuration was read.

use std::sync::Arc;

use cache::Collection;
use machinery::Status;

use super::plugin::Attributes;
use super::{policies, webhooks};
use crate::failure;
use crate::settings::Settings;
use crate::storage::Storage;

/// The kinds of rules, each with the plugin that applies them.
const POLICIES: [(&str, &str); 4] = [
    ("MutatingAdmissionPolicy", "admissionregistration.k8s.io/mutatingadmissionpolicies"),
    ("MutatingAdmissionPolicy", "admissionregistration.k8s.io/mutatingadmissionpolicybindings"),
    ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/validatingadmissionpolicies"),
    ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/validatingadmissionpolicybindings"),
];
const WEBHOOKS: [(&str, &str); 2] = [
    ("MutatingAdmissionWebhook", "admissionregistration.k8s.io/mutatingwebhookconfigurations"),
    ("ValidatingAdmissionWebhook", "admissionregistration.k8s.io/validatingwebhookconfigurations"),
];

/// The collections of the rules that are applied.
pub(super) struct DamagedRules {
    policies: Vec<Arc<Collection>>,
    webhooks: Vec<Arc<Collection>>,
}

impl DamagedRules {
    pub(super) fn new(storage: &Storage, settings: &Settings) -> Self {
        let applied = |kinds: &[(&str, &str)]| {
            let on = kinds.iter().filter(|(plugin, _)| settings.plugins.includes(plugin));
            on.map(|(_, collection)| storage.cache().collection(collection)).collect()
        };
        DamagedRules { policies: applied(&POLICIES), webhooks: applied(&WEBHOOKS) }
    }

    /// Fails if a rule that may apply to a request cannot be read. Every write asks: without damage it costs six locks.
    pub(super) fn refuse(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        refuse(&self.policies, || policies::is_exempt(attributes))?;
        refuse(&self.webhooks, || webhooks::is_exempt(attributes))
    }
}

fn refuse(rules: &[Arc<Collection>], is_exempt: impl Fn() -> bool) -> Result<(), Status> {
    match rules.iter().find_map(|collection| collection.damaged_in(None)) {
        Some(rule) if !is_exempt() => Err(failure::damaged(&rule)),
        _ => Ok(()),
    }
}
