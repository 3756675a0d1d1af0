//! Mutating webhooks: one after the other, each sees the changes of those before it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::Status;
use machinery::go_text::quote;
use machinery::json::{self, Value, json};

use super::super::changes::Changes;
use super::super::matching::Matched;
use super::super::plugin::{Attributes, States};
use super::super::rounds::Rounds;
use super::super::trace::{Phase, Step, Verdict, difference};
use super::call::{self, CallError};
use super::configurations::Hook;
use super::{Webhooks, patch};

const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";
const FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io/";

/// One webhook's turn.
struct Turn<'a> {
    webhooks: &'a Webhooks,
    hook: &'a Hook,
    attributes: &'a Attributes<'a>,
    matched: &'a Matched,
    /// The keys of its audit annotations end in this.
    key: &'a str,
}

impl Webhooks {
    /// Calls the webhooks that match, in order.
    pub(crate) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        rounds: &mut Rounds,
        changes: &mut Changes,
    ) -> Result<(), Status> {
        let index = self.mutating.index().clone();
        rounds.webhooks.begin(rounds.is_second(), object);
        for hook in index.candidates(attributes) {
            self.run(&hook, &index, attributes, object, old, rounds, changes).await?;
        }
        rounds.webhooks.end(object);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one phase, which nothing else shares")]
    async fn run(
        &self,
        hook: &Arc<Hook>,
        index: &super::super::matching::Index<Hook>,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        rounds: &mut Rounds,
        changes: &mut Changes,
    ) -> Result<(), Status> {
        let began = Instant::now();
        let states = States::new(old, call::present(object));
        let step = |verdict: Verdict, duration: Duration, patch: Value, round: usize| Step {
            phase: Phase::Mutate,
            round: round + 1,
            kind: "webhook",
            name: hook.name.clone(),
            of: hook.configuration.clone(),
            verdict,
            duration,
            patch,
            about: Value::Null,
        };
        let trace = attributes.ctx.trace.as_deref();
        let round = rounds.number();
        let matched = match self.find(hook, attributes, states, "admit").await? {
            Ok(matched) => matched,
            Err(why) => {
                if let Some(trace) = trace {
                    trace.push(step(Verdict::Unmatched(why), began.elapsed(), Value::Null, round));
                }
                return Ok(());
            }
        };
        if !rounds.webhooks.runs(rounds.is_second(), &hook.id) {
            if let Some(trace) = trace {
                let why = "not called again: its object did not change".to_owned();
                trace.push(step(Verdict::Unmatched(why), began.elapsed(), Value::Null, round));
            }
            return Ok(());
        }
        let position = index.all().iter().position(|known| known.id == hook.id).unwrap_or_default();
        let key = format!("round_{round}_index_{position}");
        let turn = Turn { webhooks: self, hook, attributes, matched: &matched, key: &key };
        let before = object.clone();
        let called = turn.take(object, old).await;
        let (changed, error) = match called {
            Ok(changed) => (changed, None),
            Err(error) => (false, Some(error)),
        };
        self.metrics.observe(hook, "admit", attributes.operation, began.elapsed(), error.as_ref());
        if changed {
            rounds.webhooks.invalidate();
            rounds.note_change();
            changes.note(format!("webhook {}", quote(&hook.name)), &before, object);
        }
        if hook.runs_again {
            rounds.webhooks.note_run(&hook.id);
        }
        if let Some(trace) = trace {
            let patch = if changed { difference(&before, object) } else { Value::Null };
            trace.push(step(verdict(hook, error.as_ref()), began.elapsed(), patch, round));
        }
        error.map_or(Ok(()), |error| turn.fail(error))
    }
}

/// What a trace shows of a call.
pub(super) fn verdict(hook: &Hook, error: Option<&CallError>) -> Verdict {
    match error {
        None => Verdict::Admitted,
        Some(CallError::Failed { why, .. }) if hook.ignores_failure => Verdict::Ignored(why.clone()),
        Some(CallError::Skipped(why)) => Verdict::Ignored(why.clone()),
        Some(CallError::Failed { why, .. }) => Verdict::Refused(call::failure_text(hook, why)),
        Some(CallError::Refused(status) | CallError::Fatal(status)) => Verdict::Refused(status.message.clone()),
    }
}

impl Turn<'_> {
    /// Calls the webhook and applies its patch; returns whether that changed the object.
    async fn take(&self, object: &mut Value, old: Option<&Value>) -> Result<bool, CallError> {
        let changed = self.change(object, old).await;
        let annotations = &self.attributes.ctx.annotations;
        if annotations.are_kept() {
            let mutated = matches!(changed, Ok(true));
            annotations.set(format!("{MUTATION}{}", self.key), self.annotation(json!({"mutated": mutated})));
        }
        changed
    }

    async fn change(&self, object: &mut Value, old: Option<&Value>) -> Result<bool, CallError> {
        let Turn { webhooks, hook, attributes, matched, .. } = *self;
        let versions = &webhooks.versions;
        let unconverted = |status: Status| CallError::Fatal(call::internal(&status.message));
        let states = States::new(old, call::present(object));
        let (shown_old, shown) = versions.shown(attributes, matched, states).await.map_err(unconverted)?;
        let states = States::new(shown_old.as_ref(), shown.as_ref());
        let answer = webhooks.caller.call(hook, attributes, matched, states, true).await?;
        let Some(operations) = patch::operations(&answer)? else { return Ok(false) };
        let Some(shown) = shown else {
            let name = quote(&hook.name);
            let why = format!(
                "admission webhook {name} attempted to modify the object, which is not supported for this operation"
            );
            return Err(CallError::Fatal(call::internal(&why)));
        };
        let mut patched = patch::apply(attributes, matched, &shown, &answer)?;
        let changed = patched != shown;
        if attributes.ctx.annotations.keep_objects() {
            let patch = json!({"patch": patch::sorted(operations), "patchType": answer.patch_type});
            attributes.ctx.annotations.set(format!("{PATCH}{}", self.key), self.annotation(patch));
        }
        if changed {
            patch::apply_defaults(attributes, matched, &mut patched);
            *object = versions.restored(attributes, matched, patched).await.map_err(unconverted)?;
        }
        Ok(changed)
    }

    /// The value of an audit annotation: the webhook and something about its call.
    fn annotation(&self, about: Value) -> String {
        let mut value = json!({"configuration": self.hook.configuration, "webhook": self.hook.name});
        for (name, member) in about.as_object().into_iter().flatten() {
            value[name.as_str()] = member.clone();
        }
        json::to_string(&value)
    }

    /// The consequence of a call that did not admit the request.
    fn fail(&self, error: CallError) -> Result<(), Status> {
        let (hook, ctx) = (self.hook, self.attributes.ctx);
        match error {
            CallError::Refused(status) | CallError::Fatal(status) => Err(status),
            CallError::Skipped(why) => {
                ctx.warnings.push(self.webhooks.skipped(hook, &why));
                Ok(())
            }
            CallError::Failed { why, .. } if hook.ignores_failure => {
                tracing::warn!(webhook = hook.name, why, "a webhook failed: request goes on");
                self.webhooks.metrics.failed_open(hook, "admit");
                ctx.annotations.set(format!("{FAILED_OPEN}{}", self.key), hook.name.as_str());
                if ctx.webhook_time_left().is_zero() {
                    return Err(Status::timeout("request did not complete within requested timeout"));
                }
                Ok(())
            }
            CallError::Failed { why, .. } => Err(call::closed(hook, &why)),
        }
    }
}
