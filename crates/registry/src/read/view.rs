//! Answers of verbs, and how they are rendered in each form.
//!
//! In the plain form a stored object and a list of them are slices of the bytes encoded when they were written. The other
//! forms (pretty, YAML, tables) are for people and are rendered for each answer.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use cache::Item;
use jiff::Timestamp;
use machinery::encoded::{Encoded, list_head, to_stored};
use machinery::json::{Value, json};
use machinery::{Revision, Status};
use schema::kind::Kind;

use super::protobuf;
use crate::conversion_webhook;
use crate::read::form::{Encoding, Form, IncludeObject, MetaVersion, Shape};
use crate::read::segments::Segments;
use crate::versions;

/// One object, or a `Status` in its place.
#[derive(Clone, Debug)]
pub enum View {
    /// As the cache has it.
    Stored {
        kind: Arc<Kind>,
        item: Arc<Item>,
    },
    /// Computed for this answer: a dry run, a scale, a review.
    Made {
        kind: Option<Arc<Kind>>,
        value: Value,
    },
    Status(Status),
}

/// The answer of a write.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub code: u16,
    pub view: View,
}

impl Outcome {
    #[must_use]
    pub fn new(code: u16, view: View) -> Self {
        Outcome { code, view }
    }
}

/// A list of objects.
#[derive(Clone, Debug)]
pub struct ListView {
    pub kind: Arc<Kind>,
    pub items: Vec<Arc<Item>>,
    pub revision: Revision,
    pub continue_token: Option<String>,
    pub remaining: Option<u64>,
}

impl View {
    /// The object as a value, in the version of its kind.
    pub fn value(&self) -> Result<Value, Status> {
        match self {
            View::Stored { kind, item } => value(kind, item),
            View::Made { value, .. } => Ok(value.clone()),
            View::Status(status) => Ok(status.to_value()),
        }
    }

    pub fn render(&self, form: &Form, now: Timestamp) -> Result<Segments, Status> {
        if form.encoding == Encoding::Protobuf {
            return protobuf::object(self, form.shape);
        }
        let value = match (self, form.shape) {
            // A Status is never transformed.
            (View::Status(status), _) => status.to_value(),
            (View::Stored { kind, item }, Shape::Plain) => {
                if form.encoding == (Encoding::Json { pretty: false }) {
                    return Ok(Segments(vec![encoded(kind, item)?.whole().clone(), Bytes::from_static(b"\n")]));
                }
                value(kind, item)?
            }
            (View::Made { value, .. }, Shape::Plain) => value.clone(),
            (_, Shape::Partial(version)) => partial(&self.value()?, version),
            (View::Stored { kind, .. } | View::Made { kind: Some(kind), .. }, Shape::Table { version, include }) => {
                let value = self.value()?;
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                let rows = vec![row(kind, &value, version, include, now)];
                table(version, Some(schema::columns::definitions(kind)), metadata, rows)
            }
            (View::Made { kind: None, value }, Shape::Table { version, include }) if value["kind"] == "Scale" => {
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                let row = table_row(schema::columns::scale_row(value, now.as_second()), value, version, include);
                table(version, Some(schema::columns::scale_definitions()), metadata, vec![row])
            }
            (View::Made { kind: None, value }, Shape::Table { .. }) => value.clone(),
        };
        Ok(encode(&value, form.encoding))
    }

    /// Whether there is an object with metadata, of which a table can be made.
    #[must_use]
    pub fn has_metadata(&self) -> bool {
        match self {
            View::Stored { .. } | View::Status(_) => true,
            View::Made { value, .. } => value["metadata"]["name"].is_string(),
        }
    }
}

impl ListView {
    pub fn render(&self, form: &Form, now: Timestamp) -> Result<Segments, Status> {
        let plain_json = form.encoding == (Encoding::Json { pretty: false });
        if plain_json && form.shape == Shape::Plain {
            return self.render_shared();
        }
        if form.encoding == Encoding::Protobuf {
            return protobuf::list(self, form.shape);
        }
        let mut metadata = self.metadata();
        if let (Shape::Plain, Some(token)) = (form.shape, self.rendered_token()) {
            metadata["continue"] = json!(token);
        }
        let values = self.items.iter().map(|item| value(&self.kind, item));
        render_values(&self.kind, metadata, self.kind.custom, values, form, now)
    }

    /// Lists of custom resources have an empty token where nothing follows.
    fn rendered_token(&self) -> Option<&str> {
        self.continue_token.as_deref().or(self.kind.custom.then_some(""))
    }

    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }

    /// The plain form: a head, shared slices, a tail.
    fn render_shared(&self) -> Result<Segments, Status> {
        let api_version = self.kind.group_version().to_string();
        let head = list_head(&self.kind.list_kind, &api_version, self.revision, self.rendered_token(), self.remaining);
        let mut segments = Segments(Vec::with_capacity(self.items.len() * 2 + 2));
        segments.push(head.into());
        for (at, item) in self.items.iter().enumerate() {
            let encoded = encoded(&self.kind, item)?;
            let (first, next, slice): (&'static [u8], &'static [u8], Bytes) =
                if self.kind.custom { (b"", b",", encoded.whole().clone()) } else { (b"{", b",{", encoded.tail()) };
            let opening = if at == 0 { first } else { next };
            if !opening.is_empty() {
                segments.push(Bytes::from_static(opening));
            }
            segments.push(slice);
        }
        segments.push(Bytes::from_static(b"]}\n"));
        Ok(segments)
    }
}

/// A list of objects that were computed for this answer.
#[derive(Clone, Debug)]
pub struct MadeList {
    pub kind: Arc<Kind>,
    pub items: Vec<Value>,
}

impl MadeList {
    /// Renders the list; its items have no kind, and it has no revision.
    pub fn render(&self, form: &Form, now: Timestamp) -> Result<Segments, Status> {
        let values = self.items.iter().map(|item| Ok(item.clone()));
        render_values(&self.kind, json!({}), false, values, form, now)
    }
}

/// Renders a list for people, object by object.
fn render_values(
    kind: &Kind,
    metadata: Value,
    with_kinds: bool,
    values: impl ExactSizeIterator<Item = Result<Value, Status>>,
    form: &Form,
    now: Timestamp,
) -> Result<Segments, Status> {
    let is_empty = values.len() == 0;
    let list = match form.shape {
        Shape::Plain => {
            let items = values
                .map(|value| {
                    let mut value = value?;
                    if let (false, Value::Object(members)) = (with_kinds, &mut value) {
                        members.shift_remove("kind");
                        members.shift_remove("apiVersion");
                    }
                    Ok(value)
                })
                .collect::<Result<Vec<_>, Status>>()?;
            let api_version = kind.group_version().to_string();
            json!({"kind": kind.list_kind, "apiVersion": api_version, "metadata": metadata, "items": items})
        }
        Shape::Partial(version) => {
            let items = values.map(|value| Ok(partial(&value?, version))).collect::<Result<Vec<_>, Status>>()?;
            // The reference writes an empty list of these as null, and clients read both.
            let items = if is_empty { Value::Null } else { json!(items) };
            json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version(), "metadata": metadata, "items": items})
        }
        Shape::Table { version, include } => {
            let rows = values
                .map(|value| Ok(row(kind, &value?, version, include, now)))
                .collect::<Result<Vec<_>, Status>>()?;
            let mut shown = table(version, Some(schema::columns::definitions(kind)), metadata, rows);
            if is_empty && schema::columns::is_plain(kind) {
                shown["rows"] = Value::Null;
            }
            shown
        }
    };
    Ok(encode(&list, form.encoding))
}

/// The object's bytes in the version of its kind: as stored, or converted once and kept. Borrowed where possible, since the
/// reference count of an object with a thousand watchers would otherwise be contended.
pub(crate) fn encoded<'a>(kind: &Kind, item: &'a Item) -> Result<Cow<'a, Encoded>, Status> {
    if versions::is_shown_as_stored(kind, item.revision()) {
        return Ok(Cow::Borrowed(item.encoded()));
    }
    let converted = item.form(versions::form_id(kind), || {
        let mut value: Value = parse(item)?;
        versions::from_storage(kind, &mut value)?;
        let members = value.as_object().ok_or_else(|| Status::internal("expected a JSON object"))?;
        let encoded = Encoded::from_stored(&to_stored(members), item.revision()).map_err(Status::internal)?;
        Ok::<_, Status>(encoded.whole().clone())
    })?;
    Encoded::from_whole(converted).map(Cow::Owned).map_err(Status::internal)
}

/// The object as a value, in the version of its kind.
pub(crate) fn value(kind: &Kind, item: &Item) -> Result<Value, Status> {
    if conversion_webhook::webhook(kind).is_some() {
        return machinery::json::from_slice(encoded(kind, item)?.whole()).map_err(Status::internal);
    }
    let mut value = parse(item)?;
    if !versions::is_shown_as_stored(kind, item.revision()) {
        versions::from_storage(kind, &mut value)?;
    }
    Ok(value)
}

/// Parses the stored object, with its revision.
pub(crate) fn parse(item: &Item) -> Result<Value, Status> {
    machinery::json::from_slice(item.encoded().whole()).map_err(|error| unreadable(item, &error))
}

/// As [`parse`], for a write: managed fields stay text.
pub(crate) fn parse_for_write(item: &Item) -> Result<Value, Status> {
    machinery::json::from_stored(item.encoded().whole()).map_err(|error| unreadable(item, &error))
}

fn unreadable(item: &Item, error: &serde_json::Error) -> Status {
    Status::internal(format_args!("the stored object {} is unreadable: {error}", item.key()))
}

pub(crate) fn partial(value: &Value, version: MetaVersion) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": value["metadata"]})
}

pub(crate) fn row(kind: &Kind, value: &Value, version: MetaVersion, include: IncludeObject, now: Timestamp) -> Value {
    table_row(schema::columns::row(kind, value, now.as_second()), value, version, include)
}

fn table_row(row: schema::columns::Row, value: &Value, version: MetaVersion, include: IncludeObject) -> Value {
    let object = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(value, version),
        IncludeObject::Object => value.clone(),
    };
    let mut rendered = json!({"cells": row.cells});
    if !row.conditions.is_empty() {
        rendered["conditions"] = json!(row.conditions);
    }
    rendered["object"] = object;
    rendered
}

/// A table; the column definitions are left out (`null`) where they were sent before.
pub(crate) fn table(version: MetaVersion, columns: Option<Value>, metadata: Value, rows: Vec<Value>) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": version.api_version(),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn encode(value: &Value, encoding: Encoding) -> Segments {
    match encoding {
        // Protobuf is rendered before this.
        Encoding::Json { pretty: false } | Encoding::Protobuf => Segments::json(value),
        Encoding::Json { pretty: true } => Segments::pretty(value),
        Encoding::Yaml => Segments::one(machinery::yaml::to_yaml(value)),
    }
}
