//! The value checks of one schema: bounds, patterns, enumerations and the junctors over other schemas.

use machinery::json::{Map, Value};
use regex::Regex;

use super::formats::Format;
use super::structural::Schema;

/// Larger programs of a pattern are refused, so that a hostile one costs neither memory nor time.
const PATTERN_SIZE_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<Format>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) allowed: Box<[Value]>,
    pub(crate) required: Box<[Box<str>]>,
    pub(crate) all_of: Box<[Schema]>,
    pub(crate) any_of: Box<[Schema]>,
    pub(crate) one_of: Box<[Schema]>,
    pub(crate) not: Option<Box<Schema>>,
}

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: Box<str>,
    /// None where the text is no pattern; such a definition is refused.
    pub(crate) regex: Option<Regex>,
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
        if !KEYWORDS.iter().any(|keyword| source.get(keyword).is_some_and(|value| !value.is_null())) {
            return None;
        }
        Some(Checks {
            format: word("format").and_then(|format| Format::of(word("type").unwrap_or_default(), format)),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            pattern: word("pattern").map(|text| Pattern { text: text.into(), regex: regex(text).ok() }),
            allowed: list("enum").into(),
            required: list("required").iter().filter_map(Value::as_str).map(Into::into).collect(),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: source.get("not").filter(|not| not.is_object()).map(|not| Box::new(Schema::compile(not))),
        })
    }
}

/// A pattern of a schema, ready to use; the error says what is wrong with it.
pub(crate) fn regex(text: &str) -> Result<Regex, String> {
    let built = regex::RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).dfa_size_limit(PATTERN_SIZE_MAX).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "expression nests or repeats too much".to_owned(),
        other => other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    })
}
