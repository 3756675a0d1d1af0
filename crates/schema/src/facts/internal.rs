//! The structs that a Kubernetes server uses inside for the types of the API. Some refusals show values in the JSON of
//! these, which has Go's field names, all fields, and null for what is absent.
//!
//! `internal.tsv` has one line for each struct, sorted, and its fields on lines that start with a tab:
//!
//! ```text
//! core.Taint
//!     Key    key    ""                         shown name, name in the API, what an absent value is shown as
//!     Requests    requests    map                list and map are null if absent, and shown empty if they are empty
//!     SecurityContext    securityContext    null    core.SecurityContext    the struct of the value, of items or of members
//!     HostPID    ^hostPID    false                 a field of the object around it in the API
//!     RollbackTo    -    null                    a field that the API does not have
//!     *    metadata    *                         all fields of that object as they are in the API; the object itself without a name
//! ```
//!
//! The text is part of the binary and generated; a test reads all of it.

use std::collections::HashMap;
use std::sync::LazyLock;

use machinery::field_error::BadValue;
use machinery::go_text;
use machinery::json::{self, Map, Value};
use machinery::line_diff;

use crate::walk::Walk as _;

const TABLE: &str = include_str!("internal.tsv");

/// Returns a value in the JSON of the inner struct, for the message of a refusal.
pub fn shown(name: &str, value: &Value) -> BadValue {
    BadValue::text(go_text::json(&internal(name, value)))
}

/// Returns a list of values in the JSON of their inner struct.
pub(crate) fn shown_list(name: &str, value: &Value) -> BadValue {
    BadValue::text(go_text::json(&below(name, value, &Value::Null)))
}

/// Returns the differences of two values as lines of their indented JSON; empty if they are too large to compare.
pub(crate) fn difference(name: &str, old: &Value, new: &Value) -> String {
    let lines = |value: &Value| indented(&internal(name, value));
    line_diff::unified(&lines(old), &lines(new)).unwrap_or_default()
}

fn internal(name: &str, value: &Value) -> Value {
    below(name, value, &Value::Null)
}

/// Returns the value with the fields of a struct: the struct itself, a list of them, or a map of them.
fn below(name: &str, value: &Value, around: &Value) -> Value {
    match value {
        Value::Array(items) => Value::from(items.iter().map(|item| below(name, item, around)).collect::<Vec<_>>()),
        Value::Null => Value::Null,
        value => object(name, value, around),
    }
}

fn object(name: &str, value: &Value, around: &Value) -> Value {
    let mut shown = Map::new();
    for line in fields(name) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (field, source, absent, of) = (next(), next(), next(), next());
        if field == "*" {
            let from = if source.is_empty() { value } else { value.at(source) };
            for (name, value) in from.as_object().into_iter().flatten() {
                shown.insert(name.as_str(), in_order(value));
            }
            continue;
        }
        let found = match source.strip_prefix('^') {
            Some(source) => around.at(source),
            None if source == "-" => &Value::Null,
            None => value.get(source).unwrap_or(&Value::Null),
        };
        let found = match (found, of) {
            (Value::Null, "") => absent_value(absent),
            (Value::Null, of) if absent == "{}" => object(of, &Value::Null, value),
            (Value::Null, _) => Value::Null,
            (found, "") => in_order(found),
            (Value::Object(members), of) if absent == "map" => {
                let mut shown = Map::new();
                for (name, member) in sorted(members) {
                    shown.insert(name, below(of, member, value));
                }
                Value::Object(shown)
            }
            (found, of) => below(of, found, value),
        };
        shown.insert(field, found);
    }
    Value::Object(shown)
}

fn absent_value(absent: &str) -> Value {
    match absent {
        "list" | "map" => Value::Null,
        text => json::from_str(text).unwrap_or_default(),
    }
}

/// Returns the value with the members of maps sorted by name, as Go writes them. The fields of an API struct stay in their order,
/// which is the order of the value.
fn in_order(value: &Value) -> Value {
    match value {
        Value::Object(members) if members.iter().all(|(_, value)| value.is_string()) => {
            let mut shown = Map::new();
            for (name, value) in sorted(members) {
                shown.insert(name, value.clone());
            }
            Value::Object(shown)
        }
        other => other.clone(),
    }
}

fn sorted(members: &Map) -> Vec<(&str, &Value)> {
    let mut all: Vec<_> = members.iter().map(|(name, value)| (name.as_str(), value)).collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}

/// Returns the lines of a struct's fields, without their tabs.
fn fields(name: &str) -> impl Iterator<Item = &'static str> {
    let start = STARTS.get(name).copied();
    debug_assert!(start.is_some(), "internal.tsv has no {name}");
    TABLE.get(start.unwrap_or(TABLE.len())..).unwrap_or_default().lines().map_while(|line| line.strip_prefix('\t'))
}

/// Where the fields of each struct begin. A refusal may show thousands of structs, so they are not searched for.
static STARTS: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
    let mut at = 0;
    let starts = TABLE.split_inclusive('\n').filter_map(|line| {
        at += line.len();
        (!line.starts_with('\t')).then(|| (line.trim_end(), at))
    });
    starts.collect()
});

/// Returns JSON with one space for each level, as Go's `MarshalIndent` writes it.
fn indented(value: &Value) -> String {
    let mut text = String::new();
    indent(value, 0, &mut text);
    text
}

fn indent(value: &Value, depth: usize, text: &mut String) {
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', depth));
    };
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('{');
            for (i, (name, value)) in members.iter().enumerate() {
                text.push_str(if i > 0 { "," } else { "" });
                line(text, depth + 1);
                text.push_str(&go_text::json(&Value::from(name.as_str())));
                text.push_str(": ");
                indent(value, depth + 1, text);
            }
            line(text, depth);
            text.push('}');
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                text.push_str(if i > 0 { "," } else { "" });
                line(text, depth + 1);
                indent(item, depth + 1, text);
            }
            line(text, depth);
            text.push(']');
        }
        other => text.push_str(&go_text::json(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn every_struct_of_the_table_exists() {
        for line in TABLE.lines().filter(|line| line.starts_with('\t')) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert!(columns.len() == 5, "{line:?}");
            if !columns[4].is_empty() {
                assert!(TABLE.contains(&format!("\n{}\n", columns[4])), "{line:?}");
            }
            let absent = columns[3];
            assert!(matches!(absent, "list" | "map" | "*") || json::from_str(absent).is_ok(), "{line:?}");
        }
    }

    #[test]
    fn absent_fields_are_shown() {
        let BadValue::Text(text) = shown("core.Taint", &json!({"key": "a", "effect": "NoSchedule"})) else { panic!() };
        assert_eq!(text, r#"{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}"#);
    }

    #[test]
    fn metadata_is_inlined_and_host_fields_move_down() {
        let template =
            json!({"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": {"hostPID": true, "securityContext": {}}});
        let BadValue::Text(text) = shown("core.PodTemplateSpec", &template) else { panic!() };
        assert!(text.starts_with(r#"{"labels":{"a":"1","b":"2"},"Spec":{"Volumes":null,"#), "{text}");
        assert!(text.contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"HostIPC":false,"#), "{text}");
    }

    #[test]
    fn differences_have_three_lines_around_them() {
        let old = json!({"key": "a", "value": "b", "effect": "NoExecute"});
        let new = json!({"key": "a", "value": "c", "effect": "NoExecute"});
        let wanted = "@@ -1,6 +1,6 @@\n {\n  \"Key\": \"a\",\n- \"Value\": \"b\",\n+ \"Value\": \"c\",\n  \"Effect\": \"NoExecute\",\n  \"TimeAdded\": null\n }\n";
        assert_eq!(difference("core.Taint", &old, &new), wanted);
    }
}
