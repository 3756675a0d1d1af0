//! Evaluates a plan and charges the cost of each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cost::{self, CallCost, Meter};
use crate::plan::{Attribute, Base, Call, Fold, Index, Members, NewMessage, Plan};
use crate::run::Scope;
use crate::value::{Fault, Key, List, Map, Message, Outcome, Text, Val, equal};

/// The value of a variable.
#[derive(Debug)]
pub(crate) enum Slot<'p, 'a> {
    Ready(Outcome<Val<'a>>),
    /// Evaluated on first use.
    Lazy(&'p Plan),
    /// A variable of this name without a value: `oldSelf` when an object is created.
    Missing(&'static str),
}

/// Evaluates a plan that needs no variables.
pub(crate) fn constant(plan: &Plan) -> Result<Val<'static>, String> {
    let mut evaluator = Evaluator { slots: Vec::new(), meter: Meter::new(u64::MAX), scope: None };
    evaluator.eval(plan).map_err(|fault| fault.to_string())
}

#[derive(Debug)]
pub(crate) struct Evaluator<'p, 'a> {
    pub(crate) slots: Vec<Slot<'p, 'a>>,
    pub(crate) meter: Meter,
    /// The variables and the authorizer of a policy.
    pub(crate) scope: Option<&'p Scope<'p, 'a>>,
}

impl<'p, 'a> Evaluator<'p, 'a> {
    pub(crate) fn eval(&mut self, plan: &'p Plan) -> Outcome<Val<'a>> {
        match plan {
            Plan::Const(value) => Ok(value.clone()),
            Plan::Attribute(attribute) => {
                let value = self.resolve(attribute);
                // A conditional has no cost of its own.
                if !matches!(attribute.base, Base::Choice(_)) {
                    self.meter.charge(1)?;
                }
                value
            }
            Plan::Has(attribute, field) => self.has(attribute, field),
            Plan::And(terms) => self.logic(terms, false),
            Plan::Or(terms) => self.logic(terms, true),
            Plan::NotStrictlyFalse(arg) => {
                let value = self.eval(arg);
                self.meter.charge(1)?;
                match value {
                    Err(Fault::Limit) => Err(Fault::Limit),
                    Ok(Val::Bool(value)) => Ok(Val::Bool(value)),
                    _ => Ok(Val::Bool(true)),
                }
            }
            Plan::Equal { sides, negated } => self.equal(sides, *negated),
            Plan::Call(call) => self.call(call),
            Plan::Member(value, members) => {
                let value = self.eval(value)?;
                Ok(Val::Bool(is_member(&value, members)))
            }
            Plan::OptionalOr(sides) => match self.eval(&sides[0])? {
                Val::Optional(None) => self.eval(&sides[1]),
                other => Ok(other),
            },
            Plan::OptionalOrValue(sides) => match self.eval(&sides[0])? {
                Val::Optional(None) => self.eval(&sides[1]),
                Val::Optional(Some(value)) => Ok((*value).clone()),
                other => Ok(other),
            },
            Plan::List(elements) => self.list(elements),
            Plan::Map(entries) => self.map(entries),
            Plan::Fold(fold) => self.fold(fold),
            Plan::Message(message) => self.message(message),
            Plan::Append(slot, added) => self.append(*slot, added),
            Plan::Insert(slot, added) => self.insert(*slot, added),
        }
    }

    fn slot(&mut self, at: usize) -> Outcome<Val<'a>> {
        match &self.slots[at] {
            Slot::Ready(value) => value.clone(),
            Slot::Missing(name) => Err(Fault::new(format!("no such attribute(s): {name}"))),
            Slot::Lazy(plan) => {
                let plan = *plan;
                // The plan was made for the slots below this one.
                let since = self.slots.split_off(at);
                let value = self.eval(plan);
                self.slots.extend(since);
                self.slots[at] = Slot::Ready(value.clone());
                value
            }
        }
    }

    fn resolve(&mut self, attribute: &'p Attribute) -> Outcome<Val<'a>> {
        let mut value = match &attribute.base {
            Base::Slot(at) => self.slot(*at)?,
            Base::Composed(at) => {
                let value = match self.scope {
                    Some(scope) => scope.variable(*at)?,
                    None => return Err(Fault::from_static("no such attribute(s): variables")),
                };
                self.meter.charge(1)?;
                value
            }
            Base::Value(plan) => self.eval(plan)?,
            Base::Choice(choice) => {
                let (condition, yes, no) = &**choice;
                match self.eval(condition)? {
                    Val::Bool(true) => self.resolve(yes)?,
                    Val::Bool(false) => self.resolve(no)?,
                    _ => return Err(Fault::overload()),
                }
            }
        };
        if attribute.qualifiers.is_empty() {
            return Ok(value);
        }
        let mut optional = false;
        if let Val::Optional(inner) = &value {
            match inner.clone() {
                None => return Ok(Val::Optional(None)),
                Some(inner) => value = (*inner).clone(),
            }
            optional = true;
        }
        for qualifier in &attribute.qualifiers {
            optional |= qualifier.optional;
            let key = match &qualifier.key {
                Index::Const(key) => Ok(key.clone()),
                Index::Attribute(attribute) => self.resolve(attribute),
            };
            let found = key.and_then(|key| Ok((select(&value, &key)?, key)));
            value = match found {
                Ok((None, _)) if optional => return Ok(Val::Optional(None)),
                Err(fault) if optional => return Err(fault),
                found => {
                    self.meter.charge(1)?;
                    let (found, key) = found?;
                    found.ok_or_else(|| missing(&value, &key))?
                }
            };
        }
        Ok(if optional { Val::some(value) } else { value })
    }

    fn has(&mut self, attribute: &'p Attribute, field: &str) -> Outcome<Val<'a>> {
        let mut value = self.resolve(attribute)?;
        let mut optional = false;
        if let Val::Optional(inner) = &value {
            match inner.clone() {
                None => return Ok(Val::Bool(false)),
                Some(inner) => value = (*inner).clone(),
            }
            optional = true;
        }
        let found = match &value {
            Val::Map(map) => map.get(&Val::String(Text::Borrowed(field))).map(|found| found.is_some()),
            Val::Message(message) => Ok(message.fields.contains_key(field)),
            _ => Ok(false),
        };
        if !optional || found == Ok(true) {
            self.meter.charge(1)?;
        }
        found.map(Val::Bool)
    }

    /// Stops at the first term that equals `decisive`. An error counts only if no term does.
    fn logic(&mut self, terms: &'p [Plan], decisive: bool) -> Outcome<Val<'a>> {
        let mut error = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(value)) if value == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => error = error.or(Some(Fault::overload())),
                Err(Fault::Limit) => return Err(Fault::Limit),
                Err(fault) => error = error.or(Some(fault)),
            }
        }
        match error {
            Some(fault) => Err(fault),
            None => Ok(Val::Bool(!decisive)),
        }
    }

    /// Evaluates an argument; one that failed counts as a value of size one.
    fn argument(&mut self, plan: &'p Plan, failed: &mut Option<Fault>) -> Outcome<Val<'a>> {
        match self.eval(plan) {
            Err(Fault::Limit) => Err(Fault::Limit),
            Err(fault) => {
                failed.get_or_insert(fault);
                Ok(Val::Null)
            }
            value => value,
        }
    }

    fn equal(&mut self, sides: &'p [Plan; 2], negated: bool) -> Outcome<Val<'a>> {
        let mut failed = None;
        let args = [self.argument(&sides[0], &mut failed)?, self.argument(&sides[1], &mut failed)?];
        let rule = if negated { CallCost::Compare } else { CallCost::Equality };
        let cost = rule.actual(&args, None, &mut self.meter)?;
        self.meter.charge(cost)?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        match equal(&args[0], &args[1], &mut self.meter) {
            Ok(same) => Ok(Val::Bool(same != negated)),
            // Values that cannot be compared are not equal.
            Err(Fault::Error(_)) if negated => Ok(Val::Bool(true)),
            Err(fault) => Err(fault),
        }
    }

    fn call(&mut self, call: &'p Call) -> Outcome<Val<'a>> {
        let mut failed = None;
        let mut args = Vec::with_capacity(call.args.len());
        for (at, arg) in call.args.iter().enumerate() {
            args.push(self.argument(arg, &mut failed)?);
            // With three or more arguments, the remaining ones are not evaluated and the call is not charged.
            if failed.is_some() && call.args.len() > 2 && at + 1 < call.args.len() {
                return Err(failed.unwrap_or(Fault::Limit));
            }
        }
        if !call.cost.depends_on_result() || failed.is_some() {
            let cost = call.cost.actual(&args, None, &mut self.meter)?;
            self.meter.charge(cost)?;
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        let result = match &call.pattern {
            _ if call.cost == CallCost::AuthorizerCheck => match self.scope {
                Some(scope) => scope.check(&args),
                None => Err(Fault::overload()),
            },
            Some(pattern) => crate::library::with_pattern(call.name, pattern, &args, &mut self.meter),
            None => (call.run)(&args, &mut self.meter),
        };
        if call.cost.depends_on_result() {
            let cost = call.cost.actual(&args, result.as_ref().ok(), &mut self.meter)?;
            self.meter.charge(cost)?;
        }
        match result {
            Err(fault) if fault == Fault::overload() && names_its_types(call.name) => {
                let types: Vec<&str> = args.iter().map(Val::type_name).collect();
                Err(Fault::new(format!("no such overload: {}({})", call.name, types.join(", "))))
            }
            result => result,
        }
    }

    fn list(&mut self, elements: &'p [(Plan, bool)]) -> Outcome<Val<'a>> {
        let mut values = Vec::with_capacity(elements.len());
        let mut failed = None;
        for (element, optional) in elements {
            match (self.eval(element), optional) {
                (Ok(Val::Optional(None)), true) => {}
                (Ok(Val::Optional(Some(value))), true) => values.push((*value).clone()),
                (Ok(other), true) => {
                    failed = Some(Fault::new(format!(
                        "cannot initialize optional list element from non-optional value {other}"
                    )));
                    break;
                }
                (Ok(value), false) => values.push(value),
                (Err(Fault::Limit), _) => return Err(Fault::Limit),
                (Err(fault), _) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        self.meter.charge(cost::LIST)?;
        failed.map_or(Ok(Val::list(values)), Err)
    }

    fn map(&mut self, entries: &'p [(Plan, Plan, bool)]) -> Outcome<Val<'a>> {
        let mut values = BTreeMap::new();
        let mut build = || -> Outcome<()> {
            for (key, value, optional) in entries {
                let key = self.eval(key)?;
                let mut value = self.eval(value)?;
                if *optional {
                    match value {
                        Val::Optional(None) => continue,
                        Val::Optional(Some(inner)) => value = (*inner).clone(),
                        other => {
                            return Err(Fault::new(format!(
                                "cannot initialize optional entry '{key}' from non-optional value {other}"
                            )));
                        }
                    }
                }
                let key =
                    key.to_key().ok_or_else(|| Fault::new(format!("unsupported key type: {}", key.type_name())))?;
                values.insert(key, value);
            }
            Ok(())
        };
        let built = build();
        if built == Err(Fault::Limit) {
            return Err(Fault::Limit);
        }
        self.meter.charge(cost::MAP)?;
        built.map(|()| Val::Map(Map::Values(Arc::new(values))))
    }

    fn message(&mut self, new: &'p NewMessage) -> Outcome<Val<'a>> {
        let mut fields = BTreeMap::new();
        let mut failed = None;
        for (name, plan, optional) in &new.fields {
            let value = match (self.eval(plan), optional) {
                (Ok(Val::Optional(None)), true) => continue,
                (Ok(Val::Optional(Some(value))), true) => (*value).clone(),
                (Ok(other), true) => {
                    failed = Some(Fault::new(format!(
                        "cannot initialize optional entry '{name}' from non-optional value {other}"
                    )));
                    break;
                }
                (Ok(value), false) => value,
                (Err(Fault::Limit), _) => return Err(Fault::Limit),
                (Err(fault), _) => {
                    failed = Some(fault);
                    break;
                }
            };
            fields.insert(Arc::clone(name), value);
        }
        self.meter.charge(cost::STRUCT)?;
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Val::Message(Arc::new(Message { name: Arc::clone(&new.name), fields }))),
        }
    }

    fn fold(&mut self, fold: &'p Fold) -> Outcome<Val<'a>> {
        let base = self.slots.len();
        let result = self.fold_from(fold, base);
        self.slots.truncate(base);
        result
    }

    fn fold_from(&mut self, fold: &'p Fold, base: usize) -> Outcome<Val<'a>> {
        let range = self.eval(&fold.range)?;
        self.slots.push(Slot::Lazy(&fold.init));
        if !fold.bind {
            self.slots.push(Slot::Missing(""));
            if fold.two {
                self.slots.push(Slot::Missing(""));
            }
            match range {
                Val::List(list) => {
                    for (at, element) in list.iter().enumerate() {
                        if fold.two {
                            self.slots[base + 1] = Slot::Ready(Ok(Val::Int(at as i64)));
                            self.slots[base + 2] = Slot::Ready(element);
                        } else {
                            self.slots[base + 1] = Slot::Ready(element);
                        }
                        if !self.step(fold, base)? {
                            break;
                        }
                    }
                }
                Val::Map(map) => {
                    for key in map.keys() {
                        if fold.two {
                            let value = map.get(&key).and_then(|value| value.ok_or(Fault::from_static("no such key")));
                            self.slots[base + 2] = Slot::Ready(value);
                        }
                        self.slots[base + 1] = Slot::Ready(Ok(key));
                        if !self.step(fold, base)? {
                            break;
                        }
                    }
                }
                other => {
                    return Err(Fault::new(format!("got '{}', expected iterable type", plain_type(&other))));
                }
            }
        }
        self.eval(&fold.result)
    }

    /// Runs one iteration of a loop; returns whether to continue.
    fn step(&mut self, fold: &'p Fold, base: usize) -> Outcome<bool> {
        self.meter.work(1)?;
        match self.eval(&fold.condition) {
            Ok(Val::Bool(false)) => return Ok(false),
            Err(Fault::Limit) => return Err(Fault::Limit),
            _ => {}
        }
        let value = self.eval(&fold.step);
        if value.as_ref().is_err_and(|fault| *fault == Fault::Limit) {
            return Err(Fault::Limit);
        }
        self.slots[base] = Slot::Ready(value);
        Ok(true)
    }

    /// Takes the accumulator out of its slot; the loop stores the result there.
    fn take(&mut self, slot: usize) -> Outcome<Val<'a>> {
        self.meter.charge(1)?;
        self.slot(slot)?;
        match std::mem::replace(&mut self.slots[slot], Slot::Ready(Ok(Val::Null))) {
            Slot::Ready(value) => value,
            _ => Err(Fault::overload()),
        }
    }

    fn append(&mut self, slot: usize, added: &'p Plan) -> Outcome<Val<'a>> {
        let mut failed = None;
        let added = self.argument(added, &mut failed)?;
        let so_far = self.take(slot)?;
        self.meter.charge(1)?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        match (so_far, added) {
            (Val::List(List::Values(mut values)), Val::List(List::Values(added))) => {
                if Arc::get_mut(&mut values).is_none() {
                    self.meter.work(values.len() as u64)?;
                }
                Arc::make_mut(&mut values).extend(added.iter().cloned());
                Ok(Val::List(List::Values(values)))
            }
            (Val::List(so_far), Val::List(added)) => Ok(Val::List(so_far.join(added))),
            _ => Err(Fault::overload()),
        }
    }

    fn insert(&mut self, slot: usize, added: &'p [Plan]) -> Outcome<Val<'a>> {
        let mut failed = None;
        let mut args = Vec::with_capacity(added.len());
        for plan in added {
            args.push(self.argument(plan, &mut failed)?);
        }
        let so_far = self.take(slot)?;
        self.meter.charge(1)?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        let Val::Map(Map::Values(mut values)) = so_far else {
            return Err(Fault::overload());
        };
        if Arc::get_mut(&mut values).is_none() {
            self.meter.work(values.len() as u64)?;
        }
        let entries = Arc::make_mut(&mut values);
        match &*args {
            [key, value] => insert_one(entries, key, value.clone())?,
            [Val::Map(map)] => {
                for key in map.keys() {
                    self.meter.work(1)?;
                    let value = map.get(&key)?.ok_or(Fault::from_static("no such key"))?;
                    insert_one(entries, &key, value)?;
                }
            }
            _ => return Err(Fault::overload()),
        }
        Ok(Val::Map(Map::Values(values)))
    }
}

fn insert_one<'a>(entries: &mut BTreeMap<Key<'a>, Val<'a>>, key: &Val<'a>, value: Val<'a>) -> Outcome<()> {
    let name = key.to_key().ok_or_else(|| Fault::new(format!("unsupported key type: {}", key.type_name())))?;
    if entries.contains_key(&name) {
        return Err(Fault::new(format!("insert failed: key {key} already exists")));
    }
    entries.insert(name, value);
    Ok(())
}

/// Reports whether the error for unsuitable arguments names their types. Operators and older functions do not.
fn names_its_types(name: &str) -> bool {
    !name.starts_with(['_', '-', '!', '@'])
        && !matches!(name, "matches" | "contains" | "startsWith" | "endsWith" | "find" | "findAll")
}

/// Returns the type name of a scalar as Kubernetes uses it in this error.
fn plain_type(value: &Val<'_>) -> &'static str {
    match value {
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Bool(_) => "types.Bool",
        Val::Double(_) => "types.Double",
        Val::String(_) => "types.String",
        other => other.type_name(),
    }
}

fn is_member(value: &Val<'_>, members: &Members) -> bool {
    match value.to_key() {
        Some(key) => members.keys.contains(&key),
        None => matches!(value, Val::Double(value) if members.doubles.contains(value)),
    }
}

/// Returns the value for a key or an index, if there is one.
fn select<'a>(value: &Val<'a>, key: &Val<'_>) -> Outcome<Option<Val<'a>>> {
    match value {
        Val::Map(map) => map.get(key),
        Val::List(list) => {
            let unsupported = || Fault::new(format!("unsupported index value {key} in list"));
            let at = match key {
                Val::Int(at) => *at,
                Val::Uint(at) => i64::try_from(*at).map_err(|_| unsupported())?,
                Val::Double(at) if at.fract() == 0.0 && at.abs() < 9.2e18 => *at as i64,
                Val::Double(_) => return Err(unsupported()),
                other => return Err(Fault::new(format!("unsupported index type '{}' in list", other.type_name()))),
            };
            match u64::try_from(at) {
                Ok(at) if at < list.len() => list.get(at).map(Some),
                _ => Ok(None),
            }
        }
        Val::Message(message) => match key {
            Val::String(name) => Ok(message.fields.get(&**name).cloned()),
            _ => Err(Fault::overload()),
        },
        _ => Ok(None),
    }
}

fn missing(value: &Val<'_>, key: &Val<'_>) -> Fault {
    match value {
        Val::List(_) => Fault::new(format!("index out of bounds: {key}")),
        _ => Fault::new(format!("no such key: {key}")),
    }
}
