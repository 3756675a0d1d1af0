//! One call of a webhook, from the review to a checked answer; and what a failed call means.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use super::super::matching::Matched;
use super::super::plugin::{Attributes, States};
use super::super::request_value::request_value;
use super::answer::{self, Answer, Flaw};
use super::client::{CallFailure, HookCaller};
use super::configurations::{Hook, SideEffects};
use super::faults::{Fault, Faults};
use super::recorder::Recorder;
use super::review;

/// Calls webhooks.
pub(super) struct Caller {
    caller: Option<Arc<dyn HookCaller>>,
    recorder: Option<Arc<Recorder>>,
    faults: Arc<Faults>,
}

/// Why a webhook did not admit a request.
#[derive(Debug)]
pub(super) enum CallError {
    /// The call failed: the failure policy of the webhook decides.
    Failed { why: String, code: u16 },
    /// Nothing listens there, and the server goes on without such webhooks.
    Skipped(String),
    /// The webhook refused the request.
    Refused(Status),
    /// The request fails, whatever the failure policy.
    Fatal(Status),
}

impl CallError {
    fn failed(why: impl Into<String>, code: u16) -> Self {
        CallError::Failed { why: why.into(), code }
    }
}

/// The text of a failed call, as it is logged and sent.
pub(super) fn failure_text(hook: &Hook, why: &str) -> String {
    format!("failed calling webhook {}: {why}", quote(&hook.name))
}

impl Caller {
    pub(super) fn new(
        caller: Option<Arc<dyn HookCaller>>,
        recorder: Option<Arc<Recorder>>,
        faults: Arc<Faults>,
    ) -> Self {
        Caller { caller, recorder, faults }
    }

    /// Calls a webhook with objects that are in the matched version.
    pub(super) async fn call(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        matched: &Matched,
        states: States<'_>,
        mutating: bool,
    ) -> Result<Answer, CallError> {
        if attributes.dry_run {
            match hook.side_effects {
                SideEffects::None => {}
                SideEffects::Unknown => return Err(CallError::failed("Webhook SideEffects is nil", 400)),
                SideEffects::Some => {
                    let why = format!("admission webhook {} does not support dry run", quote(&hook.name));
                    return Err(CallError::Fatal(Status::bad_request(why)));
                }
            }
        }
        let Some(version) = hook.review_version else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions \
                       (v1, v1beta1)";
            return Err(CallError::failed(why, 400));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let members = request_value(attributes, matched);
        let review = review::text(version, &uid, &members, states.new, states.old);
        let body = self.post(hook, review, attributes).await?;
        let answer = answer::read(&body, version, &uid, mutating).map_err(|flaw| match flaw {
            Flaw::Undecodable(why) => CallError::failed(format!("failed to call webhook: {why}"), 503),
            Flaw::Invalid(why) => CallError::failed(format!("received invalid webhook response: {why}"), 503),
        })?;
        let ctx = attributes.ctx;
        for (key, value) in &answer.annotations {
            ctx.annotations.set(format!("{}/{key}", hook.name), value.as_str());
        }
        answer.warnings.iter().for_each(|text| ctx.warnings.push(text.as_str()));
        if answer.allowed { Ok(answer) } else { Err(CallError::Refused(answer::refusal(&hook.name, &answer.status))) }
    }

    async fn post(&self, hook: &Hook, review: Bytes, attributes: &Attributes<'_>) -> Result<Bytes, CallError> {
        let failed = |why: &str| CallError::failed(format!("failed to call webhook: {why}"), 503);
        let Some(caller) = &self.caller else { return Err(failed("webhooks cannot be reached")) };
        let left = attributes.ctx.webhook_time_left();
        let timeout = hook.timeout.min(left).max(Duration::from_millis(1));
        let sent = self.recorder.is_some().then(|| review.clone());
        // Other requests, such as those that the webhook itself sends, may have the place of this one while it waits.
        let _waiting = attributes.ctx.leave_place().map_err(CallError::Fatal)?;
        let answer = match self.faults.of(&hook.name) {
            None => caller.call(&hook.client, review, timeout).await,
            Some(fault) => call_with(fault, &**caller, hook, review, timeout).await,
        };
        if let (Some(recorder), Some(sent)) = (&self.recorder, sent) {
            recorder.record(&hook.configuration, &hook.name, &sent, answer.as_deref().map_err(ToString::to_string));
        }
        answer.map_err(|failure| if failure.skip { CallError::Skipped(failure.text) } else { failed(&failure.text) })
    }
}

/// Calls a webhook that has a fault.
async fn call_with(
    fault: Fault,
    caller: &dyn HookCaller,
    hook: &Hook,
    review: Bytes,
    timeout: Duration,
) -> Result<Bytes, CallFailure> {
    let mut left = timeout;
    if let Fault::Delay(delay) = fault {
        tokio::time::sleep(delay.min(timeout)).await;
        left = timeout.saturating_sub(delay);
        if left.is_zero() {
            return Err(CallFailure::new("context deadline exceeded"));
        }
    }
    match fault.failure() {
        Some(failure) => Err(failure),
        None => caller.call(&hook.client, review, left).await.map(|answer| fault.spoil(answer)),
    }
}

/// The request fails because a webhook could not be called.
pub(super) fn closed(hook: &Hook, why: &str) -> Status {
    let text = failure_text(hook, why);
    tracing::warn!(webhook = hook.name, configuration = hook.configuration, why, "a webhook failed: request refused");
    internal(&text)
}

/// An internal error with its cause, as the reference sends it.
pub(super) fn internal(why: &str) -> Status {
    Status::internal(why)
}

/// The object of a review; null where the operation has no such object.
pub(super) fn present(object: &Value) -> Option<&Value> {
    Some(object).filter(|object| !object.is_null())
}

#[cfg(test)]
mod tests {
    use machinery::json::json;
    use machinery::options::CreateOptions;

    use super::super::super::plugin::{Operation, Options};
    use super::*;
    use crate::request::{Context, Target};

    async fn call(webhook: Value, dry_run: bool) -> CallError {
        let hook = Hook::read("c", "h.example.com", 0, &webhook).unwrap();
        let kind = Arc::clone(crate::kinds::builtin().get("", "v1", "configmaps").unwrap());
        let target = Target { kind, namespace: Some("n".to_owned()), name: None, subresource: None };
        let (ctx, options) = (Context::default(), CreateOptions { dry_run, ..CreateOptions::default() });
        let attributes = Attributes::new(Operation::Create, &target, Options::Create(&options), &ctx);
        let states = States::new(None, None);
        Caller::new(None, None, Arc::default())
            .call(&hook, &attributes, &Matched::default(), states, false)
            .await
            .unwrap_err()
    }

    #[tokio::test]
    async fn wh_38_41_old_configurations_that_cannot_be_called() {
        let versions = json!(["v1"]);
        let effects = json!({"sideEffects": "Some", "admissionReviewVersions": versions});
        let refused = call(effects.clone(), true).await;
        let CallError::Fatal(status) = refused else { panic!("{refused:?}") };
        let text = "admission webhook \"h.example.com\" does not support dry run";
        assert_eq!((status.code, status.message.as_str()), (400, text));
        assert!(matches!(call(effects, false).await, CallError::Failed { code: 503, .. }), "only a dry run is refused");
        assert!(matches!(
            call(json!({"admissionReviewVersions": versions}), true).await,
            CallError::Failed { code: 400, .. }
        ));
        let CallError::Failed { why, .. } = call(json!({"sideEffects": "None"}), true).await else { panic!() };
        let text =
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        assert_eq!(why, text);
    }
}
