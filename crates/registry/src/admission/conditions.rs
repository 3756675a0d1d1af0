//! `matchConditions` of webhooks and policies: expressions that all must be true for a request to be looked at.

use cel::policy::{Answer, Declarations, ExpectedType, Expression, OUT_OF_BUDGET, Run, Uses, Variables};
use machinery::json::Value;

use super::evaluation::Evaluation;

/// Cost of all conditions of one webhook or policy.
const BUDGET: u64 = 2_500_000;

/// The conditions of one webhook or policy, compiled when it is stored.
#[derive(Debug, Default)]
pub(crate) struct CompiledConditions(Vec<Condition>);

#[derive(Debug)]
struct Condition {
    name: String,
    /// Or why it does not compile.
    expression: Result<Expression, String>,
}

/// What the conditions decide about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All are true.
    Met,
    /// This one is false: the request does not match, whatever the others are.
    NotMet(String),
    /// None is false and some failed, for these reasons. `failurePolicy` decides.
    Failed(String),
}

impl CompiledConditions {
    /// Compiles `matchConditions` of a webhook.
    pub(crate) fn of_webhook(list: &Value) -> Self {
        Self::compile(list, false)
    }

    /// Compiles `matchConditions` of a policy; `params` is set if it has a `paramKind`.
    pub(crate) fn of_policy(list: &Value, params: bool) -> Self {
        Self::compile(list, params)
    }

    fn compile(list: &Value, params: bool) -> Self {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        if list.is_empty() {
            return CompiledConditions::default();
        }
        let declared = Declarations::admission(params, true);
        let condition = |condition: &Value| Condition {
            name: condition["name"].as_str().unwrap_or_default().to_owned(),
            expression: declared.compile(condition["expression"].as_str().unwrap_or_default(), ExpectedType::Bool),
        };
        CompiledConditions(list.iter().map(condition).collect())
    }

    fn uses(&self) -> Uses {
        let compiled = self.0.iter().filter_map(|condition| condition.expression.as_ref().ok());
        compiled.fold(Uses::default(), |uses, expression| uses.or(expression.uses()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions. They cannot read the namespace: it is null.
    pub(crate) async fn check(&self, evaluation: &Evaluation<'_>, params: &Value) -> Outcome {
        if self.0.is_empty() {
            return Outcome::Met;
        }
        let none = Variables::default();
        let answers = evaluation
            .run(self.uses(), params, &Value::Null, |inputs| {
                let run = Run::new(inputs, &none, BUDGET);
                let answer = |condition: &Condition| match &condition.expression {
                    Ok(expression) => run.answer(expression),
                    Err(why) => Ok(Err(format!("compilation error: {why}"))),
                };
                self.0.iter().map(answer).collect::<Result<Vec<_>, _>>()
            })
            .await;
        let Ok(answers) = answers else { return Outcome::Failed(OUT_OF_BUDGET.to_owned()) };
        if let Some(at) = answers.iter().position(|answer| *answer == Ok(Answer::Bool(false))) {
            return Outcome::NotMet(self.0.get(at).map(|condition| condition.name.clone()).unwrap_or_default());
        }
        let mut errors: Vec<String> = Vec::new();
        for error in answers.into_iter().filter_map(Result::err) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match &*errors {
            [] => Outcome::Met,
            [one] => Outcome::Failed(one.clone()),
            several => Outcome::Failed(format!("[{}]", several.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use access::Authorizer;
    use access::authorizer::AlwaysAllow;
    use machinery::json::json;

    use super::super::evaluation::Answers;
    use super::super::matching::Matched;
    use super::super::plugin::{Attributes, Operation, Options, States};
    use super::*;
    use crate::request::{Context, Target};

    async fn outcome(expressions: &[&str]) -> Outcome {
        let list =
            expressions.iter().enumerate().map(|(at, text)| json!({"name": format!("c{at}"), "expression": text}));
        let conditions = CompiledConditions::of_webhook(&json!(list.collect::<Vec<_>>()));
        let kind = Arc::clone(crate::kinds::builtin().get("", "v1", "configmaps").unwrap());
        let target = Target { kind, namespace: Some("n".to_owned()), name: Some("a".to_owned()), subresource: None };
        let ctx = Context::default();
        let attributes = Attributes::new(Operation::Create, &target, Options::None, &ctx);
        let object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let authorizer: Arc<dyn Authorizer> = Arc::new(AlwaysAllow);
        let (answers, matched) = (Answers::new(&authorizer, &ctx.user), Matched::default());
        let states = States::new(None, Some(&object));
        conditions.check(&Evaluation::new(&attributes, states, &matched, &answers), &Value::Null).await
    }

    #[tokio::test]
    async fn ad_36_37_conditions_decide_before_errors() {
        let failed = |text: &str| Outcome::Failed(text.to_owned());
        let missing = "expression 'object.spec.x == 1' resulted in error: no such key: spec";
        for (expressions, want) in [
            (&[][..], Outcome::Met),
            (&["true", "object.metadata.name == 'a' && request.namespace == 'n'"], Outcome::Met),
            (&["oldObject == null", "namespaceObject == null"], Outcome::Met),
            (&["true", "request.operation == 'UPDATE'"], Outcome::NotMet("c1".to_owned())),
            (&["object.spec.x == 1", "false"], Outcome::NotMet("c1".to_owned())),
            (&["object.spec.x == 1", "true"], failed(missing)),
            (&["object.spec.x == 1", "object.spec.x == 1"], failed(missing)),
            (
                &["object.spec.x == 1", "object.a.b"],
                failed(&format!("[{missing}, compilation error: must evaluate to bool but got dyn]")),
            ),
            (&["authorizer.requestResource.check('get').allowed()"], Outcome::Met),
        ] {
            assert_eq!(outcome(expressions).await, want, "{expressions:?}");
        }
    }

    #[tokio::test]
    async fn ad_36_conditions_share_a_budget() {
        let list = "[1,2,3,4,5,6,7,8,9,10]";
        let costly =
            ["a", "b", "c", "d"].iter().fold("a > 0".to_owned(), |text, name| format!("{list}.all({name}, {text})"));
        // Each is below the limit of one expression.
        let all: Vec<&str> = std::iter::repeat_n(costly.as_str(), 64).collect();
        assert_eq!(outcome(&all[..1]).await, Outcome::Met);
        assert_eq!(outcome(&all).await, Outcome::Failed(OUT_OF_BUDGET.to_owned()));
    }
}
