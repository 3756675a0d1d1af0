//! Validates a value against its schema, with the error texts of Kubernetes.
//!
//! On an update, values are paired with old ones where possible, and errors of unchanged values are ignored: a schema
//! may become stricter without blocking updates of stored objects.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use machinery::field_error::{BadValue, FieldError};
use machinery::go_text;
use machinery::json::{Map, Number, Value};

use super::checks::{Checks, Junctors, Size};
use super::lists;
use super::structural::{Constant, Listing, Rest, Schema, Sort};

/// Most bytes of the lists of allowed values in errors. Later errors come without the list: a definition may allow as many values
/// as an object has wrong ones.
const WORDS_BYTES_MAX: usize = 16 << 20;

/// Largest number of errors.
const ERRORS_MAX: usize = 200;

/// Most checks of one object. The alternatives of `anyOf` and the like are tried for every item of a list, so that a definition and
/// an object of a permitted size could need very many.
const CHECKS_MAX: usize = 20_000_000;

/// Longest path in an error. A key may be nearly as long as the request, with many errors below it.
const PATH_BYTES_MAX: usize = 4096;

/// Returns the errors of an object; `old` is the object that it replaces.
#[must_use]
pub(crate) fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let budget = Budget { words: Cell::new(WORDS_BYTES_MAX), checks: Cell::new(CHECKS_MAX) };
    let mut found = check(schema, new, old, &Position::Root(&budget));
    if budget.checks.get() == 0 {
        return vec![whole(format!("the object needs more than {CHECKS_MAX} checks by its schema"))];
    }
    found.errors.truncate(ERRORS_MAX);
    found.errors
}

/// What is left for one object.
struct Budget {
    /// Of [`WORDS_BYTES_MAX`].
    words: Cell<usize>,
    /// Of [`CHECKS_MAX`].
    checks: Cell<usize>,
}

/// The path of the current value; a chain on the stack.
#[derive(Clone, Copy)]
enum Position<'a> {
    Root(&'a Budget),
    Field(&'a Position<'a>, &'a str),
    Index(&'a Position<'a>, usize),
}

impl Position<'_> {
    fn budget(&self) -> &Budget {
        match self {
            Position::Root(budget) => budget,
            Position::Field(parent, _) | Position::Index(parent, _) => parent.budget(),
        }
    }

    /// Writes the path, cut at [`PATH_BYTES_MAX`].
    fn write(&self, text: &mut String) -> fmt::Result {
        match self {
            Position::Root(_) => Ok(()),
            Position::Field(parent, name) => {
                parent.write(text)?;
                if !matches!(parent, Position::Root(_)) {
                    text.push('.');
                }
                let end = name.floor_char_boundary(PATH_BYTES_MAX.saturating_sub(text.len()));
                text.push_str(&name[..end]);
                if end == name.len() { Ok(()) } else { text.write_str("…").and(Err(fmt::Error)) }
            }
            Position::Index(parent, index) => {
                parent.write(text)?;
                write!(text, "[{index}]")
            }
        }
    }
}

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // An error means that the path is cut.
        let _ = self.write(&mut text);
        f.write_str(&text)
    }
}

/// Errors, and the number of checks that passed: of several failed alternatives, the best match is reported.
#[derive(Default)]
struct Findings {
    errors: Vec<FieldError>,
    matches: usize,
}

impl Findings {
    /// Reports whether further errors would not be kept: nothing more needs to be checked.
    fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    fn merge(&mut self, other: Findings) {
        self.matches += other.matches;
        if !self.is_full() {
            self.errors.extend(other.errors);
        }
    }

    fn push(&mut self, error: FieldError) {
        if !self.is_full() {
            self.errors.push(error);
        }
    }
}

/// The field of an error about the whole object.
const NO_FIELD: &str = "<nil>";

fn whole(detail: String) -> FieldError {
    FieldError::invalid(NO_FIELD, "", detail)
}

fn invalid(at: &Position<'_>, value: impl Into<BadValue>, what: impl fmt::Display) -> FieldError {
    FieldError::invalid(field(at), value, format!("{at} in body {what}"))
}

fn wrong_type(at: &Position<'_>, wanted: &str, found: &str) -> FieldError {
    let detail = format!("{at} in body must be of type {wanted}: {}", go_text::quote(found));
    FieldError::type_invalid(field(at), found, detail)
}

fn field(at: &Position<'_>) -> String {
    let path = at.to_string();
    if path.is_empty() { NO_FIELD.to_owned() } else { path }
}

fn check(schema: &Schema, value: &Value, old: Option<&Value>, at: &Position<'_>) -> Findings {
    let mut found = check_anew(schema, value, old, at);
    if !found.errors.is_empty() && old.is_some_and(|old| lists::same(schema, old, value)) {
        found.errors.clear();
    }
    found
}

/// Validates a value without comparing it to its old value; values below are compared.
fn check_anew(schema: &Schema, value: &Value, old: Option<&Value>, at: &Position<'_>) -> Findings {
    let mut found = Findings::default();
    let checks_left = &at.budget().checks;
    checks_left.set(checks_left.get().saturating_sub(1));
    if checks_left.get() == 0 {
        found.push(whole(String::new()));
        return found;
    }
    let typed =
        schema.kind.is_some() || schema.int_or_string || schema.checks.as_ref().is_some_and(|c| c.format.is_some());
    if typed {
        found.merge(check_type(schema, value, at));
        found.matches += 1;
    }
    let checks = schema.checks.as_deref();
    if value.is_null() {
        if let Some(checks) = checks {
            check_enum(checks, value, at, &mut found);
        }
        return found;
    }
    if let Some(checks) = checks {
        match &checks.junctors {
            Some(junctors) => found.merge(check_junctors(junctors, value, old, at)),
            None => found.matches += 1,
        }
    }
    found.matches += 2;
    match value {
        Value::String(text) => {
            if let Some(checks) = checks {
                check_text(checks, text, at, &mut found);
            }
        }
        Value::Number(number) => check_number(schema, checks, number, at, &mut found),
        Value::Array(items) => check_items(schema, checks, items, old, at, &mut found),
        _ => {}
    }
    if let Some(checks) = checks {
        check_enum(checks, value, at, &mut found);
    }
    found.matches += 1;
    if let Value::Object(map) = value {
        check_fields(schema, checks, map, old, at, &mut found);
        found.matches += 1;
    }
    found.matches += 1;
    found
}

fn check_type(schema: &Schema, value: &Value, at: &Position<'_>) -> Findings {
    let wanted = match schema.kind {
        _ if schema.int_or_string => "integer,string",
        Some(kind) => kind.word(),
        None => "",
    };
    let format = schema.checks.as_ref().and_then(|checks| checks.format.as_ref());
    let is =
        |sort: Sort| schema.kind == Some(sort) || schema.int_or_string && matches!(sort, Sort::Integer | Sort::String);
    let refused = |wanted: &str, found: &str| Findings { errors: vec![wrong_type(at, wanted, found)], matches: 0 };
    let fine = Findings { errors: Vec::new(), matches: 1 };
    let (sort, name, inferred) = match value {
        Value::Null => {
            return if wanted.is_empty() || schema.nullable { fine } else { refused(wanted, "null") };
        }
        Value::Bool(_) => (Sort::Boolean, "boolean", ""),
        Value::String(_) => (Sort::String, "string", ""),
        Value::Array(_) => (Sort::Array, "array", ""),
        Value::Object(_) | Value::Raw(_) => (Sort::Object, "object", ""),
        Value::Number(number) if number.is_i64() => (Sort::Integer, "integer", "int64"),
        Value::Number(_) => (Sort::Number, "number", "float64"),
    };
    let whole_float =
        matches!(value, Value::Number(number) if !number.is_i64() && is_whole(number)) && is(Sort::Integer);
    let fits = is(sort) || whole_float || (sort == Sort::Integer && is(Sort::Number));
    let text_like = matches!(value, Value::String(_) | Value::Array(_));
    if let Some(format) = format {
        if !text_like && !fits {
            return refused(&format.name, inferred);
        }
        if text_like && !is(Sort::Number) && !is(Sort::Integer) {
            return fine;
        }
    }
    if fits || wanted.is_empty() { fine } else { refused(wanted, name) }
}

fn is_whole(number: &Number) -> bool {
    number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0)
}

fn check_junctors(junctors: &Junctors, value: &Value, old: Option<&Value>, at: &Position<'_>) -> Findings {
    let mut found = Findings { errors: Vec::new(), matches: 1 };
    if !junctors.any_of.is_empty() {
        let mut best: Option<Findings> = None;
        let mut succeeded = false;
        for schema in &junctors.any_of {
            let result = check_anew(schema, value, old, at);
            if result.errors.is_empty() {
                found.matches += result.matches;
                succeeded = true;
                break;
            }
            if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if !succeeded {
            found.push(whole(format!("{} must validate at least one schema (anyOf)", go_text::quote(&at.to_string()))));
            found.merge(best.unwrap_or_default());
        }
    }
    if !junctors.one_of.is_empty() {
        let mut best: Option<Findings> = None;
        let (mut valid, mut first) = (0, 0);
        for schema in &junctors.one_of {
            let result = check_anew(schema, value, old, at);
            if result.errors.is_empty() {
                if valid == 0 {
                    first = result.matches;
                }
                valid += 1;
                best = None;
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if valid == 1 {
            found.matches += first;
        } else {
            let what =
                if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
            let path = go_text::quote(&at.to_string());
            found.push(whole(format!("{path} must validate one and only one schema (oneOf). {what}")));
            found.merge(best.unwrap_or_default());
        }
    }
    if !junctors.all_of.is_empty() {
        let mut valid = 0;
        for schema in &junctors.all_of {
            let result = check_anew(schema, value, old, at);
            valid += usize::from(result.errors.is_empty());
            found.merge(result);
        }
        if valid != junctors.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let path = go_text::quote(&at.to_string());
            found.push(whole(format!("{path} must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &junctors.not
        && check_anew(not, value, old, at).errors.is_empty()
    {
        found.push(whole(format!("{} must not validate the schema (not)", go_text::quote(&at.to_string()))));
    }
    found
}

fn check_text(checks: &Checks, text: &str, at: &Position<'_>, found: &mut Findings) {
    found.matches += 1;
    let length = || text.chars().count() as u64;
    if let Some(max) = checks.size(Size::MaxLength)
        && text.len() as u64 > max
        && length() > max
    {
        found.push(FieldError::too_long(field(at), usize::try_from(max).unwrap_or(usize::MAX)));
    } else if let Some(min) = checks.size(Size::MinLength)
        && length() < min
    {
        found.push(invalid(at, text, format_args!("should be at least {min} chars long")));
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        found.push(invalid(at, text, format_args!("should match '{}'", pattern.text())));
    }
    if let Some(format) = checks.format.as_ref().filter(|format| format.is_text()) {
        found.matches += 1;
        if !format.admits(text) {
            found.push(wrong_type(at, &format.name, text));
        }
    }
}

fn check_number(schema: &Schema, checks: Option<&Checks>, number: &Number, at: &Position<'_>, found: &mut Findings) {
    let format = checks.and_then(|checks| checks.format.as_ref()).filter(|format| !format.is_text());
    let format = if schema.int_or_string { None } else { format.map(|format| &*format.name) };
    let kind = if schema.int_or_string { None } else { schema.kind };
    let in_range = |value: f64, exact: Option<i64>| match (kind, format) {
        (Some(Sort::Integer), Some("int32")) => {
            exact.map_or(value.fract() == 0.0 && value.abs() < 2_147_483_648.0, |exact| i32::try_from(exact).is_ok())
        }
        (Some(Sort::Integer), _) => exact.is_some() || value.fract() == 0.0 && value.abs() < 9.223e18,
        (_, Some("float")) => value.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    let out_of_range = |what: &str| {
        let kind = kind.map_or("", Sort::word);
        match format {
            Some(format) => whole(format!("{what} value must be of type {kind} with format {format} in {at}")),
            None => whole(format!("{what} value must be of type {kind} (default format) in {at}")),
        }
    };
    let (exact, float) = (number.as_i64(), number.as_f64().unwrap_or_default());
    if !in_range(float, exact) {
        found.push(out_of_range("Checked"));
    }
    found.matches += 2;
    let Some(range) = checks.and_then(|checks| checks.range.as_deref()) else { return };
    let shown = |bound: f64| go_text::number(&plain(bound, exact.is_some()));
    if let Some(factor) = range.multiple_of {
        if !in_range(factor, None) {
            found.push(out_of_range("MultipleOf"));
        }
        if factor <= 0.0 {
            let detail = format!("factor MultipleOf declared for {at} must be positive: {}", shown(factor));
            found.push(FieldError::invalid(field(at), number_value(number), detail));
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "the reference truncates bounds of integers too")]
            let fits = match exact {
                Some(exact) if factor >= 1.0 => exact % (factor as i64) == 0,
                _ => {
                    let times = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
                    (times - times.round()).abs() < 1e-9 * times.abs().max(1.0)
                }
            };
            if !fits {
                found.push(invalid(
                    at,
                    number_value(number),
                    format_args!("should be a multiple of {}", shown(factor)),
                ));
            }
        }
    }
    if let Some(min) = range.minimum {
        if !in_range(min, None) {
            found.push(out_of_range("Minimum boundary"));
        }
        let below = compare(exact, float, min).is_lt() || range.exclusive_minimum && compare(exact, float, min).is_eq();
        if below {
            let than = if range.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            found.push(invalid(at, number_value(number), format_args!("should be {than} {}", shown(min))));
        }
    }
    if let Some(max) = range.maximum {
        if !in_range(max, None) {
            found.push(out_of_range("Maximum boundary"));
        }
        let above = compare(exact, float, max).is_gt() || range.exclusive_maximum && compare(exact, float, max).is_eq();
        if above {
            let than = if range.exclusive_maximum { "less than" } else { "less than or equal to" };
            found.push(invalid(at, number_value(number), format_args!("should be {than} {}", shown(max))));
        }
    }
}

fn number_value(number: &Number) -> Value {
    Value::Number(number.clone())
}

/// Formats a bound like Kubernetes: that of an integer is an integer.
fn plain(bound: f64, of_integer: bool) -> Number {
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    if of_integer || (bound.fract() == 0.0 && bound.abs() < 1e15) {
        return Number::from(bound as i64);
    }
    Number::from_f64(bound).unwrap_or_else(|| Number::from(0))
}

#[expect(clippy::cast_possible_truncation, reason = "the reference truncates bounds of integers too")]
fn compare(exact: Option<i64>, float: f64, bound: f64) -> std::cmp::Ordering {
    match exact {
        Some(exact) => exact.cmp(&(bound as i64)),
        None => float.total_cmp(&bound),
    }
}

fn check_items(
    schema: &Schema,
    checks: Option<&Checks>,
    items: &[Value],
    old: Option<&Value>,
    at: &Position<'_>,
    found: &mut Findings,
) {
    if let Some(of) = schema.items.as_deref() {
        let partners = lists::Partners::new(schema, old);
        for (index, item) in items.iter().enumerate() {
            if found.is_full() {
                return;
            }
            found.merge(check(of, item, partners.find(item), &Position::Index(at, index)));
        }
    }
    found.matches += 2;
    let Some(checks) = checks else { return };
    let count = items.len();
    if let Some(min) = checks.size(Size::MinItems)
        && (count as u64) < min
    {
        found.push(invalid(at, Value::from(count), format_args!("should have at least {min} items")));
    }
    if let Some(max) = checks.size(Size::MaxItems)
        && count as u64 > max
    {
        found.push(FieldError::too_many(field(at), count, usize::try_from(max).unwrap_or(usize::MAX)));
    }
}

fn check_enum(checks: &Checks, value: &Value, at: &Position<'_>, found: &mut Findings) {
    if checks.allowed.values.is_empty() || checks.allowed.contains(value) {
        return;
    }
    let left = &at.budget().words;
    let values = if left.get() > 0 { &*checks.allowed.values } else { &[] };
    let words = values.iter().map(|Constant(allowed)| match allowed {
        Value::String(text) => text.to_string(),
        other => go_text::json(other),
    });
    let error = FieldError::not_supported(field(at), value, words);
    left.set(left.get().saturating_sub(error.detail.len()));
    found.push(error);
}

fn check_fields(
    schema: &Schema,
    checks: Option<&Checks>,
    map: &Map,
    old: Option<&Value>,
    at: &Position<'_>,
    found: &mut Findings,
) {
    let count = map.len();
    if let Some(min) = checks.and_then(|checks| checks.size(Size::MinProperties))
        && (count as u64) < min
    {
        found.push(invalid(at, Value::from(count), format_args!("should have at least {min} properties")));
    }
    if let Some(max) = checks.and_then(|checks| checks.size(Size::MaxProperties))
        && count as u64 > max
    {
        found.push(FieldError::too_many(field(at), count, usize::try_from(max).unwrap_or(usize::MAX)));
    }
    // kind and apiVersion of the object are not compared: both objects were converted to the same version.
    let root = matches!(at, Position::Root(_));
    let before = |name: &str| {
        let old = old.and_then(Value::as_object)?.get(name);
        old.filter(|_| !(root && matches!(name, "kind" | "apiVersion")))
    };
    match &schema.rest {
        Rest::Allowed(false) => {
            for name in map.keys().filter(|name| schema.property(name).is_none()) {
                if found.is_full() {
                    return;
                }
                let detail = format!("{at}.{name} in body is a forbidden property");
                found.push(FieldError::invalid(field(at), name, detail));
            }
        }
        Rest::Of(rest) => {
            for (name, value) in map.iter().filter(|(name, _)| schema.property(name).is_none()) {
                if found.is_full() {
                    return;
                }
                found.merge(check(rest, value, before(name), &Position::Field(at, name)));
            }
        }
        Rest::Allowed(true) | Rest::Unsaid => {}
    }
    let mut declared = |name: &str, property: &Schema, value: &Value| {
        if !found.is_full() {
            found.merge(check(property, value, before(name), &Position::Field(at, name)));
        }
    };
    // An object in a list may have few of very many properties. The order is that of the properties either way.
    if map.len() < schema.properties.len() / 2 {
        let mut present: Vec<(&str, &Value)> = map.iter().map(|(name, value)| (name.as_str(), value)).collect();
        present.sort_unstable_by_key(|(name, _)| *name);
        for (name, value) in present {
            if let Some(property) = schema.property(name) {
                declared(name, property, value);
            }
        }
    } else {
        for (name, property) in &schema.properties {
            if let Some(value) = map.get(name) {
                declared(name, property, value);
            }
        }
    }
    for name in checks.map(|checks| &*checks.required).unwrap_or_default() {
        if found.is_full() {
            return;
        }
        if !map.contains_key(name) {
            found.push(FieldError::required(Position::Field(at, name).to_string(), ""));
        }
    }
}

/// Reports whether an error prevents the evaluation of rules in CEL.
pub(crate) fn blocks_rules(error: &FieldError) -> bool {
    use machinery::field_error::FieldErrorKind as Kind;
    matches!(error.kind, Kind::NotSupported | Kind::Required | Kind::TooLong | Kind::TooMany | Kind::TypeInvalid)
}

/// Reports whether new items are paired with old ones by keys.
pub(crate) fn pairs(listing: &Listing) -> bool {
    matches!(listing, Listing::Map(_))
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn refused(schema: Value, value: Value) -> Vec<String> {
        let schema = Schema::compile(&json!({"type": "object", "properties": {"a": schema}}));
        validate(&schema, &json!({"a": value}), None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn types_say_what_they_found() {
        assert_eq!(
            refused(json!({"type": "string"}), json!(5)),
            [r#"a: Invalid value: "integer": a in body must be of type string: "integer""#]
        );
        assert_eq!(refused(json!({"type": "integer"}), json!(2.0)), [""; 0]);
        assert_eq!(
            refused(json!({"type": "integer"}), json!(2.5)),
            [
                r#"a: Invalid value: "number": a in body must be of type integer: "number""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in a"#
            ]
        );
        assert_eq!(
            refused(json!({"type": "integer", "format": "int32"}), json!(2_147_483_648_i64)),
            [r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in a"#]
        );
        assert_eq!(refused(json!({"type": "string", "nullable": true}), json!(null)), [""; 0]);
    }

    #[test]
    fn bounds() {
        assert_eq!(
            refused(json!({"type": "integer", "maximum": 100}), json!(101)),
            ["a: Invalid value: 101: a in body should be less than or equal to 100"]
        );
        assert_eq!(
            refused(json!({"type": "number", "multipleOf": 0.1}), json!(0.35)),
            ["a: Invalid value: 0.35: a in body should be a multiple of 0.1"]
        );
        assert_eq!(refused(json!({"type": "number", "multipleOf": 0.1}), json!(0.5)), [""; 0]);
        assert_eq!(
            refused(json!({"type": "string", "maxLength": 3}), json!("abcd")),
            ["a: Too long: may not be more than 3 bytes"]
        );
        assert_eq!(refused(json!({"type": "string", "maxLength": 3}), json!("ééé")), [""; 0]);
        assert_eq!(
            refused(json!({"type": "string", "enum": ["a", "b"]}), json!("z")),
            [r#"a: Unsupported value: "z": supported values: "a", "b""#]
        );
    }

    #[test]
    fn errors_below_a_long_key_are_cut() {
        let schema = Schema::compile(
            &json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}),
        );
        let wrong: Value = (0..1000).map(|n| json!(n)).collect();
        let key = "k".repeat(100_000);
        let mut object = json!({});
        object[key.as_str()] = wrong;
        let errors = validate(&schema, &object, None);
        assert_eq!(errors.len(), ERRORS_MAX);
        assert!(errors.iter().all(|error| error.to_string().len() < 3 * PATH_BYTES_MAX));
        assert!(errors[0].field.ends_with("k…"), "{}", errors[0].field.len());
    }

    #[test]
    fn an_object_that_needs_too_many_checks_is_refused() {
        let alternatives: Value = (0..3000).map(|n| json!({"maxLength": n, "minLength": n})).collect();
        let schema = Schema::compile(&json!({"type": "array", "items": {"type": "string", "anyOf": alternatives}}));
        let items = |count: usize| -> Value { (0..count).map(|_| json!("")).collect() };
        assert_eq!(validate(&schema, &items(100), None), [], "the first alternative");
        let long: Value = (0..10_000).map(|_| json!("x".repeat(2999))).collect();
        let errors = validate(&schema, &long, None);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].detail, "the object needs more than 20000000 checks by its schema");
    }

    #[test]
    fn of_alternatives_the_best_is_shown() {
        let one_of = json!({"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}]});
        assert_eq!(
            refused(one_of.clone(), json!({})),
            [
                r#"<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found none valid"#,
                "a.x: Required value"
            ]
        );
        assert_eq!(refused(one_of, json!({"x": 1})), [""; 0]);
    }

    #[test]
    fn what_did_not_change_is_not_held_against_an_update() {
        let schema = Schema::compile(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "s": {"type": "string", "maxLength": 2}, "t": {"type": "string"},
            "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                  "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 5}}}},
            "l": {"type": "array", "items": {"type": "integer", "maximum": 5}}}}}}),
        );
        let old = json!({"spec": {"s": "long", "m": [{"k": "a", "v": 9}], "l": [9]}});
        let new = json!({"spec": {"s": "long", "t": "x", "m": [{"k": "b", "v": 1}, {"k": "a", "v": 9}], "l": [9]}});
        assert_eq!(validate(&schema, &new, Some(&old)), []);
        let changed = json!({"spec": {"s": "longer", "m": [{"k": "a", "v": 8}], "l": [9, 1]}});
        let errors = validate(&schema, &changed, Some(&old));
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["spec.l[0]", "spec.m[0].v", "spec.s"]);
    }
}
