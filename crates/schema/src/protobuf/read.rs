//! Decodes a message. Unknown fields are skipped, like in Kubernetes.
//!
//! Input is not trusted: lengths are checked before use; nesting and the number of values are bounded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::json::{List, Map, Number, Value};

use super::envelope;
use super::layout::{Content, Layout};
use super::wire::{Reader, Wire};
use crate::decode::{json, time};
use crate::facts::shape::Other;
use crate::facts::{Either, Form, NodeId, Object, Scalar, Shapes, Type, Types};

/// Largest nesting of messages. Only schemas can get near it.
const DEPTH_MAX: usize = 100;
/// Largest nesting of values, including JSON inside of a message: the limit of the JSON parser, less the envelope.
const NESTING_MAX: usize = 120;
/// Largest number of values in a message. Two bytes can create an object of a few hundred, so the length of a body is
/// no bound.
const VALUES_MAX: usize = 1 << 20;

/// Decodes a message; the value is not in normal form. Errors have Go's text where Go has one.
pub fn read(ty: &Type, message: &[u8]) -> Result<Value, String> {
    let mut decoder = Decoder { shapes: ty.shapes(), values: 0, depth: 0 };
    let value = decoder.object(ty.root(), message)?;
    if nesting(&value, NESTING_MAX) { Ok(value) } else { Err(too_deep()) }
}

fn too_deep() -> String {
    "exceeded max depth".to_owned()
}

/// Reports whether a value has at most `left` levels.
fn nesting(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| nesting(item, left - 1)),
        Value::Object(map) => left > 0 && map.values().all(|item| nesting(item, left - 1)),
        _ => true,
    }
}

struct Decoder<'a> {
    shapes: &'a Shapes,
    values: usize,
    depth: usize,
}

type Read<T> = Result<T, String>;

impl Decoder<'_> {
    fn count(&mut self) -> Read<()> {
        self.values += 1;
        if self.values > VALUES_MAX { Err("the message has too many values".to_owned()) } else { Ok(()) }
    }

    fn object(&mut self, id: NodeId, message: &[u8]) -> Read<Value> {
        let mut value = Value::Object(Map::new());
        self.merge(id, message, &mut value)?;
        Ok(value)
    }

    /// Decodes a message into an object that may have fields: a message may be split into several parts.
    fn merge(&mut self, id: NodeId, message: &[u8], into: &mut Value) -> Read<()> {
        let shapes = self.shapes;
        let node = shapes.node(id);
        let (Form::Object(object), Value::Object(map)) = (&node.form, into) else {
            return Err(format!("proto: {} is no message", node.name));
        };
        let name = node.name.rsplit('.').next().unwrap_or_default();
        self.fields(name, shapes.layout(id), object, message, map)
    }

    fn fields(&mut self, name: &str, layout: &Layout, object: &Object, message: &[u8], map: &mut Map) -> Read<()> {
        if self.depth == DEPTH_MAX {
            return Err(too_deep());
        }
        self.depth += 1;
        let mut reader = Reader::new(message);
        while !reader.is_empty() {
            let (number, wire) = reader.tag(name)?;
            match layout.slot(number) {
                None => reader.skip(wire)?,
                Some(Content::Embedded(inner)) => {
                    expect(wire, Wire::Bytes, || format!("{number} of {name}"))?;
                    self.fields(name, inner, object, reader.bytes()?, map)?;
                }
                Some(Content::Field(at)) => {
                    let field = &object.fields[usize::from(*at)];
                    self.field(&field.name, field.node, wire, &mut reader, map)?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, name: &str, id: NodeId, wire: Wire, reader: &mut Reader<'_>, map: &mut Map) -> Read<()> {
        self.count()?;
        let shapes = self.shapes;
        match &shapes.node(id).form {
            Form::List(list) if !list.wrapped => {
                let Value::Array(items) = map.entry(name).or_insert_with(|| Value::Array(List::new())) else {
                    return Ok(());
                };
                if wire == Wire::Bytes && self.layout_of(list.item) == Wire::Varint {
                    let mut packed = Reader::new(reader.bytes()?);
                    while !packed.is_empty() {
                        self.count()?;
                        items.push(self.value(name, list.item, Wire::Varint, &mut packed)?);
                    }
                } else {
                    items.push(self.value(name, list.item, wire, reader)?);
                }
            }
            Form::Object(Object { rest: Some(rest), .. }) => {
                expect(wire, Wire::Bytes, || go_name(name))?;
                let (key, value) = self.entry(name, *rest, reader.bytes()?)?;
                if let Value::Object(entries) = map.entry(name).or_insert_with(|| Value::Object(Map::new())) {
                    entries.insert(key, value);
                }
            }
            Form::Object(_) => {
                expect(wire, Wire::Bytes, || go_name(name))?;
                let value = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
                self.merge(id, reader.bytes()?, value)?;
            }
            _ => {
                let value = self.value(name, id, wire, reader)?;
                map.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    /// Decodes a key and a value of a map.
    fn entry(&mut self, name: &str, rest: NodeId, message: &[u8]) -> Read<(String, Value)> {
        let (mut key, mut value) = (String::new(), Value::Null);
        let mut reader = Reader::new(message);
        while !reader.is_empty() {
            match reader.tag(name)? {
                (1, wire) => {
                    expect(wire, Wire::Bytes, || go_name(name))?;
                    key = lossy_string(reader.bytes()?);
                }
                (2, wire) => value = self.value(name, rest, wire, &mut reader)?,
                (_, wire) => reader.skip(wire)?,
            }
        }
        Ok((key, value))
    }

    /// Returns the wire type of a single value.
    fn layout_of(&self, id: NodeId) -> Wire {
        match &self.shapes.node(id).form {
            Form::Scalar(Scalar::Bool | Scalar::Int32 | Scalar::Int64) => Wire::Varint,
            Form::Scalar(Scalar::Float64) => Wire::Fixed64,
            _ => Wire::Bytes,
        }
    }

    fn value(&mut self, name: &str, id: NodeId, wire: Wire, reader: &mut Reader<'_>) -> Read<Value> {
        expect(wire, self.layout_of(id), || go_name(name))?;
        let shapes = self.shapes;
        Ok(match &shapes.node(id).form {
            Form::Scalar(Scalar::Bool) => Value::Bool(reader.varint()? != 0),
            #[expect(clippy::cast_possible_truncation, reason = "cut on purpose, as the reference does")]
            Form::Scalar(Scalar::Int32) => Value::from(reader.varint()? as i32),
            Form::Scalar(Scalar::Int64) => Value::from(reader.varint()?.cast_signed()),
            Form::Scalar(Scalar::Float64) => {
                let number = Number::from_f64(f64::from_bits(reader.fixed64()?));
                Value::Number(number.ok_or_else(|| format!("{name} is no finite number"))?)
            }
            Form::Scalar(Scalar::String) => Value::from(lossy_string(reader.bytes()?)),
            Form::Scalar(Scalar::Bytes) => Value::from(STANDARD.encode(reader.bytes()?)),
            Form::Scalar(scalar) => special(*scalar, name, reader.bytes()?)?,
            Form::Object(_) => self.object(id, reader.bytes()?)?,
            Form::Raw | Form::Any { .. } => raw(reader.bytes()?)?,
            Form::List(list) => {
                let (mut items, mut reader) = (Vec::new(), Reader::new(reader.bytes()?));
                while !reader.is_empty() {
                    self.count()?;
                    match reader.tag(name)? {
                        (1, wire) => items.push(self.value(name, list.item, wire, &mut reader)?),
                        (_, wire) => reader.skip(wire)?,
                    }
                }
                Value::Array(items.into())
            }
            Form::Either(either) => self.either(name, either, reader.bytes()?)?,
        })
    }

    fn either(&mut self, name: &str, either: &Either, message: &[u8]) -> Read<Value> {
        let mut reader = Reader::new(message);
        let (mut allows, mut object, mut items) = (false, None, Vec::new());
        while !reader.is_empty() {
            let (number, wire) = reader.tag(name)?;
            self.count()?;
            match (number, either.other) {
                (1, Other::Bool) => {
                    expect(wire, Wire::Varint, || "Allows".to_owned())?;
                    allows = reader.varint()? != 0;
                }
                (2, Other::Bool) | (1, Other::Objects | Other::Strings) => {
                    object = Some(self.value("schema", either.object, wire, &mut reader)?);
                }
                (2, Other::Objects) => items.push(self.value("jSONSchemas", either.object, wire, &mut reader)?),
                (2, Other::Strings) => {
                    expect(wire, Wire::Bytes, || "Property".to_owned())?;
                    items.push(Value::from(lossy_string(reader.bytes()?)));
                }
                _ => reader.skip(wire)?,
            }
        }
        Ok(match (either.other, object) {
            (Other::Bool, None) => Value::Bool(allows),
            (Other::Objects | Other::Strings, _) if !items.is_empty() => Value::Array(items.into()),
            (_, object) => object.unwrap_or_default(),
        })
    }
}

/// Decodes scalars that are messages.
fn special(scalar: Scalar, name: &str, message: &[u8]) -> Read<Value> {
    let mut reader = Reader::new(message);
    let (mut first, mut second, mut words) = (0, 0, None);
    while !reader.is_empty() {
        let (number, wire) = reader.tag(name)?;
        let is_text = number == if scalar == Scalar::Quantity { 1 } else { 3 };
        match (number, wire) {
            (_, Wire::Bytes) if is_text => words = Some(lossy_string(reader.bytes()?)),
            (1, Wire::Varint) => first = reader.varint()?.cast_signed(),
            (2, Wire::Varint) => second = reader.varint()?.cast_signed(),
            (1..=3, _) => return Err(wrong_wire(wire, &go_name(name))),
            _ => reader.skip(wire)?,
        }
    }
    match scalar {
        Scalar::Quantity => Ok(words.map_or(Value::Null, Value::from)),
        Scalar::IntOrString if first == 0 => {
            #[expect(clippy::cast_possible_truncation, reason = "cut on purpose, as the reference does")]
            let number = second as i32;
            Ok(Value::from(number))
        }
        Scalar::IntOrString => Ok(Value::from(words.unwrap_or_default())),
        Scalar::Time | Scalar::MicroTime if message.is_empty() => Ok(Value::Null),
        Scalar::Time => time::written(first, None).map(Value::from).ok_or_else(|| no_time(name)),
        Scalar::MicroTime => time::written(first, Some(second)).map(Value::from).ok_or_else(|| no_time(name)),
        _ => Err(format!("proto: {name} has no form in protobuf")),
    }
}

fn no_time(name: &str) -> String {
    format!("{name}: the year is outside of the range [0,9999]")
}

/// Decodes JSON inside of a message, or a protobuf object in an envelope.
fn raw(message: &[u8]) -> Read<Value> {
    let mut reader = Reader::new(message);
    let mut content: &[u8] = b"";
    while !reader.is_empty() {
        match reader.tag("RawExtension")? {
            (1, Wire::Bytes) => content = reader.bytes()?,
            (1, wire) => return Err(wrong_wire(wire, "Raw")),
            (_, wire) => reader.skip(wire)?,
        }
    }
    if content.is_empty() {
        return Ok(Value::Null);
    }
    if !content.starts_with(&envelope::MAGIC) {
        return json::parse(content).map(|document| document.value);
    }
    let opened = envelope::open(content)?;
    let gvk = opened.gvk().ok_or_else(|| format!("unexpected GroupVersion string: {}", opened.api_version))?;
    let ty = Types::get().kind(&gvk).ok_or_else(|| format!("no kind {:?} is known in protobuf", gvk.kind))?;
    // Only one level deep: no kind embeds objects that embed objects.
    if opened.raw.windows(envelope::MAGIC.len()).any(|bytes| bytes == envelope::MAGIC) {
        return Err(too_deep());
    }
    let mut value = read(&ty, opened.raw)?;
    crate::decode::normalise(&ty, &mut value, None)?;
    crate::decode::name(&mut value, &gvk);
    Ok(value)
}

/// Replaces invalid UTF-8 like Go's JSON encoder.
fn lossy_string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the Go name of a field: nearly always its JSON name with a capital.
fn go_name(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn expect(found: Wire, wanted: Wire, name: impl FnOnce() -> String) -> Read<()> {
    if found == wanted { Ok(()) } else { Err(wrong_wire(found, &name())) }
}

fn wrong_wire(found: Wire, name: &str) -> String {
    let number = match found {
        Wire::Varint => 0,
        Wire::Fixed64 => 1,
        Wire::Bytes => 2,
        Wire::StartGroup => 3,
        Wire::EndGroup => 4,
        Wire::Fixed32 => 5,
    };
    format!("proto: wrong wireType = {number} for field {name}")
}
