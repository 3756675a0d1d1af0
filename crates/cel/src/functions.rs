//! Function declarations, read from `functions.tsv`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::{Extra, Mapping, Param, Type};

/// A signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Called on a value: `value.function(…)`.
    pub(crate) member: bool,
    args: Vec<Type>,
    result: Type,
    params: Vec<char>,
}

impl Overload {
    /// Returns the types of arguments and result with fresh type parameters.
    pub(crate) fn instance(&self, mapping: &mut Mapping) -> (Vec<Type>, Type) {
        if self.params.is_empty() {
            return (self.args.clone(), self.result.clone());
        }
        let fresh: Vec<(char, Type)> = self.params.iter().map(|name| (*name, mapping.fresh())).collect();
        let args = self.args.iter().map(|arg| rename(arg, &fresh)).collect();
        (args, rename(&self.result, &fresh))
    }

    pub(crate) fn arity(&self) -> usize {
        self.args.len()
    }
}

fn rename(ty: &Type, fresh: &[(char, Type)]) -> Type {
    match ty {
        Type::Param(Param::Named(name)) => {
            fresh.iter().find(|(known, _)| known == name).map_or(Type::Dyn, |(_, to)| to.clone())
        }
        Type::List(inner) => Type::list(rename(inner, fresh)),
        Type::Optional(inner) => Type::optional(rename(inner, fresh)),
        Type::Map(inner) => Type::map(rename(&inner.0, fresh), rename(&inner.1, fresh)),
        Type::Kind(Some(inner)) => Type::type_of(rename(inner, fresh)),
        other => other.clone(),
    }
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in include_str!("functions.tsv").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut column = || columns.next().unwrap_or("");
        let (name, id, style, args, result) = (column(), column(), column(), column(), column());
        let args: Vec<Type> = args.split(';').filter(|arg| !arg.is_empty()).map(read).collect();
        let result = read(result);
        let mut params = Vec::new();
        args.iter().for_each(|arg| collect(arg, &mut params));
        collect(&result, &mut params);
        functions.entry(name).or_default().push(Overload { id, member: style == "member", args, result, params });
    }
    functions
});

fn collect(ty: &Type, params: &mut Vec<char>) {
    match ty {
        Type::Param(Param::Named(name)) if !params.contains(name) => params.push(*name),
        Type::List(inner) | Type::Optional(inner) | Type::Kind(Some(inner)) => collect(inner, params),
        Type::Map(inner) => {
            collect(&inner.0, params);
            collect(&inner.1, params);
        }
        _ => {}
    }
}

/// `map(string,list(<A>))`, `opaque:optional_type(<V>)`, `struct:kubernetes.URL`
fn read(text: &'static str) -> Type {
    let name = text.strip_prefix("opaque:").or_else(|| text.strip_prefix("struct:")).unwrap_or(text);
    if let Some(param) = name.strip_prefix('<') {
        return Type::Param(Param::Named(param.chars().next().unwrap_or('A')));
    }
    if let Some((outer, inner)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) {
        return match outer {
            "list" => Type::list(read(inner)),
            "optional_type" => Type::optional(read(inner)),
            "type" => Type::type_of(read(inner)),
            _ => {
                let (key, value) = inner.split_once(',').unwrap_or((inner, "dyn"));
                Type::map(read(key), read(value))
            }
        };
    }
    match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "null_type" => Type::Null,
        "type" => Type::Kind(None),
        name => Extra::ALL.into_iter().find(|extra| extra.name() == name).map_or(Type::Dyn, Type::Extra),
    }
}

/// Returns the overloads of a function in the order in which they are tried.
pub(crate) fn overloads(name: &str) -> Option<(&'static str, &'static [Overload])> {
    let name = name.strip_prefix('.').unwrap_or(name);
    FUNCTIONS.get_key_value(name).map(|(name, overloads)| (*name, &**overloads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        let (_, overloads) = overloads("_[?_]").unwrap();
        assert_eq!(overloads.len(), 4);
        assert_eq!(overloads[1].args[0].to_string(), "optional_type(list(V))");
        assert_eq!(overloads[3].result.to_string(), "optional_type(V)");
        for (name, overloads) in FUNCTIONS.iter() {
            for overload in overloads {
                let known = matches!(*name, "dyn" | "_?._" | "format" | "flatten");
                let is_dyn = |ty: &Type| ty.to_string().contains("dyn");
                assert!(known || !overload.args.iter().any(is_dyn), "{name}: a type was not understood");
            }
        }
        assert!(super::overloads("nothing").is_none());
    }
}
