//! Errors in constants, found without evaluating: invalid times and patterns, lists of mixed types, format strings that
//! do not match their arguments.

use crate::ast::{Entry, Expr, Id, Literal, each_child};
use crate::checker::{Checked, Reference};
use crate::format_string::{self, Clause, Piece};
use crate::pattern::Pattern;
use crate::source::Issues;
use crate::time::{Span, Time};
use crate::types::Type;

/// Returns all issues.
pub(crate) fn check(checked: &Checked) -> Issues {
    let mut checks = Checks { checked, issues: Issues::default() };
    checks.visit(checked.ast.root, false);
    checks.issues
}

struct Checks<'c> {
    checked: &'c Checked,
    issues: Issues,
}

impl Checks<'_> {
    fn report(&mut self, id: Id, message: impl Into<String>) {
        self.issues.report(self.checked.ast.offset(id), message);
    }

    /// `mixed` allows lists of several types.
    fn visit(&mut self, id: Id, mixed: bool) {
        let expr = self.checked.ast.expr(id);
        let mut inside = mixed;
        match expr {
            Expr::Call { target, args, .. } => {
                if let Reference::Function { name, .. } = self.checked.reference(id) {
                    inside |= *name == "format";
                    self.call(id, name, *target, args);
                }
            }
            Expr::List { elements, optional } if !mixed => self.list(elements, optional),
            Expr::Map(entries) if !mixed => self.map(entries),
            _ => {}
        }
        each_child(expr, &mut |child| self.visit(child, inside));
    }

    fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &[Id]) {
        if let (Some(arg), "duration" | "timestamp" | "matches") = (args.first(), name)
            && let Expr::Literal(literal) = self.checked.ast.expr(*arg)
        {
            let readable = match (name, literal) {
                ("duration", Literal::String(text)) => Span::parse(text).is_some(),
                ("timestamp", Literal::String(text)) => Time::parse(text).is_some(),
                ("timestamp", Literal::Int(seconds)) => Time::from_seconds(*seconds).is_ok(),
                ("matches", Literal::String(text)) => Pattern::new(text).error().is_none(),
                _ => true,
            };
            if !readable {
                self.report(*arg, format!("invalid {name} argument"));
            }
        }
        if let ("format", Some(target), [list]) = (name, target, args)
            && let Expr::Literal(Literal::String(format)) = self.checked.ast.expr(target)
            && let Expr::List { elements, .. } = self.checked.ast.expr(*list)
        {
            self.format(id, format, elements);
        }
    }

    fn format(&mut self, id: Id, format: &str, args: &[Id]) {
        let pieces = match format_string::pieces(format, args.len() as u64) {
            Ok(pieces) => pieces,
            Err(why) => return self.report(id, why),
        };
        let mut used = 0;
        for piece in pieces {
            let Piece::Clause(clause) = piece else {
                continue;
            };
            let Some(arg) = args.get(used) else {
                break;
            };
            used += 1;
            if let Some(wrong) = self.misfit(clause, *arg) {
                let ty = self.checked.type_of(wrong);
                let name = match ty {
                    Type::Object(_) => self.checked.display_type(ty),
                    ty => ty.name().to_owned(),
                };
                return self.report(wrong, format!("error during formatting: {}{name}", clause.type_error()));
            }
        }
        if args.len() > used {
            self.report(
                id,
                format!("too many arguments supplied to string.format (expected {used}, got {})", args.len()),
            );
        }
    }

    /// Returns the part of an argument that a clause cannot format.
    fn misfit(&self, clause: Clause, id: Id) -> Option<Id> {
        let ty = self.checked.type_of(id);
        let fits = ty.is_dyn()
            || match clause {
                Clause::String => !matches!(ty, Type::Extra(_) | Type::Optional(_) | Type::Object(_) | Type::Error),
                Clause::Decimal | Clause::Octal => matches!(ty, Type::Int | Type::Uint),
                Clause::Fixed(_) | Clause::Scientific => matches!(ty, Type::Double | Type::String),
                Clause::Binary => matches!(ty, Type::Int | Type::Uint | Type::Bool),
                Clause::Hex { .. } => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
            };
        if !fits {
            return Some(id);
        }
        if clause != Clause::String {
            return None;
        }
        match self.checked.ast.expr(id) {
            Expr::List { elements, .. } => elements.iter().find_map(|element| self.misfit(clause, *element)),
            Expr::Map(entries) => entries
                .iter()
                .find_map(|entry| self.misfit(clause, entry.key).or_else(|| self.misfit(clause, entry.value))),
            _ => None,
        }
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        let (expected, found) = (self.checked.display_type(expected), self.checked.display_type(found));
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn element(&self, id: Id, optional: bool) -> Type {
        let ty = self.checked.type_of(id);
        if optional { ty.unwrap_optional().0.clone() } else { ty.clone() }
    }

    fn list(&mut self, elements: &[Id], optional: &[bool]) {
        let mut first: Option<Type> = None;
        for (at, id) in elements.iter().enumerate() {
            let ty = self.element(*id, optional.get(at).copied().unwrap_or(false));
            match &first {
                None => first = Some(ty),
                Some(first) if *first != ty => {
                    let first = first.clone();
                    return self.mismatch(*id, &first, &ty);
                }
                Some(_) => {}
            }
        }
    }

    fn map(&mut self, entries: &[Entry]) {
        let mut first: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.element(entry.key, false);
            let value = self.element(entry.value, entry.optional);
            let Some((keys, values)) = first.clone() else {
                first = Some((key, value));
                continue;
            };
            if keys != key {
                self.mismatch(entry.key, &keys, &key);
            }
            if values != value {
                self.mismatch(entry.value, &values, &value);
            }
        }
    }
}
