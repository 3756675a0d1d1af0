//! Applies the rules of a schema to an object.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use machinery::field_error::{BadValue, FieldError, FieldErrorKind, Path};
use machinery::field_errors::Errors;
use machinery::json::{Text, Value};

use crate::program::Evaluation;
use crate::rules::{self, Compiled, Rule};
use crate::shape::{self, Kind, Listing, Shape};

/// Cost budget of all rules for one object.
const OBJECT_BUDGET: u64 = 10_000_000;
/// Longest message that `messageExpression` may return.
const MESSAGE_MAX: usize = 5 * 1024;
const DEPTH_MAX: usize = 100;
/// Most bytes of warnings; later ones are left out.
const WARNINGS_BYTES_MAX: usize = 1 << 20;

/// The compiled rules of one `openAPIV3Schema`.
#[derive(Debug, Default)]
pub struct Validator {
    root: Option<Node>,
}

/// The result of validating an object.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub errors: Errors,
    /// Errors of fields that did not change, which do not reject a write.
    pub warnings: Vec<String>,
    /// Cost of the rules that ran.
    pub cost: u64,
}

/// The rules of a schema node and of the nodes below.
#[derive(Debug)]
struct Node {
    /// Complete for nodes with rules; other nodes keep only the children that lead to rules.
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
    /// Compiles the rules of a structural schema. `path` is its position in the definition
    /// (`spec.versions[0].schema.openAPIV3Schema`). Returns the errors with which the definition is rejected.
    pub fn compile(schema: &Value, path: &str) -> Result<Validator, Vec<FieldError>> {
        let errors = Validator::schema_errors(schema, path);
        if errors.is_empty() { Ok(Validator::lazy(schema)) } else { Err(errors) }
    }

    /// Returns the errors of the rules of a schema without keeping the compiled rules.
    #[must_use]
    pub fn schema_errors(schema: &Value, path: &str) -> Vec<FieldError> {
        if has_rules(schema, 0) { rules::schema_errors(schema, path) } else { Vec::new() }
    }

    /// Prepares the rules of a schema that was checked when its definition was written. Costs are not estimated again;
    /// a rule that does not compile is an error of each write that it applies to.
    #[must_use]
    pub fn lazy(schema: &Value) -> Validator {
        if !has_rules(schema, 0) {
            return Validator::default();
        }
        Validator { root: build(schema, &Shape::from_schema(schema, true), 0) }
    }

    /// Reports whether the schema has no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns the errors of an object; `old` is the object that it replaces.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.check(new, old).errors.into_vec()
    }

    /// Like [`Validator::validate`], with warnings and cost.
    #[must_use]
    pub fn check(&self, new: &Value, old: Option<&Value>) -> Outcome {
        let Some(root) = &self.root else {
            return Outcome::default();
        };
        let mut validation = Validation {
            budget: OBJECT_BUDGET,
            outcome: Outcome::default(),
            warning_bytes: 0,
            comparison: Comparison::default(),
        };
        let current = old.map(|old| Pair { new, old, shape: &root.shape });
        // An exhausted budget ends the walk and is among the errors.
        let _ = validation.node(root, &Path::root(), new, old, Ratchet { current, nearest: None });
        validation.outcome.cost = OBJECT_BUDGET - validation.budget;
        validation.outcome
    }
}

/// Reports whether a schema has rules. A structural schema has none under `allOf` and similar.
fn has_rules(schema: &Value, depth: usize) -> bool {
    depth <= DEPTH_MAX
        && (!rules::rules_of(schema).is_empty()
            || schema.get("items").is_some_and(|items| has_rules(items, depth + 1))
            || shape::additional_of(schema).is_some_and(|additional| has_rules(additional, depth + 1))
            || shape::properties_of(schema).into_iter().flatten().any(|(_, schema)| has_rules(schema, depth + 1)))
}

/// Collects the rules of a schema node and of the nodes below.
fn build(schema: &Value, shape: &Arc<Shape>, depth: usize) -> Option<Node> {
    if depth > DEPTH_MAX || !shape.declared {
        return None;
    }
    let below = |schema: &Value, shape: &Arc<Shape>| build(schema, shape, depth + 1);
    let rules: Box<[Rule]> = rules::rules_of(schema).iter().map(|rule| Rule::new(rule, schema)).collect();
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

/// The text of a path in an error.
fn render(path: &Path<'_>) -> String {
    let text = String::from(path);
    if text.is_empty() { "<nil>".to_owned() } else { text }
}

/// A value and its previous version.
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

    fn index(&self, at: usize, comparison: &Comparison<'v>) -> Option<Pair<'v>> {
        let (Value::Array(new), Value::Array(old)) = (self.new, self.old) else {
            return None;
        };
        let new = new.get(at)?;
        let old = comparison.partner(&self.shape.listing, old, new)?;
        Some(Pair { new, old, shape: self.shape.items.as_ref()? })
    }

    /// Reports whether the value is unchanged; the order of lists with keys does not matter.
    fn is_unchanged(&self, comparison: &Comparison<'v>) -> bool {
        let same = |pair: Option<Pair<'v>>| pair.is_some_and(|pair| pair.is_unchanged(comparison));
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                match self.shape.listing {
                    Listing::Map(_) => (0..new.len()).all(|at| same(self.index(at, comparison))),
                    _ => new == old,
                }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|key| same(self.key(key)))
            }
            (new, old) => new == old,
        }
    }
}

/// What is known of the two versions of an object. A rule may fail for each item of a list, and each failure asks.
#[derive(Default)]
struct Comparison<'v> {
    /// The items of old lists with keys by their keys; a list is known by its address.
    lists: RefCell<HashMap<*const Value, Rc<ByKeys<'v>>>>,
    /// Whether values are unchanged, by the addresses of both versions.
    unchanged: RefCell<HashMap<(*const Value, *const Value), bool>>,
}

type ByKeys<'v> = HashMap<String, &'v Value>;

impl<'v> Comparison<'v> {
    /// Returns the item of an old list that has the same keys, in a list with keys.
    fn partner(&self, listing: &Listing, list: &'v [Value], item: &Value) -> Option<&'v Value> {
        let Listing::Map(keys) = listing else {
            return None;
        };
        let wanted = text_of_keys(keys, item)?;
        let known = self.lists.borrow().get(&list.as_ptr()).cloned();
        let by_keys = known.unwrap_or_else(|| {
            let mut by_keys = ByKeys::with_capacity(list.len());
            for item in list {
                if let Some(text) = text_of_keys(keys, item) {
                    by_keys.entry(text).or_insert(item);
                }
            }
            let by_keys = Rc::new(by_keys);
            self.lists.borrow_mut().insert(list.as_ptr(), Rc::clone(&by_keys));
            by_keys
        });
        by_keys.get(&wanted).copied()
    }

    fn is_unchanged(&self, pair: &Pair<'v>) -> bool {
        let place: (*const Value, *const Value) = (pair.new, pair.old);
        let known = self.unchanged.borrow().get(&place).copied();
        known.unwrap_or_else(|| {
            let unchanged = pair.is_unchanged(self);
            self.unchanged.borrow_mut().insert(place, unchanged);
            unchanged
        })
    }
}

/// Returns a text that is the same for items with the same keys; none if a key is absent or no scalar.
fn text_of_keys(keys: &[Box<str>], item: &Value) -> Option<String> {
    if keys.is_empty() {
        return None;
    }
    let mut text = String::new();
    for key in keys {
        match item.get(&**key)? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            value => {
                text.push_str(&machinery::json::to_string(value));
                text.push(',');
            }
        }
    }
    Some(text)
}

/// Decides whether an error becomes a warning because the value did not change.
#[derive(Clone, Copy)]
struct Ratchet<'v> {
    current: Option<Pair<'v>>,
    nearest: Option<Pair<'v>>,
}

impl<'v> Ratchet<'v> {
    fn is_unchanged(&self, comparison: &Comparison<'v>) -> bool {
        self.current.or(self.nearest).is_some_and(|pair| comparison.is_unchanged(&pair))
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

    fn index(self, at: usize, comparison: &Comparison<'v>) -> Ratchet<'v> {
        match self.current {
            None => self,
            Some(current) => Ratchet { current: current.index(at, comparison), nearest: Some(current) },
        }
    }
}

/// The cost budget is exhausted.
struct BudgetExhausted;

struct Validation<'v> {
    budget: u64,
    outcome: Outcome,
    warning_bytes: usize,
    comparison: Comparison<'v>,
}

impl<'v> Validation<'v> {
    fn node(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        new: &'v Value,
        old: Option<&'v Value>,
        ratchet: Ratchet<'v>,
    ) -> Result<(), BudgetExhausted> {
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
                    let before = old.and_then(|old| self.comparison.partner(&node.shape.listing, old, item));
                    let ratchet = ratchet.index(at, &self.comparison);
                    self.node(child, &path.index(at), item, before, ratchet)?;
                }
            }
            Value::Object(entries) => {
                if node.additional.is_none() && node.properties.is_empty() {
                    return Ok(());
                }
                for (name, value) in entries {
                    let before = old.and_then(|old| old.get(name));
                    if let Some(child) = &node.additional {
                        self.node(child, &path.key(name), value, before, ratchet.key(name))?;
                    }
                    if let Some(child) = node.property(name) {
                        self.node(child, &path.child(name), value, before, ratchet.key(name))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fail(&mut self, path: &Path<'_>, node: &Node, detail: String) {
        self.outcome.errors.push_with(|| FieldError::invalid(render(path), node.shape.type_name(), detail));
    }

    fn rules(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        new: &'v Value,
        old: Option<&'v Value>,
        ratchet: Ratchet<'v>,
    ) -> Result<(), BudgetExhausted> {
        const SPENT: &str =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        if node.rules.is_empty() {
            return Ok(());
        }
        if self.budget == 0 {
            self.fail(path, node, SPENT.to_owned());
            return Err(BudgetExhausted);
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
                return Err(BudgetExhausted);
            };
            self.budget = left;
            match answer {
                Evaluation::Bool(true) => {}
                Evaluation::Bool(false) => self.refuse(node, (rule, compiled), path, new, &values, ratchet)?,
                Evaluation::Exceeded => {
                    let why = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due \
                         to call cost exceeds limit for rule: {}",
                        rule.name()
                    );
                    self.fail(path, node, why);
                    return Err(BudgetExhausted);
                }
                Evaluation::Error(why) if why.starts_with("no such overload") => {
                    let why = format!(
                        "'{why}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {}",
                        rule.name()
                    );
                    self.fail(path, node, why);
                }
                Evaluation::Error(why) => self.fail(path, node, format!("{why} evaluating rule: {}", rule.name())),
                Evaluation::Text(_) => {
                    self.fail(path, node, format!("no such overload evaluating rule: {}", rule.name()))
                }
            }
        }
        Ok(())
    }

    /// Reports a rule that evaluated to false.
    fn refuse(
        &mut self,
        node: &Node,
        (rule, compiled): (&Rule, &Compiled),
        path: &Path<'_>,
        new: &Value,
        values: &[Option<&Value>],
        ratchet: Ratchet<'v>,
    ) -> Result<(), BudgetExhausted> {
        let field = || match rule.field_path(compiled) {
            Some(below) => render(&path.child(below)),
            None => render(path),
        };
        let mut detail = None;
        if let Ok(Some(program)) = &compiled.message {
            let (answer, cost) = program.evaluate(values);
            let Some(left) = self.budget.checked_sub(cost) else {
                self.report(compiled, ratchet, || {
                    FieldError::invalid(
                        field(),
                        node.shape.type_name(),
                        "messageExpression evaluation failed due to running out of cost budget, no further validation \
                         rules will be run",
                    )
                });
                return Err(BudgetExhausted);
            };
            self.budget = left;
            match answer {
                Evaluation::Text(text) => {
                    let text = text.trim();
                    if !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n') {
                        detail = Some(text.to_owned());
                    }
                }
                Evaluation::Exceeded => {
                    self.report(compiled, ratchet, || {
                        FieldError::invalid(
                            field(),
                            node.shape.type_name(),
                            "no further validation rules will be run due to call cost exceeds limit for \
                             messageExpression",
                        )
                    });
                    return Err(BudgetExhausted);
                }
                Evaluation::Bool(_) | Evaluation::Error(_) => {}
            }
        }
        self.report(compiled, ratchet, || {
            let detail = detail.unwrap_or_else(|| match rule.message.is_empty() {
                true => format!("failed rule: {}", rule.source()),
                false => rule.message.to_string(),
            });
            let shown = matches!(rule.reason, FieldErrorKind::Invalid | FieldErrorKind::Duplicate)
                && !matches!(node.shape.kind, Kind::Object | Kind::Array);
            let value = if shown { BadValue::Shown(new.clone()) } else { BadValue::Omitted };
            let detail = if rule.reason == FieldErrorKind::Duplicate { String::new() } else { detail };
            FieldError::new(rule.reason, field(), value, detail)
        });
        Ok(())
    }

    /// Adds an error, or a warning if the value did not change. It is only made if its text is kept.
    fn report(&mut self, compiled: &Compiled, ratchet: Ratchet<'v>, error: impl FnOnce() -> FieldError) {
        if compiled.uses_old || !ratchet.is_unchanged(&self.comparison) {
            self.outcome.errors.push_with(error);
        } else if self.warning_bytes <= WARNINGS_BYTES_MAX {
            let text = error().to_string();
            self.warning_bytes += text.len();
            self.outcome.warnings.push(text);
        }
    }
}
