//! YAML text to a value, with the readings of YAML 1.1 that the reference has: a bare `yes` is true, `0x10` is 16.
//!
//! Only the first document of a stream is read. Aliases are expanded, within bounds.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};

/// Deeper documents are refused: the same bound as for JSON.
const DEPTH_MAX: usize = 127;

/// A parsed document.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    /// `line 7: key "a" already set in map`, one for each key that stands twice in its map.
    pub duplicates: Vec<String>,
}

/// Parses the first document of a text. The error starts with `yaml: `, as the reference's.
pub fn parse(text: &[u8]) -> Result<Document, String> {
    let text = std::str::from_utf8(text).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let mut composer = Composer {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        nodes: 0,
        aliased: 0,
    };
    let value = composer.document().map_err(|error| format!("yaml: {error}"))?;
    Ok(Document { value, duplicates: composer.duplicates })
}

struct Composer<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, (Value, usize)>,
    duplicates: Vec<String>,
    /// Values made so far, and how many of them came out of aliases.
    nodes: usize,
    aliased: usize,
}

impl<'t> Composer<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                // The reference counts lines from 0 where its parser complains, from 1 where its scanner does, and
                // says nothing of the first.
                let before = error.marker().line().saturating_sub(1);
                let info = error.info();
                let (line, info) = match info.strip_prefix("while parsing").and_then(|rest| rest.split_once(", ")) {
                    Some((_, problem)) => (before, problem),
                    None => (before + 1, info),
                };
                Err(if before > 0 { format!("line {line}: {info}") } else { info.to_owned() })
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Value, String> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => return Ok(Value::Null),
                event => {
                    let value = self.value(event, span, 0)?;
                    // What follows must at least be well formed up to the end of the document.
                    self.next()?;
                    return Ok(value);
                }
            }
        }
    }

    fn value(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        self.nodes += 1;
        let before = self.nodes;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())?),
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.value(event, span, depth + 1)?),
                    }
                }
                (anchor, Value::Array(items))
            }
            Event::MappingStart(anchor, _) => (anchor, self.mapping(depth)?),
            Event::Alias(id) => {
                let (value, size) = self.anchors.get(&id).cloned().ok_or("unknown anchor")?;
                self.nodes += size;
                self.aliased += size + 1;
                if self.aliased > 100 && self.nodes > 1000 && self.aliased as f64 > self.nodes as f64 * self.ratio() {
                    return Err("document contains excessive aliasing".to_owned());
                }
                return Ok(value);
            }
            _ => return Err(format!("line {}: did not find expected node content", span.start.line())),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), self.nodes - before));
        }
        Ok(value)
    }

    /// How much of a document may come out of aliases: nearly all of a small one, a tenth of a huge one.
    fn ratio(&self) -> f64 {
        let (low, high) = (400_000.0, 4_000_000.0);
        match self.nodes as f64 {
            nodes if nodes <= low => 0.99,
            nodes if nodes >= high => 0.10,
            nodes => 0.99 - 0.89 * (nodes - low) / (high - low),
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, String> {
        let mut map = Map::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let line = span.start.line();
            let key = match self.value(event, span, depth + 1)? {
                _ if is_merge => String::new(),
                Value::String(key) => key,
                Value::Bool(key) => key.to_string(),
                Value::Number(key) => machinery::go_text::number(&key),
                Value::Null => "null".to_owned(),
                Value::Array(_) | Value::Object(_) => {
                    return Err(format!("line {line}: a key is neither text nor number"));
                }
            };
            let (event, span) = self.next()?;
            let value = self.value(event, span, depth + 1)?;
            if is_merge {
                merged.push(value);
            } else if map.contains_key(&key) {
                let quoted = machinery::go_text::quote(&key);
                self.duplicates.push(format!("line {line}: key {quoted} already set in map"));
                map.insert(key, value);
            } else {
                map.insert(key, value);
            }
        }
        for source in merged {
            let sources = match source {
                Value::Array(sources) => sources,
                source => vec![source],
            };
            for source in sources {
                let Value::Object(source) = source else {
                    return Err("map merge requires map or sequence of maps as the value".to_owned());
                };
                for (key, value) in source {
                    map.entry(key).or_insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let core = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
    match core {
        Some("str") => return Ok(Value::String(text.to_owned())),
        Some("binary") => return Ok(Value::String(text.split_ascii_whitespace().collect())),
        _ => {}
    }
    if style != ScalarStyle::Plain && core.is_none() {
        return Ok(Value::String(text.to_owned()));
    }
    let resolved = resolve(text);
    let fits = match core {
        Some("int") => resolved.is_i64() || resolved.is_u64(),
        Some("float") => resolved.is_number(),
        Some("bool") => resolved.is_boolean(),
        Some("null") => resolved.is_null(),
        _ => true,
    };
    let named = core.unwrap_or_default();
    if fits { Ok(resolved) } else { Err(format!("cannot decode !!str `{text}` as a !!{named}")) }
}

/// What a bare word means in YAML 1.1.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        let plain = text.replace('_', "");
        if let Some(number) = integer(&plain).or_else(|| float(&plain)) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}

/// Decimal, `0x`, `0o`, `0b`, or octal by a leading zero.
fn integer(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let (digits, radix) = match &lower {
        l if l.starts_with("0x") => (&lower[2..], 16),
        l if l.starts_with("0o") => (&lower[2..], 8),
        l if l.starts_with("0b") => (&lower[2..], 2),
        l if l.len() > 1 && l.starts_with('0') => (&lower[1..], 8),
        _ => (&*lower, 10),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if text.starts_with('-') {
        let negative = i64::try_from(-i128::from(magnitude)).ok()?;
        return Some(negative.into());
    }
    Some(magnitude.into())
}

/// `1.5`, `.5`, `1.5e+3`; an exponent needs its sign.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let well = all_digits(whole) && !fraction.is_empty() && all_digits(fraction) && !mantissa.is_empty();
    let well = well
        && exponent
            .is_none_or(|e| e.strip_prefix(['+', '-']).is_some_and(|digits| !digits.is_empty() && all_digits(digits)));
    if !well {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_bytes()).unwrap().value
    }

    #[test]
    fn bare_words_are_read_as_yaml_1_1() {
        for (text, wanted) in [
            ("yes", json!(true)),
            ("off", json!(false)),
            ("y", json!(true)),
            ("12", json!(12)),
            ("1.50", json!(1.5)),
            ("0x10", json!(16)),
            ("0o7", json!(7)),
            ("010", json!(8)),
            ("-3", json!(-3)),
            ("1_000", json!(1000)),
            ("2020-01-01", json!("2020-01-01")),
            ("1e3", json!("1e3")),
            ("1e+3", json!(1000)),
            ("~", Value::Null),
            ("'yes'", json!("yes")),
            ("\"12\"", json!("12")),
            ("!!str 12", json!("12")),
            ("1.2.3", json!("1.2.3")),
            ("v1", json!("v1")),
        ] {
            assert_eq!(value(&format!("a: {text}"))["a"], wanted, "{text}");
        }
    }

    #[test]
    fn keys_become_text_and_blocks_keep_their_lines() {
        assert_eq!(value("1: a\ntrue: b\n"), json!({"1": "a", "true": "b"}));
        assert_eq!(
            value("a: |\n  two\n  lines\nb: >\n  one\n  line\n"),
            json!({"a": "two\nlines\n", "b": "one line\n"})
        );
        assert_eq!(value("# nothing\n"), Value::Null);
        assert_eq!(value("a: 1\n---\nb: 2\n"), json!({"a": 1}));
        assert_eq!(value("{\"a\": [1, {\"b\": null}]}"), json!({"a": [1, {"b": null}]}));
    }

    #[test]
    fn duplicate_keys_are_named_by_line() {
        let document = parse(b"data:\n  a: 1\n  a: 2\n").unwrap();
        assert_eq!(document.value, json!({"data": {"a": 2}}));
        assert_eq!(document.duplicates, ["line 3: key \"a\" already set in map"]);
    }

    #[test]
    fn anchors_and_merges_expand() {
        let text = "base: &b {x: 1, z: 2}\nown:\n  <<: *b\n  z: 3\nsame: *b\n";
        assert_eq!(value(text)["own"], json!({"z": 3, "x": 1}));
        assert_eq!(value(text)["same"], json!({"x": 1, "z": 2}));
    }

    #[test]
    fn aliases_that_explode_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", [below.as_str(); 10].join(", ")));
        }
        assert_eq!(parse(text.as_bytes()).unwrap_err(), "yaml: document contains excessive aliasing");
    }

    #[test]
    fn broken_documents_are_refused_like_the_reference_does() {
        assert_eq!(parse(b"a: b: c").unwrap_err(), "yaml: mapping values are not allowed in this context");
        assert_eq!(
            parse(b"a: b\nc: d: e").unwrap_err(),
            "yaml: line 2: mapping values are not allowed in this context"
        );
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
