//! Which admission plugins run: those that are on by default, and the choice of the operator.

use std::collections::BTreeSet;

/// When a plugin runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Default,
    Enabled,
    /// It has nothing to do here: what it is about is not served.
    Inactive,
    /// Known by name, but not provided.
    Missing,
}

/// Every plugin of the reference, in its order.
const PLUGINS: [(&str, Use); 41] = [
    ("AlwaysAdmit", Use::Enabled),
    ("NamespaceAutoProvision", Use::Missing),
    ("NamespaceLifecycle", Use::Default),
    ("NamespaceExists", Use::Enabled),
    ("LimitPodHardAntiAffinityTopology", Use::Enabled),
    ("LimitRanger", Use::Default),
    ("ServiceAccount", Use::Default),
    ("NodeRestriction", Use::Enabled),
    ("TaintNodesByCondition", Use::Default),
    ("AlwaysPullImages", Use::Enabled),
    ("ImagePolicyWebhook", Use::Missing),
    ("PodSecurity", Use::Default),
    ("PodNodeSelector", Use::Enabled),
    ("Priority", Use::Default),
    ("DefaultTolerationSeconds", Use::Default),
    ("PodTolerationRestriction", Use::Missing),
    ("EventRateLimit", Use::Missing),
    ("ExtendedResourceToleration", Use::Enabled),
    ("DefaultStorageClass", Use::Default),
    ("StorageObjectInUseProtection", Use::Default),
    ("PodGroupProtection", Use::Inactive),
    ("OwnerReferencesPermissionEnforcement", Use::Enabled),
    ("PersistentVolumeClaimResize", Use::Default),
    ("RuntimeClass", Use::Default),
    ("CertificateApproval", Use::Default),
    ("CertificateSigning", Use::Default),
    ("ClusterTrustBundleAttest", Use::Inactive),
    ("CertificateSubjectRestriction", Use::Default),
    ("DefaultIngressClass", Use::Default),
    ("DenyServiceExternalIPs", Use::Enabled),
    ("PodTopologyLabels", Use::Default),
    ("PodGroupWorkloadExists", Use::Inactive),
    ("NodeDeclaredFeatureValidator", Use::Default),
    ("JobValidation", Use::Inactive),
    ("PodResizeValidator", Use::Default),
    ("MutatingAdmissionPolicy", Use::Default),
    ("MutatingAdmissionWebhook", Use::Default),
    ("ValidatingAdmissionPolicy", Use::Default),
    ("ValidatingAdmissionWebhook", Use::Default),
    ("ResourceQuota", Use::Default),
    ("AlwaysDeny", Use::Enabled),
];

/// The place of a plugin in the order of the reference.
pub(crate) fn position(plugin: &str) -> usize {
    PLUGINS.iter().position(|(name, _)| *name == plugin).unwrap_or(PLUGINS.len())
}

/// The operator's choice of plugins, beside those that are on by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSelection {
    pub enabled: BTreeSet<String>,
    pub disabled: BTreeSet<String>,
}

impl PluginSelection {
    /// Checks the names of plugins; an error is one sentence about the first that is wrong.
    pub fn new<S: AsRef<str>>(enabled: &[S], disabled: &[S]) -> Result<Self, String> {
        let names = |given: &[S]| -> BTreeSet<String> {
            let names = given.iter().map(|name| name.as_ref().trim()).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let selection = PluginSelection { enabled: names(enabled), disabled: names(disabled) };
        for name in selection.enabled.union(&selection.disabled) {
            match PLUGINS.iter().find(|(known, _)| known == name) {
                None => {
                    let known: Vec<&str> = PLUGINS.iter().map(|(name, _)| *name).collect();
                    return Err(format!("there is no admission plugin {name:?}; there are: {}", known.join(", ")));
                }
                Some((_, Use::Missing)) if selection.enabled.contains(name) => {
                    return Err(format!("the admission plugin {name} is not provided"));
                }
                Some(_) => {}
            }
        }
        match selection.enabled.intersection(&selection.disabled).next() {
            Some(name) => Err(format!("the admission plugin {name} is both enabled and disabled")),
            None => Ok(selection),
        }
    }

    /// The same choice with one more plugin, unless the operator has disabled it.
    #[must_use]
    pub fn with(mut self, plugin: &str) -> Self {
        if !self.disabled.contains(plugin) {
            self.enabled.insert(plugin.to_owned());
        }
        self
    }

    /// Whether a plugin runs.
    #[must_use]
    pub fn includes(&self, plugin: &str) -> bool {
        if self.disabled.contains(plugin) {
            return false;
        }
        let by_default = PLUGINS.iter().any(|(name, by)| *name == plugin && *by == Use::Default);
        by_default || self.enabled.contains(plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_chosen_by_name() {
        let none = PluginSelection::default();
        assert!(none.includes("ServiceAccount") && !none.includes("NodeRestriction") && !none.includes("AlwaysDeny"));
        let chosen = PluginSelection::new(&["NodeRestriction", " AlwaysPullImages"], &["ServiceAccount"]).unwrap();
        assert!(chosen.includes("NodeRestriction") && chosen.includes("AlwaysPullImages"));
        assert!(!chosen.includes("ServiceAccount"));
        assert!(none.with("NodeRestriction").includes("NodeRestriction"));
        let disabled = PluginSelection::new(&[], &["NodeRestriction"]).unwrap();
        assert!(!disabled.with("NodeRestriction").includes("NodeRestriction"));
    }

    #[test]
    fn wrong_names_are_refused() {
        let refused = |enabled: &[&str], disabled: &[&str]| PluginSelection::new(enabled, disabled).unwrap_err();
        assert!(refused(&["Nope"], &[]).starts_with("there is no admission plugin \"Nope\"; there are: AlwaysAdmit,"));
        assert!(refused(&[], &["Nope"]).starts_with("there is no admission plugin \"Nope\""));
        assert_eq!(refused(&["ImagePolicyWebhook"], &[]), "the admission plugin ImagePolicyWebhook is not provided");
        let both = refused(&["NodeRestriction"], &["NodeRestriction"]);
        assert_eq!(both, "the admission plugin NodeRestriction is both enabled and disabled");
        assert!(PluginSelection::new(&[], &["ImagePolicyWebhook"]).is_ok(), "what never runs may be disabled");
    }
}
