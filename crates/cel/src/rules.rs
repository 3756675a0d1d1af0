//! The rules of a schema, compiled, and what a definition is refused with for them.

use std::sync::{Arc, OnceLock};

use machinery::field_error::{BadValue, FieldError, FieldErrorKind, Path};
use machinery::json::{Value, json};

use crate::field_path;
use crate::program::{Environment, Output, Program, Refusal};
use crate::shape::{self, REQUEST_MAX, Shape};

const RULES: &str = "x-kubernetes-validations";
/// What one rule may cost, by the estimate.
const RULE_LIMIT: u64 = 10_000_000;
/// What the rules of a whole schema may cost together.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// How many of the expensive rules are named.
const NAMED_MAX: usize = 4;
const DEPTH_MAX: usize = 100;

/// One rule of a node, compiled when it is first asked: a definition may have hundreds, and an object concerns few.
#[derive(Debug)]
pub(crate) struct Rule {
    source: Box<str>,
    message_source: Box<str>,
    pub(crate) message: Box<str>,
    pub(crate) reason: FieldErrorKind,
    /// Below the node: `spec.replicas`.
    field_path: Option<Box<str>>,
    pub(crate) optional_old: bool,
    compiled: OnceLock<Box<Compiled>>,
}

/// The expressions of a rule, ready to be asked.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// None where it is empty; the complaint where it does not compile.
    pub(crate) program: Result<Option<Program>, String>,
    /// What makes the message, if an expression does and compiles.
    pub(crate) message: Result<Option<Program>, String>,
    pub(crate) uses_old: bool,
}

/// The rules that stand in a schema, if they are a list.
pub(crate) fn written(schema: &Value) -> &[Value] {
    schema.get(RULES).and_then(Value::as_array).map_or(&[], |rules| rules)
}

fn text<'r>(rule: &'r Value, key: &str) -> &'r str {
    rule.get(key).and_then(Value::as_str).unwrap_or("")
}

fn detail(refusal: &Refusal, source: &str, message: bool) -> String {
    let word = if message { "messageExpression " } else { "" };
    match refusal {
        Refusal::Issues(issues) => format!("{word}compilation failed: {}", issues.show(source)),
        Refusal::Output if message => "messageExpression must evaluate to a string".to_owned(),
        Refusal::Output => "cel expression must evaluate to a bool".to_owned(),
        Refusal::Constant(why) if message => format!("messageExpression instantiation failed: {why}"),
        Refusal::Constant(why) => format!("program instantiation failed: {why}"),
    }
}

impl Compiled {
    /// The expressions of a rule of a node of this shape; in some rules `oldSelf` is optional.
    fn of(source: &str, message: &str, shape: &Arc<Shape>, optional_old: bool) -> Compiled {
        let mut compiled = Compiled { program: Ok(None), message: Ok(None), uses_old: false };
        if source.trim().is_empty() {
            return compiled;
        }
        let environment =
            Environment::new().with_shape("self", shape, false).with_shape("oldSelf", shape, optional_old);
        match environment.compile(source, Output::Bool) {
            Ok(program) => {
                compiled.uses_old = program.mentions(1);
                compiled.program = Ok(Some(program));
            }
            Err(refusal) => {
                compiled.program = Err(detail(&refusal, source, false));
                return compiled;
            }
        }
        if !message.is_empty() {
            let program = environment.compile(message, Output::String);
            compiled.message = program.map(Some).map_err(|refusal| detail(&refusal, message, true));
        }
        compiled
    }
}

impl Rule {
    /// A rule that stands in a schema.
    pub(crate) fn new(rule: &Value, schema: &Value) -> Rule {
        let path = text(rule, "fieldPath");
        Rule {
            source: text(rule, "rule").into(),
            message_source: text(rule, "messageExpression").into(),
            message: text(rule, "message").trim().into(),
            reason: match text(rule, "reason") {
                "FieldValueForbidden" => FieldErrorKind::Forbidden,
                "FieldValueRequired" => FieldErrorKind::Required,
                "FieldValueDuplicate" => FieldErrorKind::Duplicate,
                _ => FieldErrorKind::Invalid,
            },
            field_path: if path.is_empty() { None } else { field_path::normalize(path, schema).ok().map(Into::into) },
            optional_old: shape::is_set(rule, "optionalOldSelf"),
            compiled: OnceLock::new(),
        }
    }

    /// Its expressions; `shape` is that of its node.
    pub(crate) fn compiled(&self, shape: &Arc<Shape>) -> &Compiled {
        let compile = || Box::new(Compiled::of(&self.source, &self.message_source, shape, self.optional_old));
        self.compiled.get_or_init(compile)
    }

    pub(crate) fn text(&self) -> &str {
        self.source.trim()
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &str {
        if self.message.is_empty() { self.text() } else { &self.message }
    }

    /// The field below its node that it blames, if it names one.
    pub(crate) fn field_path(&self, compiled: &Compiled) -> Option<&str> {
        self.field_path.as_deref().filter(|_| compiled.message.is_ok())
    }
}

/// What a definition is refused with, as far as it is found.
struct Examination {
    errors: Vec<FieldError>,
    total: u64,
    expensive: Vec<(String, u64)>,
}

/// What is known of a node from the nodes above it.
#[derive(Clone, Copy)]
struct Above<'p> {
    /// How often it can occur; none where nothing bounds that.
    cardinality: Option<u64>,
    /// Where the old value was lost.
    uncorrelated: Option<&'p Path<'p>>,
    depth: usize,
}

/// Examines a whole schema that stands at `path`.
pub(crate) fn examine(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut examination = Examination { errors: Vec::new(), total: 0, expensive: Vec::new() };
    let above = Above { cardinality: Some(1), uncorrelated: None, depth: 0 };
    let shape = Shape::of(schema, true);
    examination.node(schema, &shape, &Path::new(path), above);
    if examination.total > SCHEMA_LIMIT {
        for (path, _) in std::mem::take(&mut examination.expensive) {
            examination.errors.push(FieldError::forbidden(
                path,
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            ));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        examination.errors.push(FieldError::forbidden(path, over_budget(name, examination.total, SCHEMA_LIMIT)));
    }
    examination.errors
}

impl Examination {
    /// Whether nothing at or below the node is wrong with how its rules are written.
    fn node(&mut self, schema: &Value, shape: &Arc<Shape>, path: &Path<'_>, above: Above<'_>) -> bool {
        if above.depth > DEPTH_MAX {
            return true;
        }
        let mut sound = true;
        let inside = Above { cardinality: cardinality(schema, above.cardinality), depth: above.depth + 1, ..above };
        if let Some(additional) = shape::additional_of(schema) {
            let child = shape.additional.clone().unwrap_or_else(|| Shape::of(additional, false));
            sound &= self.node(additional, &child, &path.child("additionalProperties"), inside);
        }
        let list = path.child("properties");
        for (name, property) in shape::properties_of(schema).into_iter().flatten() {
            let child = match shape.property(name) {
                // Of a resource, what the schema says of these is not what rules see.
                Some(known) if !matches!(&**name, "metadata" | "kind" | "apiVersion") => known.shape.clone(),
                _ => Shape::of(property, false),
            };
            sound &= self.node(property, &child, &list.key(name), inside);
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let keyed = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
            let uncorrelated = if keyed { above.uncorrelated } else { above.uncorrelated.or(Some(path)) };
            let child = shape.items.clone().unwrap_or_else(|| Shape::of(items, false));
            sound &= self.node(items, &child, &path.child("items"), Above { uncorrelated, ..inside });
        }
        sound &= self.written_well(schema, path);
        if sound && !written(schema).is_empty() {
            self.rules(schema, shape, path, above);
        }
        sound
    }

    /// What can be said of rules before they are compiled.
    fn written_well(&mut self, schema: &Value, path: &Path<'_>) -> bool {
        let before = self.errors.len();
        let broken = |text: &str| text.contains(['\n', '\r']);
        for (at, rule) in written(schema).iter().enumerate() {
            let path = |field: &str| format!("{path}.{RULES}[{at}].{field}");
            let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
            let mut refuse = |error| self.errors.push(error);
            if source.is_empty() {
                refuse(FieldError::required(path("rule"), "rule is not specified"));
            } else if !message.is_empty() && message.trim().is_empty() {
                refuse(FieldError::invalid(path("message"), message, "must be non-empty if specified"));
            } else if broken(message.trim()) {
                refuse(FieldError::invalid(path("message"), message, "must not contain line breaks"));
            } else if broken(source) && message.trim().is_empty() {
                let why = "message must be specified if rule contains line breaks";
                refuse(FieldError::required(path("message"), why));
            }
            let expression = text(rule, "messageExpression");
            if !expression.is_empty() && expression.trim().is_empty() {
                let why = "messageExpression must be non-empty if specified";
                refuse(FieldError::required(path("messageExpression"), why));
            }
            const REASONS: [&str; 4] =
                ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
            if let Some(reason) = rule.get("reason").and_then(Value::as_str)
                && !REASONS.contains(&reason)
            {
                refuse(FieldError::not_supported(path("reason"), reason, REASONS));
            }
            let field = text(rule, "fieldPath");
            if !field.is_empty() {
                if field.trim().is_empty() {
                    refuse(FieldError::invalid(path("fieldPath"), field, "must be non-empty if specified"));
                }
                if broken(field) {
                    refuse(FieldError::invalid(path("fieldPath"), field, "must not contain line breaks"));
                }
                if field_path::normalize(field, schema).is_err() {
                    refuse(FieldError::invalid(path("fieldPath"), field, "must be a valid path"));
                }
            }
        }
        self.errors.len() == before
    }

    fn rules(&mut self, schema: &Value, shape: &Arc<Shape>, path: &Path<'_>, above: Above<'_>) {
        if !shape.declared {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                       to convert structural schema to CEL declarations";
            return self.errors.push(FieldError::internal(format!("{path}.{RULES}"), why));
        }
        let often = above.cardinality.unwrap_or((REQUEST_MAX / (shape.min_size + 1)) as u64);
        for (at, rule) in written(schema).iter().enumerate() {
            let path = |field: &str| format!("{path}.{RULES}[{at}].{field}");
            let optional_old = shape::is_set(rule, "optionalOldSelf");
            let compiled = Compiled::of(text(rule, "rule"), text(rule, "messageExpression"), shape, optional_old);
            let max_cost = compiled.program.as_ref().ok().and_then(Option::as_ref).map_or(0, Program::max_cost);
            self.charge(path("rule"), "estimated rule cost", max_cost.saturating_mul(often));
            if let Err(why) = &compiled.program {
                self.errors.push(FieldError::invalid(path("rule"), shown(rule), why.clone()));
            }
            match &compiled.message {
                Err(why) => {
                    self.errors.push(FieldError::invalid(path("messageExpression"), shown(rule), why.clone()));
                }
                Ok(Some(program)) => {
                    self.charge(path("messageExpression"), "estimated messageExpression cost", program.max_cost());
                }
                Ok(None) => {}
            }
            if compiled.uses_old {
                if let Some(within) = above.uncorrelated {
                    let why =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                    self.errors.push(FieldError::invalid(path("rule"), text(rule, "rule"), why));
                }
            } else if let Some(optional) = rule.get("optionalOldSelf").filter(|value| value.is_boolean()) {
                let why = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(path("optionalOldSelf"), optional, why));
            }
        }
    }

    fn charge(&mut self, path: String, name: &str, cost: u64) {
        if cost > RULE_LIMIT {
            self.errors.push(FieldError::forbidden(path.clone(), over_budget(name, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((path, cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED_MAX);
        }
    }
}

/// How often the parts of a node can occur.
fn cardinality(schema: &Value, own: Option<u64>) -> Option<u64> {
    let bound = |key: &str| schema.get(key).and_then(Value::as_i64).map(|value| value.max(0) as u64);
    let most = match schema.get("type").and_then(Value::as_str) {
        Some("object") if schema.get("additionalProperties").is_some() => bound("maxProperties"),
        Some("array") => bound("maxItems"),
        _ => Some(1),
    };
    Some(own?.saturating_mul(most?))
}

fn over_budget(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as a message shows it, with every field by the name that it has in the reference.
fn shown(rule: &Value) -> BadValue {
    let or_null = |key: &str| rule.get(key).cloned().unwrap_or(Value::Null);
    BadValue::Shown(json!({
        "Rule": text(rule, "rule"),
        "Message": text(rule, "message"),
        "MessageExpression": text(rule, "messageExpression"),
        "Reason": or_null("reason"),
        "FieldPath": text(rule, "fieldPath"),
        "OptionalOldSelf": or_null("optionalOldSelf"),
    }))
}
