//! Writing of YAML: block style, keys in natural order, lines folded after column 80.

use std::cmp::Ordering;
use std::fmt::Write as _;

use crate::json::{Map, Text, Value};

use super::style::{self, Style};
use crate::go_text;

const WIDTH: usize = 80;
/// Longest key of the simple form `key: value`.
const SIMPLE_KEY_MAX: usize = 128;

/// Writes a value as the reference writes YAML, ending in a line end.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut value = value.clone();
    value.parse_raw();
    let value = &value;
    let mut writer = Writer { out: String::new(), column: 0 };
    match value {
        Value::Object(members) if !members.is_empty() => writer.mapping(members, 0, false),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0, false),
        scalar => {
            writer.scalar(scalar, 0);
            writer.end_line();
        }
    }
    writer.out
}

struct Writer {
    out: String,
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put_char(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn end_line(&mut self) {
        if self.column > 0 {
            self.break_line();
        }
    }

    fn break_line(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn indent(&mut self, to: usize) {
        while self.column < to {
            self.put_char(' ');
        }
    }

    /// Writes a mapping; with `inline` the first member continues the line of a `- `.
    fn mapping(&mut self, members: &Map, indent: usize, inline: bool) {
        for (i, (key, value)) in natural_order(members).into_iter().enumerate() {
            if i > 0 || !inline {
                self.end_line();
                self.indent(indent);
            }
            let is_simple = key.len() <= SIMPLE_KEY_MAX && !key.contains(style::is_break);
            if is_simple {
                self.text(key, indent, true);
                self.put(":");
            } else {
                self.put("? ");
                self.text(key, indent, false);
                self.end_line();
                self.indent(indent);
                self.put(":");
            }
            match value {
                Value::Object(members) if !members.is_empty() => {
                    if is_simple {
                        self.break_line();
                    } else {
                        self.put(" ");
                    }
                    self.mapping(members, indent + 2, !is_simple);
                }
                Value::Array(items) if !items.is_empty() => {
                    if is_simple {
                        self.break_line();
                        self.sequence(items, indent, false);
                    } else {
                        self.put(" ");
                        self.sequence(items, indent + 2, true);
                    }
                }
                scalar => {
                    self.put(" ");
                    self.scalar(scalar, indent);
                    self.end_line();
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 || !inline {
                self.end_line();
                self.indent(indent);
            }
            self.put("- ");
            match item {
                Value::Object(members) if !members.is_empty() => self.mapping(members, indent + 2, true),
                Value::Array(items) if !items.is_empty() => self.sequence(items, indent + 2, true),
                scalar => {
                    self.scalar(scalar, indent);
                    self.end_line();
                }
            }
        }
    }

    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.put("null"),
            Value::Bool(value) => self.put(if *value { "true" } else { "false" }),
            Value::Number(number) => self.put(&go_text::number(number)),
            Value::String(text) => self.text(text, indent, false),
            Value::Array(_) => self.put("[]"),
            Value::Object(_) | Value::Raw(_) => self.put("{}"),
        }
    }

    fn text(&mut self, text: &str, indent: usize, is_key: bool) {
        let folds = !is_key;
        match style::choose(text, is_key) {
            Style::Plain => self.folded(text, indent, folds, false),
            Style::SingleQuoted => {
                self.put("'");
                self.folded(text, indent, folds, true);
                self.put("'");
            }
            Style::DoubleQuoted => self.double_quoted(text, indent, folds),
            Style::Literal => self.literal(text, indent),
        }
    }

    /// Writes text, breaking lines at a single space after the width; single quotes are doubled inside quotes.
    fn folded(&mut self, text: &str, indent: usize, folds: bool, quoted: bool) {
        let chars: Vec<char> = text.chars().collect();
        for (i, &c) in chars.iter().enumerate() {
            let is_inner = i > 0 && i + 1 < chars.len();
            let is_single = (i == 0 || chars[i - 1] != ' ') && chars.get(i + 1) != Some(&' ');
            if c == ' ' && folds && is_inner && is_single && self.column > WIDTH {
                self.break_line();
                self.indent(indent + 2);
            } else {
                if c == '\'' && quoted {
                    self.put_char('\'');
                }
                self.put_char(c);
            }
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, folds: bool) {
        let chars: Vec<char> = text.chars().collect();
        self.put("\"");
        let mut after_space = false;
        for (i, &c) in chars.iter().enumerate() {
            let is_inner = i > 0 && i + 1 < chars.len();
            if !style::is_printable(c) || style::is_break(c) || matches!(c, '"' | '\\' | '\u{feff}') {
                self.put(&escape(c));
                after_space = false;
            } else if c == ' ' && folds && is_inner && !after_space && self.column > WIDTH {
                self.break_line();
                self.indent(indent + 2);
                if chars.get(i + 1) == Some(&' ') {
                    self.put_char('\\');
                }
                after_space = true;
            } else {
                self.put_char(c);
                after_space = c == ' ';
            }
        }
        self.put("\"");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with(|c: char| c == ' ' || style::is_break(c)) {
            self.put("2");
        }
        let mut tail = text.chars().rev();
        match (tail.next(), tail.next()) {
            (Some(last), _) if !style::is_break(last) => self.put("-"),
            (Some(_), None) => self.put("+"),
            (Some(_), Some(before)) if style::is_break(before) => self.put("+"),
            _ => {}
        }
        self.break_line();
        for c in text.chars() {
            if style::is_break(c) {
                self.out.push(c);
                self.column = 0;
            } else {
                if self.column == 0 {
                    self.indent(indent + 2);
                }
                self.put_char(c);
            }
        }
    }
}

fn escape(c: char) -> String {
    let short = match c {
        '\0' => "\\0",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        '\u{1b}' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        _ => "",
    };
    if !short.is_empty() {
        return short.to_owned();
    }
    let code = u32::from(c);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02X}"),
        0x100..=0xffff => write!(out, "\\u{code:04X}"),
        _ => write!(out, "\\U{code:08X}"),
    };
    out
}

/// Up to this many members are sorted by insertion, more of them in runs that are merged: insertion moves all that follow.
const INSERTED_MAX: usize = 128;

/// A member with the characters of its key, which each comparison needs.
struct Keyed<'m> {
    chars: Vec<char>,
    member: (&'m Text, &'m Value),
}

/// Sorts by the reference's comparison, which is not an order, as a library sort would need.
fn natural_order(members: &Map) -> Vec<(&Text, &Value)> {
    let keyed = members.iter().map(|(key, value)| Keyed { chars: key.chars().collect(), member: (key, value) });
    let keyed: Vec<Keyed<'_>> = keyed.collect();
    sorted(&keyed).into_iter().map(|keyed| keyed.member).collect()
}

fn sorted<'k, 'm>(members: &'k [Keyed<'m>]) -> Vec<&'k Keyed<'m>> {
    let mut all: Vec<&Keyed<'_>> = Vec::with_capacity(members.len());
    if members.len() <= INSERTED_MAX {
        for member in members {
            let at = all.partition_point(|other| natural(&other.chars, &member.chars) != Ordering::Greater);
            all.insert(at, member);
        }
        return all;
    }
    let (left, right) = members.split_at(members.len() / 2);
    let (mut left, mut right) = (sorted(left).into_iter().peekable(), sorted(right).into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let is_right_first = natural(&a.chars, &b.chars) == Ordering::Greater;
        all.extend(if is_right_first { right.next() } else { left.next() });
    }
    all.extend(left);
    all.extend(right);
    all
}

/// Compares letters by code, numbers by value; letters sort after everything else.
fn natural(a: &[char], b: &[char]) -> Ordering {
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            continue;
        }
        match (a[i].is_alphabetic(), b[i].is_alphabetic()) {
            (true, true) => return a[i].cmp(&b[i]),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        let mut start = 0_u64;
        if a[i] == '0' || b[i] == '0' {
            let digits_before = a[..i].iter().rev().take_while(|c| c.is_ascii_digit());
            start = u64::from(digits_before.into_iter().any(|c| *c != '0'));
        }
        let number = |chars: &[char]| {
            let digits = chars[i..].iter().map_while(|c| c.to_digit(10));
            digits.fold((start, 0), |(value, len), digit| {
                (value.wrapping_mul(10).wrapping_add(u64::from(digit)), len + 1)
            })
        };
        let (a_number, b_number) = (number(a), number(b));
        return a_number.cmp(&b_number).then(a[i].cmp(&b[i]));
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn many_members_are_in_the_order_of_few() {
        let members: Map = (0..5000).rev().map(|at| (format!("k{at}"), Value::Null)).collect();
        let keys: Vec<String> = natural_order(&members).into_iter().map(|(key, _)| key.to_string()).collect();
        assert!(keys.iter().enumerate().all(|(at, key)| *key == format!("k{at}")));
    }

    #[test]
    fn answers_of_the_recordings() {
        assert_eq!(
            to_yaml(&json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps",
                "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}})),
            "apiVersion: v1\nkind: APIGroup\nname: apps\npreferredVersion:\n  groupVersion: apps/v1\n  version: v1\nversions:\n- groupVersion: apps/v1\n  version: v1\n"
        );
        assert_eq!(
            to_yaml(
                &json!({"message": "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch", "metadata": {}})
            ),
            "message: 'only the following media types are accepted: application/json;stream=watch,\n  application/vnd.kubernetes.protobuf;stream=watch'\nmetadata: {}\n"
        );
    }

    #[test]
    fn texts_stay_texts() {
        let value = json!({"a": "yes", "b": "1", "c": "", "d": "two\nlines\n", "e": "x: y", "f": " lead", "g": "\ttab",
            "h": "it's", "i": null, "j": ["- x", "#"], "a10": 1, "a9": [[1, []]]});
        let text = to_yaml(&value);
        let back = crate::yaml::read(text.as_bytes()).map(|document| document.value);
        assert_eq!(back.as_ref(), Ok(&value), "{text}");
        assert!(text.find("a9").is_some_and(|nine| text.find("a10").is_some_and(|ten| nine < ten)));
    }
}
