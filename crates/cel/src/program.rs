//! One expression, compiled: from text and declared variables to something that can be asked again and again.

use std::sync::Arc;

use machinery::json::Value;

use crate::ast::Ast;
use crate::cost::{CALL_LIMIT, Meter};
use crate::evaluate::{Machine, Slot};
use crate::plan::{self, Plan};
use crate::shape::Shape;
use crate::source::Issues;
use crate::types::Type;
use crate::value::{Fault, Val, from_json};
use crate::{checker, cost, literal_checks, parser};

/// A variable that expressions may name.
#[derive(Clone, Debug)]
struct Variable {
    name: Box<str>,
    shape: Arc<Shape>,
    /// Seen as an optional value rather than as missing.
    optional: bool,
}

/// The variables of an expression. The schema of the first bounds what an expression may cost.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Arc<[Variable]>,
}

/// What an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Bool,
    String,
}

/// Why an expression is refused.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It cannot be read, or its types do not fit.
    Issues(Issues),
    /// It evaluates to something else.
    Output,
    /// A constant in it has no value.
    Constant(String),
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
    variables: Arc<[Variable]>,
    mentioned: Box<[bool]>,
    max_cost: u64,
}

/// What an evaluation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Bool(bool),
    Text(String),
    /// The error, or that the budget of a call was spent.
    Error(String),
    Exceeded,
}

impl Environment {
    #[must_use]
    pub fn new() -> Environment {
        Environment::default()
    }

    /// With one more variable, whose values a schema describes; `resource` is set for whole resources.
    #[must_use]
    pub fn with(self, name: &str, schema: &Value, resource: bool) -> Environment {
        self.with_shape(name, &Shape::of(schema, resource), false)
    }

    /// With one more variable of the same type as an earlier one: `oldSelf` beside `self`.
    #[must_use]
    pub fn with_same(self, name: &str, earlier: &str) -> Environment {
        let shape = self.variables.iter().find(|variable| &*variable.name == earlier).map(|found| found.shape.clone());
        match shape {
            Some(shape) => self.with_shape(name, &shape, false),
            None => self,
        }
    }

    pub(crate) fn with_shape(self, name: &str, shape: &Arc<Shape>, optional: bool) -> Environment {
        let added = Variable { name: name.into(), shape: shape.clone(), optional };
        Environment { variables: self.variables.iter().cloned().chain([added]).collect() }
    }

    /// Reads, checks and prepares an expression.
    pub fn compile(&self, expression: &str, output: Output) -> Result<Program, Refusal> {
        let ast: Ast = parser::parse(expression).map_err(Refusal::Issues)?;
        let variables: Vec<(Box<str>, Type)> = self
            .variables
            .iter()
            .map(|variable| {
                let of = variable.shape.declared_type();
                (variable.name.clone(), if variable.optional { Type::optional(of) } else { of })
            })
            .collect();
        let checked = checker::check(ast, &variables).map_err(Refusal::Issues)?;
        let issues = literal_checks::check(&checked);
        if !issues.is_empty() {
            return Err(Refusal::Issues(issues));
        }
        match (output, checked.output()) {
            (Output::Bool, Type::Bool) | (Output::String, Type::String) => {}
            _ => return Err(Refusal::Output),
        }
        let names: Vec<&str> = self.variables.iter().map(|variable| &*variable.name).collect();
        let plan = plan::plan(&checked, &names).map_err(Refusal::Constant)?;
        let max_cost = self.variables.first().map_or(0, |root| cost::estimate(&checked, &root.shape).max);
        let mentioned = names.iter().map(|name| checked.mentions(name)).collect();
        Ok(Program { plan, variables: self.variables.clone(), mentioned, max_cost })
    }
}

impl Program {
    /// What it costs at most, by what the schema allows.
    #[must_use]
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Whether the expression names the variable with this number.
    #[must_use]
    pub fn mentions(&self, variable: usize) -> bool {
        self.mentioned.get(variable).copied().unwrap_or(false)
    }

    /// Evaluates with a value for each variable, in the order of their declaration; and what that cost.
    #[must_use]
    pub fn evaluate(&self, values: &[Option<&Value>]) -> (Answer, u64) {
        self.evaluate_within(values, CALL_LIMIT)
    }

    fn evaluate_within<'a>(&'a self, values: &[Option<&'a Value>], limit: u64) -> (Answer, u64) {
        let slots = self
            .variables
            .iter()
            .enumerate()
            .map(|(at, variable)| match (values.get(at).copied().flatten(), variable.optional) {
                (None, true) => Slot::Ready(Ok(Val::Optional(None))),
                (None, false) => Slot::Missing,
                (Some(value), true) => Slot::Ready(from_json(value, &variable.shape).map(Val::some)),
                (Some(value), false) => Slot::Ready(from_json(value, &variable.shape)),
            })
            .collect();
        let mut machine = Machine { slots, meter: Meter::new(limit) };
        let answer = match machine.eval(&self.plan) {
            Ok(Val::Bool(value)) => Answer::Bool(value),
            Ok(Val::String(text)) => Answer::Text(text.to_string()),
            Ok(other) => Answer::Error(format!("no such overload: {}", other.type_name())),
            Err(Fault::Limit) => Answer::Exceeded,
            Err(fault) => Answer::Error(fault.to_string()),
        };
        (answer, machine.meter.cost())
    }
}
