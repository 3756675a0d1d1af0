//! Rules in CEL give what Kubernetes gives: results, messages and costs, held against tables of facts.

use machinery::json::{Value, from_str, json};
use schema::cel::{Answer, Environment, Output, Validator};

const PATH: &str = "PATH";

fn context() -> (Value, Value) {
    let mut context: Value = from_str(include_str!("cel/context.json")).unwrap();
    (context["schema"].take(), context["object"].take())
}

fn with_rule(schema: &Value, rule: &str) -> Value {
    let mut schema = schema.clone();
    let message = if rule.contains('\n') { "no" } else { "" };
    schema["x-kubernetes-validations"] = json!([{"rule": rule, "message": message}]);
    schema
}

fn texts(errors: &[machinery::field_error::FieldError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn expressions_give_what_kubernetes_gives() {
    let (schema, object) = context();
    let environment = Environment::new().with("self", &schema, true).with_same("oldSelf", "self");
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("cel/expressions.tsv").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [expression, outcome, cost, max_cost] = columns[..] else {
            panic!("not four columns: {line}");
        };
        count += 1;
        let expression: String = serde_json::from_str(expression).unwrap();
        let outcome: Value = from_str(outcome).unwrap();
        let program = environment.compile(&expression, Output::Bool);
        let found_max = program.as_ref().map_or(0, schema::cel::Program::max_cost);
        if found_max.to_string() != max_cost {
            wrong.push(format!("{expression}\n    may cost {max_cost}, not {found_max}"));
        }
        let (found, found_cost) = match Validator::compile(&with_rule(&schema, &expression), PATH) {
            Err(errors) => (json!(texts(&errors)), String::new()),
            Ok(validator) => {
                let errors = texts(&validator.validate(&object, None));
                let (answer, cost) = program.expect("compiles").evaluate(&[Some(&object), None]);
                let found = match (answer, errors.first()) {
                    (Answer::Bool(result), _) => json!(result),
                    (_, Some(error)) => json!(error),
                    (answer, None) => panic!("{expression}: {answer:?} without an error"),
                };
                (found, cost.to_string())
            }
        };
        if found != outcome {
            wrong.push(format!("{expression}\n    wanted {outcome}\n    found  {found}"));
        }
        if found_cost != cost {
            wrong.push(format!("{expression}\n    costs {cost}, not {found_cost}"));
        }
    }
    assert!(count > 500, "the table has {count} rows");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
