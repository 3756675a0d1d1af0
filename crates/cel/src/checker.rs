//! The type checker: assigns a type to each node and resolves names to variables and functions.

use std::sync::Arc;

use crate::ast::{Ast, Comprehension, Entry, Expr, Field, Id, Literal};
use crate::functions::{self, Overload};
use crate::shape::Shape;
use crate::source::Issues;
use crate::types::{Extra, Mapping, Param, Type, most_general};

/// Largest number of parts in a type.
const TYPE_MAX: usize = 1_000;

/// The declaration that a node refers to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    Variable,
    /// The name of a type, used as a value.
    TypeName(&'static str),
    /// A function and its matching overloads.
    Function {
        name: &'static str,
        overloads: Vec<&'static str>,
        /// The target is part of the name: `sets.contains(…)`.
        qualified: bool,
    },
}

/// A type-checked expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ast: Ast,
    types: Vec<Type>,
    references: Vec<Reference>,
    /// Schemas of the variables; the type name of an object is its path in one of them.
    roots: Vec<Arc<Shape>>,
}

/// Formats a type for a message; a very large one becomes `dyn`.
fn display_type(ty: &Type, roots: &[Arc<Shape>]) -> String {
    if ty.is_larger_than(TYPE_MAX) {
        return "dyn".to_owned();
    }
    let named = |root: &Arc<Shape>, wanted: &Arc<Shape>| {
        let path = root.name_of(wanted)?;
        Some(crate::policy::type_name(root, &path).map_or(path, str::to_owned))
    };
    ty.display(&|wanted| roots.iter().find_map(|root| named(root, wanted)).unwrap_or_else(|| "object".to_owned()))
}

impl Checked {
    /// Formats a type for a message.
    pub(crate) fn display_type(&self, ty: &Type) -> String {
        display_type(ty, &self.roots)
    }

    pub(crate) fn type_of(&self, id: Id) -> &Type {
        &self.types[id as usize]
    }

    pub(crate) fn reference(&self, id: Id) -> &Reference {
        &self.references[id as usize]
    }

    pub(crate) fn output(&self) -> &Type {
        self.type_of(self.ast.root)
    }

    /// Reports whether an identifier of the expression has this name.
    pub(crate) fn names_variable(&self, name: &str) -> bool {
        let is_named =
            |id: usize| matches!(self.ast.expr(id as Id), Expr::Ident(found) if found.trim_start_matches('.') == name);
        (0..self.ast.len()).any(is_named)
    }

    /// Reports whether the expression uses a variable.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        (0..self.ast.len()).any(|id| {
            matches!(self.references[id], Reference::Variable)
                && matches!(self.ast.expr(id as Id), Expr::Ident(found) if found.trim_start_matches('.') == name)
        })
    }
}

/// Types that expressions can name.
const TYPES: [(&str, Type); 15] = [
    ("bool", Type::Bool),
    ("bytes", Type::Bytes),
    ("double", Type::Double),
    ("google.protobuf.Duration", Type::Duration),
    ("int", Type::Int),
    ("null_type", Type::Null),
    ("string", Type::String),
    ("google.protobuf.Timestamp", Type::Timestamp),
    ("type", Type::Kind(None)),
    ("uint", Type::Uint),
    ("net.IP", Type::Extra(Extra::Ip)),
    ("net.CIDR", Type::Extra(Extra::Cidr)),
    ("list", Type::Dyn),
    ("map", Type::Dyn),
    ("optional_type", Type::Dyn),
];

/// The type of JSON patch operations.
pub(crate) const JSON_PATCH: &str = "JSONPatch";
/// The type of apply configurations; the types of their parts are named by path: `Object.spec.template`.
pub(crate) const OBJECT: &str = "Object";

/// Reports whether this is a type of the messages that mutations create.
fn is_message(name: &str) -> bool {
    name == JSON_PATCH || name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the type of a field of such a message.
fn field_type(message: &str, field: &str) -> Option<Type> {
    match (message, field) {
        (JSON_PATCH, "op" | "path" | "from") => Some(Type::String),
        (JSON_PATCH, "value") => Some(Type::Dyn),
        (JSON_PATCH, _) => None,
        _ => Some(Type::Dyn),
    }
}

/// Type names that pass the checker of Kubernetes and fail when the program is built.
pub(crate) const TYPES_WITHOUT_VALUE: [&str; 2] = ["timestamp", "duration"];

fn named_type(name: &str) -> Option<(&'static str, Type)> {
    if let Some(name) = TYPES_WITHOUT_VALUE.into_iter().find(|known| *known == name) {
        let ty = if name == "timestamp" { Type::Timestamp } else { Type::Duration };
        return Some((name, Type::type_of(ty)));
    }
    let (name, ty) = TYPES.iter().find(|(known, _)| *known == name)?;
    let ty = match *name {
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "optional_type" => Type::optional(Type::Dyn),
        _ => ty.clone(),
    };
    Some((*name, Type::type_of(ty)))
}

/// Checks the types of an expression with these variables.
pub(crate) fn check(ast: Ast, variables: &[(Box<str>, Type)]) -> Result<Checked, Issues> {
    check_with(ast, variables, false)
}

/// Checks the types of an expression; with `patches` set it may create the messages of mutations.
pub(crate) fn check_with(ast: Ast, variables: &[(Box<str>, Type)], patches: bool) -> Result<Checked, Issues> {
    let size = ast.len();
    let roots: Vec<Arc<Shape>> = variables
        .iter()
        .filter_map(|(_, ty)| match ty.unwrap_optional().0 {
            Type::Object(root) => Some(root.clone()),
            _ => None,
        })
        .collect();
    let mut checker = Checker {
        ast: &ast,
        types: vec![Type::Error; size],
        references: vec![Reference::None; size],
        mapping: Mapping::default(),
        declared: variables,
        scopes: Vec::new(),
        roots: roots.clone(),
        patches,
        issues: Issues::default(),
    };
    checker.check(ast.root);
    let Checker { mut types, references, mapping, mut issues, .. } = checker;
    for (id, ty) in types.iter_mut().enumerate() {
        if mapping.is_exhausted() {
            break;
        }
        *ty = mapping.substitute(ty, true);
        if ty.is_larger_than(TYPE_MAX) {
            issues.report(ast.offset(id as Id), "type of expression is too large");
            break;
        }
    }
    if mapping.is_exhausted() {
        issues.report_whole("types of expression are too large");
    }
    if issues.is_empty() { Ok(Checked { ast, types, references, roots }) } else { Err(issues) }
}

struct Checker<'a> {
    ast: &'a Ast,
    types: Vec<Type>,
    references: Vec<Reference>,
    mapping: Mapping,
    /// The variables of the expression; a policy may have many.
    declared: &'a [(Box<str>, Type)],
    /// Variables of macros; the innermost is last.
    scopes: Vec<(Box<str>, Type)>,
    roots: Vec<Arc<Shape>>,
    /// `Object{…}`, `JSONPatch{…}` and their functions are declared.
    patches: bool,
    issues: Issues,
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: String) {
        self.issues.report(self.ast.offset(id), message);
    }

    fn set(&mut self, id: Id, ty: Type) {
        let ty = if ty.is_larger_than(TYPE_MAX) {
            self.report(id, "type of expression is too large".to_owned());
            Type::Error
        } else {
            ty
        };
        self.types[id as usize] = ty;
    }

    fn type_of(&self, id: Id) -> Type {
        self.types[id as usize].clone()
    }

    /// Returns the type of a node with resolved type parameters.
    fn known(&mut self, id: Id) -> Type {
        let ty = self.mapping.substitute(&self.types[id as usize], false);
        if ty.is_larger_than(TYPE_MAX) {
            self.report(id, "type of expression is too large".to_owned());
            return Type::Error;
        }
        ty
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        let (expected, found) = (self.display_type(expected), self.display_type(found));
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn display_type(&self, ty: &Type) -> String {
        display_type(ty, &self.roots)
    }

    fn check(&mut self, id: Id) {
        let ast = self.ast;
        match ast.expr(id) {
            Expr::Literal(literal) => {
                let ty = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set(id, ty);
            }
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List { elements, optional } => self.list(id, elements, optional),
            Expr::Map(entries) => self.map(id, entries),
            Expr::Struct { name, fields } => self.message(id, name, fields),
            Expr::Comprehension(inner) => self.comprehension(id, inner),
            Expr::Error => {}
        }
    }

    fn message(&mut self, id: Id, name: &str, fields: &[Field]) {
        let plain = name.strip_prefix('.').unwrap_or(name);
        if !self.patches || !is_message(plain) {
            return self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        }
        for field in fields {
            self.check(field.value);
            let found = self.element(field.value, field.optional);
            let expected = field_type(plain, &field.name);
            if !expected.as_ref().is_some_and(|expected| self.mapping.assign(expected, &found)) {
                let expected = expected.map_or_else(String::new, |expected| self.display_type(&expected));
                let found = self.display_type(&found);
                let why =
                    format!("expected type of field '{}' is '{expected}' but provided type is '{found}'", field.name);
                self.issues.report(field.offset, why);
            }
        }
        self.set(id, Type::Message(plain.into()));
    }

    fn overloads(&self, name: &str) -> Option<(&'static str, &'static [Overload])> {
        functions::overloads(name).filter(|(name, _)| self.patches || *name != "jsonpatch.escapeKey")
    }

    fn ident(&mut self, id: Id, name: &str) {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let mut known = self.scopes.iter().rev().chain(self.declared.iter().rev());
        if let Some((_, ty)) = known.find(|(known, _)| &**known == plain) {
            let ty = ty.clone();
            self.set(id, ty);
            self.references[id as usize] = Reference::Variable;
        } else if let Some((name, ty)) = named_type(plain) {
            self.set(id, ty);
            self.references[id as usize] = Reference::TypeName(name);
        } else {
            self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool) {
        if !test
            && matches!(field, "IP" | "CIDR" | "Timestamp" | "Duration")
            && let Some((name, ty)) = self.ast.qualified_name(id).and_then(|name| named_type(&name))
        {
            self.set(id, ty);
            self.references[id as usize] = Reference::TypeName(name);
            return;
        }
        let ty = self.select_field(id, operand, field, false);
        self.set(id, if test { Type::Bool } else { ty });
    }

    fn select_field(&mut self, id: Id, operand: Id, field: &str, optional: bool) -> Type {
        self.check(operand);
        if let Some(ty) = self.dotted(operand, field) {
            return if optional { Type::optional(ty) } else { ty };
        }
        let operand_type = self.known(operand);
        let (target, was_optional) = operand_type.unwrap_optional();
        let ty = match target {
            Type::Map(inner) => inner.1.clone(),
            Type::Object(shape) => match shape.field(field) {
                Some(shape) => shape.declared_type(),
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Message(name) => match field_type(name, field) {
                Some(ty) => ty,
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Extra(extra) if extra.is_struct() => {
                self.report(id, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.mapping.assign(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let shown = self.display_type(other);
                self.report(id, format!("type '{shown}' does not support field selection"));
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(ty) } else { ty }
    }

    /// Returns the type of a variable whose name contains a dot. It takes precedence over a field selection.
    fn dotted(&self, operand: Id, field: &str) -> Option<Type> {
        let mut named = self.declared.iter().rev().filter(|(name, _)| name.contains('.')).peekable();
        named.peek()?;
        let prefix = self.ast.qualified_name(operand)?;
        let found = named.find(|(name, _)| name.rsplit_once('.') == Some((&*prefix, field)));
        found.map(|(_, ty)| ty.clone())
    }

    fn call(&mut self, id: Id, function: &str, target: Option<Id>, args: &[Id]) {
        if function == "_?._" {
            let ty = match (args, args.get(1).map(|field| self.ast.expr(*field))) {
                ([operand, _], Some(Expr::Literal(Literal::String(field)))) => {
                    self.select_field(id, *operand, field, true)
                }
                _ => Type::Error,
            };
            self.references[id as usize] =
                Reference::Function { name: "_?._", overloads: vec!["select_optional_field"], qualified: false };
            return self.set(id, ty);
        }
        for arg in args {
            self.check(*arg);
        }
        if matches!(function, "_&&_" | "_||_") {
            return self.logic(id, function, args);
        }
        let Some(target) = target else {
            return match self.overloads(function) {
                Some((name, overloads)) => self.resolve(id, name, overloads, None, args, false),
                None => self.report(id, format!("undeclared reference to '{function}' (in container '')")),
            };
        };
        if let Some(prefix) = self.ast.qualified_name(target)
            && let Some((name, overloads)) = self.overloads(&format!("{prefix}.{function}"))
        {
            return self.resolve(id, name, overloads, None, args, true);
        }
        self.check(target);
        match self.overloads(function) {
            Some((name, overloads)) => self.resolve(id, name, overloads, Some(target), args, false),
            None => self.report(id, format!("undeclared reference to '{function}' (in container '')")),
        }
    }

    fn logic(&mut self, id: Id, function: &str, args: &[Id]) {
        let mut fits = true;
        for arg in args {
            let found = self.type_of(*arg);
            if !self.mapping.assign(&found, &Type::Bool) {
                self.mismatch(*arg, &Type::Bool, &found);
                fits = false;
            }
        }
        let (name, overload) = if function == "_&&_" { ("_&&_", "logical_and") } else { ("_||_", "logical_or") };
        self.references[id as usize] = Reference::Function { name, overloads: vec![overload], qualified: false };
        if fits {
            self.set(id, Type::Bool);
        }
    }

    fn resolve(
        &mut self,
        id: Id,
        name: &'static str,
        overloads: &'static [Overload],
        target: Option<Id>,
        args: &[Id],
        qualified: bool,
    ) {
        let given: Vec<Type> = target.iter().chain(args).map(|arg| self.type_of(*arg)).collect();
        let mut found: Vec<&'static str> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads {
            if overload.member != target.is_some() || overload.arity() != given.len() {
                continue;
            }
            let (wanted, ty) = overload.instance(&mut self.mapping);
            if !self.mapping.assign_all(given.iter().zip(&wanted)) {
                continue;
            }
            found.push(overload.id);
            let ty = self.mapping.substitute(&ty, false);
            match &result {
                None => result = Some(ty),
                Some(earlier) if !earlier.is_dyn() && *earlier != ty => result = Some(Type::Dyn),
                Some(_) => {}
            }
        }
        let Some(result) = result else {
            let mut given: Vec<String> =
                given.iter().map(|ty| self.display_type(&self.mapping.substitute(ty, true))).collect();
            let on = if target.is_some() { given.remove(0) + "." } else { String::new() };
            let given = given.join(", ");
            return self.report(id, format!("found no matching overload for '{name}' applied to '{on}({given})'"));
        };
        self.references[id as usize] = Reference::Function { name, overloads: found, qualified };
        self.set(id, result);
    }

    /// Returns the type of an element; for an optional element (`?e`), the type inside the optional.
    fn element(&mut self, id: Id, optional: bool) -> Type {
        let ty = self.type_of(id);
        if !optional {
            return ty;
        }
        let (inner, was_optional) = ty.unwrap_optional();
        if !was_optional && !inner.is_dyn() {
            let inner = inner.clone();
            self.mismatch(id, &Type::optional(inner.clone()), &inner);
        }
        inner.clone()
    }

    /// Returns a type that covers both.
    fn join(&mut self, earlier: Option<Type>, now: Type) -> Type {
        match earlier {
            None => now,
            Some(earlier) if self.mapping.assign(&earlier, &now) => most_general(&earlier, &now),
            Some(_) => Type::Dyn,
        }
    }

    fn list(&mut self, id: Id, elements: &[Id], optional: &[bool]) {
        let mut joined = None;
        for (at, element) in elements.iter().enumerate() {
            self.check(*element);
            let ty = self.element(*element, optional.get(at).copied().unwrap_or(false));
            joined = Some(self.join(joined, ty));
        }
        let joined = joined.unwrap_or_else(|| self.mapping.fresh());
        self.set(id, Type::list(joined));
    }

    fn map(&mut self, id: Id, entries: &[Entry]) {
        let mut joined: Option<(Type, Type)> = None;
        for entry in entries {
            self.check(entry.key);
            self.check(entry.value);
            let key = self.type_of(entry.key);
            let value = self.element(entry.value, entry.optional);
            joined = Some(match joined {
                None => (key, value),
                Some((keys, values)) => (self.join(Some(keys), key), self.join(Some(values), value)),
            });
        }
        let (key, value) = joined.unwrap_or_else(|| (self.mapping.fresh(), self.mapping.fresh()));
        self.set(id, Type::map(key, value));
    }

    fn comprehension(&mut self, id: Id, inner: &Comprehension) {
        self.check(inner.range);
        self.check(inner.init);
        let range = self.known(inner.range);
        let accumulated = self.type_of(inner.init);
        let depth = self.scopes.len();
        self.scopes.push((inner.accumulator.clone(), accumulated.clone()));
        let (first, second) = match &range {
            Type::List(element) if inner.second.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Param(Param::Free(_) | Param::Named(_)) => {
                self.mapping.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let shown = self.display_type(other);
                self.report(
                    inner.range,
                    format!(
                        "expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((inner.variable.clone(), first));
        if let Some(name) = &inner.second {
            self.scopes.push((name.clone(), second));
        }
        self.check(inner.condition);
        self.assert_type(inner.condition, &Type::Bool);
        self.check(inner.step);
        self.assert_type(inner.step, &accumulated);
        self.scopes.truncate(depth + 1);
        self.check(inner.result);
        self.scopes.truncate(depth);
        let ty = self.known(inner.result);
        self.set(id, ty);
    }

    fn assert_type(&mut self, id: Id, wanted: &Type) {
        let found = self.type_of(id);
        if !self.mapping.assign(wanted, &found) {
            self.mismatch(id, wanted, &found);
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use crate::parser;

    use super::*;

    fn checked(text: &str) -> Result<Checked, Issues> {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string"},
            "t": {"type": "string", "format": "date-time"},
            "l": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "o": {"type": "object", "properties": {"x": {"type": "boolean"}}},
            "any": {"x-kubernetes-int-or-string": true},
        }});
        let ty = Shape::from_schema(&schema, false).declared_type();
        check(parser::parse(text).expect(text), &[("self".into(), ty)])
    }

    fn type_of(text: &str) -> String {
        let checked = checked(text).unwrap_or_else(|issues| panic!("{}", issues.render(text)));
        checked.display_type(checked.output())
    }

    #[test]
    fn types_follow_from_the_schema_and_the_overloads() {
        for (text, want) in [
            ("self.n + 1", "int"),
            ("self.s + 'a'", "string"),
            ("self.t - self.t", "duration"),
            ("self.o", "selfType.o"),
            ("self.m['a']", "int"),
            ("self.?s", "optional_type(string)"),
            ("self.?o.x", "optional_type(bool)"),
            ("self.any", "dyn"),
            ("has(self.s)", "bool"),
            ("quantity('1')", "kubernetes.Quantity"),
            ("type(1)", "type(int)"),
            ("int", "type(int)"),
        ] {
            assert_eq!(type_of(text), want, "{text}");
        }
    }

    #[test]
    fn containers_have_the_most_general_type_of_their_elements() {
        for (text, want) in [
            ("[1, 2]", "list(int)"),
            ("[1, 'a']", "list(dyn)"),
            ("[]", "list(dyn)"),
            ("[[], [1]]", "list(list(int))"),
            ("{'a': 1, 'b': 2}", "map(string, int)"),
            ("{'a': 1, 'b': 'c'}", "map(string, dyn)"),
            ("[?self.?s]", "list(string)"),
            ("self.l.map(x, size(x))", "list(int)"),
            ("self.m.map(k, k)", "list(string)"),
            ("self.l.transformMap(i, v, i)", "map(int, int)"),
            ("true ? [] : [1]", "list(int)"),
        ] {
            assert_eq!(type_of(text), want, "{text}");
        }
    }

    #[test]
    fn calls_refer_to_every_overload_that_fits() {
        for (text, want_name, want_overloads, want_qualified) in [
            ("self.n == 1", "_==_", &["equals"][..], false),
            ("self.l.size()", "size", &["list_size"], false),
            ("size(dyn(1))", "size", &["size_bytes", "size_list", "size_map", "size_string"], false),
            ("sets.contains([1], [1])", "sets.contains", &["list_sets_contains_list"], true),
            ("true && false", "_&&_", &["logical_and"], false),
        ] {
            let checked = checked(text).expect(text);
            let Reference::Function { name, overloads, qualified } = checked.reference(checked.ast.root) else {
                panic!("{text} is no call");
            };
            let mut overloads = overloads.clone();
            overloads.sort_unstable();
            assert_eq!((*name, &*overloads, *qualified), (want_name, want_overloads, want_qualified), "{text}");
        }
    }

    #[test]
    fn errors_name_the_types_and_the_offset() {
        for (text, offset, want) in [
            ("self.n + 'a'", 7, "found no matching overload for '_+_' applied to '(int, string)'"),
            ("self.s.size(1)", 11, "found no matching overload for 'size' applied to 'string.(int)'"),
            ("self.nothing", 4, "undefined field 'nothing'"),
            ("self.n.x", 6, "type 'int' does not support field selection"),
            ("1 == foo", 5, "undeclared reference to 'foo' (in container '')"),
            ("foo()", 3, "undeclared reference to 'foo' (in container '')"),
            ("1 && true", 0, "expected type 'bool' but found 'int'"),
            ("[?1]", 2, "expected type 'optional_type(int)' but found 'int'"),
            (
                "self.n.all(x, true)",
                4,
                "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
            ),
            ("self.l.all(x, 1)", 14, "expected type 'bool' but found 'int'"),
            ("self.l.all(x, true) && x", 23, "undeclared reference to 'x' (in container '')"),
        ] {
            let issues = checked(text).expect_err(text);
            let found: Vec<_> = issues.list().iter().map(|issue| (issue.offset, &*issue.message)).collect();
            assert!(found.contains(&(Some(offset), want)), "{text}: {found:?}");
        }
    }

    #[test]
    fn variables_are_mentioned_by_reference_and_not_by_name() {
        assert!(checked("self.n == 1").unwrap().mentions("self"));
        assert!(checked(".self.n == 1").unwrap().mentions("self"));
        assert!(!checked("{'self': 1}.self == 1").unwrap().mentions("self"));
    }
}
