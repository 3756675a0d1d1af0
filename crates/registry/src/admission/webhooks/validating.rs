//! Validating webhooks: all that match are called at the same time, and all are awaited.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use machinery::Status;
use machinery::json::Value;

use super::super::matching::Matched;
use super::super::plugin::{Attributes, States};
use super::super::trace::{Phase, Step, Verdict};
use super::Webhooks;
use super::call::{self, CallError};
use super::configurations::Hook;
use super::mutating::verdict;

const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";

/// A webhook that matches, with the objects in the version that it matched.
struct Invocation {
    hook: Arc<Hook>,
    matched: Matched,
    objects: Arc<Objects>,
}

struct Objects {
    kind: machinery::GroupVersionKind,
    old: Option<Value>,
    new: Option<Value>,
}

impl Webhooks {
    /// Calls the webhooks that match. Of several refusals the first by the name of its webhook is returned; the others are
    /// causes of it.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, states: States<'_>) -> Result<(), Status> {
        let candidates = self.validating.index().candidates(attributes);
        let invocations = self.invocations(candidates, attributes, states).await?;
        if invocations.is_empty() {
            return Ok(());
        }
        if attributes.ctx.webhook_time_left().is_zero() {
            return Err(Status::timeout("request did not complete within requested timeout"));
        }
        let calls = invocations.iter().enumerate().map(|(at, invocation)| self.ask(at, invocation, attributes));
        let mut refusals: Vec<(&Hook, Status)> = Vec::new();
        for (invocation, answer) in invocations.iter().zip(join_all(calls).await) {
            if let Err(status) = answer {
                refusals.push((&invocation.hook, status));
            }
        }
        refusals.sort_by(|(a, _), (b, _)| (&a.name, &a.configuration).cmp(&(&b.name, &b.configuration)));
        let mut refusals = refusals.into_iter().map(|(_, status)| status);
        let Some(first) = refusals.next() else { return Ok(()) };
        // The reference returns one; more is shown to those who ask for it.
        let others = refusals.filter(|_| attributes.explains());
        Err(others.fold(first, |first, other| first.with_cause("", other.message, "")))
    }

    /// The webhooks that match, each version of the objects made once.
    async fn invocations(
        &self,
        candidates: Vec<Arc<Hook>>,
        attributes: &Attributes<'_>,
        states: States<'_>,
    ) -> Result<Vec<Invocation>, Status> {
        let mut invocations: Vec<Invocation> = Vec::new();
        for hook in candidates {
            let began = Instant::now();
            let matched = match self.find(&hook, attributes, states, "validating").await? {
                Ok(matched) => matched,
                Err(why) => {
                    trace(&hook, attributes, Verdict::Unmatched(why), began.elapsed());
                    continue;
                }
            };
            let kind = matched.kind(attributes);
            let known =
                invocations.iter().find(|known| known.objects.kind == *kind).map(|known| Arc::clone(&known.objects));
            let objects = match known {
                Some(objects) => objects,
                None => {
                    let (old, new) = self.shown(attributes, &matched, states).await?;
                    Arc::new(Objects { kind: kind.clone(), old, new })
                }
            };
            invocations.push(Invocation { hook, matched, objects });
        }
        Ok(invocations)
    }

    pub(super) async fn shown(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
        states: States<'_>,
    ) -> Result<(Option<Value>, Option<Value>), Status> {
        let shown = self.versions.shown(attributes, matched, states).await;
        shown.map_err(|status| call::internal(&status.message))
    }

    async fn ask(&self, at: usize, invocation: &Invocation, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Invocation { hook, matched, objects } = invocation;
        let began = Instant::now();
        let states = States::new(objects.old.as_ref(), objects.new.as_ref());
        let error = self.caller.call(hook, attributes, matched, states, false).await.err();
        self.metrics.observe(hook, "validating", attributes.operation, began.elapsed(), error.as_ref());
        trace(hook, attributes, verdict(hook, error.as_ref()), began.elapsed());
        match error {
            None => Ok(()),
            Some(CallError::Refused(status) | CallError::Fatal(status)) => Err(status),
            Some(CallError::Skipped(why)) => {
                attributes.ctx.warnings.push(self.skipped(hook, &why));
                Ok(())
            }
            Some(CallError::Failed { why, .. }) if hook.ignores_failure => {
                tracing::warn!(webhook = hook.name, why, "a webhook failed: request goes on");
                self.metrics.failed_open(hook, "validating");
                attributes.ctx.annotations.set(format!("{FAILED_OPEN}round_0_index_{at}"), hook.name.as_str());
                Ok(())
            }
            Some(CallError::Failed { why, .. }) => Err(call::closed(hook, &why)),
        }
    }
}

fn trace(hook: &Hook, attributes: &Attributes<'_>, verdict: Verdict, duration: Duration) {
    if let Some(trace) = &attributes.ctx.trace {
        trace.push(Step {
            phase: Phase::Validate,
            round: 1,
            kind: "webhook",
            name: hook.name.clone(),
            of: hook.configuration.clone(),
            verdict,
            duration,
            patch: Value::Null,
            about: Value::Null,
        });
    }
}
