//! ValidatingAdmissionPolicy: expressions that a write must meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cel::policy::{Answer, Inputs, OUT_OF_BUDGET, Run};
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::{Map, Value};

use super::super::conditions::Outcome;
use super::super::evaluation::{Answers, Evaluation};
use super::super::plugin::{Attributes, States};
use super::super::trace::{Phase, Verdict};
use super::compiled::{Action, AuditAnnotation, Binding, Policy, Reason, Rules, Validation};
use super::denial::{Denial, refuse_invalid};
use super::metrics::error_type;
use super::selection::{Found, Invocation, ShownStates};
use super::{Policies, Spent, note};

/// Cost of the validations and messages of one policy, binding and param; that of audit annotations is counted apart.
const BUDGET: u64 = 10_000_000;
/// Longest message that an expression may return.
const MESSAGE_MAX: usize = 5 * 1024;
/// Longest value of an audit annotation; longer ones are cut.
const ANNOTATION_MAX: usize = 10 * 1024;
/// The audit annotation of failed validations.
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// A validation that failed.
struct Failure {
    /// The index of the validation.
    index: usize,
    message: String,
    reason: Reason,
    /// As metrics show it.
    error_type: &'static str,
}

impl Failure {
    /// The failure of an expression that has no result.
    fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Failure { index: 0, error_type: error_type(Some(&message)), message, reason: Reason::Invalid }
    }
}

/// The result of a policy under one binding and param.
#[derive(Default)]
struct Evaluated {
    /// The match condition that was false, if one was.
    condition: Option<String>,
    failures: Vec<Failure>,
    /// Errors that the policy ignores.
    ignored: Vec<String>,
    annotations: Vec<(String, String)>,
    /// Errors of audit annotations, which always deny.
    annotation_errors: Vec<String>,
}

impl Policies {
    /// Evaluates the validating policies that match. The first denial is the answer, and all are shown.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, states: States<'_>) -> Result<(), Status> {
        let index = Arc::clone(&self.validating.index());
        let answers = Answers::new(&self.authorizer, &attributes.ctx.user);
        let mut denials: Vec<Denial> = Vec::new();
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut shown = ShownStates::default();
        for found in self.select(&index, attributes, states).await {
            let (began, denied) = (Instant::now(), denials.len());
            let mut spent = Spent::default();
            let (policy, binding, mut verdict) = match &found {
                Found::Unmatched(policy, binding, why) => {
                    (policy, binding.as_ref(), Some(Verdict::Unmatched(why.to_string())))
                }
                Found::Misconfigured(wrong) => {
                    let why = wrong.text();
                    if !wrong.policy.ignores_failure {
                        let binding = wrong.binding.as_ref().map(|binding| binding.name.as_str());
                        denials.push(Denial::validating(&wrong.policy.name, binding, &why, Reason::Invalid));
                    }
                    let verdict = wrong.policy.ignores_failure.then_some(Verdict::Ignored(why));
                    (&wrong.policy, wrong.binding.as_ref(), verdict)
                }
                Found::Applies(invocation) => {
                    let states = shown.get(self, attributes, &invocation.matched, states).await;
                    let verdict = self
                        .run_validations(
                            invocation,
                            attributes,
                            states,
                            &answers,
                            (&mut denials, &mut annotations, &mut spent),
                        )
                        .await?;
                    (&invocation.policy, Some(&invocation.binding), verdict)
                }
            };
            note(attributes, (Phase::Validate, 1), policy, binding, began, spent, || {
                let refused = denials.get(denied).map(|denial| Verdict::Refused(denial.message.clone()));
                (refused.or(verdict.take()).unwrap_or(Verdict::Admitted), Value::Null)
            });
        }
        for (key, values) in annotations {
            attributes.ctx.annotations.set(key, values.join(", "));
        }
        if denials.is_empty() { Ok(()) } else { Err(refuse_invalid(attributes, states.new, &denials)) }
    }

    /// Evaluates a policy under one binding, for each of its params.
    async fn run_validations(
        &self,
        invocation: &Invocation,
        attributes: &Attributes<'_>,
        states: Result<States<'_>, Status>,
        answers: &Answers<'_>,
        (denials, annotations, spent): (&mut Vec<Denial>, &mut BTreeMap<String, Vec<String>>, &mut Spent),
    ) -> Result<Option<Verdict>, Status> {
        let Invocation { policy, binding, matched, params } = invocation;
        if params.is_empty() {
            return Ok(Some(Verdict::Unmatched("no params found".to_owned())));
        }
        let mut verdict = None;
        let mut deny = |why: &str, reason: Reason| {
            denials.push(Denial::validating(&policy.name, Some(&binding.name), why, reason));
        };
        let states = match states {
            Ok(states) => states,
            Err(status) => {
                let why = format!("failed to configure binding: failed to convert object version: {}", status.message);
                if !policy.ignores_failure {
                    deny(&why, Reason::Invalid);
                }
                return Ok(Some(Verdict::Ignored(why)));
            }
        };
        let namespace = match policy.code().uses.namespace {
            true => self.namespace(attributes).await?,
            false => Value::Null,
        };
        let evaluation = Evaluation::new(attributes, states, matched, answers);
        for param in params {
            let began = Instant::now();
            let result = evaluate(policy, &evaluation, &param.value, &namespace, spent).await;
            if let Some(name) = result.condition {
                verdict = Some(Verdict::Unmatched(format!("match condition {} is false", quote(&name))));
            }
            let (took, of) = (began.elapsed(), (policy.name.as_str(), binding.name.as_str()));
            for failure in &result.failures {
                for action in &binding.actions {
                    self.metrics.validation(of, failure.error_type, action.label(), took);
                }
                act(attributes, policy, binding, failure, &mut deny);
            }
            for error in &result.annotation_errors {
                self.metrics.validation(of, error_type(Some(error)), Action::Deny.label(), took);
                deny(error, Reason::Invalid);
            }
            for error in &result.ignored {
                self.metrics.validation(of, error_type(Some(error)), "allow", took);
            }
            for (key, value) in result.annotations {
                let values = annotations.entry(format!("{}/{key}", policy.name)).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        Ok(verdict)
    }
}

/// Does what the binding says about a failed validation.
fn act(
    attributes: &Attributes<'_>,
    policy: &Policy,
    binding: &Binding,
    failure: &Failure,
    deny: &mut impl FnMut(&str, Reason),
) {
    for action in &binding.actions {
        match action {
            Action::Deny => deny(&failure.message, failure.reason),
            Action::Warn => attributes.ctx.warnings.push(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                policy.name, binding.name, failure.message
            )),
            Action::Audit if attributes.ctx.annotations.are_kept() => {
                attributes.ctx.annotations.set(FAILURE_ANNOTATION, audit_value(policy, binding, failure));
            }
            Action::Audit => {}
        }
    }
}

/// The value of [`FAILURE_ANNOTATION`]: a list of one.
fn audit_value(policy: &Policy, binding: &Binding, failure: &Failure) -> String {
    let mut value = Map::new();
    value.insert("message", failure.message.as_str().into());
    value.insert("policy", policy.name.as_str().into());
    value.insert("binding", binding.name.as_str().into());
    value.insert("expressionIndex", failure.index.into());
    let actions: Vec<Value> = binding.actions.iter().map(|action| action.name().into()).collect();
    value.insert("validationActions", actions.into());
    let list: Vec<Value> = vec![value.into()];
    // The reference escapes what a browser would read as markup.
    let text = Value::from(list).to_string();
    text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// Evaluates a policy for one param.
async fn evaluate(
    policy: &Policy,
    evaluation: &Evaluation<'_>,
    params: &Value,
    namespace: &Value,
    spent: &mut Spent,
) -> Evaluated {
    let mut result = Evaluated::default();
    let Rules::Validate { validations, annotations } = &policy.code().rules else { return result };
    match policy.code().conditions.check(evaluation, params).await {
        Outcome::Met => {}
        Outcome::NotMet(name) => {
            result.condition = Some(name);
            return result;
        }
        Outcome::Failed(why) => {
            result.failures.extend((!policy.ignores_failure).then(|| Failure::new(why)));
            return result;
        }
    }
    let answered = evaluation
        .run(policy.code().uses, params, namespace, |inputs| {
            let run = Run::new(inputs, &policy.code().variables, BUDGET);
            let answer = |validation: &Validation| match &validation.expression {
                Ok(expression) => run.answer(expression),
                Err(why) => Ok(Err(format!("compilation error: {why}"))),
            };
            let answers = validations.iter().map(answer).collect::<Result<Vec<_>, _>>()?;
            spent.add(evaluation.attributes(), &run);
            Ok((answers, run.budget()))
        })
        .await;
    let Ok((answers, left)) = answered else {
        result.failures.extend((!policy.ignores_failure).then(|| Failure::new(OUT_OF_BUDGET)));
        return result;
    };
    let denied = answers.iter().any(|answer| matches!(answer, Ok(answer) if *answer != Answer::Bool(true)));
    let messages =
        if denied { messages(policy, validations, evaluation, params, namespace, left).await } else { Ok(Vec::new()) };
    for (index, (validation, answer)) in validations.iter().zip(answers).enumerate() {
        let failure = match (answer, &messages) {
            (Err(why), _) if policy.ignores_failure => {
                result.ignored.push(why);
                None
            }
            (Err(why), _) => Some(Failure::new(why)),
            (Ok(_), Err(why)) if denied => {
                (!policy.ignores_failure).then(|| Failure::new(format!("failed messageExpression: {why}")))
            }
            (Ok(Answer::Bool(true)), _) => None,
            (Ok(_), messages) => {
                let made = messages.as_ref().ok().and_then(|messages| messages.get(index)?.clone());
                let message = message(validation, made);
                Some(Failure { index, message, reason: validation.reason, error_type: error_type(None) })
            }
        };
        result.failures.extend(failure.map(|failure| Failure { index, ..failure }));
    }
    audit(policy, annotations, evaluation, params, namespace, &mut result).await;
    result
}

/// The messages that expressions make, by validation. The error is an exhausted budget.
async fn messages(
    policy: &Policy,
    validations: &[Validation],
    evaluation: &Evaluation<'_>,
    params: &Value,
    namespace: &Value,
    budget: u64,
) -> Result<Vec<Option<String>>, &'static str> {
    let made = evaluation.run(policy.code().uses, params, namespace, |inputs| {
        let run = Run::new(Inputs { authorizer: None, ..inputs }, &policy.code().variables, budget);
        let message = |validation: &Validation| match &validation.message_expression {
            Some(Ok(expression)) => Ok(match run.answer(expression)? {
                Ok(Answer::Text(text)) => Some(text),
                _ => None,
            }),
            _ => Ok(None),
        };
        validations.iter().map(message).collect::<Result<Vec<_>, _>>()
    });
    made.await.map_err(|_| OUT_OF_BUDGET)
}

/// The message of a failed validation: what an expression made, else the fixed text, else the expression itself.
fn message(validation: &Validation, made: Option<String>) -> String {
    let made = made.unwrap_or_default();
    let made = made.trim();
    if !made.is_empty() && made.len() <= MESSAGE_MAX && !made.contains('\n') {
        return made.to_owned();
    }
    match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.text.trim()),
        fixed => fixed.to_owned(),
    }
}

/// Evaluates the audit annotations. They cannot ask the authorizer.
async fn audit(
    policy: &Policy,
    annotations: &[AuditAnnotation],
    evaluation: &Evaluation<'_>,
    params: &Value,
    namespace: &Value,
    result: &mut Evaluated,
) {
    if annotations.is_empty() {
        return;
    }
    let answered = evaluation
        .run(policy.code().uses, params, namespace, |inputs| {
            let run = Run::new(Inputs { authorizer: None, ..inputs }, &policy.code().variables, BUDGET);
            let answer = |annotation: &AuditAnnotation| match &annotation.expression {
                Ok(expression) => run.answer(expression),
                Err(why) => Ok(Err(format!("compilation error: {why}"))),
            };
            annotations.iter().map(answer).collect::<Result<Vec<_>, _>>()
        })
        .await;
    let Ok(answers) = answered else {
        *result = Evaluated::default();
        result.failures.extend((!policy.ignores_failure).then(|| Failure::new(OUT_OF_BUDGET)));
        return;
    };
    for (annotation, answer) in annotations.iter().zip(answers) {
        match answer {
            Ok(Answer::Text(text)) if !text.trim().is_empty() => {
                let text = text.trim();
                result
                    .annotations
                    .push((annotation.key.clone(), text[..text.floor_char_boundary(ANNOTATION_MAX)].to_owned()));
            }
            Ok(_) => {}
            Err(why) if !policy.ignores_failure => result.annotation_errors.push(why),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use access::Authorizer;
    use access::authorizer::AlwaysAllow;
    use machinery::json::json;

    use super::super::super::matching::Matched;
    use super::super::super::plugin::{Operation, Options};
    use super::*;
    use crate::request::{Context, Target};

    /// A policy that was stored when its expressions still compiled.
    #[tokio::test]
    async fn vap_9_stored_policies_that_no_longer_compile_deny() {
        let kind = Arc::clone(crate::kinds::builtin().get("", "v1", "configmaps").unwrap());
        let target = Target { kind, namespace: Some("n".to_owned()), name: Some("a".to_owned()), subresource: None };
        let ctx = Context::default();
        let attributes = Attributes::new(Operation::Create, &target, Options::None, &ctx);
        let authorizer: Arc<dyn Authorizer> = Arc::new(AlwaysAllow);
        let (answers, matched) = (Answers::new(&authorizer, &ctx.user), Matched::default());
        let object = json!({});
        let evaluation = Evaluation::new(&attributes, States::new(None, Some(&object)), &matched, &answers);
        for (failure_policy, denies) in [("Fail", true), ("Ignore", false)] {
            let spec = json!({"failurePolicy": failure_policy, "validations": [{"expression": "gone()"}, {"expression": "true"}]});
            let policy = Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec}), true).unwrap();
            let result = evaluate(&policy, &evaluation, &Value::Null, &Value::Null, &mut Spent::default()).await;
            let messages: Vec<&str> = result.failures.iter().map(|failure| failure.message.as_str()).collect();
            assert_eq!(messages.len(), usize::from(denies));
            assert!(messages.iter().all(|text| text.starts_with("compilation error: compilation failed: ERROR: ")));
            assert_eq!(result.ignored.len(), usize::from(!denies));
        }
    }
}
