//! Bounds of what an expression costs, found without evaluating it: from the sizes that the schema allows.
//!
//! A definition whose rules could cost too much is refused, so the numbers must be those of Kubernetes, including the
//! surprising ones (a number of the object has size zero).

use crate::ast::{Comprehension, Expr, Id, Literal};
use crate::checker::{Checked, Reference};
use crate::shape::Shape;
use crate::types::Type;

use super::call::{CallEstimate, Operand};
use super::origin::{Origin, Step};
use super::range::Range;
use super::{CallCost, LIST, MAP, STRUCT};

/// Sizes of the keys and values of a container that the expression creates.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

/// A variable of a macro.
#[derive(Clone, Copy)]
struct Local<'s> {
    origin: Option<Origin<'s>>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// Returns the bounds of what an expression costs; `root` is the schema of `self`.
pub(crate) fn estimate(checked: &Checked, root: &Shape) -> Range {
    let size = checked.ast.len();
    let mut estimator = Estimator {
        checked,
        root,
        sizes: vec![None; size],
        entries: vec![None; size],
        origins: vec![None; size],
        locals: Vec::new(),
    };
    estimator.cost(checked.ast.root)
}

struct Estimator<'c, 's> {
    checked: &'c Checked,
    root: &'s Shape,
    // By node.
    sizes: Vec<Option<Range>>,
    entries: Vec<Option<Entries>>,
    origins: Vec<Option<Origin<'s>>>,
    /// The innermost is last.
    locals: Vec<(&'c str, Local<'s>)>,
}

impl<'c, 's> Estimator<'c, 's> {
    fn local(&self, name: &str) -> Option<&Local<'s>> {
        self.locals.iter().rev().find(|(known, _)| *known == name).map(|(_, local)| local)
    }

    fn local_of(&self, id: Id) -> Option<&Local<'s>> {
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn origin(&self, id: Id) -> Option<Origin<'s>> {
        match self.local_of(id) {
            Some(local) => local.origin,
            None => self.origins[id as usize],
        }
    }

    /// Returns the origin of a part of a value. A value without an origin leads to the root,
    /// as in Kubernetes.
    fn part_of(&self, origin: Option<Origin<'s>>, step: &Step<'_>) -> Origin<'s> {
        origin.map_or(Origin::Schema(self.root), |origin| origin.step(step))
    }

    fn size(&mut self, id: Id) -> Option<Range> {
        if let Some(size) = self.sizes[id as usize] {
            return Some(size);
        }
        let literal_size = match self.checked.ast.expr(id) {
            Expr::Literal(Literal::String(text)) => Some(text.chars().count()),
            Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Expr::Literal(_) => Some(1),
            Expr::List { elements, .. } => Some(elements.len()),
            Expr::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = literal_size {
            return Some(Range::fixed(size as u64));
        }
        if let Some(size) = self.origin(id).and_then(Origin::size) {
            self.sizes[id as usize] = Some(size);
            return Some(size);
        }
        if self.checked.type_of(id).is_scalar() {
            return Some(Range::fixed(1));
        }
        self.local_of(id)?.size
    }

    fn size_or_unknown(&mut self, id: Id) -> Range {
        self.size(id).unwrap_or(Range::UNKNOWN)
    }

    fn entries_of(&self, id: Id) -> Option<Entries> {
        self.entries[id as usize].or_else(|| self.local_of(id)?.entries)
    }

    fn union_of(&self, a: Id, b: Id) -> Option<Entries> {
        let (a, b) = (self.entries_of(a)?, self.entries_of(b)?);
        Some(Entries { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }

    fn set_size(&mut self, id: Id, size: Option<Range>) {
        if size.is_some() {
            self.sizes[id as usize] = size;
        }
    }

    fn set_entries(&mut self, id: Id, entries: Option<Entries>) {
        if entries.is_some() {
            self.entries[id as usize] = entries;
        }
    }

    fn cost(&mut self, id: Id) -> Range {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Literal(_) | Expr::Error => Range::ZERO,
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, test } => {
                if matches!(checked.reference(id), Reference::TypeName(_)) {
                    return self.ident(id, field);
                }
                let cost = self.cost(*operand);
                if *test {
                    return cost;
                }
                self.origins[id as usize] = Some(self.part_of(self.origin(*operand), &Step::Field(field)));
                match checked.type_of(*operand) {
                    Type::Map(_) | Type::Object(_) | Type::Extra(_) | Type::Param(_) => cost.plus(Range::fixed(1)),
                    _ => cost,
                }
            }
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::List { elements, .. } => {
                let mut cost = Range::fixed(LIST);
                let mut value = Range { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for element in elements {
                    cost = cost.plus(self.cost(*element));
                    value = value.union(self.size_or_unknown(*element));
                }
                self.set_entries(id, Some(Entries { list: true, key: Range::fixed(1), value }));
                cost
            }
            Expr::Map(entries) => {
                let mut cost = Range::fixed(MAP);
                let start = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (start, start);
                for entry in entries {
                    cost = cost.plus(self.cost(entry.key)).plus(self.cost(entry.value));
                    key = key.union(self.size_or_unknown(entry.key));
                    value = value.union(self.size_or_unknown(entry.value));
                }
                self.set_entries(id, Some(Entries { list: false, key, value }));
                cost
            }
            Expr::Struct { fields, .. } => {
                fields.iter().fold(Range::fixed(STRUCT), |cost, field| cost.plus(self.cost(field.value)))
            }
            Expr::Comprehension(inner) if inner.bind => {
                let cost = self.cost(inner.range).plus(self.cost(inner.init));
                self.push_accumulator(inner);
                let cost = cost.plus(self.cost(inner.result));
                let (size, entries) = (self.size(inner.result), self.entries_of(inner.result));
                self.locals.pop();
                self.set_size(id, size);
                self.set_entries(id, entries);
                cost
            }
            Expr::Comprehension(inner) => self.comprehension(id, inner),
        }
    }

    fn ident(&mut self, id: Id, name: &str) -> Range {
        let origin = match self.local(name) {
            Some(local) => local.origin,
            None => Some(Origin::Schema(self.root)),
        };
        self.origins[id as usize] = origin;
        Range::fixed(1)
    }

    fn push_accumulator(&mut self, inner: &'c Comprehension) {
        let origin = self.origin(inner.init);
        let entries = self.entries_of(inner.init);
        let size = self.size(inner.init);
        self.locals.push((&inner.accumulator, Local { origin, size, entries }));
    }

    fn comprehension(&mut self, id: Id, inner: &'c Comprehension) -> Range {
        let mut cost = self.cost(inner.range).plus(self.cost(inner.init));
        self.push_accumulator(inner);
        let entries = self.entries_of(inner.range);
        let origin = self.origin(inner.range);
        let list = entries.map_or(matches!(self.checked.type_of(inner.range), Type::List(_)), |entries| entries.list);
        let value = Local {
            origin: Some(self.part_of(origin, &Step::Element)),
            size: entries.map(|entries| entries.value),
            entries: None,
        };
        let key = Local {
            origin: Some(self.part_of(origin, if list { &Step::Position } else { &Step::Key })),
            size: entries.map(|entries| entries.key),
            entries: None,
        };
        let depth = self.locals.len();
        match &inner.second {
            None => self.locals.push((&inner.variable, if list { value } else { key })),
            Some(second) => {
                self.locals.push((&inner.variable, key));
                self.locals.push((second, value));
            }
        }
        let iteration = self.cost(inner.condition).plus(self.cost(inner.step));
        self.locals.truncate(depth);
        cost = cost.plus(self.cost(inner.result));
        self.locals.pop();
        let count = self.size_or_unknown(inner.range);
        match self.checked.ast.expr(inner.init) {
            Expr::Literal(_) => {
                let size = self.size(inner.init);
                self.set_size(id, size);
            }
            Expr::List { .. } | Expr::Map(_) => {
                self.set_size(id, Some(count));
                self.set_entries(id, self.entries[inner.step as usize]);
            }
            _ => {}
        }
        cost.plus(count.times(iteration))
    }

    fn operand(&mut self, id: Id) -> Operand<'c, 's> {
        let checked = self.checked;
        let literal = match checked.ast.expr(id) {
            Expr::Literal(literal) => Some(literal),
            _ => None,
        };
        Operand { origin: self.origin(id), value_type: checked.type_of(id), size: self.size(id), literal }
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &'c [Id]) -> Range {
        let Reference::Function { name, overloads, qualified } = self.checked.reference(id) else {
            return Range::ZERO;
        };
        if *name == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(*arg);
            let (size, entries) = (self.size(*arg), self.entries_of(*arg));
            self.set_size(id, size);
            self.set_entries(id, entries);
            return cost.plus(Range::fixed(1));
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut operands = Vec::with_capacity(args.len() + 1);
        for arg in args {
            costs.push(self.cost(*arg));
            operands.push(self.operand(*arg));
        }
        let mut target_cost = Range::ZERO;
        if let Some(target) = target.filter(|_| !qualified) {
            target_cost = self.cost(target);
            operands.insert(0, self.operand(target));
        }
        let total = costs.iter().fold(Range::ZERO, |total, cost| total.plus(*cost));
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let estimate = match *overload {
                "logical_or" | "logical_and" => {
                    CallEstimate::cost(Range { min: costs.first().map_or(0, |c| c.min), max: total.max })
                }
                "conditional" => self.conditional(id, args, &operands, &costs),
                _ => {
                    let estimate = self.function(id, CallCost::for_call(name, overload), args, &operands);
                    CallEstimate { cost: estimate.cost.plus(total), ..estimate }
                }
            };
            cost = cost.union(estimate.cost);
            if let Some(size) = estimate.result {
                result = Some(result.map_or(size, |earlier| earlier.union(size)));
            }
            if matches!(*overload, "index_list" | "index_map") {
                result = self.entries_of(args[0]).map(|entries| entries.value);
                self.origins[id as usize] = Some(self.part_of(self.origin(args[0]), &Step::Element));
            }
            if result.is_none() {
                result = self.size(id);
            }
        }
        self.set_size(id, result);
        target_cost.plus(cost)
    }

    fn conditional(&mut self, id: Id, args: &[Id], operands: &[Operand<'_, '_>], costs: &[Range]) -> CallEstimate {
        let ([_, yes, no], [_, yes_id, no_id], [condition, first, second]) = (operands, args, costs) else {
            return CallEstimate::cost(Range::ZERO);
        };
        let entries = self.union_of(*yes_id, *no_id);
        self.set_entries(id, entries);
        CallEstimate::new(condition.plus(first.union(*second)), yes.size().union(no.size()))
    }

    fn function(&mut self, id: Id, cost: CallCost, args: &[Id], operands: &[Operand<'_, 's>]) -> CallEstimate {
        if matches!(cost, CallCost::Concat | CallCost::AppendList)
            && let [a, b] = args
        {
            let entries = self.union_of(*a, *b);
            self.set_entries(id, entries);
        }
        cost.estimate(operands)
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use crate::{checker, parser};

    use super::*;

    /// Returns the bounds of an expression over a string of at most 10 characters (40 bytes), a list of at most 5
    /// strings of at most 3 characters, and a list without a limit.
    fn bounds(text: &str) -> (u64, u64) {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string", "maxLength": 10},
            "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 3}},
            "m": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}},
            "free": {"type": "array", "items": {"type": "integer"}},
        }});
        let root = Shape::from_schema(&schema, false);
        let ast = parser::parse(text).expect(text);
        let checked = checker::check(ast, &[("self".into(), root.declared_type())])
            .unwrap_or_else(|issues| panic!("{}", issues.render(text)));
        let Range { min, max } = estimate(&checked, &root);
        (min, max)
    }

    #[test]
    fn each_kind_of_node_has_its_cost() {
        for (text, want) in [
            ("true", (0, 0)),
            ("self", (1, 1)),
            ("self.n", (2, 2)),
            ("has(self.n)", (1, 1)),
            ("[1, 2]", (10, 10)),
            ("{'a': 1}", (30, 30)),
            ("1 + 2", (1, 1)),
            ("self.n + 1", (3, 3)),
            ("self.m['a']", (3, 3)),
            ("dyn(self.n)", (3, 3)),
        ] {
            assert_eq!(bounds(text), want, "{text}");
        }
    }

    #[test]
    fn sizes_of_the_schema_bound_calls() {
        for (text, want) in [
            // 2 for `self.s`, and a tenth of at most 40 bytes.
            ("self.s.lowerAscii()", (2, 2 + 4)),
            // The shorter side counts.
            ("self.s == 'abcdefghijkl'", (2 + 1, 2 + 2)),
            ("self.s == self.s", (4 + 1, 4 + 4)),
            // A number has size zero.
            ("self.n == 1", (2, 2)),
            // (40 + 1) / 10 rounded up, times 4 characters of pattern at a quarter.
            ("self.s.matches('a+b+')", (2 + 1, 2 + 5)),
            ("self.s.contains('ab')", (2, 2 + 4)),
            ("self.s.startsWith('ab')", (2 + 1, 2 + 1)),
            // Elements have at most 12 bytes: 1 + 2 each.
            ("self.l.max()", (2, 2 + 5 * 3)),
            ("'a' in self.l", (2, 2 + 5)),
            ("self.l.sort()", (2 + 11, 2 + 53 + 11)),
            ("sets.contains(self.l, ['a'])", (2 + 10 + 1, 2 + 10 + 5 + 1)),
        ] {
            assert_eq!(bounds(text), want, "{text}");
        }
    }

    #[test]
    fn sizes_of_results_pass_on_to_the_next_call() {
        for (text, want) in [
            // 40 + 2 bytes, scanned for the sum and for the case.
            ("(self.s + 'ab').upperAscii()", (2 + 1 + 1, 2 + 5 + 5)),
            // Each of 40 bytes may become three.
            ("self.s.replace('a', 'bcd').lowerAscii()", (2, 2 + 8 + 12)),
            ("(true ? self.s : 'ab').lowerAscii()", (0, 2 + 4)),
            // A list of three, then 13 for each: a call, two names and a new list.
            ("lists.range(3).map(x, x).size()", (14 + 10 + 3 * 13 + 1 + 1, 65)),
        ] {
            assert_eq!(bounds(text), want, "{text}");
        }
    }

    #[test]
    fn loops_multiply_and_logic_may_stop_early() {
        for (text, want) in [
            // The first term always runs, the second may not.
            ("self.n == 1 || self.n == 2", (2, 4)),
            ("self.n == 1 ? self.s == '' : true", (2, 4)),
            // Per element: 2 for the condition, 1 for the accumulator, and the body.
            ("self.l.all(x, true)", (3, 3 + 5 * 3)),
            ("self.l.all(x, self.l.all(y, true))", (3, 3 + 5 * (3 + 18))),
            ("self.m.all(k, true)", (3, 3 + 4 * 3)),
        ] {
            assert_eq!(bounds(text), want, "{text}");
        }
        // A request of 3 MiB has room for this many numbers.
        let (_, max) = bounds("self.free.all(x, true)");
        assert_eq!(max, 3 + (3 * 1024 * 1024 - 2) / 2 * 3);
        assert_eq!(bounds("optional.of([1]).value().all(x, true)").1, u64::MAX, "no bound is known");
    }
}
