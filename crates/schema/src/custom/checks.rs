//! The value checks of a schema: bounds, patterns, enumerations and `allOf`, `anyOf`, `oneOf`, `not`.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use cel::interner::Interned;
use cel::pattern::Pattern;
use machinery::json::{Map, Value};

use super::formats::Format;
use super::structural::{Compiler, Constant, Schema};

/// Checks that most schemas do not have. They are boxed, since a definition has hundreds of schemas.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Checks {
    pub(crate) format: Option<Format>,
    pub(crate) range: Option<Box<Range>>,
    sizes: Box<[(Size, u64)]>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) allowed: Allowed,
    pub(crate) required: Box<[Box<str>]>,
    pub(crate) junctors: Option<Box<Junctors>>,
}

/// The values of an `enum`.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) values: Box<[Constant]>,
    /// Built at the first lookup among many values.
    index: OnceLock<HashSet<AllowedKey>>,
}

/// A value of an `enum`; numbers are compared by amount.
#[derive(Debug, PartialEq, Eq, Hash)]
enum AllowedKey {
    Number(u64),
    Other(Value),
}

impl AllowedKey {
    /// `None` for null, which equals no value.
    fn new(value: &Value) -> Option<AllowedKey> {
        match value {
            Value::Null => None,
            // Both zeros are one amount.
            Value::Number(number) => Some(AllowedKey::Number((number.as_f64().unwrap_or_default() + 0.0).to_bits())),
            other => Some(AllowedKey::Other(other.clone())),
        }
    }
}

impl Allowed {
    /// Up to this many values are compared one by one.
    const SCANNED_MAX: usize = 16;

    pub(crate) fn contains(&self, value: &Value) -> bool {
        let Some(wanted) = AllowedKey::new(value) else { return false };
        let keys = || self.values.iter().filter_map(|Constant(value)| AllowedKey::new(value));
        match self.values.len() <= Self::SCANNED_MAX {
            true => keys().any(|key| key == wanted),
            false => self.index.get_or_init(|| keys().collect()).contains(&wanted),
        }
    }
}

impl PartialEq for Allowed {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Allowed {}

impl Hash for Allowed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values.hash(state);
    }
}

/// Bounds of a number.
#[derive(Debug, Default)]
pub(crate) struct Range {
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
}

impl Range {
    /// Key for equality and hashing. Numbers are compared by their bits.
    fn key(&self) -> [(Option<u64>, bool); 3] {
        let bits = |number: Option<f64>| number.map(f64::to_bits);
        [
            (bits(self.maximum), self.exclusive_maximum),
            (bits(self.minimum), self.exclusive_minimum),
            (bits(self.multiple_of), false),
        ]
    }
}

impl PartialEq for Range {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Range {}

impl Hash for Range {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A keyword that bounds a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Junctors {
    pub(crate) all_of: Box<[Interned<Schema>]>,
    pub(crate) any_of: Box<[Interned<Schema>]>,
    pub(crate) one_of: Box<[Interned<Schema>]>,
    pub(crate) not: Option<Interned<Schema>>,
}

impl Checks {
    /// Compiles the checks of a schema; `None` if it has none.
    pub(super) fn compile(source: &Map, compiler: &mut Compiler) -> Option<Checks> {
        let number = |name: &str| source.get(name).and_then(Value::as_f64);
        let count = |name: &str| source.get(name).and_then(Value::as_u64);
        let flag = |name: &str| source.get(name).and_then(Value::as_bool) == Some(true);
        let word = |name: &str| source.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
        let list = |name: &str| source.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
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
            format: word("format").and_then(|format| Format::for_type(word("type").unwrap_or_default(), format)),
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
            pattern: word("pattern").map(Pattern::new),
            allowed: Allowed { values: list("enum").iter().cloned().map(Constant).collect(), index: OnceLock::new() },
            required: list("required").iter().filter_map(Value::as_str).map(Into::into).collect(),
            junctors: has(&["allOf", "anyOf", "oneOf", "not"]).then(|| {
                let mut schemas = |name: &str| list(name).iter().map(|source| compiler.intern(source)).collect();
                Box::new(Junctors {
                    all_of: schemas("allOf"),
                    any_of: schemas("anyOf"),
                    one_of: schemas("oneOf"),
                    not: source.get("not").filter(|not| not.is_object()).map(|not| compiler.intern(not)),
                })
            }),
        })
    }

    /// Returns the bound of a keyword.
    pub(crate) fn size(&self, wanted: Size) -> Option<u64> {
        self.sizes.iter().find(|(size, _)| *size == wanted).map(|(_, bound)| *bound)
    }
}
