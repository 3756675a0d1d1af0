//! The admission chain: every plugin in order, and the phases of a write.
//!
//! ```text
//!   create, update   mutate ──► strategy and validation of the kind ──► validate ──► reserve quota ──► store
//!   delete           mutate ──► validate                                                          ──► store
//!   connect          mutate ──► validate                                                          ──► node
//! ```
//!
//! The first refusal ends a phase, and no later phase begins. Warnings that were collected by then are sent all the same.

use machinery::Status;
use machinery::json::Value;

use super::default_classes::{DefaultIngressClass, DefaultStorageClass};
use super::limit_ranger::LimitRanger;
use super::namespace_lifecycle::NamespaceLifecycle;
use super::plugin::{Attributes, Operation, Plugin, States};
use super::pod_security::PodSecurity;
use super::priority::Priority;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::static_defaults::StaticDefaults;
use super::volume_claim_resize::PersistentVolumeClaimResize;
use crate::reserve::Reservation;
use crate::reserve::quota::QuotaUse;
use crate::settings::Settings;
use crate::storage::Storage;

/// The plugins of a server.
pub(crate) struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Chain {
    /// The order is that of the reference (spec 06 §8), but for the plugins that need only the object itself: those are one
    /// here and run first, since none of the others looks at what they set.
    pub(crate) fn new(storage: &Storage, settings: &Settings) -> Self {
        let storage = || storage.clone();
        let plugins: Vec<Box<dyn Plugin>> = vec![
            Box::new(StaticDefaults),
            Box::new(NamespaceLifecycle::new(storage())),
            Box::new(LimitRanger::new(storage())),
            Box::new(ServiceAccount::new(storage(), settings.service_accounts)),
            Box::new(PodSecurity::new(storage())),
            Box::new(Priority::new(storage())),
            Box::new(DefaultStorageClass::new(storage())),
            Box::new(PersistentVolumeClaimResize::new(storage())),
            Box::new(RuntimeClass::new(storage())),
            Box::new(DefaultIngressClass::new(storage())),
            // MutatingAdmissionPolicy
            // MutatingAdmissionWebhook
            // ValidatingAdmissionPolicy
            // ValidatingAdmissionWebhook
            // ResourceQuota is `reserve_quota`, after all of them.
        ];
        Chain { plugins }
    }

    /// First phase: changes an object before it is validated, or refuses it.
    pub(crate) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        for plugin in self.concerned(attributes) {
            plugin.mutate(attributes, object, old).get().await.inspect_err(|status| log(plugin, status))?;
        }
        Ok(())
    }

    /// Second phase: refuses a write that is valid by the rules of its kind.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, states: States<'_>) -> Result<(), Status> {
        for plugin in self.concerned(attributes) {
            plugin.validate(attributes, states).get().await.inspect_err(|status| log(plugin, status))?;
        }
        Ok(())
    }

    /// Last phase: takes from the quotas of the namespace what a write that all others admit uses of them. A dry run only
    /// checks.
    pub(crate) async fn reserve_quota(
        &self,
        attributes: &Attributes<'_>,
        states: (Option<&Value>, &Value),
        reservation: &mut Reservation<'_>,
    ) -> Result<(), Status> {
        let (old, new) = states;
        let (target, subresource) = (attributes.target, attributes.subresource());
        let wanted = QuotaUse { target, subresource, old, new, dry_run: attributes.dry_run };
        reservation.reserve_quota(&wanted).await
    }

    /// Both phases for a request without a new object: the deletion of `old`.
    pub(crate) async fn admit_delete(&self, attributes: &Attributes<'_>, old: &Value) -> Result<(), Status> {
        debug_assert_eq!(attributes.operation, Operation::Delete);
        self.mutate(attributes, &mut Value::Null, Some(old)).await?;
        self.validate(attributes, States { old: Some(old), new: None }).await
    }

    /// Both phases for a connection with these options.
    pub(crate) async fn admit_connect(&self, attributes: &Attributes<'_>, mut options: Value) -> Result<(), Status> {
        debug_assert_eq!(attributes.operation, Operation::Connect);
        self.mutate(attributes, &mut options, None).await?;
        self.validate(attributes, States { old: None, new: Some(&options) }).await
    }

    fn concerned(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = &dyn Plugin> {
        self.plugins.iter().map(|plugin| &**plugin).filter(|plugin| plugin.concerns(attributes))
    }
}

fn log(plugin: &dyn Plugin, status: &Status) {
    tracing::debug!(plugin = plugin.name(), %status, "a write is refused");
}
