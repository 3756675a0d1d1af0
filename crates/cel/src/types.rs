//! The types of CEL, their names in messages, and assignability.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::shape::Shape;

/// Types that Kubernetes adds.
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

    /// Reports whether field selection is allowed. It then fails with "undefined field" instead of "does not support".
    pub(crate) const fn is_struct(self) -> bool {
        !matches!(self, Extra::Ip | Extra::Cidr)
    }
}

/// A type parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Param {
    /// A parameter in the declaration of a function.
    Named(char),
    /// A parameter of an expression under check.
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
    /// An object with the fields of a schema.
    Object(Arc<Shape>),
    /// A message that mutations create: `Object.spec`, `JSONPatch`.
    Message(Arc<str>),
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

    /// Reports whether all values have size one.
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
            Type::Null
                | Type::Optional(_)
                | Type::Object(_)
                | Type::Message(_)
                | Type::Extra(_)
                | Type::Duration
                | Type::Timestamp
        )
    }

    /// Returns the inner type of an optional type, and whether it was optional.
    pub(crate) fn unwrap_optional(&self) -> (&Type, bool) {
        match self {
            Type::Optional(inner) => (inner, true),
            other => (other, false),
        }
    }

    /// Calls `visit` with each direct part.
    fn parts(&self) -> [Option<&Type>; 2] {
        match self {
            Type::List(inner) | Type::Optional(inner) | Type::Kind(Some(inner)) => [Some(inner), None],
            Type::Map(inner) => [Some(&inner.0), Some(&inner.1)],
            _ => [None, None],
        }
    }

    /// Counts the parts up to a limit. Inner types are shared, so a short expression can have a type whose text would
    /// not fit into memory.
    pub(crate) fn is_larger_than(&self, limit: usize) -> bool {
        fn count(ty: &Type, left: &mut usize) -> bool {
            if *left == 0 {
                return true;
            }
            *left -= 1;
            ty.parts().into_iter().flatten().any(|part| count(part, left))
        }
        count(self, &mut { limit })
    }

    /// Returns the run-time name, which `type(x)` compares.
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
            Type::Message(_) => "message",
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
            (Type::Message(a), Type::Message(b)) => a == b,
            (Type::Extra(a), Type::Extra(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display(&|_| "object".to_owned()))
    }
}

impl Type {
    /// Formats the type for a message; `name` returns the type name of an object.
    pub(crate) fn display(&self, name: &dyn Fn(&Arc<Shape>) -> String) -> String {
        match self {
            Type::Error => "!error!".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Duration => "duration".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
            Type::Param(Param::Named(letter)) => letter.to_string(),
            Type::Param(Param::Free(number)) => format!("_var{number}"),
            Type::List(inner) => format!("list({})", inner.display(name)),
            Type::Map(inner) => format!("map({}, {})", inner.0.display(name), inner.1.display(name)),
            Type::Optional(inner) => format!("optional_type({})", inner.display(name)),
            Type::Kind(Some(inner)) => format!("type({})", inner.display(name)),
            Type::Object(shape) => name(shape),
            Type::Message(name) => name.to_string(),
            other => other.name().to_owned(),
        }
    }
}

/// Types assigned to type parameters.
#[derive(Debug)]
pub(crate) struct Mapping {
    known: Vec<Option<Type>>,
    /// Previous entries, restored when an attempt fails.
    undo: Vec<(u32, Option<Type>)>,
    /// Number of types that may still be visited. Parameters that map to maps of parameters make the type of a short
    /// expression exponentially large; this limit ends the check.
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

    /// Reports whether the limit on visited types was reached.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.fuel.get() == 0
    }

    /// Returns a new type parameter.
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

    /// Reports whether each first type is assignable to the second; assignments to parameters are kept only on success.
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

    /// Reports whether a parameter may be assigned `ty`, and whether it had a type before.
    fn substitution(&mut self, ty: &Type, param: Param) -> (bool, bool) {
        if matches!(ty, Type::Param(same) if *same == param) {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if *ty == known {
                return (true, true);
            }
            if !self.assignable(ty, &known) {
                return (false, true);
            }
            let general = most_general(ty, &known);
            if !self.occurs(param, &general) {
                self.set(param, general);
            }
            return (true, true);
        }
        if self.occurs(param, ty) {
            return (false, false);
        }
        self.set(param, ty.clone());
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

    /// Substitutes known parameters; the others stay, or become `dyn`.
    pub(crate) fn substitute(&self, ty: &Type, to_dyn: bool) -> Type {
        self.fill(ty, to_dyn, &mut 2_000)
    }

    fn fill(&self, ty: &Type, to_dyn: bool, left: &mut u32) -> Type {
        *left = left.saturating_sub(1);
        if *left == 0 || !self.burn() {
            return Type::Dyn;
        }
        match ty {
            Type::Param(param) => match self.find(*param) {
                Some(known) => self.fill(known, to_dyn, left),
                None if to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(inner) => Type::list(self.fill(inner, to_dyn, left)),
            Type::Optional(inner) => Type::optional(self.fill(inner, to_dyn, left)),
            Type::Map(inner) => Type::map(self.fill(&inner.0, to_dyn, left), self.fill(&inner.1, to_dyn, left)),
            Type::Kind(Some(inner)) => Type::type_of(self.fill(inner, to_dyn, left)),
            other => other.clone(),
        }
    }
}

/// Returns the more general of two assignable types.
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
