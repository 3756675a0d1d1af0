//! A watch body: split into lines, each line into its type and its object.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, Stream, StreamExt};
use kube::core::Status;
use machinery::object_meta::INITIAL_EVENTS_END;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::list_watch::{Bookmark, WatchItem, WatchStream};
use crate::object::span_within;
use crate::{Error, RawObject};

/// Longest line accepted. A server refuses objects far smaller than this; without a bound a peer that never sends a newline
/// would exhaust memory.
const LINE_BYTES_MAX: usize = 64 << 20;

struct Lines {
    body: BoxStream<'static, Result<Bytes, Error>>,
    /// Bytes of a line that has not ended yet.
    partial: BytesMut,
    /// Whole lines of the last read.
    ready: VecDeque<Bytes>,
    /// True once a change in the usual form was parsed to its end.
    usual: bool,
}

/// The items of a watch body. A last line without its newline is dropped: the connection was cut inside it, and the
/// watch resumes before it (K-5).
pub(crate) fn watch_items(body: BoxStream<'static, Result<Bytes, Error>>) -> WatchStream {
    Lines { body, partial: BytesMut::new(), ready: VecDeque::new(), usual: false }.boxed()
}

impl Stream for Lines {
    type Item = Result<WatchItem, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Poll::Ready(Some(self.read(&line)));
            }
            match ready!(self.body.poll_next_unpin(cx)) {
                Some(Ok(bytes)) => {
                    if let Err(error) = self.cut(&bytes) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Lines {
    fn read(&mut self, line: &Bytes) -> Result<WatchItem, Error> {
        // Once one was parsed to its end, the server is known to write valid JSON in this form.
        let read = if self.usual { RawObject::from_known_json } else { RawObject::from_json };
        match read_plain_change(line, read) {
            Some(item) => {
                self.usual = true;
                Ok(item)
            }
            None => read_frame(line),
        }
    }

    fn cut(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
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

/// Reads a change in the form that every server writes, `{"type":"MODIFIED","object":{…}}`: the object is between the known
/// ends, if `read` accepts it. The general way parses the object twice.
fn read_plain_change(line: &Bytes, read: fn(Bytes) -> serde_json::Result<RawObject>) -> Option<WatchItem> {
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
    read(line.slice(head.len()..line.len() - 1)).ok().map(change)
}

fn event_error(error: &serde_json::Error) -> Error {
    Error::Decode { what: "a watch event", message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: &[&'static str]) -> Vec<Result<WatchItem, Error>> {
        let body =
            futures::stream::iter(chunks.iter().map(|c| Ok(Bytes::from_static(c.as_bytes()))).collect::<Vec<_>>());
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
        // Each as the first of a watch, and after one that was written the usual way.
        for before in ["", usual] {
            for line in [usual, spaced, ending] {
                let items = read(&[before, "\n", line, "\n"]).await;
                let Some(Ok(WatchItem::Modified(object))) = items.last() else { panic!("{line}: {items:?}") };
                assert_eq!(&object.body[..], br#"{"metadata":{"name":"a","resourceVersion":"7"}}"#, "{line}");
            }
            for line in [
                r#"{"type":"MODIFIED","object":{"metadata":{}}"#,
                r#"{"type":"ADDED","object":}"#,
                r#"{"type":"ADDED""#,
            ] {
                let items = read(&[before, "\n", line, "\n"]).await;
                assert!(matches!(items.last(), Some(Err(Error::Decode { .. }))), "{line}: {items:?}");
            }
        }
    }

    #[tokio::test]
    async fn of_later_events_no_more_is_read_than_the_envelope() {
        let event = |version: u32, rest: &str| {
            let names = format!(r#""name":"a","namespace":"n","uid":"u","resourceVersion":"{version}""#);
            let object = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{names}}},{rest}}}"#);
            &*format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n").leak()
        };
        let damaged = r#""spec":!"#;
        let items = read(&[event(1, damaged), event(2, r#""spec":{}"#), event(3, damaged)]).await;
        assert!(matches!(&items[0], Err(Error::Decode { .. })), "the first is read whole: {items:?}");
        let later: Vec<_> = items[1..].iter().map(|item| format!("{item:?}")).collect();
        assert!(later[0].contains("n/a@2") && later[1].contains("n/a@3"), "{later:?}");
        let Ok(WatchItem::Modified(object)) = &items[2] else { panic!("{items:?}") };
        let pod: Result<k8s_openapi::api::core::v1::Pod, _> = crate::Object::from_raw(object);
        assert!(pod.is_err(), "decoding it finds the damage");
    }

    #[tokio::test]
    async fn k_05_a_partial_last_line_ends_the_stream_cleanly() {
        let items = read(&["{\"type\":\"ADDED\",\"object\":{\"meta"]).await;
        assert!(items.is_empty());
    }

    #[tokio::test]
    async fn k_12_the_end_bookmark_is_recognised_by_the_value_of_its_annotation() {
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
    async fn rc_07_a_line_that_is_not_an_event_is_a_decode_error_and_not_a_stall() {
        let items = read(&["garbage\n{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n"]).await;
        assert!(matches!(&items[0], Err(Error::Decode { .. })));
        assert!(matches!(&items[1], Ok(WatchItem::Added(_))));
    }
}
