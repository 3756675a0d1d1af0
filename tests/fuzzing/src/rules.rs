//! Expressions of custom resource definitions and admission policies, compiled and evaluated on an object.

use std::sync::LazyLock;

use cel::policy::{Check, Decision, Decisions, Declarations, ExpectedType, Inputs, ResourceCheck, Run, Variables};
use cel::{CompileError, Environment, Evaluation, Output, Validator};
use machinery::json::{Value, json};

/// Cost limit of one evaluation.
const CALL_LIMIT: u64 = 1_000_000;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    json!({"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 20},
        "i": {"type": "integer"},
        "d": {"type": "number"},
        "t": {"type": "string", "format": "date-time"},
        "u": {"type": "string", "format": "duration"},
        "b": {"type": "string", "format": "byte"},
        "p": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "maxItems": 9, "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "k": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
        },
    }})
});

static OBJECT: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "s": "h\u{e9}llo", "i": -7, "d": 1.5, "t": "2020-02-29T13:14:15Z", "u": "1h30m", "b": "aGk=", "p": "50%",
        "l": ["b", "a", ""], "m": {"x": 1}, "k": [{"name": "a", "n": 1}, {"name": "b"}],
    })
});

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| Environment::new().with("self", &SCHEMA, true));

/// Allows what names an odd number of letters, so that both answers occur.
struct Odd;

impl Decisions for Odd {
    fn decide(&self, check: &Check) -> Option<Decision> {
        Some(Decision { allowed: check.verb.len() % 2 == 1, ..Decision::default() })
    }
}

/// An expression of a policy: a condition, a variable, and both kinds of mutations.
fn policy(text: &str) {
    let declared = Declarations::admission(true, true).with_patches();
    let (variables, resource) = (Variables::default(), ResourceCheck::default);
    let inputs = Inputs {
        object: &OBJECT,
        request: &SCHEMA,
        params: &OBJECT,
        authorizer: Some((&Odd, &resource)),
        ..Inputs::default()
    };
    let run = || Run::new(inputs, &variables, 10 * CALL_LIMIT);
    if let Ok(expression) = declared.compile(text, ExpectedType::Anything) {
        let (first, again) = (run(), run());
        assert_eq!(first.answer(&expression), again.answer(&expression), "{text:?}");
        assert_eq!(first.spent(), again.spent(), "{text:?}");
    }
    if let Ok(expression) = declared.compile(text, ExpectedType::ApplyConfiguration) {
        let _ = run().apply_configuration(&expression);
    }
    if let Ok(expression) = declared.compile(text, ExpectedType::JsonPatch) {
        let _ = run().json_patch(&expression);
    }
    let _ = Declarations::typed_admission(&SCHEMA, Some(Some(&SCHEMA))).issues(text);
}

/// An expression, as a rule, as a message, and in a policy; if the input is JSON, also a schema with rules.
pub fn cel(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for output in [Output::Bool, Output::String] {
        match ENVIRONMENT.compile(&text, output) {
            Ok(program) => {
                let (answer, cost) = program.evaluate(&[Some(&OBJECT)]);
                assert_eq!((answer.clone(), cost), program.evaluate(&[Some(&OBJECT)]), "{text:?}");
                assert!(cost <= CALL_LIMIT || answer == Evaluation::Exceeded, "{text:?} costs {cost}");
                let _ = program.evaluate(&[None]);
                let _ = program.evaluate(&[Some(&Value::Null)]);
            }
            Err(CompileError::Issues(issues)) => {
                assert!(!issues.is_empty(), "{text:?} is refused for a reason");
                let _ = issues.render(&text);
            }
            Err(_) => {}
        }
    }
    policy(&text);
    policy(&text.replace("self", "object"));
    if let Ok(schema) = machinery::json::from_slice(data)
        && let Ok(validator) = Validator::compile(&schema, "spec")
    {
        let _ = validator.check(&OBJECT, Some(&OBJECT));
    }
}
