//! The rules of one whole schema, node by node, and what they say of an object.

use std::sync::Arc;

use machinery::field_error::{BadValue, FieldError, FieldErrorKind};
use machinery::json::{Text, Value};

use crate::program::Answer;
use crate::rules::{self, Compiled, Rule};
use crate::shape::{self, Kind, Listing, Shape};

/// What the rules may cost together for one object.
const OBJECT_BUDGET: u64 = 10_000_000;
/// A message that an expression makes is not longer than this.
const MESSAGE_MAX: usize = 5 * 1024;
const DEPTH_MAX: usize = 100;

/// The compiled rules of one `openAPIV3Schema`.
#[derive(Debug, Default)]
pub struct Validator {
    root: Option<Node>,
}

/// What the rules say of an object.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub errors: Vec<FieldError>,
    /// What would have been an error, were it not that the field did not change.
    pub warnings: Vec<String>,
    /// What the rules cost, unless they were cut short.
    pub cost: u64,
}

/// The rules of one node of the schema and below.
#[derive(Debug)]
struct Node {
    /// Where there are rules, all of it; elsewhere no more than leads to them.
    shape: Arc<Shape>,
    rules: Box<[Rule]>,
    items: Option<Box<Node>>,
    additional: Option<Box<Node>>,
    /// Sorted by name.
    properties: Box<[(Text, Node)]>,
}

impl Node {
    fn property(&self, name: &str) -> Option<&Node> {
        let at = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }
}

impl Validator {
    /// Compiles every rule of a structural schema. `path` is where the schema stands in its definition
    /// (`spec.versions[0].schema.openAPIV3Schema`); the errors are those that the definition is refused with.
    pub fn compile(schema: &Value, path: &str) -> Result<Validator, Vec<FieldError>> {
        let errors = Validator::refusals(schema, path);
        if errors.is_empty() { Ok(Validator::trusted(schema)) } else { Err(errors) }
    }

    /// What a definition is refused with for the rules of a schema, of which nothing is kept.
    #[must_use]
    pub fn refusals(schema: &Value, path: &str) -> Vec<FieldError> {
        if has_rules(schema, 0) { rules::examine(schema, path) } else { Vec::new() }
    }

    /// The rules of a schema that was examined when its definition came: not costed again, and a rule that does not
    /// compile is an error of each write that it concerns.
    #[must_use]
    pub fn trusted(schema: &Value) -> Validator {
        if !has_rules(schema, 0) {
            return Validator::default();
        }
        Validator { root: build(schema, &Shape::of(schema, true), 0) }
    }

    /// Whether there is nothing to ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// What is wrong with an object; `old` is what it replaces.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.check(new, old).errors
    }

    /// As [`Validator::validate`], with the warnings.
    #[must_use]
    pub fn check(&self, new: &Value, old: Option<&Value>) -> Outcome {
        let Some(root) = &self.root else {
            return Outcome::default();
        };
        let mut walk = Walk { budget: OBJECT_BUDGET, outcome: Outcome::default() };
        let current = old.map(|old| Pair { new, old, shape: &root.shape });
        // Once the budget is spent nothing follows; that is among the errors.
        let _ = walk.node(root, &Path::Root, new, old, Ratchet { current, nearest: None });
        walk.outcome.cost = OBJECT_BUDGET - walk.budget;
        walk.outcome
    }
}

/// Whether there are rules. Under `allOf` and its like a structural schema has none.
fn has_rules(schema: &Value, depth: usize) -> bool {
    depth <= DEPTH_MAX
        && (!rules::written(schema).is_empty()
            || schema.get("items").is_some_and(|items| has_rules(items, depth + 1))
            || shape::additional_of(schema).is_some_and(|additional| has_rules(additional, depth + 1))
            || shape::properties_of(schema).into_iter().flatten().any(|(_, schema)| has_rules(schema, depth + 1)))
}

/// The rules of a schema and below.
fn build(schema: &Value, shape: &Arc<Shape>, depth: usize) -> Option<Node> {
    if depth > DEPTH_MAX || !shape.declared {
        return None;
    }
    let below = |schema: &Value, shape: &Arc<Shape>| build(schema, shape, depth + 1);
    let rules: Box<[Rule]> = rules::written(schema).iter().map(|rule| Rule::new(rule, schema)).collect();
    let items = schema.get("items").zip(shape.items.as_ref()).and_then(|(schema, shape)| below(schema, shape));
    let additional = shape::additional_of(schema).zip(shape.additional.as_ref());
    let additional = additional.and_then(|(schema, shape)| below(schema, shape));
    let mut properties: Vec<(Text, Node)> = Vec::new();
    for (name, schema) in shape::properties_of(schema).into_iter().flatten() {
        let property = shape.property(name).and_then(|property| below(schema, &property.shape));
        properties.extend(property.map(|node| (name.clone(), node)));
    }
    properties.sort_by(|(a, _), (b, _)| a.cmp(b));
    if rules.is_empty() && items.is_none() && additional.is_none() && properties.is_empty() {
        return None;
    }
    let shape = match rules.is_empty() {
        true => {
            let of = |node: &Node| node.shape.clone();
            let named = properties.iter().map(|(name, node)| (name.clone(), of(node)));
            Arc::new(shape.outline(named, additional.as_ref().map(of), items.as_ref().map(of)))
        }
        false => shape.clone(),
    };
    let (items, additional) = (items.map(Box::new), additional.map(Box::new));
    Some(Node { shape, rules, items, additional, properties: properties.into() })
}

/// Where the walk is; it becomes text only when something is wrong.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Child(&'p Path<'p>, &'p str),
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    fn write(&self, text: &mut String) {
        match self {
            Path::Root => {}
            Path::Child(parent, name) => {
                parent.write(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Path::Key(parent, key) => {
                parent.write(text);
                text.push_str(&format!("[{key}]"));
            }
            Path::Index(parent, at) => {
                parent.write(text);
                text.push_str(&format!("[{at}]"));
            }
        }
    }

    fn show(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        if text.is_empty() { "<nil>".to_owned() } else { text }
    }
}

/// A value and what it was before.
#[derive(Clone, Copy)]
struct Pair<'v> {
    new: &'v Value,
    old: &'v Value,
    shape: &'v Shape,
}

impl<'v> Pair<'v> {
    fn key(&self, name: &str) -> Option<Pair<'v>> {
        let (Value::Object(new), Value::Object(old)) = (self.new, self.old) else {
            return None;
        };
        let shape = match self.shape.property(name) {
            Some(property) => &property.shape,
            None => self.shape.additional.as_ref()?,
        };
        Some(Pair { new: new.get(name)?, old: old.get(name)?, shape })
    }

    fn index(&self, at: usize) -> Option<Pair<'v>> {
        let (Value::Array(new), Value::Array(old)) = (self.new, self.old) else {
            return None;
        };
        let new = new.get(at)?;
        Some(Pair { new, old: same_key(&self.shape.listing, old, new)?, shape: self.shape.items.as_ref()? })
    }

    /// Whether nothing changed, lists with keys in any order.
    fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                match self.shape.listing {
                    Listing::Map(_) => (0..new.len()).all(|at| self.index(at).is_some_and(|pair| pair.is_unchanged())),
                    _ => new == old,
                }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|key| self.key(key).is_some_and(|pair| pair.is_unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The element of a list with keys that has the same keys.
fn same_key<'v>(listing: &Listing, list: &'v [Value], element: &Value) -> Option<&'v Value> {
    let Listing::Map(keys) = listing else {
        return None;
    };
    if keys.is_empty() {
        return None;
    }
    let scalar = |value: &Value| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_));
    if !keys.iter().all(|key| element.get(&**key).is_some_and(scalar)) {
        return None;
    }
    list.iter().find(|other| keys.iter().all(|key| other.get(&**key) == element.get(&**key)))
}

/// What decides whether an error is let pass because nothing changed.
#[derive(Clone, Copy)]
struct Ratchet<'v> {
    current: Option<Pair<'v>>,
    nearest: Option<Pair<'v>>,
}

impl<'v> Ratchet<'v> {
    fn lets_pass(&self) -> bool {
        self.current.or(self.nearest).is_some_and(|pair| pair.is_unchanged())
    }

    fn key(self, name: &str) -> Ratchet<'v> {
        match self.current {
            None => self,
            Some(_) if self.nearest.is_none() && matches!(name, "apiVersion" | "kind") => {
                Ratchet { current: None, nearest: None }
            }
            Some(current) => Ratchet { current: current.key(name), nearest: Some(current) },
        }
    }

    fn index(self, at: usize) -> Ratchet<'v> {
        match self.current {
            None => self,
            Some(current) => Ratchet { current: current.index(at), nearest: Some(current) },
        }
    }
}

/// The budget is spent.
struct Spent;

struct Walk {
    budget: u64,
    outcome: Outcome,
}

impl Walk {
    fn node(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        if new.is_null() {
            return Ok(());
        }
        self.rules(node, path, new, old.filter(|old| !old.is_null()), ratchet)?;
        match new {
            Value::Array(items) => {
                let Some(child) = &node.items else {
                    return Ok(());
                };
                let old = old.and_then(Value::as_array);
                for (at, item) in items.iter().enumerate() {
                    let before = old.and_then(|old| same_key(&node.shape.listing, old, item));
                    self.node(child, &Path::Index(path, at), item, before, ratchet.index(at))?;
                }
            }
            Value::Object(entries) => {
                if node.additional.is_none() && node.properties.is_empty() {
                    return Ok(());
                }
                for (name, value) in entries {
                    let before = old.and_then(|old| old.get(name));
                    if let Some(child) = &node.additional {
                        self.node(child, &Path::Key(path, name), value, before, ratchet.key(name))?;
                    }
                    if let Some(child) = node.property(name) {
                        self.node(child, &Path::Child(path, name), value, before, ratchet.key(name))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fail(&mut self, path: &Path<'_>, node: &Node, detail: String) {
        self.outcome.errors.push(FieldError::invalid(path.show(), node.shape.type_name(), detail));
    }

    fn rules(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        const SPENT: &str =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        if node.rules.is_empty() {
            return Ok(());
        }
        if self.budget == 0 {
            self.fail(path, node, SPENT.to_owned());
            return Err(Spent);
        }
        for rule in &node.rules {
            let compiled = rule.compiled(&node.shape);
            let program = match &compiled.program {
                Ok(Some(program)) => program,
                Ok(None) => continue,
                Err(why) => {
                    self.fail(path, node, format!("rule compile error: {why}"));
                    continue;
                }
            };
            if compiled.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let values = [Some(new), old];
            let (answer, cost) = program.evaluate(&values);
            let Some(left) = self.budget.checked_sub(cost) else {
                self.fail(path, node, SPENT.to_owned());
                return Err(Spent);
            };
            self.budget = left;
            match answer {
                Answer::Bool(true) => {}
                Answer::Bool(false) => self.refuse(node, (rule, compiled), path, new, &values, ratchet)?,
                Answer::Exceeded => {
                    let why = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due \
                         to call cost exceeds limit for rule: {}",
                        rule.name()
                    );
                    self.fail(path, node, why);
                    return Err(Spent);
                }
                Answer::Error(why) if why.starts_with("no such overload") => {
                    let why = format!(
                        "'{why}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {}",
                        rule.name()
                    );
                    self.fail(path, node, why);
                }
                Answer::Error(why) => self.fail(path, node, format!("{why} evaluating rule: {}", rule.name())),
                Answer::Text(_) => self.fail(path, node, format!("no such overload evaluating rule: {}", rule.name())),
            }
        }
        Ok(())
    }

    /// A rule said no.
    fn refuse(
        &mut self,
        node: &Node,
        (rule, compiled): (&Rule, &Compiled),
        path: &Path<'_>,
        new: &Value,
        values: &[Option<&Value>],
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        let field = match rule.field_path(compiled) {
            Some(below) => Path::Child(path, below).show(),
            None => path.show(),
        };
        let mut passed = |error: FieldError| {
            if !compiled.uses_old && ratchet.lets_pass() {
                self.outcome.warnings.push(error.to_string());
            } else {
                self.outcome.errors.push(error);
            }
        };
        let mut detail = None;
        if let Ok(Some(program)) = &compiled.message {
            let (answer, cost) = program.evaluate(values);
            let Some(left) = self.budget.checked_sub(cost) else {
                passed(FieldError::invalid(
                    field,
                    node.shape.type_name(),
                    "messageExpression evaluation failed due to running out of cost budget, no further validation \
                     rules will be run",
                ));
                return Err(Spent);
            };
            self.budget = left;
            match answer {
                Answer::Text(text) => {
                    let text = text.trim();
                    if !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n') {
                        detail = Some(text.to_owned());
                    }
                }
                Answer::Exceeded => {
                    passed(FieldError::invalid(
                        field,
                        node.shape.type_name(),
                        "no further validation rules will be run due to call cost exceeds limit for messageExpression",
                    ));
                    return Err(Spent);
                }
                Answer::Bool(_) | Answer::Error(_) => {}
            }
        }
        let detail = detail.unwrap_or_else(|| match rule.message.is_empty() {
            true => format!("failed rule: {}", rule.text()),
            false => rule.message.to_string(),
        });
        let shown = matches!(rule.reason, FieldErrorKind::Invalid | FieldErrorKind::Duplicate)
            && !matches!(node.shape.kind, Kind::Object | Kind::Array);
        let value = if shown { BadValue::Shown(new.clone()) } else { BadValue::Omitted };
        let detail = if rule.reason == FieldErrorKind::Duplicate { String::new() } else { detail };
        passed(FieldError::new(rule.reason, field, value, detail));
        Ok(())
    }
}
