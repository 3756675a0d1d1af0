//! Parsing and writing of `metadata.managedFields`.

use std::collections::HashMap;

use machinery::json::{Map, Value};

use super::element::MalformedPath;
use super::set::Set;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

/// The fields of an object that one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// RFC 3339 in UTC, so that text order is time order.
    pub time: Option<String>,
    pub fields: Fields,
}

/// A manager's fields. Most entries of an object are unchanged by a write, and are not parsed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fields {
    /// `fieldsV1` as this server wrote it.
    Stored(Value),
    Read(Set),
}

impl Fields {
    /// Returns the set, parsed on first use.
    pub fn read(&mut self) -> &mut Set {
        if let Fields::Stored(fields) = self {
            // Stored entries were parsed or written by this server before.
            *self = Fields::Read(Set::decode(fields).unwrap_or_default());
        }
        match self {
            Fields::Read(set) => set,
            Fields::Stored(_) => unreachable!("it was just read"),
        }
    }

    /// Returns the set and leaves an empty one.
    #[must_use]
    pub fn into_set(mut self) -> Set {
        std::mem::take(self.read())
    }

    /// Removes paths. An entry that has none of them stays as it is stored.
    pub(super) fn subtract(&mut self, gone: &Set) {
        if gone.is_empty() || matches!(self, Fields::Stored(fields) if !gone.touches(fields)) {
            return;
        }
        let set = std::mem::take(self.read());
        *self = Fields::Read(set.difference(gone));
    }

    /// Adds paths. An entry that has all of them stays as it is stored.
    pub(super) fn add(&mut self, more: Set) {
        if matches!(self, Fields::Stored(fields) if more.is_within_stored(fields)) {
            return;
        }
        if let Fields::Stored(Value::Raw(fields)) = self
            && let Some(added) = more.added_to_text(fields)
        {
            *self = Fields::Stored(Value::Raw(added.into()));
            return;
        }
        let set = std::mem::take(self.read());
        *self = Fields::Read(set.union(more));
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Fields::Stored(Value::Raw(fields)) => &**fields == "{}",
            Fields::Stored(fields) => fields.as_object().is_none_or(Map::is_empty),
            Fields::Read(set) => set.is_empty(),
        }
    }

    pub(super) fn encode(self) -> Value {
        match self {
            Fields::Stored(fields) => fields,
            Fields::Read(set) => set.encode(),
        }
    }
}

impl Entry {
    /// Returns whether two entries are of one manager. An applier is the same in all versions.
    #[must_use]
    pub fn is_same_manager(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn order(&self) -> (Operation, Option<&str>, &str, &str, &str) {
        (self.operation, self.time.as_deref(), &self.manager, &self.api_version, &self.subresource)
    }

    /// Returns the key by which messages sort managers; equal for entries of one manager.
    pub(super) fn identity(&self) -> String {
        let version = if self.operation == Operation::Apply { "" } else { &self.api_version };
        format!("{}\u{0}{:?}\u{0}{version}\u{0}{}", self.manager, self.operation, self.subresource)
    }

    fn encode(self) -> Value {
        let mut members = Vec::with_capacity(7);
        let mut put = |name: &str, value: Value| {
            if value != "" {
                members.push((name.into(), value));
            }
        };
        put("manager", self.manager.into());
        put("operation", if self.operation == Operation::Apply { "Apply" } else { "Update" }.into());
        put("apiVersion", self.api_version.into());
        put("time", self.time.unwrap_or_default().into());
        put("fieldsType", "FieldsV1".into());
        put("fieldsV1", self.fields.encode());
        put("subresource", self.subresource.into());
        Value::Object(Map::from_distinct(members))
    }
}

/// Parses the list of a stored object. This server wrote its entries, so their fields are parsed on first use.
pub(super) fn stored(list: Option<&Value>) -> Result<Vec<Entry>, String> {
    read(list, |fields| Ok(Fields::Stored(fields.clone())))
}

/// Parses a list that a client sent; one malformed entry fails the whole.
pub(super) fn sent(list: Option<&Value>) -> Result<Vec<Entry>, String> {
    read(list, |fields| Set::decode(fields).map(Fields::Read))
}

fn read(list: Option<&Value>, fields: impl Fn(&Value) -> Result<Fields, MalformedPath>) -> Result<Vec<Entry>, String> {
    // The last entry of a manager wins.
    let mut entries: Vec<Option<Entry>> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for (at, entry) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
        }
        let fields = fields(entry.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|_| format!("error decoding set in managed fields entry {at}"))?;
        let decoded = Entry {
            manager: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: Some(text("time").to_owned()).filter(|time| !time.is_empty()),
            fields,
        };
        if let Some(earlier) = positions.insert(decoded.identity(), entries.len()) {
            entries[earlier] = None;
        }
        entries.push(Some(decoded));
    }
    Ok(entries.into_iter().flatten().collect())
}

/// Returns what is wrong with a list that a webhook or a policy may have changed.
pub fn validate(list: &Value) -> Result<(), String> {
    sent(Some(list)).map(|_| ())
}

/// Encodes the list, appliers first, then by age, the oldest first.
pub(super) fn encode(mut entries: Vec<Entry>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    Some(Value::Array(entries.into_iter().map(Entry::encode).collect()))
}

/// Returns whether a client requests to drop all ownership: an empty list, or one empty entry.
pub(super) fn is_reset(list: Option<&Value>) -> bool {
    match list.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Removes the list from an object.
pub(super) fn take(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.shift_remove("managedFields");
    }
}

/// Adds a list to an object, last in its metadata.
pub(super) fn put(object: &mut Value, entries: Vec<Entry>) {
    take(object);
    let Some(list) = encode(entries) else { return };
    let Some(map) = object.as_object_mut() else { return };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields", list);
    }
}
