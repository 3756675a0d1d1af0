//! MutatingAdmissionPolicy: expressions that change a write.

use std::sync::Arc;
use std::time::Instant;

use cel::policy::{OUT_OF_BUDGET, Run};
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::{self, Value};
use machinery::options::FieldValidation;
use schema::managed::{Subject, merge_unowned};
use schema::patch::{PatchError, Target};

use super::super::changes::Changes;
use super::super::conditions::Outcome;
use super::super::evaluation::{Answers, Evaluation};
use super::super::matching::Matched;
use super::super::plugin::{Attributes, Operation, States};
use super::super::rounds::Rounds;
use super::super::trace::{Phase, Verdict, difference};
use super::compiled::{Mutation, MutationKind, Policy, Reason, Rules};
use super::denial::{Denial, refuse_mutation};
use super::metrics::error_type;
use super::params::Param;
use super::selection::{Found, Invocation};
use super::{Policies, Spent, note};
use crate::body;
use crate::subresources::connection;

/// Cost of one mutation.
const BUDGET: u64 = 10_000_000;

/// Why a mutation was not made.
enum MutationError {
    /// `failurePolicy` decides.
    Failed(String),
    /// The request is refused, whatever `failurePolicy` says.
    Fatal(Status),
}

impl From<String> for MutationError {
    fn from(why: String) -> Self {
        MutationError::Failed(why)
    }
}

impl Policies {
    /// Changes the object by all mutating policies that match, one after the other.
    pub(crate) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        rounds: &mut Rounds,
        changes: &mut Changes,
    ) -> Result<(), Status> {
        let index = Arc::clone(&self.mutating.index());
        let answers = Answers::new(&self.authorizer, &attributes.ctx.user);
        let step = (Phase::Mutate, rounds.number() + 1);
        let mut denials: Vec<Denial> = Vec::new();
        let mut invocations: Vec<Invocation> = Vec::new();
        // All are selected by the object as it is now, also those that run after a change.
        for found in self.select(&index, attributes, States::new(old, Some(object))).await {
            let began = Instant::now();
            match found {
                Found::Applies(invocation) => invocations.push(invocation),
                Found::Unmatched(policy, binding, why) => {
                    note(attributes, step, &policy, binding.as_ref(), began, Spent::default(), || {
                        (Verdict::Unmatched(why.to_string()), Value::Null)
                    })
                }
                Found::Misconfigured(wrong) => {
                    let (why, ignored) = (wrong.text(), wrong.policy.ignores_failure);
                    if !ignored {
                        let binding = wrong.binding.as_ref().map(|binding| binding.name.as_str());
                        denials.push(Denial::mutating(&wrong.policy.name, binding, &why, Reason::Forbidden));
                    }
                    note(attributes, step, &wrong.policy, wrong.binding.as_ref(), began, Spent::default(), || {
                        (if ignored { Verdict::Ignored(why) } else { Verdict::Refused(why) }, Value::Null)
                    });
                }
            }
        }
        let second = rounds.is_second();
        rounds.policies.begin(second, object);
        for invocation in &invocations {
            for param in &invocation.params {
                let (began, denied, before) = (Instant::now(), denials.len(), object.clone());
                let mut spent = Spent::default();
                let unmatched = self
                    .run_mutations(
                        invocation,
                        param,
                        attributes,
                        (object, old),
                        &answers,
                        rounds,
                        (&mut denials, &mut spent),
                    )
                    .await?;
                if before != *object {
                    let (policy, binding) = (&invocation.policy.name, &invocation.binding.name);
                    changes.note(format!("policy '{policy}' with binding '{binding}'"), &before, object);
                }
                note(attributes, step, &invocation.policy, Some(&invocation.binding), began, spent, || {
                    let refused = denials.get(denied).map(|denial| Verdict::Refused(denial.message.clone()));
                    let verdict = refused.or(unmatched.map(Verdict::Unmatched)).unwrap_or(Verdict::Admitted);
                    (verdict, difference(&before, object))
                });
            }
        }
        rounds.policies.end(object);
        if denials.is_empty() { Ok(()) } else { Err(refuse_mutation(attributes, object, &denials)) }
    }

    /// Runs a policy under one binding and param. Returns why it does not apply, if it does not.
    #[expect(clippy::too_many_arguments, reason = "the state of one request")]
    async fn run_mutations(
        &self,
        invocation: &Invocation,
        param: &Param,
        attributes: &Attributes<'_>,
        (object, old): (&mut Value, Option<&Value>),
        answers: &Answers<'_>,
        rounds: &mut Rounds,
        (denials, spent): (&mut Vec<Denial>, &mut Spent),
    ) -> Result<Option<String>, Status> {
        let Invocation { policy, binding, matched, .. } = invocation;
        let Rules::Mutate { mutations, runs_again } = &policy.code().rules else { return Ok(None) };
        let mut deny = |why: &str| {
            if !policy.ignores_failure {
                denials.push(Denial::mutating(&policy.name, Some(&binding.name), why, Reason::Invalid));
            }
        };
        let versions = &self.versions;
        let (old, shown) = versions.shown(attributes, matched, States::new(old, Some(object))).await?;
        let mut shown = shown.unwrap_or_default();
        {
            let states = States::new(old.as_ref(), Some(&shown));
            let evaluation = Evaluation::new(attributes, states, matched, answers);
            match policy.code().conditions.check(&evaluation, &param.value).await {
                Outcome::Met => {}
                Outcome::NotMet(name) => return Ok(Some(format!("match condition {} is false", quote(&name)))),
                Outcome::Failed(why) => {
                    deny(&why);
                    return Ok(Some(why));
                }
            }
        }
        let (id, second) = (format!("{}\n{}\n{}", policy.name, binding.name, param.id), rounds.is_second());
        if !rounds.policies.runs(second, &id) {
            return Ok(Some("not run again: its object did not change".to_owned()));
        }
        let namespace = match policy.code().uses.namespace {
            true => self.namespace(attributes).await?,
            false => Value::Null,
        };
        let before = shown.clone();
        for mutation in mutations {
            let states = States::new(old.as_ref(), Some(&shown));
            let evaluation = Evaluation::new(attributes, states, matched, answers);
            let began = Instant::now();
            let made =
                mutate_once(policy, mutation, &evaluation, matched, (&param.value, &namespace), &shown, spent).await;
            let error = match &made {
                Err(MutationError::Failed(why)) => Some(why.as_str()),
                Err(MutationError::Fatal(status)) => Some(status.message.as_str()),
                Ok(_) => None,
            };
            self.metrics.mutation((&policy.name, &binding.name), error_type(error), began.elapsed());
            match made {
                Ok(Some(changed)) => shown = changed,
                Ok(None) => {}
                Err(MutationError::Failed(why)) => deny(&why),
                Err(MutationError::Fatal(status)) => return Err(status),
            }
        }
        if shown != before {
            *object = versions.restored(attributes, matched, shown).await?;
            rounds.policies.invalidate();
            rounds.note_change();
        }
        if *runs_again {
            rounds.policies.note_run(&id);
        }
        Ok(None)
    }
}

/// Makes one mutation. Returns the changed object with its defaults, or none if nothing is to be changed.
async fn mutate_once(
    policy: &Policy,
    mutation: &Mutation,
    evaluation: &Evaluation<'_>,
    matched: &Matched,
    (params, namespace): (&Value, &Value),
    object: &Value,
    spent: &mut Spent,
) -> Result<Option<Value>, MutationError> {
    let attributes = evaluation.attributes();
    let expression = mutation.expression.as_ref().map_err(Clone::clone)?;
    let target = Typed::new(attributes, matched).map_err(MutationError::Fatal)?;
    let made = match mutation.kind {
        MutationKind::ApplyConfiguration => {
            let made = evaluation.run(policy.code().uses, params, namespace, |inputs| {
                let run = Run::new(inputs, &policy.code().variables, BUDGET);
                let made = run.apply_configuration(expression)?;
                spent.add(attributes, &run);
                Ok(made)
            });
            let config = made.await.map_err(|_| OUT_OF_BUDGET.to_owned())??;
            Some(target.merge(object, config).map_err(|why| format!("error applying patch: {why}"))?)
        }
        MutationKind::JsonPatch => {
            let made = evaluation.run(policy.code().uses, params, namespace, |inputs| {
                let run = Run::new(inputs, &policy.code().variables, BUDGET);
                let made = run.json_patch(expression)?;
                spent.add(attributes, &run);
                Ok(made)
            });
            let operations = made.await.map_err(|_| OUT_OF_BUDGET.to_owned())??;
            target.patch(object, operations)?
        }
    };
    Ok(made.map(|mut object| {
        target.apply_defaults(&mut object);
        object
    }))
}

/// The type of the objects that a policy changes.
struct Typed<'a> {
    /// None for the options of a connection, which have no schema.
    ty: Option<schema::facts::Type>,
    gvk: &'a machinery::GroupVersionKind,
    kind: &'a schema::kind::Kind,
    /// The objects are of the kind itself, and not of a subresource with its own kind.
    is_own: bool,
}

impl<'a> Typed<'a> {
    fn new(attributes: &Attributes<'a>, matched: &'a Matched) -> Result<Self, Status> {
        let (gvk, kind) = (matched.kind(attributes), &**matched.resource(attributes));
        let is_own = *gvk == kind.gvk;
        let ty = match attributes.operation {
            Operation::Connect => None,
            _ if is_own => Some(body::type_of_kind(kind)?),
            _ => Some(body::type_of(gvk)?),
        };
        Ok(Typed { ty, gvk, kind, is_own })
    }

    fn merge(&self, object: &Value, mut config: Value) -> Result<Value, String> {
        let Some(ty) = &self.ty else {
            let (of, kind) = (format!("{}/{}", self.gvk.group, self.gvk.version), &self.gvk.kind);
            let why = format!("no corresponding type for {of}, Kind={kind}");
            return Err(format!("failed to convert patch object to typed object: {why}"));
        };
        if let Some(members) = config.as_object_mut() {
            members.insert("apiVersion", self.gvk.group_version().to_string().into());
            members.insert("kind", self.gvk.kind.as_str().into());
        }
        let custom = self.is_own && self.kind.custom;
        let subject = Subject { gvk: self.gvk, ty, custom, has_status: false, convert: None };
        merge_unowned(&subject, object, &config)
    }

    /// Returns none if a test of the patch fails.
    fn patch(&self, object: &Value, operations: Vec<Value>) -> Result<Option<Value>, MutationError> {
        if operations.is_empty() {
            return Ok(None);
        }
        let patch = json::to_string(&Value::from(operations)).into_bytes();
        let mut current = object.clone();
        current.parse_raw();
        let patched = match &self.ty {
            None => schema::patch::json::apply_untyped(&current, &patch),
            Some(ty) => {
                let custom = self.is_own && self.kind.definition.is_some();
                // Unknown fields of custom resources are pruned later, like those of a request.
                let validation = FieldValidation::Strict;
                let target = Target { ty, gvk: self.gvk, custom, version: None, validation };
                schema::patch::json::apply(&target, &current, &patch).map(|patched| patched.value)
            }
        };
        match patched {
            Ok(options) if self.ty.is_none() => Ok(Some(connection::decode(options)?)),
            Ok(patched) => Ok(Some(patched)),
            Err(PatchError::Unprocessable) => {
                let why = schema::patch::json::reason(&current, &patch);
                if why.ends_with("test failed") { Ok(None) } else { Err(format!("JSON Patch: {why}").into()) }
            }
            Err(PatchError::Invalid { detail, .. }) => Err(MutationError::Fatal(Status::internal(detail))),
            Err(PatchError::Malformed(why) | PatchError::TooLarge(why)) => Err(format!("JSON Patch: {why}").into()),
            Err(other) => Err(MutationError::Fatal(other.to_status())),
        }
    }

    fn apply_defaults(&self, object: &mut Value) {
        if self.is_own {
            schema::defaults::apply(self.kind, object, None);
        }
    }
}
