//! Rules of a schema (`x-kubernetes-validations`): compilation, and the checks of a definition.

use std::sync::{Arc, OnceLock};

use machinery::field_error::{BadValue, FieldError, FieldErrorKind, Path};
use machinery::json::{Value, json};

use crate::field_path;
use crate::program::{CompileError, Environment, Output, Program};
use crate::shape::{self, REQUEST_MAX, Shape};

const RULES: &str = "x-kubernetes-validations";
/// Largest estimated cost of a rule.
const RULE_LIMIT: u64 = 10_000_000;
/// Largest estimated cost of all rules of a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Number of expensive rules that errors name.
const NAMED_MAX: usize = 4;
const DEPTH_MAX: usize = 100;

/// A rule of a schema node, compiled on first use: a definition may have hundreds, and an object uses few of them.
#[derive(Debug)]
pub(crate) struct Rule {
    source: Box<str>,
    message_source: Box<str>,
    pub(crate) message: Box<str>,
    pub(crate) reason: FieldErrorKind,
    /// Path below the node: `spec.replicas`.
    field_path: Option<Box<str>>,
    pub(crate) optional_old: bool,
    compiled: OnceLock<Box<Compiled>>,
}

/// The compiled expressions of a rule.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// `None` if the rule is empty; the error if it does not compile.
    pub(crate) program: Result<Option<Program>, String>,
    /// The compiled `messageExpression`, if the rule has one.
    pub(crate) message: Result<Option<Program>, String>,
    pub(crate) uses_old: bool,
}

/// Returns the rules of a schema node.
pub(crate) fn rules_of(schema: &Value) -> &[Value] {
    schema.get(RULES).and_then(Value::as_array).map_or(&[], |rules| rules)
}

fn string_field<'r>(rule: &'r Value, key: &str) -> &'r str {
    rule.get(key).and_then(Value::as_str).unwrap_or("")
}

fn detail(refusal: &CompileError, source: &str, message: bool) -> String {
    let word = if message { "messageExpression " } else { "" };
    match refusal {
        CompileError::Issues(issues) => format!("{word}compilation failed: {}", issues.render(source)),
        CompileError::Output if message => "messageExpression must evaluate to a string".to_owned(),
        CompileError::Output => "cel expression must evaluate to a bool".to_owned(),
        CompileError::Constant(why) if message => format!("messageExpression instantiation failed: {why}"),
        CompileError::Constant(why) => format!("program instantiation failed: {why}"),
    }
}

impl Compiled {
    /// Compiles the expressions of a rule; with `optional_old`, `oldSelf` is an optional value.
    fn new(source: &str, message: &str, shape: &Arc<Shape>, optional_old: bool) -> Compiled {
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
    /// Reads a rule of a schema node.
    pub(crate) fn new(rule: &Value, schema: &Value) -> Rule {
        let path = string_field(rule, "fieldPath");
        Rule {
            source: string_field(rule, "rule").into(),
            message_source: string_field(rule, "messageExpression").into(),
            message: string_field(rule, "message").trim().into(),
            reason: match string_field(rule, "reason") {
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

    /// Returns the compiled expressions; `shape` is that of the node.
    pub(crate) fn compiled(&self, shape: &Arc<Shape>) -> &Compiled {
        let compile = || Box::new(Compiled::new(&self.source, &self.message_source, shape, self.optional_old));
        self.compiled.get_or_init(compile)
    }

    pub(crate) fn source(&self) -> &str {
        self.source.trim()
    }

    /// Returns the name of the rule in messages.
    pub(crate) fn name(&self) -> &str {
        if self.message.is_empty() { self.source() } else { &self.message }
    }

    /// Returns the path of `fieldPath` below the node.
    pub(crate) fn field_path(&self, compiled: &Compiled) -> Option<&str> {
        self.field_path.as_deref().filter(|_| compiled.message.is_ok())
    }
}

/// Errors and costs of the rules visited so far.
struct Examination {
    errors: Vec<FieldError>,
    total: u64,
    expensive: Vec<(String, u64)>,
}

/// Context of a node, from the nodes above it.
#[derive(Clone, Copy)]
struct Context<'p> {
    /// How often the node can occur; `None` without a bound.
    cardinality: Option<u64>,
    /// The nearest list above whose elements have no counterpart in the old object.
    uncorrelated: Option<&'p Path<'p>>,
    depth: usize,
}

/// Returns the errors of the rules of a schema; `path` is the position of the schema in its definition.
pub(crate) fn schema_errors(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut examination = Examination { errors: Vec::new(), total: 0, expensive: Vec::new() };
    let context = Context { cardinality: Some(1), uncorrelated: None, depth: 0 };
    let shape = Shape::from_schema(schema, true);
    examination.node(schema, &shape, &Path::new(path), context);
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
    /// Checks a node and everything below; returns false if a rule is malformed.
    fn node(&mut self, schema: &Value, shape: &Arc<Shape>, path: &Path<'_>, context: Context<'_>) -> bool {
        if context.depth > DEPTH_MAX {
            return true;
        }
        let mut sound = true;
        let inside =
            Context { cardinality: cardinality(schema, context.cardinality), depth: context.depth + 1, ..context };
        if let Some(additional) = shape::additional_of(schema) {
            let child = shape.additional.clone().unwrap_or_else(|| Shape::from_schema(additional, false));
            sound &= self.node(additional, &child, &path.child("additionalProperties"), inside);
        }
        let list = path.child("properties");
        for (name, property) in shape::properties_of(schema).into_iter().flatten() {
            let child = match shape.property(name) {
                // In a resource these have a fixed shape for rules; here they are checked as the schema declares them.
                Some(known) if !matches!(&**name, "metadata" | "kind" | "apiVersion") => known.shape.clone(),
                _ => Shape::from_schema(property, false),
            };
            sound &= self.node(property, &child, &list.key(name), inside);
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let keyed = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
            let uncorrelated = if keyed { context.uncorrelated } else { context.uncorrelated.or(Some(path)) };
            let child = shape.items.clone().unwrap_or_else(|| Shape::from_schema(items, false));
            sound &= self.node(items, &child, &path.child("items"), Context { uncorrelated, ..inside });
        }
        sound &= self.check_fields(schema, path);
        if sound && !rules_of(schema).is_empty() {
            self.rules(schema, shape, path, context);
        }
        sound
    }

    /// Checks the fields of the rules; returns false if one is malformed.
    fn check_fields(&mut self, schema: &Value, path: &Path<'_>) -> bool {
        let before = self.errors.len();
        let broken = |text: &str| text.contains(['\n', '\r']);
        for (at, rule) in rules_of(schema).iter().enumerate() {
            let path = |field: &str| format!("{path}.{RULES}[{at}].{field}");
            let (source, message) = (string_field(rule, "rule").trim(), string_field(rule, "message"));
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
            let expression = string_field(rule, "messageExpression");
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
            let field = string_field(rule, "fieldPath");
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

    fn rules(&mut self, schema: &Value, shape: &Arc<Shape>, path: &Path<'_>, context: Context<'_>) {
        if !shape.declared {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                       to convert structural schema to CEL declarations";
            return self.errors.push(FieldError::internal(format!("{path}.{RULES}"), why));
        }
        let often = context.cardinality.unwrap_or((REQUEST_MAX / (shape.min_size + 1)) as u64);
        for (at, rule) in rules_of(schema).iter().enumerate() {
            let path = |field: &str| format!("{path}.{RULES}[{at}].{field}");
            let optional_old = shape::is_set(rule, "optionalOldSelf");
            let compiled =
                Compiled::new(string_field(rule, "rule"), string_field(rule, "messageExpression"), shape, optional_old);
            let max_cost = compiled.program.as_ref().ok().and_then(Option::as_ref).map_or(0, Program::max_cost);
            self.charge(path("rule"), "estimated rule cost", max_cost.saturating_mul(often));
            if let Err(why) = &compiled.program {
                self.errors.push(FieldError::invalid(path("rule"), rule_value(rule), why.clone()));
            }
            match &compiled.message {
                Err(why) => {
                    self.errors.push(FieldError::invalid(path("messageExpression"), rule_value(rule), why.clone()));
                }
                Ok(Some(program)) => {
                    self.charge(path("messageExpression"), "estimated messageExpression cost", program.max_cost());
                }
                Ok(None) => {}
            }
            if compiled.uses_old {
                if let Some(within) = context.uncorrelated {
                    let why =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                    self.errors.push(FieldError::invalid(path("rule"), string_field(rule, "rule"), why));
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

/// Returns how often the children of a node can occur.
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

/// Returns a rule as messages show it: with the Go names of its fields.
fn rule_value(rule: &Value) -> BadValue {
    let or_null = |key: &str| rule.get(key).cloned().unwrap_or(Value::Null);
    BadValue::Shown(json!({
        "Rule": string_field(rule, "rule"),
        "Message": string_field(rule, "message"),
        "MessageExpression": string_field(rule, "messageExpression"),
        "Reason": or_null("reason"),
        "FieldPath": string_field(rule, "fieldPath"),
        "OptionalOldSelf": or_null("optionalOldSelf"),
    }))
}
