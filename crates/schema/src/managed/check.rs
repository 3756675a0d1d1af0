//! Validation of an applied configuration: every field is declared, every value has its type, every list item has a unique key.
//! Messages are those of the reference's library, which prints Go values.

use std::collections::BTreeSet;

use machinery::go_text;
use machinery::json::Value;

use super::compare::item_element;
use super::element::Element;
use crate::facts::{Form, List, Listing, NodeId, Scalar, Shapes};

/// Most errors reported; the check ends there.
const ERRORS_MAX: usize = 100;

/// Checks a configuration. The error is one line, or a list of lines below `errors:`.
pub(super) fn check(shapes: &Shapes, root: NodeId, config: &Value) -> Result<(), String> {
    let mut check = Check { shapes, path: Vec::new(), errors: Vec::new() };
    check.value(root, config);
    match check.errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Check<'a> {
    shapes: &'a Shapes,
    path: Vec<Element>,
    errors: Vec<String>,
}

impl<'a> Check<'a> {
    fn error(&mut self, message: impl AsRef<str>) {
        if self.errors.len() < ERRORS_MAX {
            let path: String = self.path.iter().map(ToString::to_string).collect();
            let message = message.as_ref();
            self.errors.push(if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") });
        }
    }

    fn value(&mut self, id: NodeId, value: &Value) {
        if value.is_null() {
            return;
        }
        let shapes: &'a Shapes = self.shapes;
        match &shapes.node(id).form {
            Form::Scalar(scalar) => self.scalar(*scalar, value),
            Form::List(list) => match value {
                Value::Array(items) => self.items(list, items),
                other => self.error(format!("expected list, got &{{{}}}", go_value(other))),
            },
            Form::Object(object) => match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        self.path.push(Element::field(key));
                        match object.child(key) {
                            Some(child) => self.value(child, value),
                            None => {
                                self.error("field not declared in schema");
                                self.path.pop();
                                return;
                            }
                        }
                        self.path.pop();
                    }
                }
                other => self.error(format!("expected map, got &{{{}}}", go_value(other))),
            },
            Form::Raw if !matches!(value, Value::Object(_) | Value::Raw(_)) => {
                self.error(format!("expected map, got &{{{}}}", go_value(value)))
            }
            Form::Raw | Form::Any { .. } | Form::Either(_) => {}
        }
    }

    fn items(&mut self, list: &List, items: &[Value]) {
        if list.listing == Listing::Atomic {
            for (at, item) in items.iter().enumerate() {
                self.path.push(Element::Index(i64::try_from(at).unwrap_or(i64::MAX)));
                self.value(list.item, item);
                self.path.pop();
            }
            return;
        }
        let mut seen: BTreeSet<Element> = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = match item_element(self.shapes, list, item) {
                Ok(element) => element,
                Err(why) => {
                    self.error(format!("element {at}: {why}"));
                    return;
                }
            };
            if seen.contains(&element) {
                self.error(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(list.item, item);
            seen.extend(self.path.pop());
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        match scalar {
            Scalar::Int32 | Scalar::Int64 | Scalar::Float64 | Scalar::Number if !value.is_number() => {
                self.error(format!("expected numeric (int or float), got {}", go_text::type_name(value)));
            }
            Scalar::String | Scalar::Bytes | Scalar::Duration if !value.is_string() => {
                self.error(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)));
            }
            Scalar::Bool if !value.is_boolean() => {
                self.error(format!("expected boolean, got &{{{}}}", go_value(value)));
            }
            _ if value.is_array() || value.is_object() => {
                self.error(format!("expected any scalar, got &{{{}}}", go_value(value)));
            }
            _ => {}
        }
    }
}

/// Formats a value as Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => go_text::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}:{}", go_text::quote(key), go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => go_value(other),
    }
}

/// Formats a value as Go's `%v`.
fn go_value(value: &Value) -> String {
    crate::patch::strategic::go_value::go_value(value)
}
