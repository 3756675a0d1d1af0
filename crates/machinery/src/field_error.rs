//! Errors of single fields of an object, and their text in a 422 response (spec 02 §1.3).

use std::fmt;

use crate::json::{Text, Value};

use crate::go_text;

/// The path of a field: `spec.containers[0].name`, `metadata.labels[app]`.
///
/// A path is a chain of borrowed steps on the stack, so that walking an object costs nothing until an error is found.
/// A name may hold several steps at once (`path.child("spec.template.spec")`).
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// Starts a path. An empty name is the object itself.
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Path { parent: None, step: Step::Name(name) }
    }

    /// Returns the path of the object itself; its children have no leading dot.
    #[must_use]
    pub const fn root() -> Self {
        Path::new("")
    }

    #[must_use]
    pub fn child<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// Returns the path of a map's entry, shown as `[key]`.
    #[must_use]
    pub fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.step, Step::Name(""))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Name(name) => {
                if self.parent.is_some_and(|parent| !parent.is_root()) {
                    f.write_str(".")?;
                }
                f.write_str(name)
            }
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Longest path in an error; the rest is cut. A key may be nearly as long as the request, with many errors below it.
const PATH_BYTES_MAX: usize = 4096;

/// A text that refuses what exceeds [`PATH_BYTES_MAX`].
struct PathText(String);

impl fmt::Write for PathText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(PATH_BYTES_MAX - self.0.len());
        self.0.push_str(&text[..end]);
        if end == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> String {
        String::from(&path)
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> String {
        use fmt::Write as _;
        let mut text = PathText(String::new());
        if write!(text, "{path}").is_err() {
            text.0.push('…');
        }
        text.0
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    NotFound,
    TooLong,
    TooMany,
    Internal,
}

impl FieldErrorKind {
    /// Returns the `reason` of the cause.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::Internal => "InternalError",
        }
    }

    /// Returns the words that a message begins with.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(
            self,
            FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong | FieldErrorKind::Internal
        )
    }
}

/// The value that a message shows.
#[derive(Clone, Debug, PartialEq)]
pub enum BadValue {
    /// No value.
    Omitted,
    /// Strings in quotes, scalars bare, the rest as JSON.
    Shown(Value),
    /// Text as it is.
    Text(String),
}

impl BadValue {
    /// Wraps a value that the caller has formatted.
    pub fn text(text: impl Into<String>) -> Self {
        BadValue::Text(text.into())
    }
}

impl From<Value> for BadValue {
    fn from(value: Value) -> Self {
        BadValue::Shown(value)
    }
}

impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        BadValue::Shown(value.clone())
    }
}

impl From<&str> for BadValue {
    fn from(value: &str) -> Self {
        BadValue::Shown(Value::from(value))
    }
}

impl From<String> for BadValue {
    fn from(value: String) -> Self {
        BadValue::Shown(Value::from(value))
    }
}

impl From<&String> for BadValue {
    fn from(value: &String) -> Self {
        BadValue::Shown(Value::from(value.as_str()))
    }
}

impl From<&Text> for BadValue {
    fn from(value: &Text) -> Self {
        BadValue::Shown(Value::String(value.clone()))
    }
}

impl From<i64> for BadValue {
    fn from(value: i64) -> Self {
        BadValue::Shown(Value::from(value))
    }
}

impl From<bool> for BadValue {
    fn from(value: bool) -> Self {
        BadValue::Shown(Value::from(value))
    }
}

/// One error of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub field: String,
    pub bad_value: BadValue,
    pub detail: String,
}

impl FieldError {
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        bad_value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        FieldError { kind, field: field.into(), bad_value: bad_value.into(), detail: detail.into() }
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, BadValue::Omitted, detail)
    }

    pub fn invalid(field: impl Into<String>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value, detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, value, detail)
    }

    /// The detail lists the supported values, in the order given.
    pub fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl Into<BadValue>,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let quoted: Vec<String> = supported.into_iter().map(|value| go_text::quote(value.as_ref())).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, value, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value, "")
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, BadValue::Omitted, detail)
    }

    pub fn not_found(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, value, "")
    }

    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, BadValue::Omitted, format!("may not be more than {max_bytes} {unit}"))
    }

    pub fn too_many(field: impl Into<String>, count: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(FieldErrorKind::TooMany, field, BadValue::Shown(count.into()), detail)
    }

    pub fn internal(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, BadValue::Omitted, why)
    }

    /// Returns the text without the path: the `message` of the cause.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if self.kind.shows_value() {
            let value = match &self.bad_value {
                BadValue::Omitted => None,
                BadValue::Text(text) => Some(text.clone()),
                BadValue::Shown(Value::String(s)) => Some(go_text::quote(s)),
                BadValue::Shown(Value::Number(n)) => Some(go_text::number(n)),
                BadValue::Shown(value) => Some(go_text::json(&with_sorted_maps(value))),
            };
            if let Some(value) = value {
                text.push_str(": ");
                text.push_str(&value);
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Most bytes of text of several errors in one response; the rest of them is counted. An error may show a value as large as the
/// request, and there may be one for each of its items.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Returns the value with the members of maps sorted, as Go writes them. An object of strings only is a map; the fields of a struct
/// stay in their order.
fn with_sorted_maps(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<(&Text, &Value)> = members.iter().collect();
            if sorted.iter().all(|(_, value)| value.is_string()) {
                sorted.sort_unstable_by_key(|(name, _)| *name);
            }
            let mut shown = crate::json::Map::new();
            for (name, value) in sorted {
                shown.insert(name.as_str(), with_sorted_maps(value));
            }
            Value::Object(shown)
        }
        Value::Array(items) => Value::from(items.iter().map(with_sorted_maps).collect::<Vec<_>>()),
        other => other.clone(),
    }
}

/// Joins errors to one text: a single one as it is, several as `[a, b]` without duplicates, [`TEXT_BYTES_MAX`] at most.
#[must_use]
pub fn join(errors: &[FieldError]) -> String {
    let mut seen = std::collections::HashSet::new();
    let (mut said, mut bytes): (Vec<String>, usize) = (Vec::new(), 0);
    for (at, error) in errors.iter().enumerate() {
        if bytes > TEXT_BYTES_MAX {
            said.push(format!("and {} more errors", errors.len() - at));
            break;
        }
        let text = error.to_string();
        bytes += text.len();
        if seen.insert(text.clone()) {
            said.push(text);
        }
    }
    match said.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn paths_show_names_indexes_and_keys() {
        let spec = Path::new("spec");
        let containers = spec.child("containers");
        assert_eq!(containers.index(0).child("name").to_string(), "spec.containers[0].name");
        let labels = Path::root();
        let labels = labels.child("metadata.labels");
        assert_eq!(labels.key("a/b").to_string(), "metadata.labels[a/b]");
        assert_eq!(Path::root().to_string(), "");
        assert_eq!(Path::root().child("metadata").to_string(), "metadata");
    }

    #[test]
    fn each_kind_reads_as_the_table_says() {
        for (error, want) in [
            (FieldError::required("a", ""), "a: Required value"),
            (FieldError::required("a", "why"), "a: Required value: why"),
            (FieldError::invalid("a", "x\"y", "why"), r#"a: Invalid value: "x\"y": why"#),
            (FieldError::invalid("a", -1, "why"), "a: Invalid value: -1: why"),
            (FieldError::invalid("a", json!(null), "why"), "a: Invalid value: null: why"),
            (FieldError::invalid("a", json!({"b": ["<"]}), ""), r#"a: Invalid value: {"b":["\u003c"]}"#),
            (FieldError::invalid("a", BadValue::text("core.Thing{}"), "why"), "a: Invalid value: core.Thing{}: why"),
            (FieldError::type_invalid("a", true, "why"), "a: Invalid value: true: why"),
            (
                FieldError::not_supported("a", "z", ["x", "y"]),
                r#"a: Unsupported value: "z": supported values: "x", "y""#,
            ),
            (
                FieldError::not_supported("dryRun", json!(["x"]), ["All"]),
                r#"dryRun: Unsupported value: ["x"]: supported values: "All""#,
            ),
            (FieldError::duplicate("a", "x"), r#"a: Duplicate value: "x""#),
            (FieldError::forbidden("a", "no"), "a: Forbidden: no"),
            (FieldError::not_found("a", "x"), r#"a: Not found: "x""#),
            (FieldError::too_long("a", 63), "a: Too long: may not be more than 63 bytes"),
            (FieldError::too_many("a", 9, 8), "a: Too many: 9: must have at most 8 items"),
            (FieldError::internal("a", "boom"), "a: Internal error: boom"),
        ] {
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn several_are_bracketed_and_duplicates_collapse() {
        let a = FieldError::required("a", "");
        let b = FieldError::forbidden("b", "no");
        assert_eq!(join(std::slice::from_ref(&a)), "a: Required value");
        assert_eq!(join(&[a.clone(), a.clone()]), "a: Required value");
        assert_eq!(join(&[a.clone(), b, a]), "[a: Required value, b: Forbidden: no]");
    }

    #[test]
    fn errors_with_large_values_are_counted_after_the_first() {
        let large = FieldError::invalid("a", "x".repeat(TEXT_BYTES_MAX), "no");
        let text = join(&vec![large; 1000]);
        assert!(text.ends_with(": no, and 999 more errors]"));
    }

    #[test]
    fn a_long_path_is_cut() {
        let name = "x".repeat(3 * PATH_BYTES_MAX);
        let path = Path::new("spec");
        assert_eq!(String::from(path.child(&name)).len(), PATH_BYTES_MAX + "…".len());
        assert_eq!(String::from(path.child("x")), "spec.x");
    }
}
