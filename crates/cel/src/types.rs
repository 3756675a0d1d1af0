//! The types of CEL, how they are written in messages, and which may stand for which.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::shape::Shape;

/// The types that Kubernetes adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Extra {
    Quantity,
    Url,
    Format,
    Semver,
    Ip,
    Cidr,
    Authorizer,
    PathCheck,
    GroupCheck,
    ResourceCheck,
    Decision,
}

impl Extra {
    pub(crate) const ALL: [Extra; 11] = [
        Extra::Quantity,
        Extra::Url,
        Extra::Format,
        Extra::Semver,
        Extra::Ip,
        Extra::Cidr,
        Extra::Authorizer,
        Extra::PathCheck,
        Extra::GroupCheck,
        Extra::ResourceCheck,
        Extra::Decision,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Extra::Quantity => "kubernetes.Quantity",
            Extra::Url => "kubernetes.URL",
            Extra::Format => "kubernetes.NamedFormat",
            Extra::Semver => "kubernetes.Semver",
            Extra::Ip => "net.IP",
            Extra::Cidr => "net.CIDR",
            Extra::Authorizer => "kubernetes.authorization.Authorizer",
            Extra::PathCheck => "kubernetes.authorization.PathCheck",
            Extra::GroupCheck => "kubernetes.authorization.GroupCheck",
            Extra::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Extra::Decision => "kubernetes.authorization.Decision",
        }
    }

    /// Whether a field can be selected from it (and is then missing); otherwise selecting itself is wrong.
    pub(crate) const fn is_struct(self) -> bool {
        !matches!(self, Extra::Ip | Extra::Cidr)
    }
}

/// A type to be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Param {
    /// In the declaration of a function.
    Named(char),
    /// While an expression is checked.
    Free(u32),
}

#[derive(Clone, Debug)]
pub(crate) enum Type {
    Dyn,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// The type of a type.
    Kind(Option<Arc<Type>>),
    Param(Param),
    /// An object with fields, as a schema has it.
    Object(Arc<Shape>),
    Extra(Extra),
}

impl Type {
    pub(crate) fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    pub(crate) fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    pub(crate) fn type_of(value: Type) -> Type {
        Type::Kind(Some(Arc::new(value)))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// Whether its values are of one size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Null | Type::Optional(_) | Type::Object(_) | Type::Extra(_) | Type::Duration | Type::Timestamp
        )
    }

    /// The inner type of an optional one, and whether it was one.
    pub(crate) fn unwrap_optional(&self) -> (&Type, bool) {
        match self {
            Type::Optional(inner) => (inner, true),
            other => (other, false),
        }
    }

    /// Calls `visit` with the types it is made of.
    fn parts(&self) -> [Option<&Type>; 2] {
        match self {
            Type::List(inner) | Type::Optional(inner) | Type::Kind(Some(inner)) => [Some(inner), None],
            Type::Map(inner) => [Some(&inner.0), Some(&inner.1)],
            _ => [None, None],
        }
    }

    /// Counts the types it is made of, up to a limit. Inner types are shared, so a short expression can have a type
    /// whose text would not fit into memory.
    pub(crate) fn is_larger_than(&self, limit: usize) -> bool {
        fn count(of: &Type, left: &mut usize) -> bool {
            if *left == 0 {
                return true;
            }
            *left -= 1;
            of.parts().into_iter().flatten().any(|part| count(part, left))
        }
        count(self, &mut { limit })
    }

    /// The name at run time, as `type(x)` is compared.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Type::Dyn | Type::Param(_) => "dyn",
            Type::Error => "error",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Optional(_) => "optional_type",
            Type::Kind(_) => "type",
            Type::Object(_) => "object",
            Type::Extra(extra) => extra.name(),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a == b,
            (Type::Map(a), Type::Map(b)) => a == b,
            (Type::Kind(a), Type::Kind(b)) => a == b,
            (Type::Param(a), Type::Param(b)) => a == b,
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b),
            (Type::Extra(a), Type::Extra(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(&|_| "object".to_owned()))
    }
}

impl Type {
    /// As messages have it; `name` names an object by its schema.
    pub(crate) fn show(&self, name: &dyn Fn(&Arc<Shape>) -> String) -> String {
        match self {
            Type::Error => "!error!".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Duration => "duration".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
            Type::Param(Param::Named(letter)) => letter.to_string(),
            Type::Param(Param::Free(number)) => format!("_var{number}"),
            Type::List(inner) => format!("list({})", inner.show(name)),
            Type::Map(inner) => format!("map({}, {})", inner.0.show(name), inner.1.show(name)),
            Type::Optional(inner) => format!("optional_type({})", inner.show(name)),
            Type::Kind(Some(inner)) => format!("type({})", inner.show(name)),
            Type::Object(shape) => name(shape),
            other => other.name().to_owned(),
        }
    }
}

/// What types found out so far stand for.
#[derive(Debug)]
pub(crate) struct Mapping {
    known: Vec<Option<Type>>,
    /// Earlier entries, so that a failed attempt leaves no trace.
    undo: Vec<(u32, Option<Type>)>,
    /// How many types may still be looked at. Unknown types that stand for maps of unknown types make a short
    /// expression's type exponentially large; this is what ends it.
    fuel: Cell<u32>,
}

impl Default for Mapping {
    fn default() -> Self {
        Mapping { known: Vec::new(), undo: Vec::new(), fuel: Cell::new(4_000_000) }
    }
}

impl Mapping {
    fn burn(&self) -> bool {
        let left = self.fuel.get();
        self.fuel.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether types were too large to be followed to the end.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.fuel.get() == 0
    }

    /// A type of which nothing is known.
    pub(crate) fn fresh(&mut self) -> Type {
        self.known.push(None);
        Type::Param(Param::Free((self.known.len() - 1) as u32))
    }

    fn find(&self, param: Param) -> Option<&Type> {
        match param {
            Param::Free(number) => self.known.get(number as usize)?.as_ref(),
            Param::Named(_) => None,
        }
    }

    fn set(&mut self, param: Param, to: Type) {
        if let Param::Free(number) = param
            && let Some(slot) = self.known.get_mut(number as usize)
        {
            self.undo.push((number, slot.replace(to)));
        }
    }

    /// Whether every type can stand for the one beside it; what that says of unknown types is kept only if so.
    pub(crate) fn assign_all<'t>(&mut self, pairs: impl IntoIterator<Item = (&'t Type, &'t Type)>) -> bool {
        self.undo.clear();
        let fits = pairs.into_iter().all(|(a, b)| self.assignable(a, b));
        if !fits {
            while let Some((number, earlier)) = self.undo.pop() {
                self.known[number as usize] = earlier;
            }
        }
        fits
    }

    pub(crate) fn assign(&mut self, a: &Type, b: &Type) -> bool {
        self.assign_all([(a, b)])
    }

    fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        if !self.burn() {
            return false;
        }
        if let Type::Param(param) = b {
            let (valid, known) = self.substitution(a, *param);
            if valid || known {
                return valid;
            }
        }
        if let Type::Param(param) = a {
            return self.substitution(b, *param).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.assignable(a, b),
            (Type::Map(a), Type::Map(b)) => self.assignable(&a.0, &b.0) && self.assignable(&a.1, &b.1),
            (Type::Kind(_), Type::Kind(_)) => true,
            (a, b) => a == b,
        }
    }

    /// Whether an unknown type may be `of`, and whether something was known of it before.
    fn substitution(&mut self, of: &Type, param: Param) -> (bool, bool) {
        if matches!(of, Type::Param(same) if *same == param) {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if *of == known {
                return (true, true);
            }
            if !self.assignable(of, &known) {
                return (false, true);
            }
            let general = most_general(of, &known);
            if !self.occurs(param, &general) {
                self.set(param, general);
            }
            return (true, true);
        }
        if self.occurs(param, of) {
            return (false, false);
        }
        self.set(param, of.clone());
        (true, false)
    }

    fn occurs(&self, param: Param, within: &Type) -> bool {
        if !self.burn() {
            return true;
        }
        match within {
            Type::Param(other) if *other == param => true,
            Type::Param(other) => self.find(*other).is_some_and(|known| self.occurs(param, known)),
            other => other.parts().into_iter().flatten().any(|part| self.occurs(param, part)),
        }
    }

    /// The type with everything that is known filled in; the rest stays, or becomes `dyn`.
    pub(crate) fn substitute(&self, of: &Type, to_dyn: bool) -> Type {
        self.fill(of, to_dyn, &mut 2_000)
    }

    fn fill(&self, of: &Type, to_dyn: bool, left: &mut u32) -> Type {
        *left = left.saturating_sub(1);
        if *left == 0 || !self.burn() {
            return Type::Dyn;
        }
        match of {
            Type::Param(param) => match self.find(*param) {
                Some(known) => self.fill(known, to_dyn, left),
                None if to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(inner) => Type::list(self.fill(inner, to_dyn, left)),
            Type::Optional(inner) => Type::optional(self.fill(inner, to_dyn, left)),
            Type::Map(inner) => Type::map(self.fill(&inner.0, to_dyn, left), self.fill(&inner.1, to_dyn, left)),
            Type::Kind(Some(inner)) => Type::type_of(self.fill(inner, to_dyn, left)),
            other => other.clone(),
        }
    }
}

/// The more general of two types that fit each other.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if is_less_specific(a, b) { a.clone() } else { b.clone() }
}

fn is_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => is_less_specific(&a.0, &b.0) && is_less_specific(&a.1, &b.1),
        (Type::Kind(_), Type::Kind(_)) => true,
        (a, b) => a == b,
    }
}
