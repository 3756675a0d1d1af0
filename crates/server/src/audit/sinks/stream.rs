//! Events as a stream, for a program that embeds the server: a test sees what its requests did, between marks of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use parking_lot::RwLock;
use tokio::sync::mpsc;

use super::{Delivery, Sink};
use crate::audit::event::Line;

/// Entries that a stream holds for a reader that is slower than the server; later ones are counted and dropped.
pub const STREAM_ENTRIES_MAX: usize = 10_000;

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An event as JSON.
    Event(Bytes),
    /// A mark that the program set.
    Mark(String),
    /// This many entries were dropped here, because the stream was not read.
    Lost(u64),
}

/// Sends events to any number of streams.
#[derive(Default)]
pub struct Streams(RwLock<Vec<Subscriber>>);

struct Subscriber {
    entries: mpsc::Sender<Entry>,
    lost: AtomicU64,
}

impl Streams {
    /// Opens a stream of everything from now on. It ends with the server.
    #[must_use]
    pub fn subscribe(&self) -> Events {
        let (sender, receiver) = mpsc::channel(STREAM_ENTRIES_MAX);
        self.0.write().push(Subscriber { entries: sender, lost: AtomicU64::new(0) });
        Events(receiver)
    }

    /// Puts a mark into every stream.
    pub fn mark(&self, text: &str) {
        self.put(|| Entry::Mark(text.to_owned()));
    }

    fn put(&self, entry: impl Fn() -> Entry) {
        let mut has_closed = false;
        for subscriber in self.0.read().iter() {
            has_closed |= subscriber.put(entry());
        }
        if has_closed {
            self.0.write().retain(|subscriber| !subscriber.entries.is_closed());
        }
    }
}

impl Subscriber {
    /// Puts an entry, and before it the number of those that were dropped. Returns whether the stream is closed.
    fn put(&self, entry: Entry) -> bool {
        let lost = self.lost.load(Ordering::Relaxed);
        let sent = if lost == 0 { Ok(()) } else { self.entries.try_send(Entry::Lost(lost)) };
        let sent = sent.and_then(|()| {
            self.lost.fetch_sub(lost, Ordering::Relaxed);
            self.entries.try_send(entry)
        });
        match sent {
            Ok(()) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => true,
        }
    }
}

impl Sink for Streams {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn send(&self, line: &Line) -> Delivery {
        self.put(|| Entry::Event(line.0.slice(..line.json().len())));
        Delivery::Done
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.write().clear();
        Box::pin(std::future::ready(()))
    }
}

/// A stream of events.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Entry>);

impl Default for Events {
    /// A stream that has ended.
    fn default() -> Self {
        Events(mpsc::channel(1).1)
    }
}

impl Events {
    /// The next entry; none when the server has stopped.
    pub async fn next_entry(&mut self) -> Option<Entry> {
        self.0.recv().await
    }

    /// Takes the entries that are there, without waiting. An event is there before the response to its request.
    pub fn take(&mut self) -> Vec<Entry> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

impl Stream for Events {
    type Item = Entry;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Entry>> {
        self.get_mut().0.poll_recv(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: usize) -> Line {
        Line(format!("{{\"n\":{n}}}\n").into())
    }

    #[tokio::test]
    async fn ba_7_events_and_marks_are_in_order() {
        let streams = Streams::default();
        let mut events = streams.subscribe();
        streams.mark("before");
        let _ = streams.send(&event(1));
        streams.mark("after");
        assert_eq!(
            events.take(),
            [
                Entry::Mark("before".to_owned()),
                Entry::Event(Bytes::from_static(b"{\"n\":1}")),
                Entry::Mark("after".to_owned())
            ]
        );
        streams.close().await;
        assert_eq!(events.next_entry().await, None);
    }

    #[tokio::test]
    async fn ba_7_a_stream_that_is_not_read_is_bounded_and_shows_what_it_lost() {
        let streams = Streams::default();
        let mut events = streams.subscribe();
        for n in 0..STREAM_ENTRIES_MAX + 3 {
            let _ = streams.send(&event(n));
        }
        assert_eq!(events.take().len(), STREAM_ENTRIES_MAX);
        streams.mark("now");
        assert_eq!(events.take(), [Entry::Lost(3), Entry::Mark("now".to_owned())]);
        drop(events);
        streams.mark("unread");
        assert!(streams.0.read().is_empty());
    }
}
