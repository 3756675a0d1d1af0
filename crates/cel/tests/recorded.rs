//! Compares results, messages and costs with tables recorded from Kubernetes.

use cel::{Environment, Evaluation, Output, Validator};
use machinery::json::{Value, from_str, json};

const PATH: &str = "PATH";

fn context() -> (Value, Value) {
    let mut context: Value = from_str(include_str!("recorded/context.json")).unwrap();
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
    for line in include_str!("recorded/expressions.tsv").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [expression, outcome, cost, max_cost] = columns[..] else {
            panic!("not four columns: {line}");
        };
        count += 1;
        let expression: String = serde_json::from_str(expression).unwrap();
        let outcome: Value = from_str(outcome).unwrap();
        let program = environment.compile(&expression, Output::Bool);
        let found_max = program.as_ref().map_or(0, cel::Program::max_cost);
        if found_max.to_string() != max_cost {
            wrong.push(format!("{expression}\n    may cost {max_cost}, not {found_max}"));
        }
        let (found, found_cost) = match Validator::compile(&with_rule(&schema, &expression), PATH) {
            Err(errors) => (json!(texts(&errors)), String::new()),
            Ok(validator) => {
                let errors = texts(&validator.validate(&object, None));
                let (answer, cost) = program.expect("compiles").evaluate(&[Some(&object), None]);
                let found = match (answer, errors.first()) {
                    (Evaluation::Bool(result), _) => json!(result),
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

#[test]
fn definitions_and_objects_are_refused_as_kubernetes_refuses_them() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("recorded/objects.jsonl").lines().skip(1) {
        let case: Value = from_str(line).unwrap();
        let mut compare = |what: &str, wanted: Value, found: Value| {
            if wanted != found {
                wrong.push(format!("{}: {what}\n    wanted {wanted}\n    found  {found}", case["name"]));
            }
        };
        let sorted = |key: &str| {
            let mut texts: Vec<String> = case[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|text| text.as_str().map(str::to_owned))
                .collect();
            texts.sort();
            json!(texts)
        };
        count += 1;
        match Validator::compile(&case["schema"], PATH) {
            Err(errors) => compare("refused", sorted("refused"), json!(texts(&errors))),
            Ok(validator) => {
                compare("refused", sorted("refused"), json!([]));
                let Some(value) = case.get("value") else {
                    continue;
                };
                let mut outcome = validator.check(value, case.get("old"));
                outcome.warnings.sort();
                compare("errors", sorted("errors"), json!(texts(&outcome.errors)));
                compare("warnings", sorted("warnings"), json!(outcome.warnings));
                if let Some(cost) = case.get("cost") {
                    compare("cost", cost.clone(), json!(outcome.cost));
                }
            }
        }
    }
    assert!(count > 50, "the table has {count} rows");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Compiles and evaluates an expression; `None` if it does not compile.
fn outcome_of(environment: &Environment, expression: &str, object: &Value) -> Option<(Evaluation, u64)> {
    let program = environment.compile(expression, Output::Bool).ok()?;
    Some(program.evaluate(&[Some(object)]))
}

#[test]
fn hostile_expressions_are_refused_or_cut_short() {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string"},
        "l": {"type": "array", "items": {"type": "string"}},
    }});
    let environment = Environment::new().with("self", &schema, true);
    let object = json!({"s": "a".repeat(1_000_000), "l": vec!["x"; 100_000]});
    let refused = [
        "(".repeat(100_000),
        "[".repeat(50_000),
        "!".repeat(99_999),
        "-".repeat(99_999),
        "1+".repeat(40_000) + "1 == 1",
        format!("self{}", ".a".repeat(40_000)),
        format!("self{}", "[0]".repeat(30_000)),
        "true?".repeat(20_000),
        "'".repeat(99_999),
        format!("'{}'", "a".repeat(100_001)),
        // Macros copy their arguments: each of these doubles the tree.
        format!("self.?s{}.hasValue()", ".optMap(x, x)".repeat(60)),
        // Each type is twice as large as the one before.
        format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(80)),
        format!("{} == 1", "[".repeat(240) + "1" + &"]".repeat(240)),
    ];
    for expression in refused {
        let shown: String = expression.chars().take(60).collect();
        assert!(environment.compile(&expression, Output::Bool).is_err(), "{shown}");
    }
    let doubled = |times: usize| "[self.l]".to_owned() + &".map(x, x + x)".repeat(times);
    let exceeded = [
        "self.l.all(a, self.l.all(b, a != b || true))".to_owned(),
        "self.s.replace('', self.s) == ''".to_owned(),
        "self.s.split('').map(x, self.s).join() == ''".to_owned(),
        "lists.range(1000000000).size() == 1".to_owned(),
        format!("{} == {}", doubled(60), doubled(60)),
        format!("{}[0].all(x, x == 'x')", doubled(50)),
        format!("{}.flatten().size() == 1", doubled(50)),
        format!("'%s'.format({}) == ''", doubled(40)),
        format!("sets.contains({}[0], ['y'])", doubled(40)),
        format!("{}[0].isSorted()", doubled(40)),
        "self.l.distinct().size() == self.l.sort().size()".to_owned(),
    ];
    for expression in exceeded {
        match outcome_of(&environment, &expression, &object) {
            Some((Evaluation::Exceeded, _)) => {}
            other => panic!("{expression}: {other:?}"),
        }
    }
    // Patterns that are exponential in backtracking engines are linear here.
    for expression in ["self.s.matches('(a*)*(a*)*(a*)*b')", "self.s.matches('(a|a)*c')"] {
        let found = outcome_of(&environment, expression, &object);
        assert!(matches!(found, Some((Evaluation::Bool(false) | Evaluation::Exceeded, _))), "{expression}: {found:?}");
    }
}

/// As recorded from kube-apiserver.
#[test]
fn a_reserved_word_may_be_a_field_as_it_is_or_escaped() {
    let schema = json!({"type": "object", "properties": {"namespace": {"type": "string"}, "if": {"type": "string"}}});
    for (rule, holds) in
        [("self.namespace == 'a'", true), ("self.__namespace__ == 'a'", true), ("self.if == 'x'", false)]
    {
        let validator = Validator::compile(&with_rule(&schema, rule), PATH).expect(rule);
        let errors = validator.validate(&json!({"namespace": "a", "if": "b"}), None);
        assert_eq!(errors.is_empty(), holds, "{rule}: {errors:?}");
    }
}

#[test]
fn a_rule_below_what_has_none_lets_pass_what_did_not_change() {
    let small = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v < 5", "message": "too large"}]});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "free": {"type": "string"},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": small},
        "plain": {"type": "array", "items": small},
        "named": {"type": "object", "additionalProperties": small}}}}});
    let validator = Validator::compile(&schema, PATH).unwrap();
    let old = json!({"spec": {"free": "a", "keyed": [{"k": "a", "v": 9}, {"k": "b", "v": 1}], "plain": [{"v": 9}],
        "named": {"x": {"v": 9}}}});
    let mut new = old.clone();
    new["spec"]["free"] = "b".into();
    new["spec"]["keyed"] = json!([{"k": "b", "v": 1}, {"k": "a", "v": 9}]);
    let outcome = validator.check(&new, Some(&old));
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(
        outcome.warnings,
        [
            "spec.keyed[1]: Invalid value: too large",
            "spec.plain[0]: Invalid value: too large",
            "spec.named[x]: Invalid value: too large"
        ]
    );
    new["spec"]["keyed"] = json!([{"k": "a", "v": 8}, {"k": "b", "v": 1}]);
    new["spec"]["plain"] = json!([{"v": 9}, {"v": 1}]);
    new["spec"]["named"]["y"] = json!({"v": 9});
    let outcome = validator.check(&new, Some(&old));
    let fields: Vec<&str> = outcome.errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["spec.keyed[0]", "spec.plain[0]", "spec.named[y]"]);
    assert_eq!(outcome.warnings.len(), 1);
}

#[test]
fn objects_that_look_alike_are_of_different_types_and_plain_values_are_not() {
    let (object, list) = (
        json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
        json!({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 3}}),
    );
    let schema = json!({"type": "object", "properties": {"a": object, "b": object, "c": list, "d": list}});
    let errors = Validator::compile(&with_rule(&schema, "self.a == self.b"), PATH).unwrap_err();
    assert!(errors[0].to_string().contains("applied to '(selfType.a, selfType.b)'"), "{}", errors[0]);
    assert!(Validator::compile(&with_rule(&schema, "self.c == self.d"), PATH).is_ok());
}
