//! A checked expression prepared for repeated evaluation: names are slots, constants are folded, patterns are compiled.
//!
//! Its structure follows the costs: a chain `self.a.b` is one step with two qualifiers, since it is charged as such.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::{Comprehension, Entry, Expr, Id, Literal};
use crate::checker::{Checked, Reference, TYPES_WITHOUT_VALUE};
use crate::cost::CallCost;
use crate::evaluate::constant;
use crate::library::{self, Implementation};
use crate::lists;
use crate::macros::ACCUMULATOR;
use crate::pattern::Pattern;
use crate::policy::VARIABLES;
use crate::value::{Key, Text, Val};

/// One step of an evaluation.
#[derive(Debug)]
pub(crate) enum Plan {
    Const(Val<'static>),
    Attribute(Attribute),
    Has(Box<Attribute>, Box<str>),
    And(Box<[Plan]>),
    Or(Box<[Plan]>),
    NotStrictlyFalse(Box<Plan>),
    Equal {
        sides: Box<[Plan; 2]>,
        negated: bool,
    },
    Call(Box<Call>),
    /// `x in [1, 2, 3]`
    Member(Box<Plan>, Box<Members>),
    OptionalOr(Box<[Plan; 2]>),
    OptionalOrValue(Box<[Plan; 2]>),
    List(Box<[(Plan, bool)]>),
    Map(Box<[(Plan, Plan, bool)]>),
    Fold(Box<Fold>),
    Message(Box<NewMessage>),
    /// Extends the accumulator of a loop in place.
    Append(usize, Box<Plan>),
    Insert(usize, Box<[Plan]>),
}

/// A value and the fields and indexes selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
}

impl Attribute {
    fn select(&mut self, qualifier: Qualifier) {
        // Plans live long and chains are short: no spare capacity.
        self.qualifiers.reserve_exact(1);
        self.qualifiers.push(qualifier);
    }
}

#[derive(Debug)]
pub(crate) enum Base {
    /// A variable, by slot.
    Slot(usize),
    /// A variable that a policy declares, by index; evaluated on first use.
    Composed(usize),
    Choice(Box<(Plan, Attribute, Attribute)>),
    Value(Box<Plan>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: Index,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum Index {
    Const(Val<'static>),
    Attribute(Attribute),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) run: Implementation,
    pub(crate) cost: CallCost,
    pub(crate) args: Box<[Plan]>,
    /// The compiled second argument, if it is a constant pattern.
    pub(crate) pattern: Option<Pattern>,
}

#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(crate) keys: BTreeSet<Key<'static>>,
    pub(crate) doubles: Vec<f64>,
}

#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Plan,
    pub(crate) init: Plan,
    pub(crate) condition: Plan,
    pub(crate) step: Plan,
    pub(crate) result: Plan,
    pub(crate) two: bool,
    pub(crate) bind: bool,
}

/// A message to create.
#[derive(Debug)]
pub(crate) struct NewMessage {
    pub(crate) name: Arc<str>,
    /// Name, value, and whether the value is optional.
    pub(crate) fields: Box<[(Arc<str>, Plan, bool)]>,
}

/// Plans a checked expression.
pub(crate) fn plan(checked: &Checked, variables: &[&str]) -> Result<Plan, String> {
    plan_with(checked, variables, &[])
}

/// Plans a checked expression that may use `variables.x` for the names in `composed`.
pub(crate) fn plan_with(checked: &Checked, variables: &[&str], composed: &[&str]) -> Result<Plan, String> {
    let scopes = variables.iter().map(|name| (*name).into()).collect();
    Planner { checked, scopes, composed }.plan(checked.ast.root)
}

struct Planner<'c> {
    checked: &'c Checked,
    /// Variables by slot; the innermost is last.
    scopes: Vec<Box<str>>,
    /// Names of the variables that a policy declares.
    composed: &'c [&'c str],
}

type Planned = Result<Plan, String>;

impl Planner<'_> {
    fn plan(&mut self, id: Id) -> Planned {
        let checked = self.checked;
        if let Reference::TypeName(name) = checked.reference(id) {
            if TYPES_WITHOUT_VALUE.contains(name) {
                return Err(format!("reference to undefined type: {name}"));
            }
            return Ok(Plan::Const(Val::Type(name)));
        }
        match checked.ast.expr(id) {
            Expr::Literal(literal) => Ok(Plan::Const(value_of(literal))),
            Expr::Ident(name) => {
                Ok(Plan::Attribute(Attribute { base: Base::Slot(self.slot(name)?), qualifiers: Vec::new() }))
            }
            Expr::Select { operand, field, test } => {
                if let Some(base) = self.dotted(*operand, field) {
                    // A declared variable always has a value or an error.
                    return Ok(match test {
                        true => Plan::Const(Val::Bool(true)),
                        false => Plan::Attribute(Attribute { base, qualifiers: Vec::new() }),
                    });
                }
                let mut attribute = attribute_of(self.plan(*operand)?);
                if *test {
                    return Ok(Plan::Has(Box::new(attribute), field.clone()));
                }
                let key = Index::Const(text_of(field));
                attribute.select(Qualifier { key, optional: false });
                Ok(Plan::Attribute(attribute))
            }
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::List { elements, optional } => {
                let mut planned = Vec::with_capacity(elements.len());
                for (at, element) in elements.iter().enumerate() {
                    planned.push((self.plan(*element)?, optional.get(at).copied().unwrap_or(false)));
                }
                let known = planned.iter().all(|(plan, _)| matches!(plan, Plan::Const(_)));
                fold(Plan::List(planned.into()), known)
            }
            Expr::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for Entry { key, value, optional } in entries {
                    planned.push((self.plan(*key)?, self.plan(*value)?, *optional));
                }
                let known = |plan: &Plan| matches!(plan, Plan::Const(_));
                let known = planned.iter().all(|(key, value, _)| known(key) && known(value));
                fold(Plan::Map(planned.into()), known)
            }
            Expr::Comprehension(inner) => self.comprehension(inner),
            Expr::Struct { name, fields } => {
                let name = name.strip_prefix('.').unwrap_or(name);
                let mut planned = Vec::with_capacity(fields.len());
                for field in fields {
                    planned.push((Arc::from(&*field.name), self.plan(field.value)?, field.optional));
                }
                Ok(Plan::Message(Box::new(NewMessage { name: name.into(), fields: planned.into() })))
            }
            Expr::Error => Err("expression was not understood".to_owned()),
        }
    }

    fn slot(&self, name: &str) -> Result<usize, String> {
        let name = name.strip_prefix('.').unwrap_or(name);
        self.scopes.iter().rposition(|known| &**known == name).ok_or_else(|| format!("no such attribute(s): {name}"))
    }

    /// Returns the variable whose dotted name a selection spells: `variables.x`, `authorizer.requestResource`.
    fn dotted(&self, operand: Id, field: &str) -> Option<Base> {
        let Expr::Ident(prefix) = self.checked.ast.expr(operand) else {
            return None;
        };
        let prefix = prefix.strip_prefix('.').unwrap_or(prefix);
        if prefix == VARIABLES {
            return self.composed.iter().rposition(|name| *name == field).map(Base::Composed);
        }
        let is_named = |name: &str| name.split_once('.') == Some((prefix, field));
        self.scopes.iter().rposition(|name| is_named(name)).map(Base::Slot)
    }

    fn plans(&mut self, ids: impl IntoIterator<Item = Id>) -> Result<Vec<Plan>, String> {
        ids.into_iter().map(|id| self.plan(id)).collect()
    }

    fn pair(&mut self, first: Id, second: Id) -> Result<Box<[Plan; 2]>, String> {
        Ok(Box::new([self.plan(first)?, self.plan(second)?]))
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &[Id]) -> Planned {
        let Reference::Function { name, overloads, qualified } = self.checked.reference(id) else {
            return Err("call was not resolved".to_owned());
        };
        let (name, overload) = (*name, if let [one] = &**overloads { one } else { "" });
        let target = if *qualified { None } else { target };
        if let ("_?._", [operand, index]) = (name, args)
            && let Expr::Literal(Literal::String(field)) = self.checked.ast.expr(*index)
            && let Some(base) = self.dotted(*operand, field)
        {
            let args = Box::new([Plan::Attribute(Attribute { base, qualifiers: Vec::new() })]);
            let run = library::implementation("optional.of").ok_or("no such overload")?;
            let call = Call { name: "optional.of", run, cost: CallCost::Unit, args, pattern: None };
            return Ok(Plan::Call(Box::new(call)));
        }
        match (name, target, args) {
            ("_&&_", ..) => return Ok(Plan::And(self.plans(args.iter().copied())?.into())),
            ("_||_", ..) => return Ok(Plan::Or(self.plans(args.iter().copied())?.into())),
            ("@not_strictly_false", _, [arg]) => return Ok(Plan::NotStrictlyFalse(Box::new(self.plan(*arg)?))),
            ("_==_" | "_!=_", _, [a, b]) => {
                return Ok(Plan::Equal { sides: self.pair(*a, *b)?, negated: name == "_!=_" });
            }
            ("_?_:_", _, [condition, yes, no]) => {
                let condition = self.plan(*condition)?;
                let yes = attribute_of(self.plan(*yes)?);
                let no = attribute_of(self.plan(*no)?);
                let base = Base::Choice(Box::new((condition, yes, no)));
                return Ok(Plan::Attribute(Attribute { base, qualifiers: Vec::new() }));
            }
            ("_[_]" | "_[?_]" | "_?._", _, [operand, index]) => {
                let mut attribute = attribute_of(self.plan(*operand)?);
                let key = match self.plan(*index)? {
                    Plan::Const(value) => Index::Const(value),
                    other => Index::Attribute(attribute_of(other)),
                };
                attribute.select(Qualifier { key, optional: name != "_[_]" });
                return Ok(Plan::Attribute(attribute));
            }
            ("or", Some(target), [other]) => return Ok(Plan::OptionalOr(self.pair(target, *other)?)),
            ("orValue", Some(target), [other]) => return Ok(Plan::OptionalOrValue(self.pair(target, *other)?)),
            _ => {}
        }
        let args: Vec<Plan> = self.plans(target.into_iter().chain(args.iter().copied()))?;
        if overload == "in_list"
            && let [_, Plan::Const(list)] = &*args
            && let Some(members) = members(list)
        {
            if members.keys.is_empty() && members.doubles.is_empty() {
                return Ok(Plan::Const(Val::Bool(false)));
            }
            let value = args.into_iter().next().unwrap_or(Plan::Const(Val::Null));
            return Ok(Plan::Member(Box::new(value), Box::new(members)));
        }
        let mut compiled = None;
        if matches!(name, "matches" | "find" | "findAll")
            && let Some(Plan::Const(Val::String(text))) = args.get(1)
        {
            let pattern = Pattern::new(text);
            if let Some(why) = pattern.error() {
                return Err(why.to_owned());
            }
            compiled = Some(pattern);
        }
        let run = match overload {
            "list_duration_sum_duration" => Some(lists::sum_of_durations as Implementation),
            _ => library::implementation(name),
        };
        let run = run.ok_or_else(|| format!("no such overload: {name}(...)"))?;
        let known = matches!(&*args, [Plan::Const(_)])
            && matches!(
                name,
                "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
            );
        let cost = CallCost::for_call(name, overload);
        fold(Plan::Call(Box::new(Call { name, run, cost, args: args.into(), pattern: compiled })), known)
    }

    fn comprehension(&mut self, inner: &Comprehension) -> Planned {
        let range = self.plan(inner.range)?;
        let init = self.plan(inner.init)?;
        let depth = self.scopes.len();
        self.scopes.push(inner.accumulator.clone());
        let (mut condition, mut step) = (Plan::Const(Val::Null), Plan::Const(Val::Null));
        if !inner.bind {
            self.scopes.push(inner.variable.clone());
            self.scopes.extend(inner.second.clone());
            condition = self.plan(inner.condition)?;
            step = self.step(inner.step, depth)?;
            self.scopes.truncate(depth + 1);
        }
        let result = self.plan(inner.result)?;
        self.scopes.truncate(depth);
        let two = inner.second.is_some();
        Ok(Plan::Fold(Box::new(Fold { range, init, condition, step, result, two, bind: inner.bind })))
    }

    /// Plans the step of a loop; additions to the accumulator happen in place.
    fn step(&mut self, id: Id, slot: usize) -> Planned {
        let Expr::Call { function, args, .. } = self.checked.ast.expr(id) else {
            return self.plan(id);
        };
        let so_far = |id: &Id| matches!(self.checked.ast.expr(*id), Expr::Ident(name) if &**name == ACCUMULATOR);
        match (&**function, &**args) {
            ("_+_", [first, added]) if so_far(first) && matches!(self.checked.ast.expr(*added), Expr::List { .. }) => {
                Ok(Plan::Append(slot, Box::new(self.plan(*added)?)))
            }
            ("cel.@mapInsert", [first, added @ ..]) if so_far(first) => {
                Ok(Plan::Insert(slot, self.plans(added.iter().copied())?.into()))
            }
            ("_?_:_", [condition, yes, no]) => {
                let condition = self.plan(*condition)?;
                let yes = attribute_of(self.step(*yes, slot)?);
                let no = attribute_of(self.plan(*no)?);
                let base = Base::Choice(Box::new((condition, yes, no)));
                Ok(Plan::Attribute(Attribute { base, qualifiers: Vec::new() }))
            }
            _ => self.plan(id),
        }
    }
}

fn fold(plan: Plan, known: bool) -> Planned {
    if known { constant(&plan).map(Plan::Const) } else { Ok(plan) }
}

fn attribute_of(plan: Plan) -> Attribute {
    match plan {
        Plan::Attribute(attribute) => attribute,
        other => Attribute { base: Base::Value(Box::new(other)), qualifiers: Vec::new() },
    }
}

fn text_of(text: &str) -> Val<'static> {
    Val::String(Text::Shared(text.into()))
}

fn value_of(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(value) => Val::Bool(*value),
        Literal::Int(value) => Val::Int(*value),
        Literal::Uint(value) => Val::Uint(*value),
        Literal::Double(value) => Val::Double(*value),
        Literal::String(text) => text_of(text),
        Literal::Bytes(bytes) => Val::Bytes((**bytes).into()),
    }
}

/// Converts a constant list to a set, if its elements can be looked up.
fn members(list: &Val<'static>) -> Option<Members> {
    let Val::List(crate::value::List::Values(values)) = list else {
        return None;
    };
    let mut members = Members::default();
    for value in values.iter() {
        match value {
            Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::String(_) => members.keys.extend(value.to_key()),
            Val::Double(number) => match value.to_key() {
                Some(key) => {
                    members.keys.insert(key);
                }
                None => members.doubles.push(*number),
            },
            _ => return None,
        }
    }
    Some(members)
}
