//! The value checks of one schema: bounds, patterns, enumerations and the junctors over other schemas.

use machinery::json::{Map, Value};

use super::formats::Format;
use super::structural::Schema;
use crate::pattern::Pattern;

/// What most schemas do not have stands apart: a definition has hundreds of these.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<Format>,
    pub(crate) range: Option<Box<Range>>,
    sizes: Box<[(Size, u64)]>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) allowed: Box<[Value]>,
    pub(crate) required: Box<[Box<str>]>,
    pub(crate) junctors: Option<Box<Junctors>>,
}

/// What a number may be.
#[derive(Debug, Default)]
pub(crate) struct Range {
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    MaxLength,
    MinLength,
    MaxItems,
    MinItems,
    MaxProperties,
    MinProperties,
}

impl Size {
    const ALL: [(&str, Size); 6] = [
        ("maxLength", Size::MaxLength),
        ("minLength", Size::MinLength),
        ("maxItems", Size::MaxItems),
        ("minItems", Size::MinItems),
        ("maxProperties", Size::MaxProperties),
        ("minProperties", Size::MinProperties),
    ];
}

/// Schemas of which all, some, one or none must fit.
#[derive(Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Box<[Schema]>,
    pub(crate) any_of: Box<[Schema]>,
    pub(crate) one_of: Box<[Schema]>,
    pub(crate) not: Option<Box<Schema>>,
}

impl Checks {
    /// The checks of a schema, if it has any.
    pub(crate) fn compile(source: &Map) -> Option<Checks> {
        let number = |name: &str| source.get(name).and_then(Value::as_f64);
        let count = |name: &str| source.get(name).and_then(Value::as_u64);
        let flag = |name: &str| source.get(name).and_then(Value::as_bool) == Some(true);
        let word = |name: &str| source.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
        let list = |name: &str| source.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let schemas = |name: &str| list(name).iter().map(Schema::compile).collect::<Box<[Schema]>>();
        const KEYWORDS: [&str; 17] = [
            "format",
            "maximum",
            "minimum",
            "multipleOf",
            "maxLength",
            "minLength",
            "maxItems",
            "minItems",
            "maxProperties",
            "minProperties",
            "pattern",
            "enum",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        let has = |keywords: &[&str]| {
            keywords.iter().any(|keyword| source.get(keyword).is_some_and(|value| !value.is_null()))
        };
        if !has(&KEYWORDS) {
            return None;
        }
        Some(Checks {
            format: word("format").and_then(|format| Format::of(word("type").unwrap_or_default(), format)),
            range: has(&["maximum", "minimum", "multipleOf"]).then(|| {
                Box::new(Range {
                    maximum: number("maximum"),
                    exclusive_maximum: flag("exclusiveMaximum"),
                    minimum: number("minimum"),
                    exclusive_minimum: flag("exclusiveMinimum"),
                    multiple_of: number("multipleOf"),
                })
            }),
            sizes: Size::ALL.into_iter().filter_map(|(name, size)| Some((size, count(name)?))).collect(),
            pattern: word("pattern").map(Pattern::of),
            allowed: list("enum").into(),
            required: list("required").iter().filter_map(Value::as_str).map(Into::into).collect(),
            junctors: has(&["allOf", "anyOf", "oneOf", "not"]).then(|| {
                let not = source.get("not").filter(|not| not.is_object());
                Box::new(Junctors {
                    all_of: schemas("allOf"),
                    any_of: schemas("anyOf"),
                    one_of: schemas("oneOf"),
                    not: not.map(|not| Box::new(Schema::compile(not))),
                })
            }),
        })
    }

    /// How much or how little there may be of something.
    pub(crate) fn size(&self, wanted: Size) -> Option<u64> {
        self.sizes.iter().find(|(size, _)| *size == wanted).map(|(_, bound)| *bound)
    }
}
