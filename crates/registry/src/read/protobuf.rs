//! Objects, lists and events in protobuf.
//!
//! The message of a stored object is encoded on first use and kept with the item: GET, LIST and every watch share those
//! bytes, and only the few around them are encoded for each answer.

use std::borrow::Cow;

use bytes::Bytes;
use cache::Item;
use machinery::json::{Value, json};
use machinery::{GroupVersion, GroupVersionKind, Status};
use schema::facts::Types;
use schema::kind::Kind;
use schema::protobuf::{envelope, write};

use crate::read::form::{MetaVersion, Shape};
use crate::read::segments::Segments;
use crate::read::view::{self, ListView, View};
use crate::versions;

/// Forms of an item; the numbers below are those of its conversions.
const WHOLE_FORM: u32 = 1 << 30;
const METADATA_FORM: u32 = 1 << 31;

/// A message with its kind.
#[derive(Debug, Default)]
pub(crate) struct TypedMessage {
    api_version: Cow<'static, str>,
    kind: Cow<'static, str>,
    message: Bytes,
}

impl TypedMessage {
    fn segments(self) -> Segments {
        let head = envelope::head(&self.api_version, &self.kind, self.message.len());
        Segments(vec![head.into(), self.message, Bytes::from_static(envelope::TAIL)])
    }

    /// As an event of a watch.
    pub(crate) fn event(self, event: &str, with_length: bool) -> [Bytes; 3] {
        let head = envelope::event_head(event, &self.api_version, &self.kind, self.message.len(), with_length);
        [head.into(), self.message, Bytes::from_static(envelope::TAIL)]
    }
}

/// Renders one object.
pub(crate) fn object(view: &View, shape: Shape) -> Result<Segments, Status> {
    Ok(match view {
        View::Stored { kind, item } => stored(kind, item, shape)?,
        View::Made { value, .. } => made(value, shape)?,
        // A Status is never transformed.
        View::Status(status) => made(&status.to_value(), Shape::Plain)?,
    }
    .segments())
}

/// A stored object, or its metadata.
pub(crate) fn stored(kind: &Kind, item: &Item, shape: Shape) -> Result<TypedMessage, Status> {
    Ok(match shape {
        Shape::Plain => TypedMessage {
            api_version: Cow::Owned(kind.group_version().to_string()),
            kind: Cow::Owned(kind.gvk.kind.clone()),
            message: message(kind, item)?,
        },
        Shape::Partial(version) => TypedMessage {
            api_version: Cow::Borrowed(version.api_version()),
            kind: Cow::Borrowed("PartialObjectMetadata"),
            message: metadata(kind, item)?,
        },
        Shape::Table { .. } => return Err(no_table()),
    })
}

/// An object whose kind is in it.
pub(crate) fn made(value: &Value, shape: Shape) -> Result<TypedMessage, Status> {
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    match shape {
        Shape::Plain => {
            let version = GroupVersion::parse(text("apiVersion")).unwrap_or_default();
            // The documents of the core group do not state their version.
            let number = if version.version.is_empty() { "v1".to_owned() } else { version.version };
            let gvk = GroupVersionKind::new(version.group, number, text("kind"));
            Ok(TypedMessage {
                api_version: Cow::Owned(text("apiVersion").to_owned()),
                kind: Cow::Owned(text("kind").to_owned()),
                message: of_kind(&known(gvk), value)?.into(),
            })
        }
        Shape::Partial(version) => Ok(TypedMessage {
            api_version: Cow::Borrowed(version.api_version()),
            kind: Cow::Borrowed("PartialObjectMetadata"),
            message: of_kind(&meta_kind("PartialObjectMetadata"), value)?.into(),
        }),
        Shape::Table { .. } => Err(no_table()),
    }
}

/// Renders a list: its metadata and the items' messages.
pub(crate) fn list(list: &ListView, shape: Shape) -> Result<Segments, Status> {
    let kind = &list.kind;
    let (gvk, api_version, items_number) = match shape {
        Shape::Plain => {
            let gvk = GroupVersionKind::new(&*kind.gvk.group, &*kind.gvk.version, &*kind.list_kind);
            (gvk, Cow::Owned(kind.group_version().to_string()), 2)
        }
        Shape::Partial(version) => {
            // In the older version items are first.
            let number = if version == MetaVersion::V1 { 2 } else { 1 };
            (meta_kind("PartialObjectMetadataList"), Cow::Borrowed(version.api_version()), number)
        }
        Shape::Table { .. } => return Err(no_table()),
    };
    let mut metadata = of_kind(&gvk, &json!({"metadata": list.metadata()}))?;
    let mut messages = Vec::with_capacity(list.items.len());
    let mut heads = Vec::with_capacity(list.items.len() * 4);
    let mut ends = Vec::with_capacity(list.items.len());
    for item in &list.items {
        let message = stored(kind, item, shape)?.message;
        envelope::put_item_head(&mut heads, items_number, message.len());
        ends.push(heads.len());
        messages.push(message);
    }
    let length = metadata.len() + heads.len() + messages.iter().map(Bytes::len).sum::<usize>();
    let mut segments = Segments(Vec::with_capacity(messages.len() * 2 + 3));
    segments.push(envelope::head(&api_version, &gvk.kind, length).into());
    if items_number == 2 {
        segments.push(std::mem::take(&mut metadata).into());
    }
    let heads = Bytes::from(heads);
    let mut from = 0;
    for (end, message) in ends.into_iter().zip(messages) {
        segments.push(heads.slice(from..end));
        segments.push(message);
        from = end;
    }
    if let Some(tag) = metadata.first_mut() {
        *tag = 2 << 3 | 2;
        segments.push(metadata.into());
    }
    segments.push(Bytes::from_static(envelope::TAIL));
    Ok(segments)
}

fn message(kind: &Kind, item: &Item) -> Result<Bytes, Status> {
    item.form(WHOLE_FORM | versions::form_id(kind), || Ok(of_kind(&kind.gvk, &view::value(kind, item)?)?.into()))
}

fn metadata(kind: &Kind, item: &Item) -> Result<Bytes, Status> {
    item.form(METADATA_FORM | versions::form_id(kind), || {
        let metadata = view::encoded(kind, item)?.metadata().map_err(Status::internal)?;
        let metadata: Value = serde_json::from_slice(&metadata).map_err(Status::internal)?;
        Ok(of_kind(&meta_kind("PartialObjectMetadata"), &json!({"metadata": metadata}))?.into())
    })
}

fn of_kind(gvk: &GroupVersionKind, value: &Value) -> Result<Vec<u8>, Status> {
    let ty = Types::get().kind(gvk).ok_or_else(|| Status::not_acceptable(&machinery::media::PLAIN))?;
    write(&ty, value).map_err(Status::internal)
}

fn meta_kind(kind: &str) -> GroupVersionKind {
    GroupVersionKind::new("meta.k8s.io", "v1", kind)
}

/// The kind of the same message in `v1`, where an older version has the same.
fn known(gvk: GroupVersionKind) -> GroupVersionKind {
    if gvk.group == "meta.k8s.io" { meta_kind(&gvk.kind) } else { gvk }
}

/// A table has no message; negotiation does not offer it.
fn no_table() -> Status {
    Status::not_acceptable(&machinery::media::PLAIN)
}
