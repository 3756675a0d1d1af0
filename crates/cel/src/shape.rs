//! The part of a structural schema that expressions depend on: fields, types and maximum sizes.

use std::sync::{Arc, LazyLock};

use machinery::json::{Map, Text, Value};

use crate::escape::{escape, is_reserved};
use crate::interner::Interner;
use crate::types::Type;

/// Largest request that a server accepts. It bounds the sizes that a schema does not limit.
pub(crate) const REQUEST_MAX: i64 = 3 * 1024 * 1024;
/// Levels below this are ignored.
const DEPTH_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    IntOrString,
    /// Unknown fields are preserved, without a type.
    Preserved,
    /// The value itself decides: a value without a schema.
    Dynamic,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    Plain,
    Byte,
    Duration,
    Date,
    DateTime,
}

/// `x-kubernetes-list-type` and the keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Listing {
    Atomic,
    Set,
    Map(Box<[Box<str>]>),
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Property {
    pub(crate) name: Text,
    escaped: Escaped,
    pub(crate) shape: Arc<Shape>,
}

/// The name of a property in expressions.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Escaped {
    /// The same as the property.
    Same,
    Other(Box<str>),
    /// Expressions cannot name the property.
    Never,
}

impl Property {
    fn escaped(&self) -> Option<&str> {
        match &self.escaped {
            Escaped::Same => Some(&self.name),
            Escaped::Other(text) => Some(text),
            Escaped::Never => None,
        }
    }
}

/// A node of a schema.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    pub(crate) nullable: bool,
    /// Sorted by name; `None` if the schema lists no properties.
    pub(crate) properties: Option<Box<[Property]>>,
    pub(crate) additional: Option<Arc<Shape>>,
    pub(crate) items: Option<Arc<Shape>>,
    pub(crate) listing: Listing,
    /// Largest number of bytes in a string, elements in a list, entries in a map.
    pub(crate) max_elements: u64,
    /// Smallest length as JSON text.
    pub(crate) min_size: i64,
    /// Expressions can use the node.
    pub(crate) declared: bool,
}

impl Shape {
    /// Builds the shape of a schema. With `root` set it is a whole resource, which has `apiVersion`, `kind` and some
    /// metadata even if the schema does not declare them.
    pub(crate) fn from_schema(schema: &Value, root: bool) -> Arc<Shape> {
        Arc::new(Builder::default().build(schema, root, 0))
    }

    /// Gives a property the type of another one: objects are distinct by position otherwise.
    pub(crate) fn with_same_type(mut self: Arc<Self>, property: &str, other: &str) -> Arc<Shape> {
        let shape = self.property(other).map(|other| Arc::clone(&other.shape));
        if let (Some(shape), Some(own)) = (shape, Arc::get_mut(&mut self))
            && let Some(found) = own.properties.iter_mut().flatten().find(|found| found.name == property)
        {
            found.shape = shape;
        }
        self
    }

    /// Returns a copy with only these children, for nodes without rules of their own.
    pub(crate) fn outline(
        &self,
        properties: impl Iterator<Item = (Text, Arc<Shape>)>,
        additional: Option<Arc<Shape>>,
        items: Option<Arc<Shape>>,
    ) -> Shape {
        let property = |(name, shape)| Property { name, escaped: Escaped::Same, shape };
        Shape {
            properties: self.properties.is_some().then(|| properties.map(property).collect()),
            additional,
            items,
            listing: self.listing.clone(),
            ..*self
        }
    }

    /// Reports whether the shape contains no object. Object types are distinct by position, other types by structure.
    fn is_plain(&self) -> bool {
        match self.kind {
            Kind::Object => self.properties.is_none() && self.additional.as_ref().is_some_and(|value| value.is_plain()),
            Kind::Array => self.items.as_ref().is_none_or(|item| item.is_plain()),
            _ => true,
        }
    }

    fn scalar(kind: Kind, min_size: i64, max_elements: i64) -> Shape {
        Shape {
            kind,
            format: Format::Plain,
            nullable: false,
            properties: None,
            additional: None,
            items: None,
            listing: Listing::Atomic,
            max_elements: max_elements.max(0) as u64,
            min_size,
            declared: true,
        }
    }

    fn unbounded_string() -> Shape {
        Self::scalar(Kind::String, 2, REQUEST_MAX - 2)
    }

    fn undeclared(kind: Kind) -> Shape {
        Shape { declared: false, ..Self::scalar(kind, 0, 0) }
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Property> {
        let properties = self.properties.as_deref()?;
        let at = properties.binary_search_by(|property| property.name.as_str().cmp(name)).ok()?;
        Some(&properties[at])
    }

    /// Returns a field by its name in expressions.
    pub(crate) fn field(&self, escaped: &str) -> Option<&Arc<Shape>> {
        if self.is_map() {
            return None;
        }
        // A reserved word may also follow a dot without escaping.
        let is_named = |p: &&Property| p.escaped() == Some(escaped) || (p.name == escaped && is_reserved(escaped));
        // Names that escaping changes have two underscores; all others are found by themselves, without a scan.
        let found = match escaped.contains("__") {
            true => self.properties.as_deref()?.iter().find(is_named)?,
            false => self.property(escaped).filter(is_named)?,
        };
        found.shape.declared.then_some(&found.shape)
    }

    fn is_map(&self) -> bool {
        self.additional.is_some()
    }

    /// Returns the shape of a field of an object or an entry of a map.
    pub(crate) fn entry(&self, name: &str) -> Option<&Arc<Shape>> {
        if self.kind == Kind::Dynamic {
            return Some(&DYNAMIC);
        }
        match (&self.properties, &self.additional) {
            (Some(_), _) => self.property(name).map(|property| &property.shape),
            (None, additional) => additional.as_ref(),
        }
    }

    /// Returns the shape of the elements of a list.
    pub(crate) fn item(&self) -> Option<&Arc<Shape>> {
        if self.kind == Kind::Dynamic { Some(&DYNAMIC) } else { self.items.as_ref() }
    }

    /// Returns the shape of values without a schema.
    pub(crate) fn dynamic() -> &'static Arc<Shape> {
        &DYNAMIC
    }

    /// Returns the shape of the elements of a list or a map.
    pub(crate) fn element(&self) -> Option<&Arc<Shape>> {
        match self.kind {
            Kind::Array => self.items.as_ref(),
            _ => self.additional.as_ref(),
        }
    }

    /// Returns the type for the type checker.
    pub(crate) fn declared_type(self: &Arc<Self>) -> Type {
        match self.kind {
            Kind::Object => match &self.additional {
                Some(additional) => Type::map(Type::String, additional.declared_type()),
                None => Type::Object(self.clone()),
            },
            Kind::Array => Type::list(self.items.as_ref().map_or(Type::Dyn, Self::declared_type)),
            Kind::String => match self.format {
                Format::Plain => Type::String,
                Format::Byte => Type::Bytes,
                Format::Duration => Type::Duration,
                Format::Date | Format::DateTime => Type::Timestamp,
            },
            Kind::Number => Type::Double,
            Kind::Integer => Type::Int,
            Kind::Boolean => Type::Bool,
            Kind::IntOrString | Kind::Preserved | Kind::Dynamic | Kind::None => Type::Dyn,
        }
    }

    /// Returns the type name of a node below this one: `selfType.spec.items.@idx`.
    pub(crate) fn name_of(self: &Arc<Self>, wanted: &Arc<Shape>) -> Option<String> {
        fn search(shape: &Arc<Shape>, wanted: &Arc<Shape>, path: &mut Vec<String>) -> bool {
            if Arc::ptr_eq(shape, wanted) {
                return true;
            }
            let mut below = |step: &str, child: &Arc<Shape>| {
                path.push(step.to_owned());
                let found = search(child, wanted, path);
                if !found {
                    path.pop();
                }
                found
            };
            shape.items.as_ref().is_some_and(|items| below("@idx", items))
                || shape.additional.as_ref().is_some_and(|values| below("@elem", values))
                || shape
                    .properties
                    .iter()
                    .flatten()
                    .any(|property| property.escaped().is_some_and(|name| below(name, &property.shape)))
        }
        let mut path = vec!["selfType".to_owned()];
        search(self, wanted, &mut path).then(|| path.join("."))
    }

    /// Returns the value of `type` in the schema.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Number => "number",
            Kind::Integer => "integer",
            Kind::Boolean => "boolean",
            Kind::IntOrString | Kind::Preserved | Kind::Dynamic | Kind::None => "",
        }
    }
}

static DYNAMIC: LazyLock<Arc<Shape>> = LazyLock::new(|| Arc::new(Shape::scalar(Kind::Dynamic, 0, 0)));

pub(crate) fn is_set(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns `properties` unless it is empty.
pub(crate) fn properties_of(schema: &Value) -> Option<&Map> {
    schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty())
}

/// Returns the schema of `additionalProperties`, if it is a schema.
pub(crate) fn additional_of(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|additional| additional.is_object())
}

fn bound(schema: &Value, key: &str) -> Option<i64> {
    let value = schema.get(key)?;
    value.as_i64().or_else(|| value.as_f64().map(|value| value as i64)).map(|value| value.max(0))
}

/// Builds the shape of a schema; equal plain parts are shared.
#[derive(Default)]
struct Builder {
    plain: Interner<Shape>,
}

impl Builder {
    fn build(&mut self, schema: &Value, root: bool, depth: usize) -> Shape {
        let mut shape = self.bare(schema, root || is_set(schema, "x-kubernetes-embedded-resource"), depth);
        shape.nullable = is_set(schema, "nullable");
        shape
    }

    fn shared(&mut self, shape: Shape) -> Arc<Shape> {
        if shape.is_plain() { self.plain.share(shape) } else { Arc::new(shape) }
    }

    fn bare(&mut self, schema: &Value, resource: bool, depth: usize) -> Shape {
        if depth > DEPTH_MAX {
            return Shape::undeclared(Kind::None);
        }
        if is_set(schema, "x-kubernetes-int-or-string") {
            let length = bound(schema, "maxLength").map_or(REQUEST_MAX - 2, |length| length.saturating_mul(4));
            return Shape::scalar(Kind::IntOrString, 1, length);
        }
        match schema.get("type").and_then(Value::as_str).unwrap_or("") {
            "array" => self.array(schema, depth),
            "object" => self.object(schema, resource, depth),
            "string" => string(schema),
            "boolean" => Shape::scalar(Kind::Boolean, 4, 0),
            "number" => Shape::scalar(Kind::Number, 1, 0),
            "integer" => Shape::scalar(Kind::Integer, 1, 0),
            _ if is_set(schema, "x-kubernetes-preserve-unknown-fields") => Shape::undeclared(Kind::Preserved),
            _ => Shape::undeclared(Kind::None),
        }
    }

    fn array(&mut self, schema: &Value, depth: usize) -> Shape {
        let items =
            schema.get("items").filter(|items| items.is_object()).map(|items| self.build(items, false, depth + 1));
        let Some(items) = items else {
            return Shape::undeclared(Kind::Array);
        };
        let count = bound(schema, "maxItems").unwrap_or((REQUEST_MAX - 2) / (items.min_size + 1));
        let listing = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Listing::Set,
            Some("map") => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                Listing::Map(keys.into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect())
            }
            _ => Listing::Atomic,
        };
        Shape {
            declared: items.declared,
            items: Some(self.shared(items)),
            listing,
            ..Shape::scalar(Kind::Array, 2, count)
        }
    }

    fn object(&mut self, schema: &Value, resource: bool, depth: usize) -> Shape {
        let additional = additional_of(schema).map(|additional| self.build(additional, false, depth + 1));
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut min_size = 2;
        let mut properties: Vec<Property> = Vec::new();
        for (name, schema) in properties_of(schema).into_iter().flatten() {
            let shape = self.build(schema, false, depth + 1);
            let defaulted = schema.get("default").is_some_and(|default| !default.is_null());
            if shape.declared && required.contains(&&**name) && !defaulted {
                min_size += name.len() as i64 + shape.min_size + 4;
            }
            properties.push(self.property(name.clone(), shape));
        }
        if resource {
            self.complete(&mut properties);
        }
        properties.sort_by(|a, b| a.name.cmp(&b.name));
        let (count, declared) = match &additional {
            None => (0, true),
            Some(value) => {
                min_size = 2;
                let count = bound(schema, "maxProperties").unwrap_or((REQUEST_MAX - 2) / (value.min_size + 6));
                (count, value.declared)
            }
        };
        Shape {
            properties: (!properties.is_empty()).then(|| properties.into()),
            additional: additional.map(|value| self.shared(value)),
            declared,
            ..Shape::scalar(Kind::Object, min_size, count)
        }
    }

    fn property(&mut self, name: Text, shape: Shape) -> Property {
        let escaped = match escape(&name) {
            Some(same) if same == *name => Escaped::Same,
            Some(other) => Escaped::Other(other.into()),
            None => Escaped::Never,
        };
        Property { name, escaped, shape: self.shared(shape) }
    }

    /// Adds the fields that every resource has, unless the schema declares all of them.
    fn complete(&mut self, properties: &mut Vec<Property>) {
        let is_text = |shape: &Shape, name: &str| shape.property(name).is_some_and(|p| p.shape.kind == Kind::String);
        let complete = properties.iter().filter(|p| matches!(&*p.name, "kind" | "apiVersion")).count() == 2
            && properties.iter().all(|p| match &*p.name {
                "kind" | "apiVersion" => p.shape.kind == Kind::String,
                _ => true,
            })
            && properties.iter().any(|p| {
                &*p.name == "metadata"
                    && p.shape.kind == Kind::Object
                    && is_text(&p.shape, "name")
                    && is_text(&p.shape, "generateName")
            });
        if complete {
            return;
        }
        properties.retain(|p| !matches!(&*p.name, "kind" | "apiVersion" | "metadata"));
        properties.push(self.property("kind".into(), Shape::unbounded_string()));
        properties.push(self.property("apiVersion".into(), Shape::unbounded_string()));
        let names = ["generateName", "name"].map(|name| self.property(name.into(), Shape::unbounded_string()));
        let metadata = Shape { properties: Some(Box::new(names)), ..Shape::scalar(Kind::Object, 2, 0) };
        properties.push(self.property("metadata".into(), metadata));
    }
}

fn string(schema: &Value) -> Shape {
    let length = bound(schema, "maxLength");
    let (format, min_size, max) = match schema.get("format").and_then(Value::as_str).unwrap_or("") {
        "byte" => (Format::Byte, 2, length.unwrap_or(REQUEST_MAX - 2)),
        "duration" => (Format::Duration, 3, 32),
        "date" => (Format::Date, 12, 12),
        "date-time" => (Format::DateTime, 21, 32),
        _ => {
            let longest = schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty());
            let longest = longest
                .map(|values| values.iter().filter_map(Value::as_str).map(|v| v.len() as i64).max().unwrap_or(0));
            // A character has up to four bytes.
            let max = length.map(|length| length.saturating_mul(4)).or(longest).unwrap_or(REQUEST_MAX - 2);
            (Format::Plain, 2, max)
        }
    };
    Shape { format, ..Shape::scalar(Kind::String, min_size, max) }
}
