//! Framing of messages: the envelope with the kind of an object, lists, and watch events.
//!
//! ```text
//! k8s\0 { 1: { 1: "v1", 2: "ConfigMap" }, 2: <message>, 3: "", 4: "" }     an object with its kind
//! { 1: { 2: "<revision>", … }, 2: <message>, 2: <message> }                the message of a list
//! <length, 4 bytes> { 1: "ADDED", 2: { 1: <an object with its kind> } }    an event of a watch
//! ```
//!
//! Each consists of a head, bytes that are shared with other responses and, for an envelope, a tail.

use machinery::{GroupVersion, GroupVersionKind};

use super::wire::{Reader, Wire, put_bytes, put_message, put_tag, put_varint, varint_len};

/// The first bytes of every envelope.
pub const MAGIC: [u8; 4] = *b"k8s\0";
/// The last bytes of every envelope: no content encoding, no content type.
pub const TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// A decoded envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub raw: &'a [u8],
}

impl Envelope<'_> {
    #[must_use]
    pub fn gvk(&self) -> Option<GroupVersionKind> {
        let version = GroupVersion::parse(self.api_version)?;
        Some(GroupVersionKind::new(version.group, version.version, self.kind))
    }
}

/// Decodes an envelope; errors have Go's text.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, String> {
    if body.is_empty() {
        return Err("empty data".to_owned());
    }
    let Some(content) = body.strip_prefix(&MAGIC) else {
        return Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned());
    };
    if content.is_empty() {
        return Err("empty body".to_owned());
    }
    let mut opened = Envelope { api_version: "", kind: "", raw: b"" };
    let mut reader = Reader::new(content);
    while !reader.is_empty() {
        match reader.tag("Unknown")? {
            (1, Wire::Bytes) => {
                let mut names = Reader::new(reader.bytes()?);
                while !names.is_empty() {
                    match names.tag("TypeMeta")? {
                        (1, Wire::Bytes) => opened.api_version = name(names.bytes()?)?,
                        (2, Wire::Bytes) => opened.kind = name(names.bytes()?)?,
                        (_, wire) => names.skip(wire)?,
                    }
                }
            }
            (2, Wire::Bytes) => opened.raw = reader.bytes()?,
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(opened)
}

fn name(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "the kind is no UTF-8".to_owned())
}

/// Returns the envelope bytes before a message of `message` bytes. [`TAIL`] follows the message.
#[must_use]
pub fn head(api_version: &str, kind: &str, message: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + api_version.len() + kind.len());
    put_head(&mut out, api_version, kind, message);
    out
}

fn put_head(out: &mut Vec<u8>, api_version: &str, kind: &str, message: usize) {
    out.extend_from_slice(&MAGIC);
    let names = |out: &mut Vec<u8>| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(()) = put_message(out, 1, names);
    put_field_head(out, 2, message);
}

fn put_field_head(out: &mut Vec<u8>, number: u32, length: usize) {
    put_tag(out, number, Wire::Bytes);
    put_varint(out, length as u64);
}

/// Returns a complete envelope.
#[must_use]
pub fn seal(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = head(api_version, kind, message.len());
    out.extend_from_slice(message);
    out.extend_from_slice(TAIL);
    out
}

/// Writes the bytes before an item of `message` bytes in a list; `number` is that of the field `items`.
pub fn put_item_head(out: &mut Vec<u8>, number: u32, message: usize) {
    put_field_head(out, number, message);
}

/// Returns the bytes before the message of an object in a watch event. [`TAIL`] follows the message. The length of the
/// frame is omitted if the transport has frames of its own.
#[must_use]
pub fn event_head(event: &str, api_version: &str, kind: &str, message: usize, with_length: bool) -> Vec<u8> {
    let mut object = Vec::with_capacity(48 + kind.len());
    put_head(&mut object, api_version, kind, message);
    let raw = object.len() + message + TAIL.len();
    let extension = 1 + varint_len(raw as u64) + raw;
    let mut out = Vec::with_capacity(object.len() + 32);
    if with_length {
        out.extend_from_slice(&[0; 4]);
    }
    put_bytes(&mut out, 1, event.as_bytes());
    put_field_head(&mut out, 2, extension);
    put_field_head(&mut out, 1, raw);
    if with_length {
        let length = u32::try_from(out.len() - 4 + raw).unwrap_or(u32::MAX);
        out[..4].copy_from_slice(&length.to_be_bytes());
    }
    out.extend_from_slice(&object);
    out
}
