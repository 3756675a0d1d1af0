//! The admission chain: every plugin in order, and the phases of a write.
//!
//! ```text
//!   create, update   mutate ──► strategy and validation of the kind ──► validate ──► reserve quota ──► store
//!   delete           mutate ──► validate                                                          ──► store
//!   connect          mutate ──► validate                                                          ──► node
//! ```
//!
//! The mutating phase has a second round if a policy or webhook changed the object. The first refusal ends a phase, and no later
//! phase begins. Warnings that were collected by then are sent all the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::Clock;
use machinery::Status;
use machinery::json::Value;

use super::bound_pods::{NodeDeclaredFeatureValidator, PodResizeValidator, PodTopologyLabels};
use super::certificates::{CertificateApproval, CertificateSigning, CertificateSubjectRestriction};
use super::changes::Changes;
use super::damaged_rules::DamagedRules;
use super::default_classes::{DefaultIngressClass, DefaultStorageClass};
use super::limit_ranger::LimitRanger;
use super::namespace_lifecycle::NamespaceLifecycle;
use super::node_restriction::NodeRestriction;
use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use super::pod_security::PodSecurity;
use super::policies::Policies;
use super::priority::Priority;
use super::rounds::Rounds;
use super::runtime_class::RuntimeClass;
use super::selection;
use super::service_account::ServiceAccount;
use super::static_defaults::{DefaultTolerationSeconds, StorageObjectInUseProtection, TaintNodesByCondition};
use super::step_metrics::Timer;
use super::trace::{Phase, Step, Verdict, difference};
use super::volume_claim_resize::PersistentVolumeClaimResize;
use super::webhooks::Webhooks;
use crate::kinds::definitions::Definitions;
use crate::meta;
use crate::read::view::Outcome;
use crate::request::Target;
use crate::reserve::Reservation;
use crate::reserve::quota::QuotaUse;
use crate::settings::Settings;
use crate::storage::Storage;

/// The plugins, policies and webhooks of a server.
pub(crate) struct Chain {
    /// Each with its times.
    plugins: Vec<(Box<dyn Plugin>, Timer)>,
    phases: Timer,
    policies: Option<Policies>,
    webhooks: Option<Webhooks>,
    damaged_rules: Option<DamagedRules>,
    /// Whether both kinds of webhooks are on.
    mutates: bool,
    validates: bool,
    quota: bool,
    /// Whether policies and webhooks become owners of what they set.
    owned: bool,
    clock: Clock,
}

impl Chain {
    /// The order is that of the reference.
    pub(crate) fn new(
        storage: &Storage,
        settings: &Settings,
        policies: Policies,
        webhooks: Webhooks,
        definitions: &Arc<Definitions>,
    ) -> Self {
        let damaged_rules = Some(DamagedRules::new(storage, settings));
        let storage = || storage.clone();
        let authorizer = || Arc::clone(&settings.authorizer);
        let mut plugins: Vec<Box<dyn Plugin>> = vec![
            Box::new(NamespaceLifecycle::new(storage())),
            Box::new(LimitRanger::new(storage())),
            Box::new(ServiceAccount::new(storage(), settings.service_accounts)),
            Box::new(NodeRestriction::new(storage(), authorizer())),
            Box::new(TaintNodesByCondition),
            Box::new(PodSecurity::new(storage(), settings.pod_security.clone(), settings.pod_security_metrics.clone())),
            Box::new(Priority::new(storage())),
            Box::new(DefaultTolerationSeconds),
            Box::new(DefaultStorageClass::new(storage())),
            Box::new(StorageObjectInUseProtection),
            Box::new(PersistentVolumeClaimResize::new(storage())),
            Box::new(RuntimeClass::new(storage())),
            Box::new(CertificateApproval::new(authorizer())),
            Box::new(CertificateSigning::new(authorizer())),
            Box::new(CertificateSubjectRestriction),
            Box::new(DefaultIngressClass::new(storage())),
            Box::new(PodTopologyLabels::new(storage())),
            Box::new(NodeDeclaredFeatureValidator::new(storage())),
            Box::new(PodResizeValidator::new(storage())),
            // Policies and webhooks follow, which are apart from plugins because they have rounds.
            // ResourceQuota is `reserve_quota`, after all of them.
        ];
        plugins.retain(|plugin| settings.plugins.includes(plugin.name()));
        plugins.extend(super::optional::plugins(&storage(), settings, definitions));
        plugins.sort_by_key(|plugin| selection::position(plugin.name()));
        let metrics = settings.webhook_metrics.steps();
        let timed = |plugin: Box<dyn Plugin>| {
            let timer = Timer::of_plugin(metrics, plugin.name());
            (plugin, timer)
        };
        Chain {
            plugins: plugins.into_iter().map(timed).collect(),
            phases: Timer::of_phases(metrics),
            policies: Some(policies),
            webhooks: Some(webhooks),
            damaged_rules,
            mutates: settings.plugins.includes("MutatingAdmissionWebhook"),
            validates: settings.plugins.includes("ValidatingAdmissionWebhook"),
            quota: settings.plugins.includes("ResourceQuota"),
            owned: settings.own_mutations,
            clock: settings.clock.clone(),
        }
    }

    /// First phase: changes an object before it is validated, or refuses it. Returns what policies and webhooks changed.
    pub(crate) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Changes, Status> {
        let began = Instant::now();
        let admitted = self.run_mutating(attributes, object, old, 1).await;
        let mut changes = admitted.and_then(|()| self.refuse_damaged_rules(attributes)).map(|()| Changes::default());
        if changes.is_ok() && self.may_mutate(attributes) {
            // Cold: a write that nothing matches does not carry the state of this.
            changes = Box::pin(self.mutate_dynamically(attributes, object, old)).await;
        }
        self.phases.observe(Phase::Mutate, attributes.operation, changes.is_err(), began.elapsed());
        changes
    }

    /// Fails if a policy or webhook that cannot be read may apply to this request.
    pub(crate) fn refuse_damaged_rules(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        self.damaged_rules.as_ref().map_or(Ok(()), |rules| rules.refuse(attributes))
    }

    /// Whether a policy or webhook may change this request. Every write asks.
    fn may_mutate(&self, attributes: &Attributes<'_>) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.may_mutate(attributes))
            || self.mutates && self.webhooks.as_ref().is_some_and(|webhooks| webhooks.may_mutate(attributes))
    }

    /// Whether a policy or webhook may refuse this request. Every write asks.
    fn may_validate(&self, attributes: &Attributes<'_>) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.may_validate(attributes))
            || self.validates && self.webhooks.as_ref().is_some_and(|webhooks| webhooks.may_validate(attributes))
    }

    async fn run_mutating(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        round: usize,
    ) -> Result<(), Status> {
        let mut began = Instant::now();
        for (plugin, timer) in self.concerned(attributes) {
            let before = attributes.ctx.trace.is_some().then(|| object.clone());
            let decision = match plugin.mutate(attributes, object, old) {
                Decision::Now(decision) => decision,
                Decision::Later(decision) => decision.await,
            };
            let ended = Instant::now();
            let took = ended - std::mem::replace(&mut began, ended);
            timer.observe(Phase::Mutate, attributes.operation, decision.is_err(), took);
            if let Some(before) = before {
                let patch = difference(&before, object);
                note(plugin, attributes, (Phase::Mutate, round), took, patch, &decision);
            }
            decision.inspect_err(|status| log(plugin, status))?;
        }
        Ok(())
    }

    async fn run_validating(&self, attributes: &Attributes<'_>, states: States<'_>) -> Result<(), Status> {
        let mut began = Instant::now();
        for (plugin, timer) in self.concerned(attributes) {
            let decision = match plugin.validate(attributes, states) {
                Decision::Now(decision) => decision,
                Decision::Later(decision) => decision.await,
            };
            let ended = Instant::now();
            let took = ended - std::mem::replace(&mut began, ended);
            timer.observe(Phase::Validate, attributes.operation, decision.is_err(), took);
            if attributes.ctx.trace.is_some() {
                note(plugin, attributes, (Phase::Validate, 1), took, Value::Null, &decision);
            }
            decision.inspect_err(|status| log(plugin, status))?;
        }
        Ok(())
    }

    async fn mutate_dynamically(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Changes, Status> {
        let (mut rounds, mut changes) = (Rounds::default(), Changes::new(self.owned));
        let managers = object.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
        self.run_round(attributes, object, old, &mut rounds, &mut changes).await?;
        if rounds.begin_second() {
            self.run_mutating(attributes, object, old, 2).await?;
            self.run_round(attributes, object, old, &mut rounds, &mut changes).await?;
        }
        restore_managers(attributes, object, managers);
        changes.own(attributes, object, &meta::timestamp(self.clock.now()))?;
        Ok(changes)
    }

    async fn run_round(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        rounds: &mut Rounds,
        changes: &mut Changes,
    ) -> Result<(), Status> {
        if let Some(policies) = self.policies.as_ref().filter(|policies| policies.may_mutate(attributes)) {
            policies.mutate(attributes, object, old, rounds, changes).await?;
        }
        if let Some(webhooks) = self.webhooks.as_ref().filter(|_| self.mutates)
            && webhooks.may_mutate(attributes)
        {
            webhooks.mutate(attributes, object, old, rounds, changes).await?;
        }
        Ok(())
    }

    /// Second phase: refuses a write that is valid by the rules of its kind.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, states: States<'_>) -> Result<(), Status> {
        let began = Instant::now();
        let mut decision = self.run_validating(attributes, states).await;
        if decision.is_ok() && self.may_validate(attributes) {
            decision = Box::pin(self.validate_dynamically(attributes, states)).await;
        }
        self.phases.observe(Phase::Validate, attributes.operation, decision.is_err(), began.elapsed());
        decision
    }

    async fn validate_dynamically(&self, attributes: &Attributes<'_>, states: States<'_>) -> Result<(), Status> {
        if let Some(policies) = self.policies.as_ref().filter(|policies| policies.may_validate(attributes)) {
            policies.validate(attributes, states).await?;
        }
        if let Some(webhooks) = self.webhooks.as_ref().filter(|_| self.validates)
            && webhooks.may_validate(attributes)
        {
            webhooks.validate(attributes, states).await?;
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
        if !self.quota {
            return Ok(());
        }
        let (old, new) = states;
        let (target, subresource) = (attributes.target, attributes.subresource());
        let wanted = QuotaUse { target, subresource, old, new, dry_run: attributes.dry_run };
        reservation.reserve_quota(&wanted).await
    }

    /// Compiles an admission policy that was just written.
    pub(crate) fn compile_policy(&self, target: &Target, written: &Outcome) {
        if let Some(policies) = &self.policies {
            policies.compile(target, written);
        }
    }

    /// Whether a policy or webhook may look at a deletion, so that its object must be in the version of the request.
    pub(crate) fn sees_deletes(&self, attributes: &Attributes<'_>) -> bool {
        self.may_mutate(attributes) || self.may_validate(attributes)
    }

    /// Both phases for a request without a new object: the deletion of `old`.
    pub(crate) async fn admit_delete(&self, attributes: &Attributes<'_>, old: &Value) -> Result<(), Status> {
        debug_assert_eq!(attributes.operation, Operation::Delete);
        self.mutate(attributes, &mut Value::Null, Some(old)).await?;
        self.validate(attributes, States::new(Some(old), None)).await
    }

    /// Both phases for a connection with these options. Returns them as they were changed.
    pub(crate) async fn admit_connect(&self, attributes: &Attributes<'_>, mut options: Value) -> Result<Value, Status> {
        debug_assert_eq!(attributes.operation, Operation::Connect);
        self.mutate(attributes, &mut options, None).await?;
        self.validate(attributes, States::new(None, Some(&options))).await?;
        Ok(options)
    }

    /// Both phases for a new object that is not stored, such as a review, which is checked between them. Leaves the object
    /// as it was changed.
    pub(crate) async fn admit_unstored(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        check: impl FnOnce(&Value) -> Result<(), Status>,
    ) -> Result<(), Status> {
        self.mutate(attributes, object, None).await?;
        check(object)?;
        self.validate(attributes, States::new(None, Some(object))).await
    }

    fn concerned(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = (&dyn Plugin, &Timer)> {
        self.plugins.iter().map(|(plugin, timer)| (&**plugin, timer)).filter(|(plugin, _)| plugin.concerns(attributes))
    }
}

fn log(plugin: &dyn Plugin, status: &Status) {
    tracing::debug!(plugin = plugin.name(), %status, "a write is refused");
}

/// Notes the step of a plugin in the trace of its request.
fn note(
    plugin: &dyn Plugin,
    attributes: &Attributes<'_>,
    (phase, round): (Phase, usize),
    duration: Duration,
    patch: Value,
    decision: &Result<(), Status>,
) {
    let verdict = match decision {
        Ok(()) => Verdict::Admitted,
        Err(status) => Verdict::Refused(status.message.clone()),
    };
    let (name, of) = (plugin.name().to_owned(), String::new());
    if let Some(trace) = &attributes.ctx.trace {
        trace.push(Step { phase, round, kind: "plugin", name, of, verdict, duration, patch, about: Value::Null });
    }
}

/// Puts managed fields back that policies or webhooks made invalid.
fn restore_managers(attributes: &Attributes<'_>, object: &mut Value, before: Option<Value>) {
    let Some(metadata) = object.get("metadata") else { return };
    let Err(why) = schema::managed::entries::validate(&metadata["managedFields"]) else { return };
    let metadata = meta::of_mut(object);
    match before {
        Some(before) => metadata.insert("managedFields", before),
        None => metadata.shift_remove("managedFields"),
    };
    attributes.ctx.warnings.push(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {why}"
    ));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machinery::json::json;
    use parking_lot::Mutex;

    use super::super::plugin::Options;
    use super::super::step_metrics::StepMetrics;
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
                States::new(old, Some(object).filter(|object| object.is_object()).map(|object| &*object)),
            )
        }

        fn validate<'a>(&'a self, _: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
            self.decide("validate", states)
        }
    }

    fn chain(refuses: Option<&'static str>) -> (Chain, Calls) {
        let calls = Calls::default();
        let metrics = StepMetrics::default();
        let plugin = |name, refuses| {
            let plugin: Box<dyn Plugin> = Box::new(Recorder { name, refuses, calls: Arc::clone(&calls) });
            (plugin, Timer::of_plugin(&metrics, name))
        };
        let plugins = vec![plugin("a", refuses), plugin("b", None)];
        (
            Chain {
                plugins,
                phases: Timer::of_phases(&metrics),
                policies: None,
                webhooks: None,
                damaged_rules: None,
                mutates: true,
                validates: true,
                quota: true,
                owned: false,
                clock: Clock::system(),
            },
            calls,
        )
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
        chain.validate(&create, States::new(None, Some(&object))).await.unwrap();
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
