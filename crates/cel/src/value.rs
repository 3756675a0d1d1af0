//! Values during evaluation. Values from the object are borrowed: a list of a thousand elements is one reference until
//! an element is read.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use machinery::go_text::type_name;
use machinery::json::Value;
use machinery::quantity::Quantity;

use crate::access::Access;
use crate::checker::{JSON_PATCH, OBJECT};
use crate::cost::Meter;
use crate::escape::{escape, unescape};
use crate::formats::NamedFormat;
use crate::network::{Cidr, Ip};
use crate::semver::Version;
use crate::shape::{Format, Kind, Listing, Shape};
use crate::time::{Span, Time};
use crate::types::{Extra, Type};
use crate::url::Url;

/// The reason why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The budget is exhausted; evaluation stops.
    Limit,
    /// An error, which `&&` and `||` may absorb.
    Error(Cow<'static, str>),
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Fault {
        Fault::Error(Cow::Owned(message.into()))
    }

    pub(crate) const fn from_static(message: &'static str) -> Fault {
        Fault::Error(Cow::Borrowed(message))
    }

    pub(crate) const fn overload() -> Fault {
        Fault::from_static("no such overload")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Limit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Fault::Error(message) => f.write_str(message),
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Fault>;

/// A string, borrowed from the object or created.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text::Shared(text.into())
    }
}

/// A key of a map. Equal numbers of different types are the same key.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(Text<'a>),
}

impl Key<'_> {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Key::Bool(value) => (0, i128::from(*value), ""),
            Key::Int(value) => (1, i128::from(*value), ""),
            Key::Uint(value) => (1, i128::from(*value), ""),
            Key::Text(text) => (2, 0, text),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    /// A list of the object.
    Json {
        items: &'a [Value],
        shape: &'a Shape,
    },
    Values(Arc<Vec<Val<'a>>>),
    /// A concatenation. It is not copied, so that repeated doubling does not exhaust memory.
    Joined(Arc<(List<'a>, List<'a>, u64)>),
}

impl<'a> List<'a> {
    pub(crate) fn new(values: Vec<Val<'a>>) -> List<'a> {
        List::Values(Arc::new(values))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            List::Json { items, .. } => items.len() as u64,
            List::Values(values) => values.len() as u64,
            List::Joined(both) => both.2,
        }
    }

    pub(crate) fn get(&self, at: u64) -> Outcome<Val<'a>> {
        let missing = || Fault::new(format!("index out of bounds: {at}"));
        match self {
            List::Json { items, shape } => {
                let item = items.get(at as usize).ok_or_else(missing)?;
                match shape.item() {
                    Some(shape) => from_json(item, shape),
                    None => Err(Fault::from_static("invalid array type, expected Items with a non-empty Schema")),
                }
            }
            List::Values(values) => values.get(at as usize).cloned().ok_or_else(missing),
            List::Joined(both) => {
                let first = both.0.len();
                if at < first { both.0.get(at) } else { both.1.get(at - first) }
            }
        }
    }

    pub(crate) fn join(self, other: List<'a>) -> List<'a> {
        if self.len() == 0 {
            return other;
        }
        if other.len() == 0 {
            return self;
        }
        let len = self.len().saturating_add(other.len()).min(i64::MAX as u64);
        List::Joined(Arc::new((self, other, len)))
    }

    fn listing(&self) -> &Listing {
        match self {
            List::Json { shape, .. } => &shape.listing,
            _ => &Listing::Atomic,
        }
    }

    /// Iterates over the elements in constant time each, also for nested concatenations.
    pub(crate) fn iter(&self) -> Elements<'_, 'a> {
        Elements { waiting: vec![self], current: None }
    }

    /// Collects all elements and charges the meter for them.
    pub(crate) fn values(&self, meter: &mut Meter) -> Outcome<Vec<Val<'a>>> {
        meter.work(self.len())?;
        self.iter().collect()
    }

    /// `a + b`; the list type of the first decides about elements that are in both.
    pub(crate) fn plus(self, other: List<'a>, meter: &mut Meter) -> Outcome<List<'a>> {
        if *self.listing() == Listing::Atomic {
            return Ok(self.join(other));
        }
        let mut values = self.values(meter)?;
        let mut known = BTreeMap::new();
        for (at, value) in values.iter().enumerate() {
            known.insert(identity(self.listing(), value)?, at);
        }
        for value in other.values(meter)? {
            match known.entry(identity(self.listing(), &value)?) {
                Entry::Occupied(earlier) => values[*earlier.get()] = value,
                Entry::Vacant(place) => {
                    place.insert(values.len());
                    values.push(value);
                }
            }
        }
        Ok(List::new(values))
    }
}

/// Iterator over the elements of a list.
pub(crate) struct Elements<'l, 'a> {
    /// The next part is last.
    waiting: Vec<&'l List<'a>>,
    current: Option<(&'l List<'a>, u64)>,
}

impl<'a> Iterator for Elements<'_, 'a> {
    type Item = Outcome<Val<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((list, at)) = &mut self.current {
                if *at < list.len() {
                    *at += 1;
                    return Some(list.get(*at - 1));
                }
                self.current = None;
            }
            match self.waiting.pop()? {
                List::Joined(both) => {
                    self.waiting.push(&both.1);
                    self.waiting.push(&both.0);
                }
                list => self.current = Some((list, 0)),
            }
        }
    }
}

/// The identity of an element of a set or of a list with keys.
fn identity<'a>(listing: &Listing, value: &Val<'a>) -> Outcome<Vec<Option<Key<'a>>>> {
    match (listing, value) {
        (Listing::Map(keys), Val::Map(map)) => keys
            .iter()
            .map(|key| {
                let found = match escape(key) {
                    Some(escaped) => map.text_key(&escaped)?,
                    None => map.text_key(key)?,
                };
                Ok(found.and_then(|found| found.to_key()))
            })
            .collect(),
        (_, value) => Ok(vec![value.to_key()]),
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    /// A map of the object, or an object with fields.
    Json {
        entries: &'a machinery::json::Map,
        shape: &'a Shape,
    },
    Values(Arc<BTreeMap<Key<'a>, Val<'a>>>),
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Map::Json { entries, .. } => entries.len() as u64,
            Map::Values(values) => values.len() as u64,
        }
    }

    pub(crate) fn get(&self, key: &Val<'_>) -> Outcome<Option<Val<'a>>> {
        match self {
            Map::Json { .. } => match key {
                Val::String(text) => self.text_key(text),
                _ => Err(Fault::overload()),
            },
            Map::Values(values) => match key.to_key() {
                Some(key) => Ok(values.get(&key).cloned()),
                None => Ok(None),
            },
        }
    }

    fn text_key(&self, key: &str) -> Outcome<Option<Val<'a>>> {
        let (entries, shape) = match self {
            Map::Json { entries, shape } => (*entries, *shape),
            Map::Values(values) => return Ok(values.get(&Key::Text(Text::Borrowed(key))).cloned()),
        };
        let is_object = shape.properties.is_some();
        let name = if is_object { unescape(key) } else { Some(Cow::Borrowed(key)) };
        let Some(name) = name else {
            return Ok(None);
        };
        match (entries.get(&name), shape.entry(&name)) {
            (None | Some(Value::Null), _) if is_object => Ok(None),
            (Some(value), Some(shape)) => from_json(value, shape).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the keys in a fixed order.
    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Map::Json { entries, shape } => entries
                .keys()
                .filter(|key| shape.entry(key).is_some())
                .map(|key| match shape.properties.as_ref().and_then(|_| escape(key)) {
                    Some(escaped) if escaped != *key => Val::string(escaped),
                    _ => Val::String(Text::Borrowed(key)),
                })
                .collect(),
            Map::Values(values) => values.keys().map(|key| key.clone().into()).collect(),
        }
    }
}

/// A message that a mutation creates: `Object.spec{…}`, `JSONPatch{…}`.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) name: Arc<str>,
    pub(crate) fields: BTreeMap<Arc<str>, Val<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    Duration(Span),
    Timestamp(Time),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Val<'a>>>),
    /// The name of a type.
    Type(&'static str),
    Quantity(Arc<Quantity>),
    Url(Arc<Url>),
    Ip(Ip),
    Cidr(Cidr),
    Format(NamedFormat),
    Semver(Arc<Version>),
    /// A value without a schema; it can only be compared.
    Preserved(&'a Value),
    Access(Arc<Access>),
    Message(Arc<Message<'a>>),
}

impl<'a> Val<'a> {
    pub(crate) fn string(text: impl Into<String>) -> Val<'a> {
        Val::String(Text::from(text.into()))
    }

    pub(crate) fn list(values: Vec<Val<'a>>) -> Val<'a> {
        Val::List(List::new(values))
    }

    pub(crate) fn some(value: Val<'a>) -> Val<'a> {
        Val::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn strings(texts: impl IntoIterator<Item = impl Into<String>>) -> Val<'a> {
        Val::list(texts.into_iter().map(Val::string).collect())
    }

    pub(crate) fn to_key(&self) -> Option<Key<'a>> {
        Some(match self {
            Val::Bool(value) => Key::Bool(*value),
            Val::Int(value) => Key::Int(*value),
            Val::Uint(value) => Key::Uint(*value),
            Val::Double(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => Key::Int(*value as i64),
            Val::String(text) => Key::Text(text.clone()),
            _ => return None,
        })
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::String(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Duration(_) => Type::Duration.name(),
            Val::Timestamp(_) => Type::Timestamp.name(),
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Quantity(_) => Extra::Quantity.name(),
            Val::Url(_) => Extra::Url.name(),
            Val::Ip(_) => Extra::Ip.name(),
            Val::Cidr(_) => Extra::Cidr.name(),
            Val::Format(_) => Extra::Format.name(),
            Val::Semver(_) => Extra::Semver.name(),
            Val::Preserved(_) => "unknown",
            Val::Access(access) => access.ty().name(),
            Val::Message(message) if &*message.name == JSON_PATCH => JSON_PATCH,
            Val::Message(_) => OBJECT,
        }
    }

    /// Returns the size on which costs depend: characters, bytes or elements; one for other values.
    pub(crate) fn size(&self) -> u64 {
        self.sized().unwrap_or(1)
    }

    /// Returns the result of `size()`, if the type supports it.
    pub(crate) fn sized(&self) -> Option<u64> {
        match self {
            Val::String(text) => Some(characters(text)),
            Val::Bytes(bytes) => Some(bytes.len() as u64),
            Val::List(list) => Some(list.len()),
            Val::Map(map) => Some(map.len()),
            Val::Ip(ip) => Some(ip.len()),
            Val::Cidr(cidr) => Some(cidr.len()),
            _ => None,
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Val::Null => true,
            Val::Bool(value) => !value,
            Val::Int(value) => *value == 0,
            Val::Uint(value) => *value == 0,
            Val::Double(value) => *value == 0.0,
            Val::Duration(span) => span.is_zero(),
            Val::Timestamp(time) => time.is_zero(),
            Val::String(_) | Val::Bytes(_) | Val::List(_) => self.sized() == Some(0),
            Val::Map(Map::Values(values)) => values.is_empty(),
            Val::Optional(value) => value.as_ref().is_none_or(|value| value.is_zero()),
            Val::Message(message) => message.fields.is_empty(),
            _ => false,
        }
    }
}

impl<'a> From<Key<'a>> for Val<'a> {
    fn from(key: Key<'a>) -> Self {
        match key {
            Key::Bool(value) => Val::Bool(value),
            Key::Int(value) => Val::Int(value),
            Key::Uint(value) => Val::Uint(value),
            Key::Text(text) => Val::String(text),
        }
    }
}

/// Formats a value for a message.
impl fmt::Display for Val<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Null => f.write_str("null"),
            Val::Bool(value) => write!(f, "{value}"),
            Val::Int(value) => write!(f, "{value}"),
            Val::Uint(value) => write!(f, "{value}"),
            Val::Double(value) => f.write_str(&crate::numbers::double_text(*value)),
            Val::String(text) => f.write_str(text),
            Val::Type(name) => f.write_str(name),
            other => f.write_str(other.type_name()),
        }
    }
}

/// Returns the number of characters; for ASCII this is the length.
fn characters(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.chars().count() as u64 }
}

/// Converts a part of the object.
pub(crate) fn from_json<'a>(value: &'a Value, shape: &'a Shape) -> Outcome<Val<'a>> {
    if value.is_null() && shape.kind != Kind::Dynamic {
        if shape.nullable {
            return Ok(Val::Null);
        }
        return Err(Fault::from_static("invalid data, got null for schema with nullable=false"));
    }
    match (shape.kind, value) {
        (Kind::Object, Value::Object(entries)) => Ok(Val::Map(Map::Json { entries, shape })),
        (Kind::Object, _) => {
            Err(Fault::from_static("invalid data, expected a map for the provided schema with type=object"))
        }
        (Kind::Array, Value::Array(items)) => Ok(Val::List(List::Json { items, shape })),
        (Kind::Array, _) => {
            Err(Fault::from_static("invalid data, expected an array for the provided schema with type=array"))
        }
        (Kind::String | Kind::IntOrString, Value::String(text)) => string(text, shape.format),
        (Kind::Integer | Kind::IntOrString, Value::Number(number)) if number.is_i64() => {
            Ok(Val::Int(number.as_i64().unwrap_or_default()))
        }
        (Kind::Number, Value::Number(number)) => Ok(Val::Double(number.as_f64().unwrap_or(f64::NAN))),
        (Kind::Boolean, Value::Bool(value)) => Ok(Val::Bool(*value)),
        (Kind::IntOrString, _) => {
            Err(Fault::from_static("invalid data, expected XIntOrString value to be either a string or integer"))
        }
        (Kind::String, other) => Err(Fault::new(format!("invalid data, expected string, got {}", type_name(other)))),
        (Kind::Integer, other) => Err(Fault::new(format!("invalid data, expected int, got {}", type_name(other)))),
        (Kind::Number, other) => Err(Fault::new(format!("invalid data, expected float, got {}", type_name(other)))),
        (Kind::Boolean, other) => Err(Fault::new(format!("invalid data, expected bool, got {}", type_name(other)))),
        (Kind::Preserved, other) => Ok(Val::Preserved(other)),
        (Kind::Dynamic, other) => Ok(dynamic(other, shape)),
        (Kind::None, _) => Err(Fault::from_static(
            "invalid type, expected object, array, number, integer, boolean or string, or no type with \
             x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got ",
        )),
    }
}

/// Converts a value without a schema.
fn dynamic<'a>(value: &'a Value, shape: &'a Shape) -> Val<'a> {
    match value {
        Value::Null => Val::Null,
        Value::Bool(value) => Val::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Val::Int(whole),
            None => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Val::String(Text::Borrowed(text)),
        Value::Array(items) => Val::List(List::Json { items, shape }),
        Value::Object(entries) => Val::Map(Map::Json { entries, shape }),
        // Only `fieldsV1` of managed fields is kept as text.
        Value::Raw(_) => Val::Preserved(value),
    }
}

fn string(text: &str, format: Format) -> Outcome<Val<'_>> {
    match format {
        Format::Plain => Ok(Val::String(Text::Borrowed(text))),
        Format::Byte => crate::formats::base64(text)
            .map(|bytes| Val::Bytes(bytes.into()))
            .ok_or_else(|| Fault::new(format!("Invalid byte formatted string {text}: illegal base64 data"))),
        Format::Duration => Span::parse_lenient(text)
            .map(Val::Duration)
            .ok_or_else(|| Fault::new(format!("Invalid duration {text}: unable to parse {text} as duration"))),
        Format::Date => Time::parse_date(text)
            .map(Val::Timestamp)
            .ok_or_else(|| Fault::new(format!("Invalid date formatted string {text}: cannot parse"))),
        Format::DateTime => Time::parse_lenient(text)
            .map(Val::Timestamp)
            .ok_or_else(|| Fault::new(format!("Invalid date-time formatted string {text}: cannot parse"))),
    }
}

/// `a == b`
pub(crate) fn equal<'a>(a: &Val<'a>, b: &Val<'a>, meter: &mut Meter) -> Outcome<bool> {
    meter.work(1)?;
    Ok(match (a, b) {
        (Val::Null, Val::Null) => true,
        (Val::Null, _) | (_, Val::Null) => false,
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            crate::numbers::compare(a, b) == Some(Ordering::Equal)
        }
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::String(a), Val::String(b)) => **a == **b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
        (Val::Type(a), Val::Type(b)) => a == b,
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => equal(a, b, meter)?,
            _ => false,
        },
        (Val::List(a), Val::List(b)) => equal_lists(a, b, meter)?,
        (Val::Map(a), Val::Map(b)) => equal_maps(a, b, meter)?,
        // A value from the object cannot be compared with another type; values created by the expression are unequal.
        (Val::List(List::Json { shape, .. }), _) | (Val::Map(Map::Json { shape, .. }), _)
            if shape.kind != Kind::Dynamic =>
        {
            return Err(Fault::overload());
        }
        (Val::Quantity(a), Val::Quantity(b)) => a == b,
        (Val::Url(a), Val::Url(b)) => a == b,
        (Val::Ip(a), Val::Ip(b)) => a == b,
        (Val::Cidr(a), Val::Cidr(b)) => a == b,
        (Val::Format(a), Val::Format(b)) => a == b,
        (Val::Semver(a), Val::Semver(b)) => a.cmp(b) == Ordering::Equal,
        (Val::Quantity(_) | Val::Url(_) | Val::Ip(_) | Val::Cidr(_) | Val::Format(_) | Val::Semver(_), _) => {
            return Err(Fault::overload());
        }
        (Val::Preserved(a), Val::Preserved(b)) => a == b,
        (Val::Access(a), Val::Access(b)) => a == b,
        (Val::Message(a), Val::Message(b)) => equal_messages(a, b, meter)?,
        _ => false,
    })
}

fn equal_messages<'a>(a: &Message<'a>, b: &Message<'a>, meter: &mut Meter) -> Outcome<bool> {
    if a.name != b.name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for (name, value) in &a.fields {
        match b.fields.get(name) {
            Some(other) if equal(value, other, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn equal_lists<'a>(a: &List<'a>, b: &List<'a>, meter: &mut Meter) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.listing() {
        Listing::Atomic => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a?, &b?, meter)? {
                    return Ok(false);
                }
            }
        }
        // The order of sets and lists with keys does not matter.
        listing => {
            let ours = a.values(meter)?;
            let mut known = BTreeMap::new();
            for value in &ours {
                known.insert(identity(listing, value)?, value);
            }
            for theirs in b.iter() {
                let theirs = theirs?;
                match known.get(&identity(listing, &theirs)?) {
                    Some(mine) if equal(mine, &theirs, meter)? => {}
                    _ => return Ok(false),
                }
            }
        }
    }
    Ok(true)
}

fn equal_maps<'a>(a: &Map<'a>, b: &Map<'a>, meter: &mut Meter) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let (Map::Json { entries: ours, shape }, Map::Json { entries: theirs, .. }) = (a, b) {
        // Fields without a schema are compared as JSON.
        for (key, value) in ours.iter().filter(|(key, _)| shape.entry(key).is_none()) {
            meter.work(1)?;
            if theirs.get(key).is_some_and(|other| other != value) {
                return Ok(false);
            }
        }
    }
    for key in a.keys() {
        match (a.get(&key)?, b.get(&key)?) {
            (Some(a), Some(b)) if equal(&a, &b, meter)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Orders two values, if their types allow it.
pub(crate) fn compare<'a>(a: &Val<'a>, b: &Val<'a>) -> Outcome<Ordering> {
    match (a, b) {
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            crate::numbers::compare(a, b).ok_or(Fault::from_static("NaN values cannot be ordered"))
        }
        (Val::Bool(a), Val::Bool(b)) => Ok(a.cmp(b)),
        (Val::String(a), Val::String(b)) => Ok((**a).cmp(&**b)),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(a.cmp(b)),
        (Val::Duration(a), Val::Duration(b)) => Ok(a.cmp(b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => Ok(a.cmp(b)),
        _ => Err(Fault::overload()),
    }
}
