//! A watch body: cut into lines, each line into its type and its object.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::list_watch::{Bookmark, WatchItem, WatchStream};
use crate::object::span_within;
use crate::{Error, RawObject};

/// The longest line that is read. A server refuses objects far smaller than this; without a bound a peer that never
/// sends a newline would take all memory.
const LINE_BYTES_MAX: usize = 64 << 20;

/// The annotation that ends the initial state of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

struct Lines {
    body: BoxStream<'static, Result<Bytes, Error>>,
    /// Bytes of a line that has not ended yet.
    partial: BytesMut,
    /// Whole lines of the last read.
    ready: VecDeque<Bytes>,
}

/// The items of a watch body. A last line without its newline is dropped: the connection was cut inside it, and the
/// watch resumes before it (K-5).
pub(crate) fn watch_items(body: BoxStream<'static, Result<Bytes, Error>>) -> WatchStream {
    let lines = Lines { body, partial: BytesMut::new(), ready: VecDeque::new() };
    stream::unfold(lines, |mut lines| async move {
        loop {
            if let Some(line) = lines.ready.pop_front() {
                return Some((read_frame(&line), lines));
            }
            match lines.body.next().await? {
                Ok(bytes) => {
                    if let Err(error) = lines.take(&bytes) {
                        return Some((Err(error), lines));
                    }
                }
                Err(error) => return Some((Err(error), lines)),
            }
        }
    })
    .boxed()
}

impl Lines {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let line = if self.partial.is_empty() {
                Bytes::copy_from_slice(&bytes[..end])
            } else {
                self.partial.extend_from_slice(&bytes[..end]);
                let whole = Bytes::copy_from_slice(&self.partial);
                self.partial.clear();
                whole
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.ready.push_back(line);
            }
            bytes = &bytes[end + 1..];
        }
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(Error::Decode {
                what: "a watch event",
                message: format!("the line is longer than {LINE_BYTES_MAX} bytes"),
            });
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

fn read_frame(line: &Bytes) -> Result<WatchItem, Error> {
    if let Some(item) = read_plain_change(line) {
        return Ok(item);
    }
    let frame: Frame<'_> = serde_json::from_slice(line).map_err(|e| event_error(&e))?;
    let object = frame.object.get();
    match &*frame.kind {
        "BOOKMARK" => {
            let bookmark: BookmarkObject = serde_json::from_str(object).map_err(|e| event_error(&e))?;
            let annotations = bookmark.metadata.annotations.unwrap_or_default();
            Ok(WatchItem::Bookmark(Bookmark {
                version: bookmark.metadata.resource_version.into(),
                initial_events_end: annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true"),
            }))
        }
        "ERROR" => {
            let status: Status = serde_json::from_str(object).map_err(|e| event_error(&e))?;
            Ok(WatchItem::Error(Error::from_event(status)))
        }
        kind => {
            let span = span_within(line, object).unwrap_or(0..line.len());
            let raw = RawObject::from_json(line.slice(span)).map_err(|e| event_error(&e))?;
            Ok(match kind {
                "ADDED" => WatchItem::Added(raw),
                "MODIFIED" => WatchItem::Modified(raw),
                "DELETED" => WatchItem::Deleted(raw),
                other => WatchItem::Unknown { kind: other.to_owned(), version: raw.version },
            })
        }
    }
}

/// A change as every server writes it, `{"type":"MODIFIED","object":{…}}`: what is between the known ends is the object,
/// if it is a whole JSON value. Reading that once proves the line; the general way reads the object twice.
fn read_plain_change(line: &Bytes) -> Option<WatchItem> {
    type Change = fn(RawObject) -> WatchItem;
    const MODIFIED: &[u8] = br#"{"type":"MODIFIED","object":"#;
    const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;
    const DELETED: &[u8] = br#"{"type":"DELETED","object":"#;
    let (head, change): (&[u8], Change) = match () {
        () if line.starts_with(MODIFIED) => (MODIFIED, WatchItem::Modified),
        () if line.starts_with(ADDED) => (ADDED, WatchItem::Added),
        () if line.starts_with(DELETED) => (DELETED, WatchItem::Deleted),
        () => return None,
    };
    let object = line.get(head.len()..line.len().checked_sub(1)?)?;
    (line.ends_with(b"}") && object.starts_with(b"{")).then_some(())?;
    RawObject::from_json(line.slice(head.len()..line.len() - 1)).ok().map(change)
}

fn event_error(error: &serde_json::Error) -> Error {
    Error::Decode { what: "a watch event", message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: &[&'static str]) -> Vec<Result<WatchItem, Error>> {
        let body = stream::iter(chunks.iter().map(|c| Ok(Bytes::from_static(c.as_bytes()))).collect::<Vec<_>>());
        watch_items(body.boxed()).collect().await
    }

    #[tokio::test]
    async fn lines_survive_any_chunking() {
        let text = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"}}}\n{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"2\"}}}\n";
        for cut in 0..text.len() {
            let (left, right) = text.split_at(cut);
            let items = read(&[left, right]).await;
            assert_eq!(items.len(), 2, "cut at {cut}");
            assert!(matches!(&items[0], Ok(WatchItem::Added(o)) if o.key.as_str() == "a"));
            assert!(matches!(&items[1], Ok(WatchItem::Deleted(o)) if o.key.as_str() == "b"));
        }
    }

    #[tokio::test]
    async fn an_event_is_the_same_however_its_line_is_written() {
        let usual = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}"#;
        let spaced = r#" { "object" : {"metadata":{"name":"a","resourceVersion":"7"}}, "type": "MODIFIED" } "#;
        let ending = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7"}},"more":{}}"#;
        for line in [usual, spaced, ending] {
            let item = read_frame(&Bytes::from_static(line.as_bytes()));
            let Ok(WatchItem::Modified(object)) = item else { panic!("{line}: {item:?}") };
            assert_eq!(&object.body[..], br#"{"metadata":{"name":"a","resourceVersion":"7"}}"#, "{line}");
        }
        for line in
            [r#"{"type":"MODIFIED","object":{"metadata":{}}"#, r#"{"type":"ADDED","object":}"#, r#"{"type":"ADDED""#]
        {
            assert!(read_frame(&Bytes::from_static(line.as_bytes())).is_err(), "{line}");
        }
    }

    #[tokio::test]
    async fn k_05_a_partial_last_line_ends_the_stream_cleanly() {
        let items = read(&["{\"type\":\"ADDED\",\"object\":{\"meta"]).await;
        assert!(items.is_empty());
    }

    #[tokio::test]
    async fn k_12_the_end_bookmark_is_told_by_the_annotations_value() {
        let items = read(&[
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n",
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"6\",\"annotations\":{\"k8s.io/initial-events-end\":\"no\"}}}}\n",
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n",
        ])
        .await;
        let ends: Vec<bool> = items
            .into_iter()
            .map(|item| match item {
                Ok(WatchItem::Bookmark(bookmark)) => bookmark.initial_events_end,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ends, [true, false, false]);
    }

    #[tokio::test]
    async fn rc_07_a_line_that_is_no_event_is_a_decode_error_and_not_a_stall() {
        let items = read(&["garbage\n{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n"]).await;
        assert!(matches!(&items[0], Err(Error::Decode { .. })));
        assert!(matches!(&items[1], Ok(WatchItem::Added(_))));
    }
}
