//! The schema of a custom kind, compiled from `openAPIV3Schema` for pruning, defaulting and validation.
//!
//! Descriptions, titles and examples are left out; OpenAPI documents read them from the text of the definition.

use std::hash::{Hash, Hasher};

use cel::interner::{Interned, Interner};
use machinery::json::{self, Map, Text, Value};

use super::checks::Checks;

/// The schema of a value.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct Schema {
    pub(crate) kind: Option<Sort>,
    pub(crate) nullable: bool,
    /// Undeclared fields are preserved.
    pub(crate) preserve: bool,
    /// The value is an embedded object with apiVersion, kind and metadata.
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) default: Option<Box<Constant>>,
    /// Sorted by name.
    pub(crate) properties: Box<[(Text, Interned<Schema>)]>,
    /// Places of the properties that have a default.
    pub(crate) defaulted: Box<[u32]>,
    pub(crate) rest: Rest,
    pub(crate) items: Option<Interned<Schema>>,
    pub(crate) listing: Listing,
    pub(crate) checks: Option<Interned<Checks>>,
    /// This schema or one below has a default.
    pub(crate) fills: bool,
    /// This schema or one below is an embedded object.
    pub(crate) embeds: bool,
}

/// `type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// An unknown word; such a definition is refused.
    Other,
}

impl Sort {
    pub(crate) fn parse(word: &str) -> Sort {
        match word {
            "object" => Sort::Object,
            "array" => Sort::Array,
            "string" => Sort::String,
            "integer" => Sort::Integer,
            "number" => Sort::Number,
            "boolean" => Sort::Boolean,
            _ => Sort::Other,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Sort::Object => "object",
            Sort::Array => "array",
            Sort::String => "string",
            Sort::Integer => "integer",
            Sort::Number => "number",
            Sort::Boolean => "boolean",
            Sort::Other => "unknown",
        }
    }
}

/// `additionalProperties`
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Rest {
    #[default]
    Unsaid,
    /// `true` or `false`
    Allowed(bool),
    Of(Interned<Schema>),
}

/// `x-kubernetes-list-type`
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Listing {
    #[default]
    Atomic,
    Set,
    Map(Box<[Box<str>]>),
}

/// A constant in a schema. Equality is that of the text, since the order of members is preserved when a default is
/// applied.
#[derive(Debug)]
pub(crate) struct Constant(pub(crate) Value);

impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        json::to_string(&self.0) == json::to_string(&other.0)
    }
}

impl Eq for Constant {}

impl Hash for Constant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        json::to_string(&self.0).hash(state);
    }
}

/// Compiles a schema and the schemas below; equal ones are shared.
#[derive(Default)]
pub(super) struct Compiler {
    schemas: Interner<Schema>,
    checks: Interner<Checks>,
}

impl Compiler {
    pub(super) fn intern(&mut self, source: &Value) -> Interned<Schema> {
        let schema = self.schema(source);
        self.schemas.intern(schema)
    }

    fn schema(&mut self, source: &Value) -> Schema {
        let Value::Object(source) = source else { return Schema::default() };
        let flag = |name: &str| source.get(name).and_then(Value::as_bool) == Some(true);
        let word = |name: &str| source.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
        let properties = self.properties(source.get("properties"));
        let rest = match source.get("additionalProperties") {
            None | Some(Value::Null) => Rest::Unsaid,
            Some(Value::Bool(allowed)) => Rest::Allowed(*allowed),
            Some(schema) => Rest::Of(self.intern(schema)),
        };
        let items = source.get("items").filter(|items| items.is_object()).map(|items| self.intern(items));
        let default = source.get("default").filter(|default| !default.is_null()).cloned();
        let checks = Checks::compile(source, self).map(|checks| self.checks.intern(checks));
        let embedded = flag("x-kubernetes-embedded-resource");
        let any = |of: fn(&Schema) -> bool| {
            properties.iter().any(|(_, schema)| of(schema))
                || matches!(&rest, Rest::Of(schema) if of(schema))
                || items.as_deref().is_some_and(of)
        };
        Schema {
            kind: word("type").map(Sort::parse),
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded,
            int_or_string: flag("x-kubernetes-int-or-string"),
            fills: default.is_some() || any(|schema| schema.fills),
            embeds: embedded || any(|schema| schema.embeds),
            default: default.map(Constant).map(Box::new),
            listing: listing(source),
            checks,
            defaulted: (0..)
                .zip(&properties)
                .filter(|(_, (_, schema))| schema.default.is_some())
                .map(|(at, _)| at)
                .collect(),
            properties,
            rest,
            items,
        }
    }

    fn properties(&mut self, source: Option<&Value>) -> Box<[(Text, Interned<Schema>)]> {
        let Some(Value::Object(source)) = source else { return Box::default() };
        let mut properties: Vec<(Text, Interned<Schema>)> =
            source.iter().map(|(name, schema)| (name.clone(), self.intern(schema))).collect();
        properties.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        properties.into()
    }
}

impl Schema {
    /// Compiles a schema. Unknown keywords are ignored: a definition is checked before it is stored.
    #[must_use]
    pub fn compile(source: &Value) -> Schema {
        Compiler::default().schema(source)
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Schema> {
        let at = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// Returns the schema of `additionalProperties`.
    pub(crate) fn rest(&self) -> Option<&Schema> {
        match &self.rest {
            Rest::Of(schema) => Some(schema),
            _ => None,
        }
    }
}

fn listing(source: &Map) -> Listing {
    match source.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Listing::Set,
        Some("map") => {
            let keys = source.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            Listing::Map(keys.into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect())
        }
        _ => Listing::Atomic,
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn equal_parts_are_one() {
        let field =
            json!({"description": "one", "type": "string", "maxLength": 3, "pattern": "^a", "enum": ["a", "b"]});
        let again =
            json!({"description": "two", "type": "string", "maxLength": 3, "pattern": "^a", "enum": ["a", "b"]});
        let block = |of: &Value| json!({"type": "array", "items": {"type": "object", "properties": {"x": of}}});
        let schema = Schema::compile(&json!({"type": "object", "properties": {"a": block(&field), "b": block(&again),
            "one": {"type": "integer", "minimum": 0, "default": 1}, "two": {"type": "integer", "minimum": 0, "default": 2},
            "whole": {"type": "number", "minimum": 0, "maximum": 1}, "part": {"type": "number", "minimum": 0, "maximum": 0.5}}}));
        let property = |name: &str| schema.property(name).unwrap();
        assert!(std::ptr::eq(property("a"), property("b")));
        assert!(!std::ptr::eq(property("one"), property("two")), "their defaults differ");
        assert!(property("one").checks == property("two").checks && property("one").checks.is_some());
        assert!(property("whole").checks != property("part").checks);
    }
}
