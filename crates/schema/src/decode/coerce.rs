//! Normalises a parsed document, as decoding into the Go structs of Kubernetes and encoding them again does.
//!
//! Unknown fields and omitted nulls and empty values are removed, fields are put in wire order, fields that are always
//! present are added, quantities and times get their canonical form. A value of the wrong type is an error with the
//! text of Go's decoder. Documents in normal form are visited, not rebuilt.

use std::borrow::Cow;

use machinery::json::{Map, Number, Text, Value};
use smallvec::SmallVec;

use machinery::go_json::json_kind;
use machinery::quantity::{Quantity, QuantityError};

use super::{base64, time};
use crate::facts::shape::Other;
use crate::facts::{Either, Field, Form, NodeId, Object, Scalar, Shapes, Type};

/// Largest number of unknown fields reported.
const UNKNOWN_MAX: usize = 100;

/// The decoder whose error texts are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// The JSON decoder: bodies, JSON patch and merge patch.
    Json,
    /// The converter of strategic merge.
    Converter,
}

/// The result of a coercion.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Paths of unknown fields, in the order of the document.
    pub unknown: Vec<String>,
}

/// Coerces `value` to `ty`. After an error `value` is partly coerced. What is the same memory as in `known`, an object of the type
/// that is coerced already, is not looked at.
pub(crate) fn coerce(ty: &Type, value: &mut Value, known: Option<&Value>, words: Words) -> Result<Findings, String> {
    let mut coercion = Coercion { shapes: ty.shapes(), words, first_mismatch: None, findings: Findings::default() };
    coercion.value(ty.root(), value, known, &Path::Root)?;
    match coercion.first_mismatch {
        Some(mismatch) => Err(mismatch),
        None => {
            if value.is_null() {
                *value = coercion.zero(ty.root());
            }
            Ok(coercion.findings)
        }
    }
}

/// Makes lists and maps that are shown though empty null, as a round through the reference's storage does. What is the
/// same memory as in `known`, of which they were forgotten already, is not looked at.
pub(crate) fn forget_empty(ty: &Type, value: &mut Value, known: Option<&Value>) {
    fn is_known(key: &str, value: &Value, known: Option<&Value>) -> bool {
        known.and_then(|known| known.get(key)).is_some_and(|known| value.is_same(known))
    }
    fn walk(shapes: &Shapes, id: NodeId, value: &mut Value, known: Option<&Value>) {
        match (&shapes.node(id).form, value) {
            (Form::Object(object), Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    if (!value.is_array() && !value.is_object()) || is_known(key, value, known) {
                        continue;
                    }
                    let Some(child) = object.child(key) else { continue };
                    walk(shapes, child, value, None);
                    let is_empty = value.as_array().is_some_and(Vec::is_empty)
                        || (value.as_object().is_some_and(Map::is_empty)
                            && matches!(&shapes.node(child).form, Form::Object(object) if object.rest.is_some()));
                    if is_empty {
                        *value = Value::Null;
                    }
                }
            }
            (Form::List(list), Value::Array(items)) => {
                for item in items.iter_mut().filter(|item| item.is_object()) {
                    walk(shapes, list.item, item, None);
                }
            }
            _ => {}
        }
    }
    /// Reports whether a value is or contains something empty. Most do not, and need no lookup of types.
    fn has_empty(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
            Value::Object(map) => map.is_empty() || map.values().any(has_empty),
            _ => false,
        }
    }
    /// Reports whether a value needs a change: usually not, and then it is not copied.
    fn is_due(shapes: &Shapes, id: NodeId, value: &Value, known: Option<&Value>) -> bool {
        match (&shapes.node(id).form, value) {
            (Form::Object(object), Value::Object(map)) => map.iter().any(|(key, value)| {
                if is_known(key, value, known) || !has_empty(value) {
                    return false;
                }
                let Some(child) = object.child(key) else { return false };
                match value {
                    Value::Array(items) => items.is_empty() || is_due(shapes, child, value, None),
                    Value::Object(map) if map.is_empty() => {
                        matches!(&shapes.node(child).form, Form::Object(object) if object.rest.is_some())
                    }
                    value => is_due(shapes, child, value, None),
                }
            }),
            (Form::List(list), Value::Array(items)) => {
                items.iter().any(|item| item.is_object() && has_empty(item) && is_due(shapes, list.item, item, None))
            }
            _ => false,
        }
    }
    if !ty.stored_as_json() && is_due(ty.shapes(), ty.root(), value, known) {
        walk(ty.shapes(), ty.root(), value, known);
    }
}

/// The path of the current value; a chain on the stack, so that a valid document needs no allocation.
enum Path<'p> {
    Root,
    Field { parent: &'p Path<'p>, owner: &'p str, field: &'p Field },
    Key { parent: &'p Path<'p>, key: &'p str },
    Index { parent: &'p Path<'p>, index: usize },
}

impl Path<'_> {
    /// `spec.containers[0].image`
    fn strict(&self, out: &mut String) {
        let (parent, name) = match self {
            Path::Root => return,
            Path::Field { parent, field, .. } => (parent, &*field.name),
            Path::Key { parent, key } => (parent, *key),
            Path::Index { parent, index } => {
                parent.strict(out);
                out.push_str(&format!("[{index}]"));
                return;
            }
        };
        parent.strict(out);
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
    }

    /// Returns the struct that a Go error names, without its package.
    fn owner(&self) -> Option<&str> {
        match self {
            Path::Root => None,
            Path::Field { owner, .. } => Some(owner.rsplit('.').next().unwrap_or(owner)),
            Path::Key { parent, .. } | Path::Index { parent, .. } => parent.owner(),
        }
    }

    /// Appends the fields that a Go error names: `spec.volumes.VolumeSource.hostPath`.
    fn fields(&self, out: &mut String) {
        match self {
            Path::Root => {}
            Path::Key { parent, .. } | Path::Index { parent, .. } => parent.fields(out),
            Path::Field { parent, field, .. } => {
                parent.fields(out);
                for name in [field.within(), &*field.name] {
                    if !name.is_empty() {
                        if !out.is_empty() {
                            out.push('.');
                        }
                        out.push_str(name);
                    }
                }
            }
        }
    }
}

struct Coercion<'a> {
    shapes: &'a Shapes,
    words: Words,
    /// The JSON decoder reports the first value of a wrong type, but a later malformed time or quantity takes
    /// precedence.
    first_mismatch: Option<String>,
    findings: Findings,
}

/// Whether a coerced field is encoded.
#[derive(PartialEq, Eq)]
enum Encoding {
    Present,
    Omitted,
}

impl<'a> Coercion<'a> {
    fn value(&mut self, id: NodeId, value: &mut Value, known: Option<&Value>, path: &Path<'_>) -> Result<(), String> {
        if value.is_null() || known.is_some_and(|known| value.is_same(known)) {
            return Ok(());
        }
        let shapes = self.shapes;
        let node = shapes.node(id);
        match (&node.form, value) {
            (Form::Object(object), Value::Object(map)) => {
                if object.rest.is_some() {
                    self.map(object, map, path)
                } else {
                    self.fields(&node.name, object, map, known.and_then(Value::as_object), path)
                }
            }
            (Form::List(list), Value::Array(items)) => {
                let known = known.and_then(Value::as_array);
                for (index, item) in items.iter_mut().enumerate() {
                    let known = known.and_then(|known| known.get(index));
                    self.value(list.item, item, known, &Path::Index { parent: path, index })?;
                    if item.is_null() {
                        *item = self.zero(list.item);
                    }
                }
                Ok(())
            }
            (Form::Scalar(scalar), value) => self.scalar(*scalar, &node.name, value, path),
            (Form::Raw | Form::Any { .. }, _) => Ok(()),
            (Form::Either(either), value) => self.either(either, &node.name, value, path),
            (Form::Object(_) | Form::List(_), value) => self.mismatch(&node.name, value, path),
        }
    }

    /// Coerces a struct: in place if its fields are in order, otherwise rebuilt.
    fn fields(
        &mut self,
        owner: &str,
        object: &'a Object,
        map: &mut Map,
        known: Option<&Map>,
        path: &Path<'_>,
    ) -> Result<(), String> {
        let mut in_order = true;
        let mut next = 0;
        let mut shown = 0;
        for (key, value) in map.iter_mut() {
            let Some(at) = object.position(key) else {
                self.unknown(path, key);
                in_order = false;
                continue;
            };
            let field = &object.fields[at];
            let known = known.filter(|_| value.is_object() || value.is_array()).and_then(|known| known.get(key));
            self.value(field.node, value, known, &Path::Field { parent: path, owner, field })?;
            in_order &= at >= next && self.fill_zero(field, value) == Encoding::Present;
            next = at + 1;
            shown += usize::from(field.shown);
        }
        if in_order && shown == object.always.len() {
            return Ok(());
        }
        map.rework(|members| self.arrange(object, members));
        Ok(())
    }

    /// Puts coerced members in wire order, removes omitted ones and adds those that are always present.
    fn arrange(&self, object: &'a Object, members: &mut Vec<(Text, Value)>) {
        let mut positions: SmallVec<[usize; 32]> = SmallVec::new();
        members.retain_mut(|(key, value)| {
            let at = object.position(key).filter(|at| self.fill_zero(&object.fields[*at], value) == Encoding::Present);
            positions.extend(at);
            at.is_some()
        });
        for at in object.always.iter().map(|at| *at as usize) {
            if !positions.contains(&at) {
                let field = &object.fields[at];
                let mut value = Value::Null;
                self.fill_zero(field, &mut value);
                positions.push(at);
                members.push((Text::new(&field.name), value));
            }
        }
        // Usually only a few members at the end, added by defaults, have to move.
        for end in 1..positions.len() {
            if positions[end] < positions[end - 1] {
                let to = positions[..end].partition_point(|position| *position < positions[end]);
                positions[to..=end].rotate_right(1);
                members[to..=end].rotate_right(1);
            }
        }
    }

    /// Coerces a map, or an object of a custom kind: sorts the keys, keeps the values.
    fn map(&mut self, object: &'a Object, map: &mut Map, path: &Path<'_>) -> Result<(), String> {
        let mut sorted = true;
        let mut last: Option<&str> = None;
        for (key, value) in map.iter_mut() {
            if let Some(id) = object.child(key) {
                self.value(id, value, None, &Path::Key { parent: path, key })?;
                if value.is_null() {
                    *value = self.zero_of_key(id);
                }
            }
            sorted &= last.is_none_or(|last| last < key.as_str());
            last = Some(key);
        }
        if !sorted {
            map.sort_keys();
        }
        Ok(())
    }

    fn unknown(&mut self, path: &Path<'_>, key: &str) {
        if self.findings.unknown.len() < UNKNOWN_MAX {
            let mut text = String::new();
            path.strict(&mut text);
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(key);
            self.findings.unknown.push(text);
        }
    }

    /// Sets the zero value of an absent field if needed. Returns whether the field is encoded.
    fn fill_zero(&self, field: &Field, value: &mut Value) -> Encoding {
        if field.pointer || field.omit_zero {
            let omitted = value.is_null() && (field.omit_empty || field.omit_zero);
            return if omitted { Encoding::Omitted } else { Encoding::Present };
        }
        let is_struct = matches!(&self.shapes.node(field.node).form, Form::Object(object) if object.rest.is_none());
        if value.is_null() {
            if field.omit_empty && !field.shown {
                return Encoding::Omitted;
            }
            *value = self.zero(field.node);
            return Encoding::Present;
        }
        if is_struct {
            return Encoding::Present;
        }
        let is_empty = match &self.shapes.node(field.node).form {
            Form::Scalar(Scalar::String | Scalar::Bytes) => value.as_str() == Some(""),
            Form::Scalar(Scalar::Bool) => value.as_bool() == Some(false),
            Form::Scalar(Scalar::Int32 | Scalar::Int64) => value.as_i64() == Some(0),
            Form::Scalar(Scalar::Float64) => value.as_f64() == Some(0.0),
            Form::List(_) => value.as_array().is_some_and(Vec::is_empty),
            Form::Object(_) => value.as_object().is_some_and(Map::is_empty),
            _ => false,
        };
        if is_empty && field.omit_empty {
            // An empty list of managers has a meaning: it removes all of them. Ownership tracking removes the list. An empty list of
            // scaling policies is not the same as none, which has defaults.
            return if matches!(&*field.name, "managedFields" | "policies") {
                Encoding::Present
            } else {
                Encoding::Omitted
            };
        }
        Encoding::Present
    }

    /// Returns the value of an unset field that is always present.
    fn zero(&self, id: NodeId) -> Value {
        match &self.shapes.node(id).form {
            Form::Scalar(Scalar::String) => Value::String(Text::default()),
            Form::Scalar(Scalar::Bool) => Value::Bool(false),
            Form::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float64 | Scalar::IntOrString) => 0.into(),
            Form::Scalar(Scalar::Quantity) => Value::String("0".into()),
            Form::Scalar(Scalar::Duration) => Value::String("0s".into()),
            Form::Object(object) if object.rest.is_none() => {
                let mut map = Map::with_capacity(object.always.len());
                for at in &object.always {
                    let field = &object.fields[*at as usize];
                    let value = if field.pointer { Value::Null } else { self.zero(field.node) };
                    map.insert(&*field.name, value);
                }
                Value::Object(map)
            }
            _ => Value::Null,
        }
    }

    fn zero_of_key(&self, id: NodeId) -> Value {
        match &self.shapes.node(id).form {
            Form::Scalar(Scalar::Bytes) => Value::String(Text::default()),
            _ => self.zero(id),
        }
    }

    fn scalar(&mut self, scalar: Scalar, name: &str, value: &mut Value, path: &Path<'_>) -> Result<(), String> {
        match (scalar, &*value) {
            (Scalar::String, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) => Ok(()),
            (Scalar::Int32 | Scalar::Int64, Value::Number(number)) => {
                // The converter accepts an integer in any notation.
                if self.words == Words::Converter
                    && let Some(whole) = whole(number)
                {
                    *value = whole.into();
                    return Ok(());
                }
                let fits = number.as_i64().is_some_and(|n| scalar == Scalar::Int64 || i32::try_from(n).is_ok());
                if fits { Ok(()) } else { self.number_mismatch(name, value, path) }
            }
            (Scalar::Float64, Value::Number(number)) => {
                if let Some(whole) = whole(number) {
                    *value = whole.into();
                }
                Ok(())
            }
            (Scalar::Bytes, Value::String(text)) => {
                match base64::check(text) {
                    Ok(None) => {}
                    Ok(Some(clean)) => *value = Value::String(clean.into()),
                    Err(at) => {
                        let converted = if self.words == Words::Converter { "error decoding from json: " } else { "" };
                        self.save(format!("{converted}illegal base64 data at input byte {at}"))?;
                        *value = Value::Null;
                    }
                }
                Ok(())
            }
            (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
                let time = if scalar == Scalar::Time { time::seconds(text)? } else { time::micros(text)? };
                match time {
                    Some(Cow::Borrowed(_)) => {}
                    Some(Cow::Owned(time)) => *value = Value::String(time.into()),
                    None => *value = Value::Null,
                }
                Ok(())
            }
            (Scalar::Quantity, Value::String(text)) => {
                if let Cow::Owned(canonical) = canonical(text)? {
                    *value = Value::String(canonical.into());
                }
                Ok(())
            }
            (Scalar::Quantity, Value::Number(number)) => {
                *value = Value::String(canonical(&number.to_string())?.as_ref().into());
                Ok(())
            }
            (Scalar::Quantity, _) => Err(QuantityError::Format.to_string()),
            (Scalar::IntOrString, Value::String(_)) => Ok(()),
            (Scalar::IntOrString, Value::Number(number)) => {
                match number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) {
                    true => Ok(()),
                    false => Err(self.sentence(&format!("number {number}"), "int32", path)),
                }
            }
            (Scalar::IntOrString, other) => Err(self.sentence(json_kind(other), "int32", path)),
            (Scalar::Time | Scalar::MicroTime | Scalar::Duration, other) if !other.is_string() => {
                Err(self.sentence(json_kind(other), "string", path))
            }
            (Scalar::Number | Scalar::Untyped | Scalar::Duration, _) => Ok(()),
            _ => {
                let kind = match scalar {
                    Scalar::String => "string",
                    Scalar::Bool => "bool",
                    Scalar::Int32 => "int32",
                    Scalar::Int64 => "int64",
                    Scalar::Float64 => "float64",
                    _ => name,
                };
                self.mismatch(if self.words == Words::Converter { kind } else { name }, value, path)
            }
        }
    }

    fn either(&mut self, either: &Either, name: &str, value: &mut Value, path: &Path<'_>) -> Result<(), String> {
        match (&mut *value, either.other) {
            (Value::Object(_), _) => self.value(either.object, value, None, path),
            (Value::Bool(_), Other::Bool) => Ok(()),
            (_, Other::Bool) => Err("boolean or JSON schema expected".to_owned()),
            (Value::Array(items), Other::Objects) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(either.object, item, None, &Path::Index { parent: path, index })?;
                }
                Ok(())
            }
            (Value::Array(items), Other::Strings) => match items.iter().find(|item| !item.is_string()) {
                None => Ok(()),
                Some(other) => Err(self.sentence(json_kind(other), "string", path)),
            },
            _ => self.mismatch(name, value, path),
        }
    }

    /// Reports a value of the wrong JSON type.
    fn mismatch(&mut self, name: &str, value: &mut Value, path: &Path<'_>) -> Result<(), String> {
        let sentence = match self.words {
            Words::Json => self.sentence(json_kind(value), name, path),
            Words::Converter => converter_sentence(name, value),
        };
        self.save(sentence)?;
        *value = Value::Null;
        Ok(())
    }

    /// Reports a number that is out of range; the text contains it.
    fn number_mismatch(&mut self, name: &str, value: &mut Value, path: &Path<'_>) -> Result<(), String> {
        let sentence = match (self.words, &*value) {
            (Words::Json, Value::Number(number)) => self.sentence(&format!("number {number}"), name, path),
            _ => converter_sentence(name, value),
        };
        self.save(sentence)?;
        *value = Value::Null;
        Ok(())
    }

    fn sentence(&self, found: &str, name: &str, path: &Path<'_>) -> String {
        match path.owner() {
            Some(owner) if self.words == Words::Json => {
                let mut fields = String::new();
                path.fields(&mut fields);
                format!("json: cannot unmarshal {found} into Go struct field {owner}.{fields} of type {name}")
            }
            _ => format!("json: cannot unmarshal {found} into Go value of type {name}"),
        }
    }

    /// Keeps the first mismatch and continues, like the JSON decoder; the converter stops.
    fn save(&mut self, sentence: String) -> Result<(), String> {
        match self.words {
            Words::Converter => Err(sentence),
            Words::Json => {
                self.first_mismatch.get_or_insert(sentence);
                Ok(())
            }
        }
    }
}

/// Returns the error text of the converter for a value of the wrong type.
fn converter_sentence(name: &str, value: &Value) -> String {
    let found = match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) | Value::Raw(_) => "map",
    };
    match name {
        "string" if found == "int64" => "cannot convert int64 to string".to_owned(),
        "int32" | "int64" if matches!(found, "int64" | "float64") => format!("cannot convert {found} to {name}"),
        "string" | "bool" | "int32" | "int64" | "float64" => format!("unrecognized type: {name}"),
        _ if name.starts_with("[]") => format!("cannot restore slice from {found}"),
        _ if name.starts_with("map[") => format!("cannot restore map from {found}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

/// Returns the canonical form of a quantity.
fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    if is_plainly_canonical(text) {
        return Ok(Cow::Borrowed(text));
    }
    let quantity: Quantity = text.trim().parse().map_err(|error: QuantityError| error.to_string())?;
    let canonical = quantity.to_string();
    Ok(if canonical == text { Cow::Borrowed(text) } else { Cow::Owned(canonical) })
}

/// Recognises the usual canonical quantities without parsing: a few digits, and a unit that cannot be replaced by a
/// larger one.
fn is_plainly_canonical(text: &str) -> bool {
    const DIGITS_MAX: usize = 6;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=DIGITS_MAX).contains(&digits) || text.starts_with('0') {
        return false;
    }
    let number = text.bytes().take(digits).fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    match &text[digits..] {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" => !number.is_multiple_of(1000),
        "Ki" | "Mi" | "Gi" | "Ti" => !number.is_multiple_of(1024),
        _ => false,
    }
}

/// Returns the integer for a float that Go prints without a point.
fn whole(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    (float.fract() == 0.0 && float.abs() < 9e18).then_some(float as i64)
}

#[cfg(test)]
mod tests {
    use machinery::quantity::Quantity;

    use super::{canonical, is_plainly_canonical};

    #[test]
    fn what_looks_canonical_is() {
        for number in (1..2200).chain([4096, 9999, 10_240, 99_999, 100_000, 102_400, 524_288, 999_000, 999_999]) {
            for unit in ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                let text = format!("{number}{unit}");
                let quantity: Quantity = text.parse().unwrap();
                if is_plainly_canonical(&text) {
                    assert_eq!(quantity.to_string(), text);
                }
            }
        }
        assert!(["100m", "128Mi", "1", "8Gi", "999999Ti"].into_iter().all(is_plainly_canonical));
        assert!(!["1000m", "1024Ki", "0", "01", "1e3", "", "m", "1 "].into_iter().any(is_plainly_canonical));
    }

    #[test]
    fn one_form_for_each_amount() {
        for (text, wanted) in [
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("100000k", "100M"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("1536", "1536"),
            ("0", "0"),
            ("0.0", "0"),
            ("-0", "0"),
            ("-1500m", "-1500m"),
            ("+2000", "2k"),
            ("1e3", "1e3"),
            ("12E2", "1200"),
            ("1E", "1E"),
            ("2n", "2n"),
            ("0.0000000001", "1n"),
            ("100m", "100m"),
            ("128974848", "128974848"),
            ("129M", "129M"),
            ("123Mi", "123Mi"),
            ("9999999999999999999", "9999999999999999999"),
            ("9999999999999999999Ki", "9223372036854775807"),
            ("+1", "+1"),
            ("1e-3", "1e-3"),
            ("12e3", "12e3"),
            ("007", "007"),
            (".5", "500m"),
            ("5.", "5."),
            ("1000Ki", "1000Ki"),
        ] {
            assert_eq!(canonical(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn malformed_ones_are_refused_in_two_ways() {
        for text in ["", "abc", "1 2", "1x", "1Gib", " "] {
            assert!(canonical(text).unwrap_err().starts_with("quantities must match"), "{text}");
        }
        assert_eq!(canonical("1ee").unwrap_err(), "unable to parse quantity's suffix");
        assert_eq!(canonical("1K").unwrap_err(), "unable to parse quantity's suffix");
    }
}
