//! A list body: its items one at a time, as they arrive.
//!
//! A list of ten thousand pods is tens of megabytes. Collecting it, parsing it and then building the objects holds the set
//! three times; this scanner holds one item. It interprets only brackets and strings, and it is incremental, which
//! `machinery::scan` is not: that needs the whole text.
//!
//! ```text
//! {"kind":"PodList","metadata":{…},"items":[ {…} , {…} , … ]}
//!  └─ head: everything outside the elements ─┘ └─ each element is returned on its own
//! ```
//!
//! The head, with an empty `items`, is parsed at the end; the order of the members does not matter.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use serde::Deserialize;

use crate::list_watch::{ListEnd, ListItem, ListStream};
use crate::{Error, RawObject};

/// Longest item, and longest head, accepted.
const PART_BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
struct Scanner {
    /// Number of open brackets.
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The last string at depth 1: a member's name if a colon follows.
    name: Vec<u8>,
    /// True if the value of `items` is next.
    items_next: bool,
    /// True inside the array of items.
    in_items: bool,
    /// The element being read.
    item: Vec<u8>,
    head: Vec<u8>,
}

impl Scanner {
    fn take(&mut self, bytes: &[u8], ready: &mut VecDeque<Bytes>) -> Result<(), Error> {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_string && !self.escaped {
                // Strings are most of the bytes: run to the next quote or backslash.
                let run = memchr::memchr2(b'"', b'\\', &bytes[at..]).unwrap_or(bytes.len() - at);
                self.keep(&bytes[at..at + run]);
                at += run;
                if at == bytes.len() {
                    break;
                }
            }
            self.step(bytes[at], ready);
            at += 1;
        }
        if self.item.len() > PART_BYTES_MAX || self.head.len() > PART_BYTES_MAX {
            return Err(list_error(format!("a part of the list is longer than {PART_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn in_element(&self) -> bool {
        self.in_items && self.depth > 2
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.in_element() {
            self.item.extend_from_slice(bytes);
        } else {
            if self.in_string && self.depth == 1 {
                self.name.extend_from_slice(bytes);
            }
            self.head.extend_from_slice(bytes);
        }
    }

    fn step(&mut self, byte: u8, ready: &mut VecDeque<Bytes>) {
        if self.in_string {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == b'"' {
                self.in_string = false;
            }
            let closing = !self.in_string;
            if closing {
                self.keep_structural(byte);
            } else {
                self.keep(&[byte]);
            }
            return;
        }
        match byte {
            b'"' => {
                if self.depth == 1 {
                    self.name.clear();
                }
                self.keep_structural(byte);
                self.in_string = true;
            }
            b':' if self.depth == 1 => {
                self.items_next = self.name == b"items";
                self.keep_structural(byte);
            }
            b'{' | b'[' => {
                if self.depth == 1 {
                    self.in_items = self.items_next && byte == b'[';
                    self.items_next = false;
                }
                self.depth += 1;
                self.keep_structural(byte);
            }
            b'}' | b']' => {
                self.keep_structural(byte);
                self.depth = self.depth.saturating_sub(1);
                if self.in_items && self.depth == 2 {
                    ready.push_back(Bytes::copy_from_slice(&self.item));
                    self.item.clear();
                } else if self.in_items && self.depth == 1 {
                    self.in_items = false;
                }
            }
            // The commas between elements would leave `[,,]` in the head.
            b',' if self.in_items && self.depth == 2 => {}
            _ => {
                if self.depth == 1 && !byte.is_ascii_whitespace() && byte != b',' {
                    self.items_next = false; // a scalar such as null
                }
                self.keep_structural(byte);
            }
        }
    }

    fn keep_structural(&mut self, byte: u8) {
        if self.in_element() { self.item.push(byte) } else { self.head.push(byte) }
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    metadata: HeadMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct HeadMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

struct Items {
    body: BoxStream<'static, Result<Bytes, Error>>,
    scanner: Scanner,
    ready: VecDeque<Bytes>,
    done: bool,
}

/// The items of a list body, then its end. A body that stops early is an error, never a shorter list.
pub(crate) fn list_items(body: BoxStream<'static, Result<Bytes, Error>>) -> ListStream {
    let items = Items { body, scanner: Scanner::default(), ready: VecDeque::new(), done: false };
    stream::unfold(items, |mut items| async move {
        loop {
            if let Some(body) = items.ready.pop_front() {
                let item = RawObject::from_json(body).map(ListItem::Object).map_err(|e| list_error(e.to_string()));
                return Some((item, items));
            }
            if items.done {
                return None;
            }
            match items.body.next().await {
                Some(Ok(bytes)) => {
                    if let Err(error) = items.scanner.take(&bytes, &mut items.ready) {
                        items.done = true;
                        return Some((Err(error), items));
                    }
                }
                Some(Err(error)) => {
                    items.done = true;
                    return Some((Err(error), items));
                }
                None => {
                    items.done = true;
                    let end = read_head(&items.scanner.head);
                    return Some((end.map(ListItem::End), items));
                }
            }
        }
    })
    .boxed()
}

fn read_head(head: &[u8]) -> Result<ListEnd, Error> {
    let head: Head = serde_json::from_slice(head).map_err(|e| list_error(e.to_string()))?;
    if head.kind.as_deref() == Some("Table") {
        return Err(list_error("the server sent a Table, which cannot be cached".into()));
    }
    Ok(ListEnd {
        version: head.metadata.resource_version.into(),
        continue_token: head.metadata.continue_token.filter(|token| !token.is_empty()),
    })
}

fn list_error(message: String) -> Error {
    Error::Decode { what: "the list", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: Vec<Vec<u8>>) -> Vec<Result<ListItem, Error>> {
        let body = stream::iter(chunks.into_iter().map(|c| Ok(Bytes::from(c))).collect::<Vec<_>>());
        list_items(body.boxed()).collect().await
    }

    fn names(items: &[Result<ListItem, Error>]) -> Vec<String> {
        items
            .iter()
            .filter_map(|item| match item {
                Ok(ListItem::Object(object)) => Some(object.key.to_string()),
                _ => None,
            })
            .collect()
    }

    const TEXT: &str = r#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"t","items":[1]},
        "items":[ {"metadata":{"name":"a","labels":{"x":"]}\"\\"}},"list":[[],{}]}, {"metadata":{"name":"b","namespace":"n"}}] ,"extra":["items",{"items":[{}]}]}"#;

    #[tokio::test]
    async fn items_survive_any_chunking() {
        for cut in 0..TEXT.len() {
            let (left, right) = TEXT.as_bytes().split_at(cut);
            let items = read(vec![left.to_vec(), right.to_vec()]).await;
            assert_eq!(names(&items), ["a", "n/b"], "cut at {cut}");
            match items.last() {
                Some(Ok(ListItem::End(end))) => {
                    assert_eq!((end.version.as_str(), end.continue_token.as_deref()), ("9", Some("t")));
                }
                other => panic!("{other:?} at {cut}"),
            }
        }
    }

    #[tokio::test]
    async fn lw_09_each_item_owns_its_bytes() {
        let mut items = read(vec![TEXT.as_bytes().to_vec()]).await;
        let Ok(ListItem::Object(first)) = items.remove(0) else { panic!("an item is first") };
        // A slice of the page would be shared; an own allocation can be taken back whole.
        let owned = first.body.try_into_mut().expect("these bytes are not shared");
        assert!(owned.capacity() < 2 * owned.len());
        assert_eq!(names(&items), ["n/b"], "while the others are alive");
    }

    #[tokio::test]
    async fn a_cut_list_is_an_error() {
        let items = read(vec![TEXT.as_bytes()[..TEXT.len() - 1].to_vec()]).await;
        assert!(matches!(items.last(), Some(Err(Error::Decode { .. }))));
    }

    #[tokio::test]
    async fn null_items_and_empty_items_are_empty_lists() {
        for text in [
            r#"{"metadata":{"resourceVersion":"1"},"items":null}"#,
            r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#,
        ] {
            let items = read(vec![text.into()]).await;
            assert!(
                matches!(items.as_slice(), [Ok(ListItem::End(end))] if end.version.as_str() == "1"),
                "{text}: {items:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_table_is_refused() {
        let items = read(vec![br#"{"kind":"Table","metadata":{},"rows":[]}"#.to_vec()]).await;
        assert!(matches!(items.as_slice(), [Err(Error::Decode { .. })]));
    }
}
