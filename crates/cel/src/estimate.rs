//! What an expression may cost at most, found without evaluating it: from the sizes that the schema allows.
//!
//! A definition whose rules could cost too much is refused for it, so the numbers must be those of Kubernetes, including
//! where they surprise (a number of the object has the size nought).

use crate::ast::{Comprehension, Expr, Id, Literal};
use crate::checker::{Checked, Reference};
use crate::price::{LIST, MAP, PATTERN, TRAVERSAL};
use crate::shape::{Kind, Shape};
use crate::types::{Extra, Type};

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    const ZERO: Range = Range::fixed(0);
    const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    const fn fixed(value: u64) -> Range {
        Range { min: value, max: value }
    }

    fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn by(self, factor: f64) -> Range {
        let one = |value: u64| {
            let product = (value as f64 * factor).ceil();
            if product >= 18_446_744_073_709_551_616.0 { u64::MAX } else { product as u64 }
        };
        Range { min: one(self.min), max: one(self.max) }
    }

    fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The sizes of keys and values of a container that the expression makes.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Range,
    value: Range,
}

/// Where in the schema a value comes from.
#[derive(Clone, Copy, Debug)]
enum Place<'s> {
    Shape(&'s Shape),
    /// A key of a map.
    Key,
    Nowhere,
}

enum Step<'n> {
    Field(&'n str),
    Element,
    Key,
    Position,
}

#[derive(Clone, Copy)]
struct Local<'s> {
    place: Option<Place<'s>>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// An argument of a call.
struct Node<'n, 's> {
    place: Option<Place<'s>>,
    of: &'n Type,
    size: Option<Range>,
    literal: Option<&'n Literal>,
}

impl Node<'_, '_> {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// The value, where it is a number that is written out.
    fn number(&self, otherwise: u64) -> u64 {
        match self.literal {
            Some(Literal::Int(value)) => u64::try_from(*value).unwrap_or(0),
            _ => otherwise,
        }
    }
}

/// What an expression costs; `root` is the schema of `self`.
pub(crate) fn estimate(checked: &Checked, root: &Shape) -> Range {
    let size = checked.ast.len();
    let mut estimator = Estimator {
        checked,
        root,
        sizes: vec![None; size],
        entries: vec![None; size],
        places: vec![None; size],
        locals: Vec::new(),
    };
    estimator.cost(checked.ast.root)
}

struct Estimator<'c, 's> {
    checked: &'c Checked,
    root: &'s Shape,
    sizes: Vec<Option<Range>>,
    entries: Vec<Option<Entries>>,
    places: Vec<Option<Place<'s>>>,
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

    fn place(&self, id: Id) -> Option<Place<'s>> {
        match self.local_of(id) {
            Some(local) => local.place,
            None => self.places[id as usize],
        }
    }

    /// One step further into the schema. The first step of all leads to the root, whatever its name.
    fn further(&self, from: Option<Place<'s>>, step: &Step<'_>) -> Place<'s> {
        match from {
            None => Place::Shape(self.root),
            Some(Place::Shape(shape)) => {
                let next = match step {
                    Step::Field(name) => shape.field(name).map(|shape| Place::Shape(shape)),
                    Step::Element => shape.element().map(|shape| Place::Shape(shape)),
                    Step::Key if shape.kind == Kind::Object && shape.additional.is_some() => Some(Place::Key),
                    Step::Key | Step::Position => None,
                };
                next.unwrap_or(Place::Nowhere)
            }
            Some(Place::Key | Place::Nowhere) => Place::Nowhere,
        }
    }

    fn size_at(place: Option<Place<'s>>) -> Option<Range> {
        match place? {
            Place::Shape(shape) => Some(Range { min: 0, max: shape.max_elements }),
            Place::Key => Some(Range::ZERO),
            Place::Nowhere => None,
        }
    }

    fn size(&mut self, id: Id) -> Option<Range> {
        if let Some(size) = self.sizes[id as usize] {
            return Some(size);
        }
        let written = match self.checked.ast.expr(id) {
            Expr::Literal(Literal::String(text)) => Some(text.chars().count()),
            Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Expr::Literal(_) => Some(1),
            Expr::List { elements, .. } => Some(elements.len()),
            Expr::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = written {
            return Some(Range::fixed(size as u64));
        }
        if let Some(size) = Self::size_at(self.place(id)) {
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
                self.places[id as usize] = Some(self.further(self.place(*operand), &Step::Field(field)));
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
            Expr::Struct { values, .. } => {
                values.iter().fold(Range::fixed(40), |cost, value| cost.plus(self.cost(*value)))
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
        let place = match self.local(name) {
            Some(local) => local.place,
            None => Some(Place::Shape(self.root)),
        };
        self.places[id as usize] = place;
        Range::fixed(1)
    }

    fn push_accumulator(&mut self, inner: &'c Comprehension) {
        let place = self.place(inner.init);
        let entries = self.entries_of(inner.init);
        let size = self.size(inner.init);
        self.locals.push((&inner.accumulator, Local { place, size, entries }));
    }

    fn comprehension(&mut self, id: Id, inner: &'c Comprehension) -> Range {
        let mut cost = self.cost(inner.range).plus(self.cost(inner.init));
        self.push_accumulator(inner);
        let entries = self.entries_of(inner.range);
        let place = self.place(inner.range);
        let list = entries.map_or(matches!(self.checked.type_of(inner.range), Type::List(_)), |entries| entries.list);
        let value = Local {
            place: Some(self.further(place, &Step::Element)),
            size: entries.map(|entries| entries.value),
            entries: None,
        };
        let key = Local {
            place: Some(self.further(place, if list { &Step::Position } else { &Step::Key })),
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
        let round = self.cost(inner.condition).plus(self.cost(inner.step));
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
        cost.plus(count.times(round))
    }

    fn node(&mut self, id: Id) -> Node<'c, 's> {
        let checked = self.checked;
        let literal = match checked.ast.expr(id) {
            Expr::Literal(literal) => Some(literal),
            _ => None,
        };
        Node { place: self.place(id), of: checked.type_of(id), size: self.size(id), literal }
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
        let mut nodes = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(*arg));
            nodes.push(self.node(*arg));
        }
        let mut sum = Range::ZERO;
        let target = target.filter(|_| !qualified).map(|target| {
            sum = self.cost(target);
            self.node(target)
        });
        let total = costs.iter().fold(Range::ZERO, |total, cost| total.plus(*cost));
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let (own, size) = match *overload {
                "logical_or" | "logical_and" => {
                    (Range { min: costs.first().map_or(0, |c| c.min), max: total.max }, None)
                }
                "conditional" => self.conditional(id, args, &nodes, &costs),
                _ => {
                    let (own, size) = self.function(id, name, overload, target.as_ref(), args, &nodes);
                    (own.plus(total), size)
                }
            };
            cost = cost.union(own);
            if let Some(size) = size {
                result = Some(result.map_or(size, |earlier| earlier.union(size)));
            }
            if matches!(*overload, "index_list" | "index_map") {
                result = self.entries_of(args[0]).map(|entries| entries.value);
                self.places[id as usize] = Some(self.further(self.place(args[0]), &Step::Element));
            }
            if result.is_none() {
                result = self.size(id);
            }
        }
        self.set_size(id, result);
        sum.plus(cost)
    }

    fn conditional(&mut self, id: Id, args: &[Id], nodes: &[Node<'_, '_>], costs: &[Range]) -> (Range, Option<Range>) {
        let ([_, yes, no], [_, yes_id, no_id], [condition, first, second]) = (nodes, args, costs) else {
            return (Range::ZERO, None);
        };
        let entries = self.union_of(*yes_id, *no_id);
        self.set_entries(id, entries);
        (condition.plus(first.union(*second)), Some(yes.size().union(no.size())))
    }

    /// The elements of a list, as an argument.
    fn element<'n>(&self, node: &Node<'n, 's>) -> Option<Node<'n, 's>> {
        let of = match node.of {
            Type::List(inner) | Type::Optional(inner) | Type::Kind(Some(inner)) => inner,
            Type::Map(inner) => &inner.0,
            _ => return None,
        };
        let place = node.place.map(|place| self.further(Some(place), &Step::Element));
        Some(Node { place, of, size: Self::size_at(place), literal: None })
    }

    /// What a call itself costs, and how large its result is where that is known.
    fn function(
        &mut self,
        id: Id,
        name: &str,
        overload: &str,
        target: Option<&Node<'_, 's>>,
        ids: &[Id],
        args: &[Node<'_, 's>],
    ) -> (Range, Option<Range>) {
        if let Some(found) = list_function(overload, target, args) {
            return found;
        }
        if let Some(found) = self.added_function(name, overload, target, args) {
            return found;
        }
        let first = args.first();
        match (overload, target, first) {
            ("string_format", Some(target), _) => (target.size().by(TRAVERSAL), None),
            ("string_to_bytes", _, Some(arg)) => {
                let size = arg.size();
                (size.by(TRAVERSAL), Some(Range { min: size.min, max: size.max.wrapping_mul(4) }))
            }
            ("bytes_to_string", _, Some(arg)) => {
                let size = arg.size();
                (size.by(TRAVERSAL), Some(Range { min: size.min / 4, max: size.max }))
            }
            ("strings_quote", _, Some(arg)) => {
                let size = arg.size();
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                (size.by(TRAVERSAL), Some(Range { min: size.min.wrapping_add(2), max }))
            }
            ("starts_with_string" | "ends_with_string", _, Some(arg)) => (arg.size().by(TRAVERSAL), None),
            ("in_list", _, _) if args.len() == 2 => (args[1].size(), None),
            ("matches_string", Some(target), Some(arg)) => {
                let text = target.size().plus(Range::fixed(1)).by(TRAVERSAL);
                (text.times(arg.size().by(PATTERN)), None)
            }
            ("contains_string", Some(target), Some(arg)) => {
                (target.size().by(TRAVERSAL).times(arg.size().by(TRAVERSAL)), None)
            }
            ("add_string" | "add_bytes" | "add_list", ..) if args.len() == 2 => {
                let size = args[0].size().plus(args[1].size());
                let entries = self.union_of(ids[0], ids[1]);
                self.set_entries(id, entries);
                let cost = if overload == "add_list" { Range::fixed(1) } else { size.by(TRAVERSAL) };
                (cost, Some(size))
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                ..,
            ) if args.len() == 2 => {
                let max = args[0].size().max.min(args[1].size().max);
                (Range { min: u64::from(max > 0), max }.by(TRAVERSAL), None)
            }
            _ => (Range::fixed(1), None),
        }
    }

    /// The functions that Kubernetes gives a price of its own.
    fn added_function(
        &self,
        name: &str,
        overload: &str,
        target: Option<&Node<'_, 's>>,
        args: &[Node<'_, 's>],
    ) -> Option<(Range, Option<Range>)> {
        let first = args.first();
        let one = Some((Range::fixed(1), None));
        match name {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target = target?;
                let Some(element) = self.element(target) else {
                    return Some((target.size().by(TRAVERSAL), None));
                };
                let mut each = Range::fixed(1);
                if matches!(element.of, Type::String | Type::Bytes) {
                    each = each.plus(element.size().by(TRAVERSAL));
                }
                Some((target.size().times(each), None))
            }
            "url" => first.map(|arg| (arg.size().by(TRAVERSAL), Some(arg.size()))),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                target.map(|target| (target.size().by(TRAVERSAL), Some(target.size())))
            }
            "replace" => {
                let (target, [old, new, ..]) = (target?, args) else {
                    return None;
                };
                let size = replaced(target.size(), old.size(), new.size());
                Some((target.size().by(2.0 * TRAVERSAL), Some(size)))
            }
            "split" => {
                let size = target?.size();
                let max = match args.get(1).and_then(|arg| arg.literal) {
                    Some(Literal::Int(count)) => *count as u64,
                    _ => size.max,
                };
                Some((size.by(2.0 * TRAVERSAL), Some(Range { min: 0, max })))
            }
            "join" => {
                let target = target?;
                let count = target.size();
                let mut size = self.element(target).map_or(Range::ZERO, |element| count.times(element.size()));
                if let Some(separator) = first {
                    let gaps = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.plus(separator.size().times(gaps));
                }
                Some((size.by(TRAVERSAL), Some(size)))
            }
            "find" | "findAll" => {
                let (size, pattern) = (target?.size(), first?.size());
                let text = size.plus(Range::fixed(1)).by(TRAVERSAL);
                Some((text.times(pattern.by(PATTERN)), Some(Range { min: 0, max: size.max })))
            }
            "ip" if overload == "cidr_ip" => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                first.map(|arg| (arg.size().by(TRAVERSAL), None))
            }
            "ip.isCanonical" => first.map(|arg| (arg.size().by(2.0 * TRAVERSAL), None)),
            "containsIP" | "containsCIDR" => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).by(TRAVERSAL);
                if name == "containsCIDR" {
                    cost = cost.plus(address.by(TRAVERSAL)).plus(Range::fixed(1));
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(first?.size().by(TRAVERSAL));
                }
                Some((cost, None))
            }
            "validate" => first.map(|arg| (arg.size().by(TRAVERSAL).by(128.0 * PATTERN), None)),
            "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => one,
            "check" => Some((Range::fixed(350_000), None)),
            "_==_" => match args {
                [a, b] if a.of == b.of => match a.of {
                    Type::Extra(Extra::Format) => Some((Range { min: 1, max: 64 }.by(TRAVERSAL), None)),
                    Type::Extra(Extra::Url) => {
                        let max = b.size.map_or(1, |size| size.max);
                        Some((Range { min: 1, max }.by(TRAVERSAL), None))
                    }
                    Type::Extra(_) => one,
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }
}

/// The functions of the list and set libraries.
fn list_function(
    overload: &str,
    target: Option<&Node<'_, '_>>,
    args: &[Node<'_, '_>],
) -> Option<(Range, Option<Range>)> {
    let allocated = |factor: f64, size: Range| Some((size.by(factor).plus(Range::fixed(1 + LIST)), Some(size)));
    let strings = overload.contains("_string_") || overload.contains("_bytes_");
    let pairs = if strings { 2.0 + TRAVERSAL } else { 2.0 };
    match (overload, target, args) {
        ("list_slice", Some(target), [start, end]) => {
            let (start, end) = (start.number(0), end.number(target.size().max));
            allocated(1.0, Range::fixed(end.wrapping_sub(start)))
        }
        ("lists_range", None, [count]) => allocated(1.0, Range::fixed(count.number(u64::MAX))),
        ("list_reverse", Some(target), []) => allocated(1.0, target.size()),
        ("list_flatten", Some(target), []) => allocated(1.0, target.size()),
        ("list_flatten_int", Some(target), [depth]) => allocated(depth.number(u64::MAX) as f64, target.size()),
        ("list_distinct", Some(target), []) => allocated(2.0, target.size().times(target.size())),
        (_, Some(target), []) if overload.starts_with("list_") && overload.ends_with("_sort") => {
            allocated(pairs, target.size().times(target.size()))
        }
        (_, Some(_), [keys]) if overload.ends_with("_sortByAssociatedKeys") => {
            allocated(pairs, keys.size().times(keys.size()))
        }
        ("list_sets_contains_list" | "list_sets_intersects_list", _, [a, b]) => {
            Some((a.size().times(b.size()).plus(Range::fixed(1)), None))
        }
        ("list_sets_equivalent_list", _, [a, b]) => {
            Some((a.size().times(b.size()).by(2.0).plus(Range::fixed(1)), None))
        }
        _ => None,
    }
}

/// How long a text is after a part of it was replaced.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
