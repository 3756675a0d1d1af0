//! Encodes a value in normal form as the generated code of Kubernetes does.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::json::{Map, Text, Value};

use super::layout::{Content, Layout};
use super::wire::{Wire, put_bytes, put_message, put_tag, put_varint};
use crate::decode::time;
use crate::facts::shape::Other;
use crate::facts::{Either, Field, Form, NodeId, Object, Scalar, Shapes, Type};

/// A value does not have its type: it was not in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// The Go name of the expected type.
    pub expected: String,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value is no {} and cannot be written as one", self.expected)
    }
}

impl std::error::Error for WriteError {}

type Written = Result<(), WriteError>;

/// Encodes an object without its kind (see [`super::envelope`]).
pub fn write(ty: &Type, value: &Value) -> Result<Vec<u8>, WriteError> {
    let writer = Writer { shapes: ty.shapes() };
    let mut out = Vec::with_capacity(512);
    writer.content(&mut out, ty.root(), value)?;
    Ok(out)
}

struct Writer<'a> {
    shapes: &'a Shapes,
}

impl Writer<'_> {
    fn unfit(&self, id: NodeId) -> WriteError {
        WriteError { expected: self.shapes.node(id).name.clone().into_owned() }
    }

    /// Writes the content of a message.
    fn content(&self, out: &mut Vec<u8>, id: NodeId, value: &Value) -> Written {
        let Form::Object(object) = &self.shapes.node(id).form else { return Err(self.unfit(id)) };
        let empty = Map::new();
        let map = match value {
            Value::Object(map) => map,
            Value::Null => &empty,
            _ => return Err(self.unfit(id)),
        };
        self.fields(out, self.shapes.layout(id), object, map)
    }

    fn fields(&self, out: &mut Vec<u8>, layout: &Layout, object: &Object, map: &Map) -> Written {
        for slot in &layout.slots {
            match &slot.content {
                Content::Embedded(inner) => put_message(out, slot.number, |out| self.fields(out, inner, object, map))?,
                Content::Field(at) => {
                    let field = &object.fields[usize::from(*at)];
                    self.field(out, slot.number, field, map.get(&field.name).unwrap_or(&Value::Null))?;
                }
            }
        }
        Ok(())
    }

    fn field(&self, out: &mut Vec<u8>, number: u32, field: &Field, value: &Value) -> Written {
        let id = field.node;
        match &self.shapes.node(id).form {
            Form::List(list) if !list.wrapped => match value {
                Value::Null => Ok(()),
                Value::Array(items) => items.iter().try_for_each(|item| self.value(out, number, list.item, item)),
                _ => Err(self.unfit(id)),
            },
            Form::Object(Object { rest: Some(rest), .. }) => match value {
                Value::Null => Ok(()),
                Value::Object(map) => self.map(out, number, *rest, map),
                _ => Err(self.unfit(id)),
            },
            // A nil pointer in Go is not written.
            Form::List(_) | Form::Scalar(Scalar::Bytes) if value.is_null() => Ok(()),
            _ if value.is_null() && field.pointer => Ok(()),
            _ => self.value(out, number, id, value),
        }
    }

    /// Writes one message per key, sorted.
    fn map(&self, out: &mut Vec<u8>, number: u32, rest: NodeId, map: &Map) -> Written {
        let mut entries: Vec<(&Text, &Value)> = map.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        let is_bytes = matches!(self.shapes.node(rest).form, Form::Scalar(Scalar::Bytes));
        for (key, value) in entries {
            put_message(out, number, |out| {
                put_bytes(out, 1, key.as_bytes());
                if is_bytes && value.is_null() { Ok(()) } else { self.value(out, 2, rest, value) }
            })?;
        }
        Ok(())
    }

    /// Writes a value; null is written as the zero value.
    fn value(&self, out: &mut Vec<u8>, number: u32, id: NodeId, value: &Value) -> Written {
        match &self.shapes.node(id).form {
            Form::Scalar(scalar) => self.scalar(out, number, *scalar, id, value),
            Form::Object(_) => put_message(out, number, |out| self.content(out, id, value)),
            Form::Raw | Form::Any { .. } => put_message(out, number, |out| {
                if !value.is_null() {
                    put_bytes(out, 1, value.to_string().as_bytes());
                }
                Ok(())
            }),
            Form::List(list) => match value {
                Value::Null => put_message(out, number, |_| Ok(())),
                Value::Array(items) => put_message(out, number, |out| {
                    items.iter().try_for_each(|item| self.value(out, 1, list.item, item))
                }),
                _ => Err(self.unfit(id)),
            },
            Form::Either(either) => put_message(out, number, |out| self.either(out, either, id, value)),
        }
    }

    fn either(&self, out: &mut Vec<u8>, either: &Either, id: NodeId, value: &Value) -> Written {
        match (either.other, value) {
            (Other::Bool, Value::Object(_)) => {
                put_flag(out, 1, true);
                self.value(out, 2, either.object, value)
            }
            (Other::Bool, Value::Bool(_) | Value::Null) => {
                put_flag(out, 1, value == &Value::Bool(true));
                Ok(())
            }
            (Other::Objects | Other::Strings, Value::Null) => Ok(()),
            (Other::Objects | Other::Strings, Value::Object(_)) => self.value(out, 1, either.object, value),
            (Other::Objects, Value::Array(items)) => {
                items.iter().try_for_each(|item| self.value(out, 2, either.object, item))
            }
            (Other::Strings, Value::Array(items)) => {
                for item in items {
                    put_bytes(out, 2, item.as_str().ok_or_else(|| self.unfit(id))?.as_bytes());
                }
                Ok(())
            }
            _ => Err(self.unfit(id)),
        }
    }

    fn scalar(&self, out: &mut Vec<u8>, number: u32, scalar: Scalar, id: NodeId, value: &Value) -> Written {
        match (scalar, value) {
            (Scalar::String, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
            (Scalar::String | Scalar::Bytes, Value::Null) => put_bytes(out, number, b""),
            (Scalar::Bytes, Value::String(text)) => {
                let bytes = STANDARD.decode(text).map_err(|_| self.unfit(id))?;
                put_bytes(out, number, &bytes);
            }
            (Scalar::Bool, Value::Bool(truth)) => put_flag(out, number, *truth),
            (Scalar::Bool, Value::Null) => put_flag(out, number, false),
            (Scalar::Int32 | Scalar::Int64, Value::Number(integer)) => {
                put_integer(out, number, integer.as_i64().ok_or_else(|| self.unfit(id))?);
            }
            (Scalar::Int32 | Scalar::Int64, Value::Null) => put_integer(out, number, 0),
            (Scalar::Float64, Value::Number(_) | Value::Null) => {
                put_tag(out, number, Wire::Fixed64);
                out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
                let (seconds, nanos) = time::parts(text).ok_or_else(|| self.unfit(id))?;
                return put_message(out, number, |out| {
                    put_integer(out, 1, seconds);
                    // Times have a resolution of seconds or microseconds.
                    let nanos = if scalar == Scalar::Time { 0 } else { i64::from(nanos / 1000 * 1000) };
                    put_integer(out, 2, nanos);
                    Ok(())
                });
            }
            // The zero time is an empty message, unlike 1970.
            (Scalar::Time | Scalar::MicroTime, Value::Null) => put_bytes(out, number, b""),
            (Scalar::Quantity, Value::String(text)) => return put_text(out, number, text),
            (Scalar::Quantity, Value::Null) => return put_text(out, number, "0"),
            (Scalar::IntOrString, Value::Number(_) | Value::String(_) | Value::Null) => {
                return put_message(out, number, |out| {
                    put_integer(out, 1, i64::from(value.is_string()));
                    put_integer(out, 2, value.as_i64().unwrap_or_default());
                    put_bytes(out, 3, value.as_str().unwrap_or_default().as_bytes());
                    Ok(())
                });
            }
            // No built-in kind has durations; numbers and untyped values occur in custom kinds only, which have no
            // protobuf.
            _ => return Err(self.unfit(id)),
        }
        Ok(())
    }
}

fn put_text(out: &mut Vec<u8>, number: u32, text: &str) -> Written {
    put_message(out, number, |out| {
        put_bytes(out, 1, text.as_bytes());
        Ok(())
    })
}

fn put_flag(out: &mut Vec<u8>, number: u32, truth: bool) {
    put_integer(out, number, i64::from(truth));
}

/// Writes an integer; negative numbers of any width take ten bytes.
fn put_integer(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, Wire::Varint);
    put_varint(out, value.cast_unsigned());
}
