//! Compiles an expression with declared variables and evaluates it.

use std::sync::Arc;

use machinery::json::Value;

use crate::ast::Ast;
use crate::cost::{CALL_LIMIT, Meter};
use crate::evaluate::{Evaluator, Slot};
use crate::plan::{self, Plan};
use crate::shape::Shape;
use crate::source::Issues;
use crate::types::Type;
use crate::value::{Fault, Outcome, Val, from_json};
use crate::{checker, cost, literal_checks, parser, patch};

/// A declared variable.
#[derive(Clone, Debug)]
struct Variable {
    name: Box<str>,
    shape: Arc<Shape>,
    /// The variable is an optional value; otherwise it may be missing.
    optional: bool,
}

/// The variables of an expression. Sizes in the schema of the first one bound the estimated cost.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Arc<[Variable]>,
}

/// The type that an expression must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Bool,
    String,
    Anything,
}

/// The reason why an expression does not compile.
#[derive(Clone, Debug)]
pub enum CompileError {
    /// Syntax or type errors.
    Issues(Issues),
    /// The expression has another type than the required one.
    Output,
    /// A constant cannot be evaluated.
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

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluation {
    Bool(bool),
    Text(String),
    Error(String),
    Exceeded,
}

impl Environment {
    #[must_use]
    pub fn new() -> Environment {
        Environment::default()
    }

    /// Adds a variable with the type that a schema describes; `resource` is set for a whole resource.
    #[must_use]
    pub fn with(self, name: &str, schema: &Value, resource: bool) -> Environment {
        self.with_shape(name, &Shape::from_schema(schema, resource), false)
    }

    /// Adds a variable whose type is known only when it is read.
    #[must_use]
    pub fn with_dynamic(self, name: &str) -> Environment {
        self.with_shape(name, Shape::dynamic(), false)
    }

    /// Adds a variable of the same type as an earlier one: `oldSelf` and `self`.
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

    /// Parses, checks and plans an expression.
    pub fn compile(&self, expression: &str, output: Output) -> Result<Program, CompileError> {
        let ast: Ast = parser::parse(expression).map_err(CompileError::Issues)?;
        let variables: Vec<(Box<str>, Type)> = self
            .variables
            .iter()
            .map(|variable| {
                let ty = variable.shape.declared_type();
                (variable.name.clone(), if variable.optional { Type::optional(ty) } else { ty })
            })
            .collect();
        let checked = checker::check(ast, &variables).map_err(CompileError::Issues)?;
        let issues = literal_checks::check(&checked);
        if !issues.is_empty() {
            return Err(CompileError::Issues(issues));
        }
        match (output, checked.output()) {
            (Output::Bool, Type::Bool) | (Output::String, Type::String) | (Output::Anything, _) => {}
            _ => return Err(CompileError::Output),
        }
        let names: Vec<&str> = self.variables.iter().map(|variable| &*variable.name).collect();
        let plan = plan::plan(&checked, &names).map_err(CompileError::Constant)?;
        let max_cost = self.variables.first().map_or(0, |root| cost::estimate(&checked, &root.shape).max);
        let mentioned = names.iter().map(|name| checked.mentions(name)).collect();
        Ok(Program { plan, variables: self.variables.clone(), mentioned, max_cost })
    }
}

impl Program {
    /// Returns the largest cost that the sizes in the schema allow.
    #[must_use]
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// Reports whether the expression uses the variable with this index.
    #[must_use]
    pub fn mentions(&self, variable: usize) -> bool {
        self.mentioned.get(variable).copied().unwrap_or(false)
    }

    /// Evaluates with a value for each variable, in the order of declaration. Returns the result and its cost.
    #[must_use]
    pub fn evaluate(&self, values: &[Option<&Value>]) -> (Evaluation, u64) {
        self.evaluate_within(values, CALL_LIMIT)
    }

    /// As [`Program::evaluate`], for a value of any type.
    pub fn evaluate_value(&self, values: &[Option<&Value>]) -> Result<Value, String> {
        let (answer, _) = self.run(values, CALL_LIMIT);
        answer.map_err(|fault| fault.to_string()).and_then(|value| patch::to_json(&value))
    }

    fn evaluate_within<'a>(&'a self, values: &[Option<&'a Value>], limit: u64) -> (Evaluation, u64) {
        let (answer, cost) = self.run(values, limit);
        let answer = match answer {
            Ok(Val::Bool(value)) => Evaluation::Bool(value),
            Ok(Val::String(text)) => Evaluation::Text(text.to_string()),
            Ok(other) => Evaluation::Error(format!("no such overload: {}", other.type_name())),
            Err(Fault::Limit) => Evaluation::Exceeded,
            Err(fault) => Evaluation::Error(fault.to_string()),
        };
        (answer, cost)
    }

    fn run<'a>(&'a self, values: &[Option<&'a Value>], limit: u64) -> (Outcome<Val<'a>>, u64) {
        let slots = self
            .variables
            .iter()
            .enumerate()
            .map(|(at, variable)| match (values.get(at).copied().flatten(), variable.optional) {
                (None, true) => Slot::Ready(Ok(Val::Optional(None))),
                (None, false) => Slot::Missing("oldSelf"),
                (Some(value), true) => Slot::Ready(from_json(value, &variable.shape).map(Val::some)),
                (Some(value), false) => Slot::Ready(from_json(value, &variable.shape)),
            })
            .collect();
        let mut evaluator = Evaluator { slots, meter: Meter::new(limit), scope: None };
        let answer = evaluator.eval(&self.plan);
        (answer, evaluator.meter.cost())
    }
}
