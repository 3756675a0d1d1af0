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
    /// The order is that of the reference, except that the plugins that need nothing but the object are one plugin here, which
    /// runs first.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machinery::json::json;
    use parking_lot::Mutex;

    use super::super::plugin::{Decision, Options};
    use super::*;
    use crate::request::{Context, Target};

    type Calls = Arc<Mutex<Vec<String>>>;

    /// Records its calls, and refuses in one phase.
    struct Recorder {
        name: &'static str,
        refuses: Option<&'static str>,
        calls: Calls,
    }

    impl Recorder {
        fn decide(&self, phase: &'static str, states: States<'_>) -> Decision<'static> {
            let text = |value: Option<&Value>| value.map_or_else(|| "-".to_owned(), ToString::to_string);
            self.calls.lock().push(format!("{} {phase} {} {}", self.name, text(states.old), text(states.new)));
            let refused = self.refuses == Some(phase);
            Decision::later(async move {
                tokio::task::yield_now().await;
                if refused { Err(Status::bad_request(phase)) } else { Ok(()) }
            })
        }
    }

    impl Plugin for Recorder {
        fn name(&self) -> &'static str {
            self.name
        }

        fn concerns(&self, attributes: &Attributes<'_>) -> bool {
            attributes.operation != Operation::Update
        }

        fn mutate<'a>(&'a self, _: &'a Attributes<'a>, object: &'a mut Value, old: Option<&'a Value>) -> Decision<'a> {
            if object.is_object() {
                object[self.name] = json!(1);
            }
            self.decide(
                "mutate",
                States { old, new: Some(object).filter(|object| object.is_object()).map(|object| &*object) },
            )
        }

        fn validate<'a>(&'a self, _: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
            self.decide("validate", states)
        }
    }

    fn chain(refuses: Option<&'static str>) -> (Chain, Calls) {
        let calls = Calls::default();
        let plugin = |name, refuses| Box::new(Recorder { name, refuses, calls: Arc::clone(&calls) }) as Box<dyn Plugin>;
        (Chain { plugins: vec![plugin("a", refuses), plugin("b", None)] }, calls)
    }

    fn pod(subresource: Option<&str>) -> Target {
        let kind = Arc::clone(crate::kinds::builtin().get("", "v1", "pods").unwrap());
        Target {
            kind,
            namespace: Some("default".to_owned()),
            name: Some("p".to_owned()),
            subresource: subresource.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn plugins_run_in_order_in_each_phase() {
        let (chain, calls) = chain(None);
        let (target, ctx, mut object) = (pod(None), Context::default(), json!({}));
        let create = Attributes::new(Operation::Create, &target, Options::None, &ctx);
        chain.mutate(&create, &mut object, None).await.unwrap();
        chain.validate(&create, States { old: None, new: Some(&object) }).await.unwrap();
        let expected = [
            r#"a mutate - {"a":1}"#,
            r#"b mutate - {"a":1,"b":1}"#,
            r#"a validate - {"a":1,"b":1}"#,
            r#"b validate - {"a":1,"b":1}"#,
        ];
        assert_eq!(*calls.lock(), expected);
        calls.lock().clear();
        let update = Attributes { operation: Operation::Update, ..create };
        chain.mutate(&update, &mut object, Some(&json!({}))).await.unwrap();
        assert!(calls.lock().is_empty(), "plugins that are not concerned are not called");
    }

    #[tokio::test]
    async fn a_refusal_ends_its_phase_and_all_later_ones() {
        let (target, ctx) = (pod(None), Context::default());
        let delete = Attributes::new(Operation::Delete, &target, Options::None, &ctx);
        for (refuses, expected) in [
            ("mutate", &["a mutate {} -"][..]),
            ("validate", &["a mutate {} -", "b mutate {} -", "a validate {} -"][..]),
        ] {
            let (chain, calls) = chain(Some(refuses));
            assert_eq!(chain.admit_delete(&delete, &json!({})).await.unwrap_err().message, refuses);
            assert_eq!(*calls.lock(), expected);
        }
    }

    #[tokio::test]
    async fn connections_have_their_options_as_object() {
        let (chain, calls) = chain(None);
        let (target, ctx) = (pod(Some("exec")), Context::default());
        let connect = Attributes::new(Operation::Connect, &target, Options::None, &ctx);
        chain.admit_connect(&connect, json!({"kind": "PodExecOptions"})).await.unwrap();
        let options = r#"{"kind":"PodExecOptions","a":1,"b":1}"#;
        assert_eq!(calls.lock()[3], format!("b validate - {options}"));
    }
}
