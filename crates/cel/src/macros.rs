//! Expands macros (`has`, `all`, `map`, `optMap`, …) into the trees that they abbreviate.

use crate::ast::{Ast, Comprehension, Expr, Id, Literal, TreeLimit};

/// The name of the accumulator of a loop; it is not a valid identifier, so no expression can use it.
pub(crate) const ACCUMULATOR: &str = "@result";
const OLD_ACCUMULATOR: &str = "__result__";
const UNUSED: &str = "#unused";

/// The reason why a macro cannot be expanded.
pub(crate) enum MacroError {
    TreeLimit(TreeLimit),
    Argument { offset: u32, message: String },
}

impl From<TreeLimit> for MacroError {
    fn from(limit: TreeLimit) -> Self {
        MacroError::TreeLimit(limit)
    }
}

/// Expands a call; `None` if it is not a macro.
pub(crate) fn expand(
    ast: &mut Ast,
    offset: u32,
    name: &str,
    target: Option<Id>,
    args: &[Id],
) -> Result<Option<Id>, MacroError> {
    let mut builder = Builder { ast, offset };
    let expanded = match (name, target, args) {
        ("has", None, [arg]) => builder.has(*arg),
        ("all", Some(target), [v, body]) => builder.all(target, &[*v], *body),
        ("all", Some(target), [k, v, body]) => builder.all(target, &[*k, *v], *body),
        ("exists", Some(target), [v, body]) => builder.exists(target, &[*v], *body),
        ("exists", Some(target), [k, v, body]) => builder.exists(target, &[*k, *v], *body),
        ("exists_one", Some(target), [v, body]) => builder.exists_one(target, &[*v], *body),
        ("exists_one" | "existsOne", Some(target), [k, v, body]) => builder.exists_one(target, &[*k, *v], *body),
        ("map", Some(target), [v, body]) => builder.map(target, *v, None, *body),
        ("map", Some(target), [v, filter, body]) => builder.map(target, *v, Some(*filter), *body),
        ("filter", Some(target), [v, body]) => builder.map(target, *v, Some(*body), *v),
        ("transformList", Some(target), [k, v, body]) => builder.transform(List, target, [*k, *v], None, *body),
        ("transformList", Some(target), [k, v, filter, body]) => {
            builder.transform(List, target, [*k, *v], Some(*filter), *body)
        }
        ("transformMap", Some(target), [k, v, body]) => builder.transform(Map, target, [*k, *v], None, *body),
        ("transformMap", Some(target), [k, v, filter, body]) => {
            builder.transform(Map, target, [*k, *v], Some(*filter), *body)
        }
        ("transformMapEntry", Some(target), [k, v, body]) => builder.transform(Entry, target, [*k, *v], None, *body),
        ("transformMapEntry", Some(target), [k, v, filter, body]) => {
            builder.transform(Entry, target, [*k, *v], Some(*filter), *body)
        }
        ("optMap", Some(target), [v, body]) => builder.optional_map("optMap", target, *v, *body),
        ("optFlatMap", Some(target), [v, body]) => builder.optional_map("optFlatMap", target, *v, *body),
        ("sortBy", Some(target), [v, key]) => builder.sort_by(target, *v, *key),
        _ => return Ok(None),
    };
    expanded.map(Some)
}

enum Transformed {
    List,
    Map,
    Entry,
}
use Transformed::{Entry, List, Map};

struct Builder<'a> {
    ast: &'a mut Ast,
    /// The offset of the macro, which all nodes of the expansion have.
    offset: u32,
}

type Built = Result<Id, MacroError>;

impl Builder<'_> {
    fn add(&mut self, expr: Expr) -> Built {
        Ok(self.ast.add(self.offset, expr)?)
    }

    fn refuse(&self, id: Id, message: impl Into<String>) -> MacroError {
        MacroError::Argument { offset: self.ast.offset(id), message: message.into() }
    }

    fn literal(&mut self, literal: Literal) -> Built {
        self.add(Expr::Literal(literal))
    }

    fn ident(&mut self, name: &str) -> Built {
        self.add(Expr::Ident(name.into()))
    }

    fn accumulator(&mut self) -> Built {
        self.ident(ACCUMULATOR)
    }

    fn list(&mut self, elements: Vec<Id>) -> Built {
        self.add(Expr::List { elements, optional: Vec::new() })
    }

    fn call(&mut self, function: &str, args: Vec<Id>) -> Built {
        self.add(Expr::Call { function: function.into(), target: None, args })
    }

    fn member(&mut self, function: &str, target: Id, args: Vec<Id>) -> Built {
        self.add(Expr::Call { function: function.into(), target: Some(target), args })
    }

    fn variable(&self, id: Id, message: &str) -> Result<Box<str>, MacroError> {
        match self.ast.expr(id) {
            Expr::Ident(name) if matches!(&**name, ACCUMULATOR | OLD_ACCUMULATOR) => {
                Err(self.refuse(id, "iteration variable overwrites accumulator variable"))
            }
            Expr::Ident(name) => Ok(name.clone()),
            _ => Err(self.refuse(id, message)),
        }
    }

    /// Returns the names of the variables: one, or a key and a value.
    fn variables(&self, ids: &[Id]) -> Result<(Box<str>, Option<Box<str>>), MacroError> {
        const SIMPLE: &str = "argument must be a simple name";
        let first = self.variable(ids[0], SIMPLE)?;
        let second = ids.get(1).map(|id| self.variable(*id, SIMPLE)).transpose()?;
        if second.as_ref() == Some(&first) {
            return Err(self.refuse(ids[1], format!("duplicate variable name: {first}")));
        }
        Ok((first, second))
    }

    fn fold(
        &mut self,
        range: Id,
        (variable, second): (Box<str>, Option<Box<str>>),
        init: Id,
        condition: Id,
        step: Id,
        result: Id,
    ) -> Built {
        self.add(Expr::Comprehension(Box::new(Comprehension {
            range,
            variable,
            second,
            accumulator: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
            bind: false,
        })))
    }

    fn bind(&mut self, name: &str, value: Id, result: Id) -> Built {
        let range = self.list(Vec::new())?;
        let condition = self.literal(Literal::Bool(false))?;
        let step = self.ident(name)?;
        self.add(Expr::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.into(),
            second: None,
            accumulator: name.into(),
            init: value,
            condition,
            step,
            result,
            bind: true,
        })))
    }

    fn has(&mut self, arg: Id) -> Built {
        match self.ast.expr(arg) {
            Expr::Select { operand, field, .. } => {
                let test = Expr::Select { operand: *operand, field: field.clone(), test: true };
                self.add(test)
            }
            _ => Err(self.refuse(arg, "invalid argument to has() macro")),
        }
    }

    fn all(&mut self, target: Id, variables: &[Id], body: Id) -> Built {
        let variables = self.variables(variables)?;
        let init = self.literal(Literal::Bool(true))?;
        let so_far = self.accumulator()?;
        let condition = self.call("@not_strictly_false", vec![so_far])?;
        let so_far = self.accumulator()?;
        let step = self.call("_&&_", vec![so_far, body])?;
        let result = self.accumulator()?;
        self.fold(target, variables, init, condition, step, result)
    }

    fn exists(&mut self, target: Id, variables: &[Id], body: Id) -> Built {
        let variables = self.variables(variables)?;
        let init = self.literal(Literal::Bool(false))?;
        let so_far = self.accumulator()?;
        let negated = self.call("!_", vec![so_far])?;
        let condition = self.call("@not_strictly_false", vec![negated])?;
        let so_far = self.accumulator()?;
        let step = self.call("_||_", vec![so_far, body])?;
        let result = self.accumulator()?;
        self.fold(target, variables, init, condition, step, result)
    }

    fn exists_one(&mut self, target: Id, variables: &[Id], body: Id) -> Built {
        let variables = self.variables(variables)?;
        let init = self.literal(Literal::Int(0))?;
        let condition = self.literal(Literal::Bool(true))?;
        let so_far = self.accumulator()?;
        let one = self.literal(Literal::Int(1))?;
        let more = self.call("_+_", vec![so_far, one])?;
        let same = self.accumulator()?;
        let step = self.call("_?_:_", vec![body, more, same])?;
        let so_far = self.accumulator()?;
        let one = self.literal(Literal::Int(1))?;
        let result = self.call("_==_", vec![so_far, one])?;
        self.fold(target, variables, init, condition, step, result)
    }

    fn filtered(&mut self, filter: Option<Id>, step: Id) -> Built {
        match filter {
            None => Ok(step),
            Some(filter) => {
                let same = self.accumulator()?;
                self.call("_?_:_", vec![filter, step, same])
            }
        }
    }

    fn map(&mut self, target: Id, variable: Id, filter: Option<Id>, body: Id) -> Built {
        let name = self.variable(variable, "argument is not an identifier")?;
        let init = self.list(Vec::new())?;
        let condition = self.literal(Literal::Bool(true))?;
        let so_far = self.accumulator()?;
        let added = self.list(vec![body])?;
        let step = self.call("_+_", vec![so_far, added])?;
        let step = self.filtered(filter, step)?;
        let result = self.accumulator()?;
        self.fold(target, (name, None), init, condition, step, result)
    }

    fn transform(&mut self, into: Transformed, target: Id, variables: [Id; 2], filter: Option<Id>, body: Id) -> Built {
        let variables = self.variables(&variables)?;
        let so_far = self.accumulator()?;
        let (step, init) = match into {
            List => {
                let added = self.list(vec![body])?;
                (self.call("_+_", vec![so_far, added])?, self.list(Vec::new())?)
            }
            Map => {
                let key = self.ident(&variables.0)?;
                (self.call("cel.@mapInsert", vec![so_far, key, body])?, self.add(Expr::Map(Vec::new()))?)
            }
            Entry => (self.call("cel.@mapInsert", vec![so_far, body])?, self.add(Expr::Map(Vec::new()))?),
        };
        let step = self.filtered(filter, step)?;
        let condition = self.literal(Literal::Bool(true))?;
        let result = self.accumulator()?;
        self.fold(target, variables, init, condition, step, result)
    }

    fn optional_map(&mut self, name: &str, target: Id, variable: Id, body: Id) -> Built {
        let variable = match self.ast.expr(variable) {
            Expr::Ident(name) => name.clone(),
            _ => return Err(self.refuse(variable, format!("{name}() variable name must be a simple identifier"))),
        };
        let condition = self.member("hasValue", target, Vec::new())?;
        let copy = self.ast.copy(target)?;
        let value = self.member("value", copy, Vec::new())?;
        let mut some = self.bind(&variable, value, body)?;
        if name == "optMap" {
            some = self.call("optional.of", vec![some])?;
        }
        let none = self.call("optional.none", Vec::new())?;
        self.call("_?_:_", vec![condition, some, none])
    }

    fn sort_by(&mut self, target: Id, variable: Id, key: Id) -> Built {
        const INPUT: &str = "@__sortBy_input__";
        if !matches!(
            self.ast.expr(target),
            Expr::List { .. } | Expr::Select { .. } | Expr::Ident(_) | Expr::Comprehension(_) | Expr::Call { .. }
        ) {
            return Err(self.refuse(
                target,
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
            ));
        }
        let input = self.ident(INPUT)?;
        let keys = self.map(input, variable, None, key)?;
        let input = self.ident(INPUT)?;
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys])?;
        self.bind(INPUT, target, sorted)
    }
}
