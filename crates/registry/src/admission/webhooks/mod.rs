//! Admission webhooks: servers that are asked about a write, and may change or refuse it.
//!
//! - [`client`]: how one is called; the server implements it
//! - [`configurations`]: the webhooks of all stored configurations, by what they apply to
//! - [`review`], [`answer`], [`patch`]: what is sent, what is answered, and the change in it
//! - [`call`]: one call, from the review to a checked answer; [`recorder`]: keeps both in a file
//! - [`mutating`], [`validating`]: all webhooks of a phase, and what follows from their answers
//! - [`metrics`]: counters of calls; [`faults`]: faults for tests

mod answer;
mod call;
pub mod client;
pub(crate) mod configurations;
pub mod faults;
pub mod metrics;
mod mutating;
mod patch;
pub mod recorder;
pub(crate) mod review;
mod validating;

use std::sync::Arc;
use std::time::Instant;

use access::Authorizer;
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use self::call::Caller;
use self::configurations::{Configurations, Hook};
use self::metrics::WebhookMetrics;
use super::conditions::Outcome;
use super::evaluation::{Answers, Evaluation};
use super::matching::{Matched, Matcher};
use super::plugin::{Attributes, States};
use super::versioned::Versions;
use crate::settings::Settings;

/// The webhooks of a server, and what is needed to call them.
pub(crate) struct Webhooks {
    mutating: Arc<Configurations>,
    validating: Arc<Configurations>,
    matcher: Matcher,
    versions: Versions,
    caller: Caller,
    metrics: WebhookMetrics,
    authorizer: Arc<dyn Authorizer>,
}

/// The webhooks in the cache, before there is anything to call them with.
pub(crate) struct Followed {
    pub(crate) mutating: Arc<Configurations>,
    pub(crate) validating: Arc<Configurations>,
}

impl Default for Followed {
    fn default() -> Self {
        Followed {
            mutating: Arc::new(Configurations::new("admissionregistration.k8s.io/mutatingwebhookconfigurations")),
            validating: Arc::new(Configurations::new("admissionregistration.k8s.io/validatingwebhookconfigurations")),
        }
    }
}

impl Webhooks {
    pub(crate) fn new(followed: Followed, matcher: Matcher, versions: Versions, settings: &Settings) -> Self {
        let Followed { mutating, validating } = followed;
        let caller =
            Caller::new(settings.hooks.clone(), settings.review_recorder.clone(), Arc::clone(&settings.webhook_faults));
        let (metrics, authorizer) = (settings.webhook_metrics.clone(), Arc::clone(&settings.authorizer));
        Webhooks { mutating, validating, matcher, versions, caller, metrics, authorizer }
    }

    /// Whether a mutating webhook may apply to a request.
    pub(crate) fn may_mutate(&self, attributes: &Attributes<'_>) -> bool {
        self.mutating.index().concerns(attributes) && !is_exempt(attributes)
    }

    /// Whether a validating webhook may apply to a request.
    pub(crate) fn may_validate(&self, attributes: &Attributes<'_>) -> bool {
        self.validating.index().concerns(attributes) && !is_exempt(attributes)
    }

    /// Compares a request with everything that a webhook is selective about; the inner error is why it is not called.
    async fn find(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        states: States<'_>,
        kind: &'static str,
    ) -> Result<Result<Matched, String>, Status> {
        let matched = match self.matcher.find(&hook.criteria, attributes, states).await? {
            Ok(matched) => matched,
            Err(why) => return Ok(Err(why.to_string())),
        };
        if hook.conditions.is_empty() {
            return Ok(Ok(matched));
        }
        let (old, new) = self.shown(attributes, &matched, states).await?;
        let answers = Answers::new(&self.authorizer, &attributes.ctx.user);
        let states = States::new(old.as_ref(), new.as_ref());
        let evaluation = Evaluation::new(attributes, states, &matched, &answers);
        let began = Instant::now();
        let outcome = hook.conditions.check(&evaluation, &Value::Null).await;
        self.metrics.conditions_evaluated(hook, kind, attributes.operation, began.elapsed());
        match outcome {
            Outcome::Met => Ok(Ok(matched)),
            Outcome::NotMet(name) => {
                self.metrics.condition(hook, kind, attributes.operation, false);
                Ok(Err(format!("match condition {} is false", quote(&name))))
            }
            Outcome::Failed(why) => {
                self.metrics.condition(hook, kind, attributes.operation, true);
                if hook.ignores_failure {
                    return Ok(Err(format!("match conditions failed: {why}")));
                }
                Err(Status::forbidden(&attributes.target.gr(), attributes.name, why))
            }
        }
    }

    fn skipped(&self, hook: &Hook, why: &str) -> String {
        format!("admission webhook {} is skipped: {why}", quote(&hook.name))
    }
}

/// Decodes and checks the answer to the review `uid` of a version, and applies its patch to an object of no particular kind:
/// what the bytes of any answer go through. Returns the object as it is then, or the refusal. For tests that send anything.
pub fn try_answer(body: &[u8], version: &str, uid: &str, mutating: bool, object: &Value) -> Result<Value, Box<Status>> {
    let flawed = |why: String| Box::new(Status::internal(why));
    let answer = answer::read(body, version, uid, mutating).map_err(|flaw| match flaw {
        answer::Flaw::Undecodable(why) | answer::Flaw::Invalid(why) => flawed(why),
    })?;
    if !answer.allowed {
        return Err(Box::new(answer::refusal("webhook.example.com", &answer.status)));
    }
    let operations = patch::operations(&answer).map_err(|_| flawed("undecodable patch".to_owned()))?;
    let Some(operations) = operations else { return Ok(object.clone()) };
    patch::sorted(operations);
    schema::patch::json::apply_untyped(object, &answer.patch).map_err(|error| Box::new(error.to_status()))
}

/// Webhooks are never asked about webhooks and policies, so that a broken one can be removed.
pub(super) fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.target.kind.gvk.group == "admissionregistration.k8s.io"
}
